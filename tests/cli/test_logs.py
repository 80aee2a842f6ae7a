"""`sentinel logs classify`: one line per event, one result per record."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from sentinel.cli.main import main


def said(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_the_events_of_a_log_are_told_with_their_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "log"
    log.write_text(
        "step 1 loss 2.3\n"
        "Traceback (most recent call last):\n"
        '  File "train.py", line 3, in step\n'
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
        f"token=sk-{'a' * 30} HTTP/1.1 429 Too Many Requests"
    )

    assert main(["logs", "classify", str(log)]) == 0

    first, second = said(capsys)
    assert (first["line"], first["kind"], first["retryable"]) == (4, "gpu_oom", False)
    assert first["framework"] == "pytorch"
    assert first["fields"]["bytes_wanted"] == 2 << 30
    assert (second["line"], second["kind"], second["fields"]["status"]) == (5, "rate_limited", 429)
    assert "aaaa" not in second["text"]


def test_each_record_gets_one_result_whatever_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    records = tmp_path / "records.jsonl"
    raw = base64.b64encode(b"OSError: [Errno 28] No space left on device: '/data/caf\xe9'").decode()
    lines = [
        json.dumps({"id": "a", "text": "step 429 of 1000\nstep 430 of 1000"}),
        json.dumps({"id": "b", "text": "", "bytes_b64": raw}),
        json.dumps({"id": 3, "text": "Attempt 1: HTTP 503\nError: prompt is too long: 9 tokens > 8 maximum"}),
        "not json",
    ]
    records.write_text("\n".join(lines) + "\n")

    assert main(["logs", "classify", "--records", str(records)]) == 0

    found = said(capsys)
    assert [(each["id"], each["kind"], each["retryable"]) for each in found] == [
        ("a", None, None), ("b", "disk_full", False), (3, "context_length", False), (None, None, None)
    ]  # fmt: skip
    assert "error" in found[3]


def test_a_file_that_is_not_there_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["logs", "classify", str(tmp_path / "none")]) == 2
    assert "No such file" in capsys.readouterr().err
