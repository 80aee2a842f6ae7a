"""The demo's jobs as real processes: they do what the demonstration counts on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sentinel.demo.api import LimitedApi

MIB = 1024 * 1024


class Running:
    """A job and what it says."""

    def __init__(self, module: str, *arguments: str, said: Path, lifeline: Path | None = None) -> None:
        self.said_at = said
        line = ("--lifeline", str(lifeline)) if lifeline else ()
        with said.open("wb") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-m", f"sentinel.demo.jobs.{module}", "--step-seconds", "0.02", *line, *arguments],
                stdout=out,
                stderr=out,
            )

    def said(self) -> str:
        return self.said_at.read_text(errors="replace")

    def memory(self) -> int:
        return int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def children(self) -> list[int]:
        tasks = Path(f"/proc/{self.process.pid}/task").iterdir()
        return [int(pid) for task in tasks for pid in (task / "children").read_text().split()]

    def ask(self, number: signal.Signals) -> None:
        self.process.send_signal(number)


Start = Callable[..., Running]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    running: list[Running] = []

    def one(module: str, *arguments: str, lifeline: Path | None = None) -> Running:
        running.append(Running(module, *arguments, said=tmp_path / f"{module}.out", lifeline=lifeline))
        return running[-1]

    yield one
    for job in running:
        job.process.kill()
        job.process.wait()


def until(what: Callable[[], object], seconds: float = 15.0) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.02)


def whole(path: Path) -> int:
    """The step of a safetensors file that is whole."""
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    assert header["weights"]["data_offsets"][1] == len(data) - 8 - length
    return int(header["__metadata__"]["step"])


def checkpoints(directory: Path) -> list[int]:
    return sorted(whole(path) for path in directory.glob("step-*.safetensors"))


def test_leaky_leaks_saves_when_asked_and_stops_when_asked(start: Start, tmp_path: Path) -> None:
    job = start("leaky", "--checkpoints", str(tmp_path / "c"), "--warm-up", "0", "--rate-mib", "60")

    until(lambda: "saved" in job.said() and job.memory() > 60 * MIB)
    job.ask(signal.SIGUSR1)
    until(lambda: "asked for a checkpoint" in job.said())
    job.ask(signal.SIGUSR2)
    until(lambda: "asked to degrade, batch 16" in job.said())
    held = job.memory()
    lines = job.said().count("loss")
    until(lambda: job.said().count("loss") >= lines + 2)

    assert len(checkpoints(tmp_path / "c")) == 2
    assert job.memory() < held + 4 * MIB
    job.ask(signal.SIGTERM)
    assert job.process.wait(10) == 0


def test_leaky_dies_of_it_when_nobody_asks(start: Start, tmp_path: Path) -> None:
    job = start(
        "leaky", "--checkpoints", str(tmp_path / "c"), "--warm-up", "0", "--rate-mib", "80", "--die-at-mib", "80"
    )

    assert job.process.wait(15) == 1
    assert "MemoryError" in job.said()


def test_forgetful_forgets_and_still_answers(start: Start, tmp_path: Path) -> None:
    job = start("forgetful", "--checkpoints", str(tmp_path / "c"), "--every", "0.2", "--forget-after", "0.5")

    until(lambda: checkpoints(tmp_path / "c") and job.said().count("loss") >= 2)
    before = checkpoints(tmp_path / "c")
    job.ask(signal.SIGUSR1)
    until(lambda: "asked for a checkpoint" in job.said())

    assert checkpoints(tmp_path / "c")[-1] > before[-1]


def test_happy_shares_its_pages_with_its_workers(start: Start, tmp_path: Path) -> None:
    job = start("happy", "--checkpoints", str(tmp_path / "c"), "--data-mib", "64", "--workers", "3")

    def rolled_up(key: str) -> int:
        found = 0
        for pid in [job.process.pid, *job.children()]:
            for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
                if line.startswith(f"{key}:"):
                    found += int(line.split()[1]) * 1024
        return found

    until(lambda: len(job.children()) == 3)
    until(lambda: rolled_up("Rss") > 200 * MIB)
    assert rolled_up("Pss") < 110 * MIB

    workers = job.children()
    job.ask(signal.SIGTERM)
    assert job.process.wait(10) == 0
    assert not any(Path(f"/proc/{pid}").exists() for pid in workers)


def test_workers_do_not_outlive_a_parent_that_was_killed(start: Start, tmp_path: Path) -> None:
    job = start("happy", "--checkpoints", str(tmp_path / "c"), "--data-mib", "16", "--workers", "2")
    until(lambda: len(job.children()) == 2)
    workers = job.children()

    job.process.kill()
    job.process.wait()
    until(lambda: not any(_lives(pid) for pid in workers))


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in {"Z", "X"}
    except OSError:
        return False


def test_the_agent_is_refused_until_it_is_asked_to_slow_down(start: Start, tmp_path: Path) -> None:
    request = tmp_path / "request.json"
    with LimitedApi(per_second=4) as api:
        job = start(
            "agent", "--url", api.url, "--degrade-file", str(request), "--eager-after", "0", "--calls-per-second", "12"
        )
        until(lambda: api.refused >= 3 and "Error code: 429" in job.said())
        partial = tmp_path / "request.tmp"
        partial.write_text(json.dumps({"id": "r-7", "request": "degrade", "level": 1}))
        partial.rename(request)
        until((tmp_path / "request.json.ack").exists)

        assert (tmp_path / "request.json.ack").read_text() == "r-7"
        assert not request.exists()
        refused = api.refused
        served = api.served
        until(lambda: api.served >= served + 3)
        assert api.refused <= refused + 1


def test_a_job_ends_when_its_lifeline_is_cut(start: Start, tmp_path: Path) -> None:
    line = tmp_path / "line"
    os.mkfifo(line)
    held = os.open(line, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    job = start("forgetful", "--checkpoints", str(tmp_path / "c"), lifeline=line)
    until(lambda: "training" in job.said())
    assert job.process.poll() is None

    os.close(held)
    assert job.process.wait(10) == 0
