"""The supervisor's side of the talk with the daemon. A daemon that dies is looked for until there is one again."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from sentinel.api.client import ApiError
from sentinel.errors import SentinelError
from sentinel.jobs.ports import Caller, Connect
from sentinel.jobs.resume import newest_checkpoint
from sentinel.model.jobs import JobSpec, ProcessId
from sentinel.model.wire import encode
from sentinel.system import handover

PROTOCOL = 1
YOURS = "yours"
"""What a daemon says of the hand of a job whose owner it is not."""
_ANSWER_S = 10.0
_BAD_REQUEST = 400
_FIRST_PAUSE_S = 0.5
_LONGEST_PAUSE_S = 30.0
_START_S, _LOOK_S = 8.0, 2.0
"""How long the end waits to be told: where a daemon may be started for it, and where not."""
_PATIENCE = 2
"""So many looks before a daemon is started: whoever stopped the last one may be starting the next."""
_HEARTBEAT_S = 15.0
"""How often to say hello where the handover socket cannot tell that the daemon is gone."""


@dataclass(frozen=True, slots=True)
class Registration:
    """What the daemon said to a job.

    Attributes:
        id: The job's id.
        name: Its unique name.
        renamed_from: The name that was asked for, where another job has it.
        directory: Where the logs go; empty: choose yourself.
        resume_from: The newest whole checkpoint, or "".
        socket: The daemon's address.
        handover: Where the pty's master goes, or "".
        degrade_level: From 0.
        facts: For the banner.
        hand: "yours" where the daemon is another user's, so that reading, calling and running is up to us.
    """

    id: str
    name: str
    renamed_from: str | None = None
    directory: str = ""
    resume_from: str = ""
    socket: str = ""
    handover: str = ""
    degrade_level: int = 0
    facts: Mapping[str, Any] = field(default_factory=dict)
    hand: str = ""


@dataclass(frozen=True, slots=True)
class Attempt:
    """What the daemon is told about a running attempt.

    Attributes:
        number: From 1.
        root: The leader.
        pgid: Its process group.
        output: The log files.
        master: The pty's master to hand over, or -1.
        level: Its degrade level.
    """

    number: int
    root: ProcessId
    pgid: int
    output: tuple[str, ...]
    master: int = -1
    level: int = 0


@dataclass(frozen=True, slots=True)
class Ending:
    """How the attempt ended.

    Attributes:
        attempt: From 1.
        exit_code: None for a signal.
        exit_signal: None for an exit code.
        at: Unix seconds.
        outcome: `preempted`, `timeout`, `stall` or `gave-up` where one of these is why, else "".
        reason: Why no attempt follows, in words.
        last_lines: The last of its output.
    """

    attempt: int
    exit_code: int | None
    exit_signal: int | None
    at: float
    outcome: str = ""
    reason: str = ""
    last_lines: tuple[str, ...] = ()


class Hand(Protocol):
    """The owner's hand, kept going from here."""

    @property
    def descriptor(self) -> int:
        """Polls as readable when it has ended; or -1."""
        ...

    @property
    def wait_s(self) -> float | None:
        """When to call `keep` again at the latest; None: when the descriptor says so."""
        ...

    def keep(self, met: Registration, attempt: Attempt) -> None:
        """Start it where it does not run."""
        ...


