"""`sentinel tui` as a process on a real terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tui.daemon_double import DaemonDouble, bad_night

LEAVES_ALTERNATE_SCREEN = b"\x1b[?1049l"


@pytest.fixture
def daemon() -> Iterator[DaemonDouble]:
    with tempfile.TemporaryDirectory(prefix="tui-") as directory, DaemonDouble(Path(directory) / "s.sock") as running:
        running.overview = bad_night()
        yield running


class OnTerminal:
    """A command on a terminal of 80 by 24."""

    def __init__(self, socket: Path, *arguments: str) -> None:
        self.master, terminal = pty.openpty()
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self.before = termios.tcgetattr(terminal)
        self.terminal = terminal
        self.said = b""
        self.process = subprocess.Popen(
            [sys.executable, "-m", "sentinel", "tui", *arguments],
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
            env={**os.environ, "SENTINEL_SOCKET": str(socket), "TERM": "xterm-256color"},
            start_new_session=True,
        )

    def read_until(self, words: bytes, seconds: float = 20.0) -> None:
        deadline = time.monotonic() + seconds
        while words not in self.said:
            assert time.monotonic() < deadline, f"{words!r} never came; it said {self.said[-2000:]!r}"
            self._read(0.1)

    def end(self, seconds: float = 15.0) -> int:
        """Read on until it has ended."""
        deadline = time.monotonic() + seconds
        while self.process.poll() is None:
            assert time.monotonic() < deadline, "it did not end"
            self._read(0.1)
        self._read(0.1)
        return self.process.returncode

    def _read(self, seconds: float) -> None:
        if select.select([self.master], [], [], seconds)[0]:
            self.said += os.read(self.master, 65536)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.master)
        os.close(self.terminal)


@pytest.fixture
def on_terminal(daemon: DaemonDouble) -> Iterator[OnTerminal]:
    started = OnTerminal(daemon.path)
    yield started
    started.close()


def test_it_shows_the_jobs_and_q_leaves_the_terminal_as_it_was(on_terminal: OnTerminal) -> None:
    on_terminal.read_until(b"full in 9 s")
    os.write(on_terminal.master, b"q")

    assert on_terminal.end() == 0
    assert LEAVES_ALTERNATE_SCREEN in on_terminal.said
    assert termios.tcgetattr(on_terminal.terminal) == on_terminal.before


def test_terminated_it_leaves_the_terminal_as_it_was(on_terminal: OnTerminal) -> None:
    on_terminal.read_until(b"leaky")
    on_terminal.process.send_signal(signal.SIGTERM)

    assert on_terminal.end() == 0
    assert LEAVES_ALTERNATE_SCREEN in on_terminal.said
    assert termios.tcgetattr(on_terminal.terminal) == on_terminal.before


def test_without_a_terminal_it_names_what_works_without_one() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "sentinel", "tui"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )

    assert done.returncode == 2
    assert "sentinel status" in done.stderr


def test_without_a_daemon_and_none_wanted_it_says_so(tmp_path: Path) -> None:
    started = OnTerminal(tmp_path / "none.sock", "--no-daemon")
    try:
        assert started.end() == 1
        assert b"cannot reach the daemon" in started.said
        assert b"Traceback" not in started.said
    finally:
        started.close()
