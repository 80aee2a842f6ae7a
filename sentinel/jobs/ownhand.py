"""The owner's hand, where the daemon belongs to somebody else: started from the owner's side, and kept going.

A daemon of another user reads none of our files and calls none of our
addresses. A small process of our own does that for it. It lives in a session of
its own, so that it outlives whoever started it, and ends with the job.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from sentinel.jobs.link import Attempt, Registration
from sentinel.model.jobs import JobSpec, ProcessId
from sentinel.model.wire import encode

MODULE = "sentinel.daemon.hand"
TERMINAL = 3
"""The descriptor at which a hand finds the pty's master."""
_SHORT_LIFE_S = 10.0
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.5, 60.0


@dataclass(frozen=True, slots=True)
class Charge:
    """What a hand is told by its own side. A daemon can have nothing done, read or called beyond it.

    Attributes:
        job: The job's id.
        socket: Where the daemon listens.
        spec: What the owner declared.
        output: The attempt's log files.
        directory: Where the hand may keep what it must remember; empty: nowhere.
        supervisor: After whose death the hand keeps the output; None: there is none.
        terminal: Whether the pty's master is at descriptor 3.
    """

    job: str
    socket: str
    spec: JobSpec
    output: tuple[str, ...] = ()
    directory: str = ""
    supervisor: ProcessId | None = None
    terminal: bool = False


def start(charge: Charge, *, master: int = -1, environ: Mapping[str, str] = os.environ) -> int:
    """Start a hand; its pid. The addresses in the charge may be secret, so they go by its stdin, not its arguments.

    Raises:
        OSError: It cannot be started.
    """
    charge = replace(charge, terminal=master >= 0)
    told = os.memfd_create("charge", os.MFD_CLOEXEC)
    try:
        os.write(told, json.dumps(encode(charge)).encode())
        os.lseek(told, 0, os.SEEK_SET)
        log = os.path.join(charge.directory, "hand.log") if charge.directory else os.devnull
        if charge.directory:
            os.makedirs(charge.directory, mode=0o700, exist_ok=True)
        actions: list[tuple[int, ...] | tuple[int, int, str, int, int]] = [
            (os.POSIX_SPAWN_DUP2, told, 0),
            (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
            (os.POSIX_SPAWN_OPEN, 2, log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600),
        ]
        if master >= 0:
            actions.append((os.POSIX_SPAWN_DUP2, master, TERMINAL))
        return os.posix_spawn(
            sys.executable,
            [sys.executable, "-P", "-m", MODULE],
            _environment(environ),
            file_actions=actions,
            setsid=True,
            setsigmask=[],
            setsigdef=[signal.SIGPIPE, signal.SIGXFSZ, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM],
        )
    finally:
        os.close(told)


class OwnHand:
    """A supervisor's hand. Used by one thread.

    Args:
        spec: What the owner declared.
        supervisor: Who we are.
        environ: The hand's, which is ours.

    Attributes:
        descriptor: Polls as readable when the hand has ended; -1: there is none, or no pidfds here.
    """

    def __init__(self, spec: JobSpec, supervisor: ProcessId, environ: Mapping[str, str] = os.environ) -> None:
        self._spec = spec
        self._supervisor = supervisor
        self._environ = environ
        self._pid = 0
        self._job = ""
        self._since = 0.0
        self._pause_s = _FIRST_PAUSE_S
        self._due = 0.0
        self.descriptor = -1

    @property
    def wait_s(self) -> float | None:
        """When to call `keep` again at the latest; None: when the descriptor says so."""
        if self._pid and self.descriptor >= 0:
            return None
        return max(0.0, self._due - time.monotonic()) if not self._pid else _SHORT_LIFE_S

    def keep(self, met: Registration, attempt: Attempt) -> None:
        """Start it where it does not run: for another job at once, after a death a little later each time."""
        self._reap()
        if self._job != met.id:
            self._job, self._due, self._pause_s = met.id, 0.0, _FIRST_PAUSE_S
            self._let_go()  # the one of the former registration ends by itself: its job is unknown now
        now = time.monotonic()
        if self._pid or now < self._due:
            return
        # What is written beside an attempt's logs belongs to the job: one directory above.
        directory = os.path.dirname(os.path.dirname(attempt.output[0])) if attempt.output else ""
        charge = Charge(met.id, met.socket, self._spec, attempt.output, directory, self._supervisor)
        self._since, self._due = now, now + self._pause_s
        with contextlib.suppress(OSError):
            self._pid = start(charge, master=attempt.master, environ=self._environ)
            with contextlib.suppress(OSError):
                self.descriptor = os.pidfd_open(self._pid)

    def _reap(self) -> None:
        if not self._pid:
            return
        try:
            ended, _ = os.waitpid(self._pid, os.WNOHANG)
        except ChildProcessError:
            ended = self._pid
        if ended:
            lived_s = time.monotonic() - self._since
            self._pause_s = _FIRST_PAUSE_S if lived_s > _SHORT_LIFE_S else min(self._pause_s * 2, _LONGEST_PAUSE_S)
            self._due = time.monotonic() + self._pause_s
            self._let_go()

    def _let_go(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)
        self._pid, self.descriptor = 0, -1


def _environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Our own: it acts as we do. A checkout is importable only because we stand in it, and it does not."""
    home = Path(__file__).resolve().parents[2]
    if {"site-packages", "dist-packages"} & set(home.parts):
        return dict(environ)
    return {**environ, "PYTHONPATH": os.pathsep.join(filter(None, (str(home), environ.get("PYTHONPATH"))))}