class Link:
    """Keeps the daemon informed, from a thread of its own, so that the job never waits for it.

    Args:
        connect: Finds the daemon.
        spec: What the owner declared.
        supervisor: Who we are.
        start: Whether a per-user daemon may be started.
        say: Tells the user, in one line.
        patience_s: How long the end waits to be told; None: as long as is sensible.
        hand: Reads, calls and runs for a daemon that is not ours.

    Attributes:
        trouble: Why no daemon could be reached at first, in words.
    """

    def __init__(
        self,
        connect: Connect,
        spec: JobSpec,
        supervisor: ProcessId,
        *,
        start: bool,
        say: Callable[[str], None],
        patience_s: float | None = None,
        hand: Hand | None = None,
    ) -> None:
        self._connect = connect
        self._spec = spec
        self._supervisor = supervisor
        self._start = start
        self._say = say
        self._patience_s = patience_s if patience_s is not None else _START_S if start else _LOOK_S
        self._hand = hand
        self.trouble = ""
        self._caller: Caller | None = None
        self._registration: Registration | None = None
        self._attempt: Attempt | None = None
        self._informed: Attempt | None = None
        self._ending: Ending | None = None
        self._told = threading.Event()
        self._answer: Mapping[str, Any] | None = None
        self._owed: list[Ending] = []
        self._heard = threading.Event()
        self._closed = False
        self._wake_in, self._wake_out = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._presence: socket.socket | None = None
        self._thread: threading.Thread | None = None

    def register(self) -> Registration | None:
        """Say hello, and be told the job's name. None where no daemon can be reached.

        Raises:
            ApiError: The daemon will not have this job as it is declared.
        """
        try:
            return self._looked_up(self._greet(start=self._start, quiet=self._spec.quiet))
        except SentinelError as fault:
            if isinstance(fault, ApiError) and fault.status == _BAD_REQUEST:
                raise
            self.trouble = fault.message
            return None

    def _looked_up(self, met: Registration) -> Registration:
        """With the newest checkpoint, where the daemon may not look for it."""
        if met.hand != YOURS or not self._spec.checkpoints:
            return met
        found = newest_checkpoint(self._spec)
        if found is None:
            return met
        age_s = max(0.0, time.time() - found.finished)
        self._registration = replace(met, resume_from=found.path, facts={**met.facts, "checkpoint_age_seconds": age_s})
        return self._registration

    @property
    def job_id(self) -> str:
        """The job's id with the daemon that knows it now, or ""."""
        return self._registration.id if self._registration is not None else ""

    def started(self, attempt: Attempt | None) -> None:
        """An attempt runs, or could not be started. From now on a thread keeps the daemon informed."""
        self._attempt = attempt
        if self._thread is None:
            self._thread = threading.Thread(target=self._keep, name="link", daemon=True)
            self._thread.start()
        else:
            self._wake()

    def broke_off(self, ending: Ending) -> Mapping[str, Any] | None:
        """An attempt is over and another may follow: what the daemon makes of it, or None: it cannot be had now.

        Whatever comes of it, the daemon is told as soon as there is one.
        """
        self._attempt = None
        self._heard.clear()
        self._answer = None
        self._owed.append(ending)
        self._wake()
        if self._thread is None or self._registration is None:
            return None
        self._heard.wait(self._patience_s)
        return self._answer

    def ended(self, ending: Ending) -> None:
        """The job is over. Returns at once."""
        self._told.clear()
        self._answer = None
        self._ending = ending
        self._wake()

    @property
    def answer(self) -> Mapping[str, Any] | None:
        """What the daemon said to the last end that it was told; None where it does not know of it."""
        return self._answer

    def finish(self, *, keep: bool = False) -> bool:
        """Wait until the daemon knows, but not for ever; whether there is nothing more to tell it.

        Args:
            keep: Whether there may be more to tell.
        """
        known = self._thread is not None and self._told.wait(self._patience_s)
        if not keep:
            self.close()
        return known

    def close(self) -> None:
        """There is nothing more to tell."""
        self._closed = True
        self._wake()
        if self._thread is not None:
            self._thread.join(1.0)

    # In the thread

    def _keep(self) -> None:
        pause, failures = _FIRST_PAUSE_S, 0
        while not self._closed:
            try:
                if self._caller is None:
                    met = self._greet(start=self._start and failures >= _PATIENCE, quiet=True)
                    if self._ending is None:
                        self._say(f"a daemon is there: this is job {met.name}")
                while self._owed:
                    self._answer = self._report(self._owed[0], more=True)
                    del self._owed[0]
                    self._heard.set()
                if self._attempt is not self._informed:
                    self._inform()
                pause, failures = _FIRST_PAUSE_S, 0
                if self._ending is not None:
                    self._answer = self._report(self._ending)
                    self._ending = None
                    self._attempt = self._informed = None
                    self._told.set()
                if not self._wait():
                    raise ApiError("the daemon went away")
            except (SentinelError, OSError, KeyError, ValueError) as fault:
                self._hang_up()
                if self._owed and _hopeless(fault):
                    self._owed.clear()  # it has heard, and will not have it
                    self._heard.set()
                if self._ending is not None and (_hopeless(fault) or self._registration is None):
                    self._ending = None
                    self._told.set()  # it does not know the job, or there never was one: nothing is left to say
                    return
                failures += 1
                if failures == 1 and self._ending is None and self._registration is not None:
                    self._say("the daemon went away; the job goes on, and so does the search")
                self._pause(pause if self._ending is None else 0.1)
                pause = min(pause * 2, _LONGEST_PAUSE_S)

    def _greet(self, *, start: bool, quiet: bool) -> Registration:
        self._caller = caller = self._connect(start=start, quiet=quiet)
        try:
            answer = caller.post(
                "/v1/jobs",
                {
                    "spec": encode(self._spec),
                    "supervisor": encode(self._supervisor),
                    "protocol": PROTOCOL,
                    "adopt": None,
                },
                timeout_s=_ANSWER_S,
            )
            job = answer["job"]
            self._registration = Registration(
                id=job["id"],
                name=job["name"],
                renamed_from=answer.get("renamed_from"),
                directory=answer.get("directory") or "",
                resume_from=answer.get("resume_from") or "",
                socket=answer.get("socket") or caller.socket_path,
                handover=answer.get("handover") or "",
                degrade_level=job.get("degrade_level", 0),
                facts=answer.get("facts") or {},
                hand=answer.get("hand") or "",
            )
        except BaseException:
            self._hang_up()
            raise
        return self._registration

    def _inform(self) -> None:
        attempt = self._attempt
        if attempt is None:
            self._informed = None
            return
        assert self._caller is not None
        assert self._registration is not None
        self._caller.post(
            f"/v1/jobs/{self._registration.id}/attempts",
            {
                "attempt": attempt.number,
                "root": encode(attempt.root),
                "pgid": attempt.pgid,
                "output": list(attempt.output),
                **({"degrade_level": attempt.level} if attempt.number > 1 else {}),
            },
            timeout_s=_ANSWER_S,
        )
        ours = self._registration.hand == YOURS
        again = self._informed is None or self._informed.number != attempt.number
        if self._registration.handover and (self._presence is None or (again and attempt.master >= 0)):
            self._hand_over(self._registration, -1 if ours else attempt.master)
        self._informed = attempt
        self._keep_hand()

    def _keep_hand(self) -> None:
        if self._hand is not None and self._registration is not None and self._registration.hand == YOURS:
            assert self._attempt is not None
            self._hand.keep(self._registration, self._attempt)

    def _hand_over(self, registration: Registration, master: int) -> None:
        """Hold a connection as long as we live; with a pty, the master goes along."""
        presence = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        try:
            presence.settimeout(_ANSWER_S)
            presence.connect(registration.handover)
            handover.send(presence, {"job": registration.id}, [master] if master >= 0 else [])
            answer, _ = handover.receive(presence)
            if not answer.get("ok"):
                raise OSError("the daemon does not take it")
        except (OSError, EOFError, ValueError) as fault:
            presence.close()
            if master >= 0:
                self._say(
                    f"the daemon could not take the terminal over ({fault}): if sentinel is killed, the job loses it"
                )
            return
        if self._presence is not None:
            self._presence.close()
        self._presence = presence

    def _report(self, ending: Ending, *, more: bool = False) -> Mapping[str, Any]:
        assert self._caller is not None
        assert self._registration is not None
        answer: Mapping[str, Any] = self._caller.post(
            f"/v1/jobs/{self._registration.id}/end",
            {
                "attempt": ending.attempt,
                "exit_code": ending.exit_code,
                "exit_signal": ending.exit_signal,
                "at": ending.at,
                **({"more": True} if more else {}),
                **({"outcome": ending.outcome} if ending.outcome else {}),
                **({"reason": ending.reason} if ending.reason else {}),
                **({"last_lines": list(ending.last_lines)} if ending.last_lines else {}),
            },
            timeout_s=_ANSWER_S,
        )
        return answer

    def _wait(self) -> bool:
        """Until there is something to say (True) or the daemon is gone (False)."""
        say_hello = time.monotonic() + _HEARTBEAT_S
        while not (self._ending or self._closed or self._owed or self._attempt is not self._informed):
            poller = select.poll()
            poller.register(self._wake_in, select.POLLIN)
            waits = [say_hello - time.monotonic()]
            if self._presence is not None:
                poller.register(self._presence, select.POLLIN)
                waits = []
            if self._hand is not None and self._registration is not None and self._registration.hand == YOURS:
                if self._hand.descriptor >= 0:
                    poller.register(self._hand.descriptor, select.POLLIN)
                if self._hand.wait_s is not None:
                    waits.append(self._hand.wait_s)
            ready = {number for number, _ in poller.poll(max(1.0, min(waits) * 1000) if waits else None)}
            self._drain()
            if self._presence is not None and self._presence.fileno() in ready:
                return False
            if self._attempt is not None and self._ending is None:
                self._keep_hand()
            if self._presence is None and time.monotonic() >= say_hello:
                say_hello = time.monotonic() + _HEARTBEAT_S
                self._inform()
        return True

    def _pause(self, seconds: float) -> None:
        """Wait, but not when there is an end to tell."""
        deadline = time.monotonic() + seconds
        poller = select.poll()
        poller.register(self._wake_in, select.POLLIN)
        while (left := deadline - time.monotonic()) > 0:
            if poller.poll(left * 1000):
                self._drain()
                return

    def _wake(self) -> None:
        with contextlib.suppress(OSError):
            os.write(self._wake_out, b".")

    def _drain(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._wake_in, 4096)

    def _hang_up(self) -> None:
        self._informed = None
        if self._caller is not None:
            self._caller.close()
            self._caller = None
        if self._presence is not None:
            self._presence.close()
            self._presence = None


def _hopeless(fault: Exception) -> bool:
    """Whether the daemon has answered, and would answer the same again."""
    return isinstance(fault, ApiError) and 400 <= fault.status < 500
