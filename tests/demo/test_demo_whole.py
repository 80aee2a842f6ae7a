"""The demonstration as users run it: a real daemon, real jobs, nothing left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

JOBS = {"leaky", "agent", "forgetful", "happy"}


@pytest.fixture
def place() -> Iterator[Path]:
    """A short path, so that the demonstration really uses it: a socket's has 107 bytes at most."""
    with tempfile.TemporaryDirectory(prefix="d-", dir="/tmp", ignore_cleanup_errors=True) as directory:
        yield Path(directory)


def play(place: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "sentinel", "demo", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(place), "SENTINEL_NOTIFY": "json://127.0.0.1:9", "COLUMNS": "80"},
    )


def left(place: Path) -> list[str]:
    """Processes that were started for the demonstration in this directory, and files that are still there."""
    found = [str(path) for path in place.iterdir()]
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().decode(errors="replace").replace("\0", " ")
            except OSError:
                continue
            if str(place) in words:
                found.append(words)
    return found


@pytest.mark.slow
def test_all_four_end_as_told(place: Path) -> None:
    demo = play(place, "--headless", "--seconds", "80", "--json")  # a busy machine takes long to start it all
    out, errors = demo.communicate(timeout=120)
    lines: list[dict[str, Any]] = [json.loads(line) for line in out.splitlines()]
    verdicts = {line["job"]: line for line in lines if line["kind"] == "verdict"}

    assert demo.returncode == 0, out + errors
    assert set(verdicts) == JOBS
    (running,) = (line["elapsed"] for line in lines if (line["job"], line.get("what")) == ("happy", "running"))
    told = [line["elapsed"] for line in lines if line["kind"] != "role"]
    assert told == sorted(told)
    assert all(line["ok"] and line["elapsed"] - running < 36 for line in verdicts.values())
    assert {line["what"] for line in lines if line["job"] == "leaky" and line["kind"] == "moment"} >= {
        "warned", "asked", "saved", "degraded", "steady",
    }  # fmt: skip
    assert left(place) == []


@pytest.mark.slow
def test_what_is_not_decided_in_time_is_a_finding(place: Path) -> None:
    demo = play(place, "--headless", "--seconds", "5")
    out, _ = demo.communicate(timeout=60)

    assert demo.returncode == 1
    assert out.count("✗ never seen") == 4
    assert max(map(len, out.splitlines())) <= 80
    assert left(place) == []


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["Ctrl-C", "TERM"])
def test_interrupted_it_leaves_nothing(place: Path, number: signal.Signals) -> None:
    demo = play(place, "--headless", "--seconds", "40", "--json")
    assert demo.stdout is not None
    for line in demo.stdout:
        if json.loads(line)["kind"] == "moment":
            break
    demo.send_signal(number)
    demo.communicate(timeout=30)

    assert demo.returncode == 128 + number
    assert left(place) == []


@pytest.mark.slow
def test_killed_outright_its_processes_end_all_the_same(place: Path) -> None:
    demo = play(place, "--headless", "--seconds", "40", "--json")
    assert demo.stdout is not None
    for line in demo.stdout:
        if json.loads(line)["kind"] == "moment":
            break
    demo.kill()
    demo.communicate(timeout=30)

    deadline = time.monotonic() + 30
    while processes := [words for words in left(place) if " -m sentinel" in words]:
        assert time.monotonic() < deadline, processes
        time.sleep(0.2)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--json"], "--headless --json"),
        ([], "needs a terminal"),
        (["--headless", "--seconds", "0"], "--seconds must be"),
    ],
)
def test_what_cannot_be_played_is_refused(place: Path, arguments: list[str], said: str) -> None:
    demo = play(place, *arguments)
    out, errors = demo.communicate(timeout=30)

    assert demo.returncode == 2
    assert said in errors
    assert out == ""
