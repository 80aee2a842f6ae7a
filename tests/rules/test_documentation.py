"""The examples of `sentinel help rules` run as they stand."""

from __future__ import annotations

import re
from pathlib import Path

import sentinel
from sentinel.model.requests import RequestKind
from sentinel.rules.check import check
from sentinel.rules.template_functions import ARITY
from sentinel.rules.testing import run

PAGE = Path(sentinel.__file__).with_name("docs").joinpath("rules.md").read_text(encoding="utf-8")


def test_the_example_and_its_story_hold(tmp_path: Path) -> None:
    for block in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL):
        name = re.match(r"# (\S+)\n", block)
        assert name is not None
        (tmp_path / name[1]).write_text(block)

    (checked,) = check([tmp_path / "rules.yaml"])
    verdict = run(tmp_path / "story.yaml")

    assert [str(problem) for problem in checked.problems] == []
    assert (verdict.passed, verdict.stories) == (True, 1), verdict


def test_every_request_and_function_it_names_exists() -> None:
    assert all(kind.value in PAGE for kind in RequestKind)
    templates = PAGE[PAGE.index("## Templates") : PAGE.index("## How often")]
    named = set(re.findall(r"`([a-z][A-Za-z0-9]+)", templates)) - {"if", "else", "range", "with"}
    assert named <= set(ARITY)
