"""What a line means, seen through the shipped patterns."""

from __future__ import annotations

import base64
import json
import os
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest

from sentinel.errors import Problems
from sentinel.logs.classify import Classifier
from sentinel.logs.patterns import Pattern, load
from sentinel.logs.tail import Lines
from sentinel.model.logs import LogKind
from sentinel.paths import shipped

PATTERNS = load(sorted((shipped("rules") / "patterns").glob("*.yaml")))
SHARED = Path(os.environ.get("SENTINEL_SHARED", str(Path(__file__).parents[2] / ".." / "shared")))
LABELLED = SHARED / "data" / "logs" / "labelled.jsonl"
ANSWERS = {"yes": True, "no": False, "unknown": None}


@dataclass(frozen=True)
class Own:
    """One record of tests/logs/records.txt."""

    kind: str
    retryable: str
    text: str


def own_records() -> list[Own]:
    lines = (Path(__file__).parent / "records.txt").read_text(encoding="utf-8").splitlines()
    found = []
    for line in lines:
        if line and not line.startswith("#"):
            head, _, text = line.partition(" | ")
            kind, retryable = head.split()
            found.append(Own(kind, retryable, text.replace("\\n", "\n")))
    return found


@pytest.fixture(scope="module")
def classifier() -> Classifier:
    return Classifier(PATTERNS)


def kinds(*text: str) -> list[LogKind]:
    classifier = Classifier(PATTERNS)
    return [event.kind for event in classifier.feed(Lines("log", 1, tuple(line.encode() for line in text), 0))]


@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda pattern: pattern.name)
def test_each_pattern_decides_its_own_example(pattern: Pattern, classifier: Classifier) -> None:
    found = classifier.record(pattern.example.encode())

    assert (found.kind if found else None) is pattern.kind
    if pattern.kind is not None:
        assert pattern.source.startswith("https://")


def test_records_of_our_own_are_understood(classifier: Classifier) -> None:
    wrong = []
    for each in own_records():
        found = classifier.record(each.text.encode())
        kind = found.kind.value if found else "normal"
        wanted = ANSWERS.get(each.retryable, "any")
        if kind != each.kind or (found and wanted != "any" and found.retryable is not wanted):
            wrong.append((each.kind, kind, found.pattern if found else "", each.text))

    assert len(own_records()) >= 500
    assert wrong == []


@pytest.mark.skipif(not LABELLED.exists(), reason=f"no {LABELLED}")
def test_the_labelled_records_reach_the_goals(classifier: Classifier) -> None:
    told = Counter[str]()
    for line in LABELLED.read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        raw = base64.b64decode(record["bytes_b64"]) if "bytes_b64" in record else record["text"].encode()
        found = classifier.record(raw)
        kind = found.kind.value if found else "normal"
        failing = record["label"] != "normal"
        told["records"] += 1
        told["failures"] += failing
        told["said"] += kind != "normal"
        told["right"] += failing and kind == record["label"]
        told["false alarms"] += not failing and kind != "normal"
        told["retryable"] += (found.retryable if found else None) is record["retryable"]

    assert told["right"] / told["said"] >= 0.97
    assert told["right"] / told["failures"] >= 0.95
    assert told["false alarms"] / (told["records"] - told["failures"]) <= 0.02
    assert told["retryable"] / told["records"] >= 0.95


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


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        (
            "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 1 has a total capacity of 8 GiB of which 512.00 MiB is free.",
            {"bytes_wanted": 2 << 30, "bytes_free": 512 << 20, "gpu": 1},
        ),
        ("Error code: 429 - rate_limit_error. Please try again in 1m2.5s.", {"status": 429, "retry_after_seconds": 62.5}),
        ("rate limited, please retry after 244ms", {"retry_after_seconds": 0.244}),
        ("prompt is too long: 211007 tokens > 200000 maximum", {"tokens": 211007, "limit": 200000, "tokens_over": 11007}),
        ("NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus.", {"xid": 79}),
        ("[rank3]: RuntimeError: NCCL error in: x.cpp:1", {"rank": 3}),
        ("Saving model checkpoint to /out/checkpoint-1800", {"path": "/out/checkpoint-1800", "step": 1800}),
    ],
)  # fmt: skip
def test_an_event_captures_what_its_line_tells(text: str, fields: dict[str, object], classifier: Classifier) -> None:
    found = classifier.record(text.encode())

    assert found is not None
    assert fields.items() <= found.fields.items()


def test_a_pack_of_the_users_replaces_and_overrules(tmp_path: Path) -> None:
    pack = tmp_path / "mine.yaml"
    pack.write_text(
        "patterns:\n  - {name: ours, kind: preempted, rank: 99, retryable: true, regex: ['FLEET-\\d+', 'SHIP-\\d+']}\n"
        "  - {name: hush, kind: normal, rank: 99, against: [timeout], regex: lunch}\n"
    )
    classifier = Classifier((*PATTERNS, *load([pack])))

    found = classifier.record(b"CUDA out of memory, says SHIP-7")
    assert found is not None
    assert found.kind is LogKind.PREEMPTED
    assert classifier.record(b"lunch: TimeoutError") is None


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
