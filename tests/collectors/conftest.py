"""Real process trees for collectors to look at, and a fake driver."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from sentinel.model.jobs import Job, JobSpec, JobState
from sentinel.system.processes import identify
from tests.fake_nvml.fake_nvml import FakeDriver, build

Started = tuple[Job, subprocess.Popen[str]]


def said(child: subprocess.Popen[str]) -> str:
    """The next line that a program prints."""
    assert child.stdout is not None
    return child.stdout.readline().strip()


def tell(child: subprocess.Popen[str], line: str = "") -> None:
    """Let a program that waits for a line go on."""
    assert child.stdin is not None
    child.stdin.write(line + "\n")
    child.stdin.flush()


def eventually(condition: Callable[[], bool], seconds: float = 5.0) -> None:
    """Wait for something to come true."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.005)


@pytest.fixture
def start() -> Iterator[Callable[..., Started]]:
    """Starts a Python program as a job in a session of its own; it has said one line when this returns."""
    children: list[subprocess.Popen[str]] = []

    def begin(text: str, name: str = "train", *, memory_limit_bytes: int | None = None) -> Started:
        child = subprocess.Popen(
            [sys.executable, "-c", text],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        children.append(child)
        said(child)
        job = Job(
            id=f"j{child.pid}",
            name=name,
            uid=os.getuid(),
            owner="tester",
            spec=JobSpec((sys.executable,), "/", memory_limit_bytes=memory_limit_bytes),
            state=JobState.RUNNING,
            created=1.0,
            attempt_started=1000.0,
            root=identify(child.pid),
            pgid=child.pid,
        )
        return job, child

    yield begin
    for child in children:
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.kill()
        child.communicate()


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the fake libnvidia-ml.so.1 is."""
    return build(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def driver(library: Path, tmp_path: Path) -> FakeDriver:
    """A driver that says what the test wants it to say."""
    return FakeDriver(library, tmp_path)
