"""What the topics say is true."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest

from sentinel import config
from sentinel.cli.help import title, topics
from sentinel.cli.main import COMMANDS
from sentinel.config.reading import _JOB, _TOP
from sentinel.config.show import shown
from sentinel.errors import Problem
from sentinel.model.requests import RequestKind

_COMMAND = re.compile(r"(?m)(?:^    |`)sentinel ([a-z-]+)")


def text(topic: str) -> str:
    return topics()[topic].read_text()


@pytest.mark.parametrize("topic", topics())
def test_every_topic_has_a_title_and_names_only_commands_that_exist(topic: str) -> None:
    assert text(topic).startswith("# ")
    assert title(topics()[topic])
    assert {name for name in _COMMAND.findall(text(topic)) if name not in COMMANDS} == set()
    for named in re.findall(r"`sentinel help ([a-z-]+)`", text(topic)):
        assert named in topics()


def test_every_key_of_the_configuration_is_explained_with_its_default() -> None:
    said = text("configuration")
    defaults = {each.key: each.value for each in shown(config.Settings())}

    for key in _TOP:
        assert re.search(rf"`{key}[.`]", said), key
    for key in set(_JOB):
        assert re.search(rf"\b{key}\b", said), key
    for key, default in re.findall(r"(?m)^\| `([a-z_.]+)` \| `([^`]+)` \|", said):
        assert defaults[key] == default


def test_the_example_of_a_job_to_adopt_is_understood(tmp_path: Path) -> None:
    (example,) = re.findall(r"(?m)^    jobs:\n(?:      .*\n)+", text("configuration"))
    path = tmp_path / "sentinel.yaml"
    path.write_text(textwrap.dedent(example))
    problems: list[Problem] = []

    settings = config.read(path, problems)

    assert problems == []
    assert settings.adoptions[0].spec.name == "llama-ft"


def test_every_request_is_explained() -> None:
    for kind in RequestKind:
        assert f"sentinel {kind.value} train" in text("requests")
