"""A desk: a directory, a small daemon of our own in it, and real jobs under `sentinel run`."""

from __future__ import annotations

import fcntl
import json
import os
import select
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from sentinel.api.client import Client

T = TypeVar("T")
HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]


def until(what: Callable[[], T], seconds: float = 15.0) -> T:
    """Wait for something to become true, with a deadline."""
    deadline = time.monotonic() + seconds
    while not (found := what()):
        if time.monotonic() > deadline:
            pytest.fail(f"not within {seconds} s")
        time.sleep(0.02)
    return found


def running(pid: int) -> bool:
    """Whether it is there and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b") ")[2][:1] not in {b"Z", b"X"}
    except OSError:
        return False


class OnTerminal:
    """A command on a terminal of its own, as its foreground job."""

    def __init__(self, argv: list[str], environ: dict[str, str], cwd: Path, size: tuple[int, int]) -> None:
        self.master, slave = os.openpty()
        self.resize(*size)
        self.said = b""
        self._name = os.ttyname(slave)
        # The child takes the terminal, as a login does, and lets the command be a process group within.
        shell = [sys.executable, "-c", _LEADER, self._name, *argv]
        self.leader = subprocess.Popen(
            shell, env=environ, stdin=slave, stdout=slave, stderr=slave, cwd=cwd, start_new_session=True
        )
        os.close(slave)

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("4H", rows, columns, 0, 0))

    def type(self, data: bytes) -> None:
        os.write(self.master, data)

    def expect(self, text: str, seconds: float = 15.0) -> bytes:
        """Read until `text` has been said since the last call; what was said up to it."""
        deadline = time.monotonic() + seconds
        wanted = text.encode()
        while wanted not in self.said:
            left = deadline - time.monotonic()
            if left <= 0 or not self._read(left):
                pytest.fail(f"{text!r} was not said; but: {self.said.decode(errors='replace')!r}")
        before, found, self.said = self.said.partition(wanted)
        return before + found

    def _read(self, seconds: float) -> bool:
        if not select.select([self.master], [], [], seconds)[0]:
            return False
        try:
            data = os.read(self.master, 65536)
        except OSError:
            return False
        self.said += data
        return bool(data)

    def close(self) -> None:
        """Close the window."""
        if self.master >= 0:
            os.close(self.master)
            self.master = -1

    def end(self) -> None:
        self.close()
        self.leader.kill()
        self.leader.wait()


_LEADER = """
import fcntl, os, signal, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
signal.signal(signal.SIGHUP, signal.SIG_IGN)
modes = termios.tcgetattr(0)
pid = os.fork()
if pid == 0:
    os.setpgid(0, 0)
    os.tcsetpgrp(0, os.getpid())
    for number in (signal.SIGTTOU, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    os.execvp(sys.argv[2], sys.argv[2:])
while True:
    _, status = os.waitpid(pid, os.WUNTRACED)
    if not os.WIFSTOPPED(status):
        break
    os.tcsetpgrp(0, os.getpgrp())
    sane = termios.tcgetattr(0)[3] & termios.ICANON
    print("SHELL: stopped, the terminal is", "sane" if sane else "raw", flush=True)
    sys.stdin.readline()
    os.tcsetpgrp(0, pid)
    os.killpg(pid, signal.SIGCONT)
try:
    print("SHELL: ended with", os.waitstatus_to_exitcode(status), flush=True)
except OSError:
    pass
"""
"""A shell with job control, as small as it can be: it says when its job stops or ends, and a line continues it."""


class Desk:
    """One user's corner: a daemon, jobs, and everything they leave behind."""

    def __init__(self) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="desk-", dir="/tmp"))  # short: a socket's path has 107 bytes
        self.socket = self.root / "s.sock"
        self.state = self.root / "state"
        self.environ = {
            **{key: value for key, value in os.environ.items() if not key.startswith(("SENTINEL_", "PYTHONUNBUFF"))},
            "SENTINEL_SOCKET": str(self.socket),
            "SENTINEL_STATE_DIR": str(self.state),
            "PYTHONPATH": str(ROOT),
            "TERM": "xterm",
        }
        self.daemon: subprocess.Popen[bytes] | None = None
        self._started: list[subprocess.Popen[Any]] = []
        self._terminals: list[OnTerminal] = []

    def start_daemon(self) -> None:
        """Ours, in a process of its own, so that it can be killed."""
        self.socket.unlink(missing_ok=True)
        log = (self.root / "daemon.log").open("ab")
        self.daemon = subprocess.Popen(
            [sys.executable, str(HERE / "small_daemon.py"), str(self.socket), str(self.state)],
            env=self.environ,
            stdout=log,
            stderr=log,
        )
        log.close()
        until(self.socket.exists)

    def kill_daemon(self) -> None:
        assert self.daemon is not None
        self.daemon.kill()
        self.daemon.wait()
        self.daemon = None

    def command(self, *args: str) -> list[str]:
        return [sys.executable, "-m", "sentinel", "run", "--no-daemon", *args]

    def run(self, *args: str, **more: Any) -> subprocess.CompletedProcess[str]:
        """A job from its start to its end."""
        more = {"capture_output": True, "text": True, "timeout": 30, **more}
        return subprocess.run(self.command(*args), env=self.environ, cwd=self.root, check=False, **more)

    def watch(self, *args: str) -> subprocess.CompletedProcess[str]:
        """`sentinel watch`."""
        argv = [sys.executable, "-m", "sentinel", "watch", "--no-daemon", *args]
        return subprocess.run(
            argv, env=self.environ, cwd=self.root, check=False, capture_output=True, text=True, timeout=30
        )

    def process(self, *argv: str, **more: Any) -> subprocess.Popen[Any]:
        """A process that is no job yet."""
        started = subprocess.Popen(argv, cwd=self.root, **{"env": self.environ, **more})
        self._started.append(started)
        return started

    def begin(self, *args: str, **more: Any) -> subprocess.Popen[Any]:
        """A job, left running."""
        more = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **more}
        started = subprocess.Popen(self.command(*args), env=self.environ, cwd=self.root, **more)
        self._started.append(started)
        return started

    def on_terminal(self, *args: str, size: tuple[int, int] = (24, 80)) -> OnTerminal:
        made = OnTerminal(self.command(*args), self.environ, self.root, size)
        self._terminals.append(made)
        return made

    def script(self, name: str, text: str) -> str:
        """A Python program for a job to run."""
        path = self.root / name
        path.write_text(text)
        return str(path)

    def read(self, name: str) -> str:
        """A file that a job wrote; empty while there is none."""
        path = self.root / name
        return path.read_text() if path.exists() else ""

    def job(self, name: str) -> dict[str, Any]:
        """As the daemon last wrote it down; empty before that."""
        found = [record["data"] for record in self._lines("journal") if record["data"]["name"] == name]
        return dict(found[-1]) if found else {}

    def events(self, kind: str) -> list[dict[str, Any]]:
        return [record["data"] for record in self._lines("events") if record["kind"] == kind]

    def ask(self, path: str, body: Any) -> Any:
        with Client(self.socket) as client:
            return client.post(path, body)

    def _lines(self, name: str) -> list[dict[str, Any]]:
        text = self.state / f"{name}.jsonl"
        return [json.loads(line) for line in text.read_text().splitlines()] if text.exists() else []

    def _end_what_is_left(self) -> None:
        """Jobs outlive everything; what carries our state directory in its environment is ours."""
        mark = f"SENTINEL_STATE_DIR={self.state}\0".encode()
        for path in Path("/proc").glob("[0-9]*/environ"):
            try:
                if mark in path.read_bytes():
                    os.kill(int(path.parent.name), signal.SIGKILL)
            except OSError:
                continue

    def end(self) -> None:
        for terminal in self._terminals:
            terminal.end()
        for started in self._started:
            started.kill()
            started.wait()
            for stream in (started.stdin, started.stdout, started.stderr):
                if stream:
                    stream.close()
        if self.daemon is not None:
            self.kill_daemon()
        self._end_what_is_left()
        shutil.rmtree(self.root, ignore_errors=True)
