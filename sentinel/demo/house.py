"""A daemon and jobs of its own, in a directory that is gone afterwards."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from sentinel.api.client import ApiError, Client
from sentinel.demo import boards
from sentinel.errors import SentinelError
from sentinel.paths import LONGEST_SOCKET_PATH

_START_S = 15.0
_END_S = 4.0
_DIES_WITH_US = """
import ctypes, os, sys
PR_SET_PDEATHSIG, SIGTERM = 1, 15
ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, SIGTERM, 0, 0, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""
"""A step before the program: the kernel tells it when we die. Not done after a fork, which threads make unsafe."""
_CONFIGURATION = """\
# The demonstration's. Only the interval differs from the defaults: a bad night in forty seconds.
mode: act
sampling: {interval: 1s}
"""


class House:
    """The temporary directory, the daemon in it, and the jobs that it watches.

    A context manager; at its end no process and no file is left, however it
    ends. Should it be killed outright, the jobs see their lifeline cut and the
    kernel ends the rest.
    """

    def __init__(self) -> None:
        self.root = _directory()
        self.socket = self.root / "s.sock"
        self.gpus = self.root / "gpus.json"
        self.lifeline = self.root / "lifeline"
        self._daemon: subprocess.Popen[bytes] | None = None
        self._jobs: dict[str, subprocess.Popen[bytes]] = {}
        self._line: int | None = None

    def __enter__(self) -> Self:
        try:
            os.mkfifo(self.lifeline, 0o600)
            self._line = os.open(self.lifeline, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
            (self.root / "sentinel.yaml").write_text(_CONFIGURATION, encoding="utf-8")
            boards.write(self.gpus, {}, 0.0)
            self._start_daemon()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def client(self, timeout_s: float = 5.0) -> Client:
        """A client of this daemon."""
        return Client(self.socket, timeout_s)

    def run(self, name: str, options: Sequence[str], module: str, arguments: Sequence[str]) -> None:
        """`sentinel run --name NAME OPTIONS -- python -m MODULE ARGUMENTS`."""
        command = [
            *(sys.executable, "-m", "sentinel", "run", "--name", name, "--quiet", "--no-daemon"),
            *options,
            *("--", sys.executable, "-m", module, "--lifeline", str(self.lifeline)),
            *arguments,
        ]
        self._jobs[name] = self._spawn(command, name)

    def said(self, name: str) -> str:
        """The last words of the daemon or of a job's supervisor on stderr, for when something went wrong."""
        with contextlib.suppress(OSError):
            lines = (self.root / f"{name}.err").read_text(encoding="utf-8", errors="replace").strip().splitlines()
            return "\n".join(lines[-8:])
        return ""

    def close(self) -> None:
        """End the jobs, then the daemon, then remove the directory. Ctrl-C waits until that is done."""
        before = _ignore_interrupts()
        try:
            if self._line is not None:
                os.close(self._line)
                self._line = None
            _end(list(self._jobs.values()))
            if self._daemon is not None:
                _end([self._daemon], told=False)
        finally:
            shutil.rmtree(self.root, ignore_errors=True)
            if before is not None:
                signal.signal(signal.SIGINT, before)

    def _start_daemon(self) -> None:
        command = [
            *(sys.executable, "-m", "sentinel", "daemon"),
            *("--config", str(self.root / "sentinel.yaml")),
            *("--state-dir", str(self.root / "state")),
            *("--socket", str(self.socket)),
        ]
        self._daemon = self._spawn(command, "daemon")
        deadline = time.monotonic() + _START_S
        while True:
            with contextlib.suppress(ApiError), self.client() as client:
                client.get("/v1/overview")
                return
            if self._daemon.poll() is not None or time.monotonic() > deadline:
                last = self.said("daemon")
                raise SentinelError(
                    "the demonstration's daemon did not come up" + (f"; its last words:\n{last}" if last else ""),
                    hint="`sentinel doctor` says what is missing on this machine",
                )
            time.sleep(0.05)

    def _spawn(self, command: list[str], name: str) -> subprocess.Popen[bytes]:
        with (self.root / f"{name}.err").open("wb") as errors:
            return subprocess.Popen(
                [sys.executable, "-ISc", _DIES_WITH_US, *command],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                env=self._environment(),
                cwd=self.root,
                start_new_session=True,  # Ctrl-C is for us: we end them in order
            )

    def _environment(self) -> dict[str, str]:
        """Ours without anything that points to the user's own daemon, rules or receivers."""
        made = {name: value for name, value in os.environ.items() if not name.startswith("SENTINEL_")}
        made["SENTINEL_SOCKET"] = str(self.socket)
        made["SENTINEL_STATE_DIR"] = str(self.root / "state")
        made["SENTINEL_CONFIG"] = str(self.root / "sentinel.yaml")
        made["SENTINEL_SIMULATED_GPUS"] = str(self.gpus)
        here = Path(__file__).resolve().parents[2]
        if not {"site-packages", "dist-packages"} & set(here.parts):  # a checkout
            made["PYTHONPATH"] = os.pathsep.join(filter(None, (str(here), made.get("PYTHONPATH"))))
        return made


def _directory() -> Path:
    """A fresh directory whose path leaves room for a socket's name."""
    made = Path(tempfile.mkdtemp(prefix="sentinel-demo-"))
    if len(os.fsencode(made)) + 40 > LONGEST_SOCKET_PATH:
        made.rmdir()
        made = Path(tempfile.mkdtemp(prefix="sentinel-demo-", dir="/tmp"))
    return made.resolve()


def _end(processes: list[subprocess.Popen[bytes]], *, told: bool = True) -> None:
    """Wait for processes that have been told to end; insist with TERM, then with KILL."""
    if told:
        _wait(processes, _END_S)
    for number in (signal.SIGTERM, signal.SIGKILL):
        left = [process for process in processes if process.poll() is None]
        for process in left:
            process.send_signal(number)
        _wait(left, _END_S)


def _wait(processes: list[subprocess.Popen[bytes]], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    for process in processes:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(max(0.01, deadline - time.monotonic()))


def _ignore_interrupts() -> Any:
    try:
        return signal.signal(signal.SIGINT, signal.SIG_IGN)
    except ValueError:  # not in the main thread
        return None
