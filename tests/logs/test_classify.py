"""What a line means, seen through the shipped patterns."""

from __future__ import annotations

from pathlib import Path

import pytest

from sentinel.errors import Problems
from sentinel.logs.classify import Classifier
from sentinel.logs.patterns import load
from sentinel.logs.tail import Lines
from sentinel.model.logs import LogKind
from sentinel.paths import shipped

PATTERNS = load(sorted((shipped("rules") / "patterns").glob("*.yaml")))


def kinds(*text: str) -> list[LogKind]:
    classifier = Classifier(PATTERNS)
    return [event.kind for event in classifier.feed(Lines("log", 1, tuple(line.encode() for line in text), 0))]


@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda pattern: pattern.name)
def test_each_pattern_decides_its_own_example(pattern: object) -> None:
    assert kinds(pattern.example) == [pattern.kind]  # type: ignore[attr-defined]


def test_a_traceback_counts_once_as_what_its_last_line_says() -> None:
    got = kinds(
        "step 10",
        "Traceback (most recent call last):",
        '  File "train.py", line 3, in <module>',
        "    step()",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
        "bye",
    )

    assert got == [LogKind.GPU_OOM]


def test_a_traceback_of_no_known_kind_is_a_traceback() -> None:
    assert kinds("Traceback (most recent call last):", '  File "a.py", line 1', "KeyError: 'x'") == [LogKind.TRACEBACK]


def test_a_step_number_is_no_status() -> None:
    assert kinds("step 429 | loss 2.31", "epoch 503: 529 it/s") == []


def test_a_bad_pack_is_refused_with_every_mistake(tmp_path: Path) -> None:
    pack = tmp_path / "mine.yaml"
    pack.write_text(
        "patterns:\n  - {name: a, kind: gpu_om, regex: x}\n  - {name: b, kind: timeout, regex: '(?=x)'}\n"
        "  - {name: c, kind: timeout, regex: slow, example: fast}\n"
    )

    with pytest.raises(Problems) as fault:
        load([pack])

    said = str(fault.value)
    assert "gpu_oom" in said
    assert "mine.yaml:3" in said
    assert "does not match" in said
