"""Stands beside one attempt: its time limit, its stalls, the scheduler's deadline, the word to make room."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from sentinel.jobs import limits
from sentinel.jobs.ending import Grove
from sentinel.jobs.errands import Asked, Errands
from sentinel.jobs.limits import Stage
from sentinel.model.jobs import JobSpec
from sentinel.model.requests import RequestKind
from sentinel.system import processes, signals
from sentinel.units import format_duration

_STOPPED = frozenset("Tt")
_LOOKS = 40
"""How many looks for progress a stall limit is divided into."""
_AGAIN_S = 3.0


@dataclass(slots=True)
class _Escalation:
    """One limit and how far it has come.

    Attributes:
        name: `timeout` or `stall`.
        words: What is said about it.
        limit_s: The limit.
        since: When its clock began (monotonic).
        stage: What has been done.
    """

    name: str
    words: str
    limit_s: float
    since: float
    stage: Stage = Stage.QUIET


@dataclass(frozen=True, slots=True)
class Limits:
    """What holds for one attempt.

    Attributes:
        timeout_s: How long it may run, None without a limit.
        stall_s: How long it may make no progress, None without a limit.
        deadline: When the scheduler ends it (Unix seconds), or None.
        write_s: How long writing a checkpoint takes, as far as is known.
    """

    timeout_s: float | None = None
    stall_s: float | None = None
    deadline: float | None = None
    write_s: float | None = None

    @property
    def grace_s(self) -> float:
        """How long a checkpoint is waited for."""
        return limits.grace(self.write_s)


@dataclass(slots=True)
class Watchman:
    """Watches the clocks of one attempt. Nothing here blocks for long.

    Args:
        spec: What the owner declared.
        bounds: What holds.
        errands: To the daemon.
        say: Our words for the user.
        held: The leader.
        grove: Its tree.
        written: How many bytes of output there are.
        wake: Lets the supervisor look again, from any thread.

    Attributes:
        outcome: `preempted`, `timeout` or `stall` once one of them has ended the attempt, else "".
    """

    spec: JobSpec
    bounds: Limits
    errands: Errands
    say: Callable[[str], None]
    held: signals.Held
    grove: Grove
    written: Callable[[], int]
    wake: Callable[[], None]
    outcome: str = ""
    _clocks: list[_Escalation] = field(default_factory=list)
    _seen: int = -1
    _progress: float = 0.0
    _look_at: float = 0.0
    _saved: bool = False
    _saving: Asked | None = None
    _save_again: float = 0.0
    _asked: Asked | None = None
    _pass_on: int = 0
    _pass_at: float = 0.0

    def begin(self) -> None:
        """The attempt has started."""
        now = time.monotonic()
        if self.bounds.timeout_s is not None:
            words = f"its time limit of {format_duration(self.bounds.timeout_s)}"
            self._clocks.append(_Escalation("timeout", words, self.bounds.timeout_s, now))
        if self.bounds.stall_s is not None:
            words = f"{format_duration(self.bounds.stall_s)} without progress"
            self._clocks.append(_Escalation("stall", words, self.bounds.stall_s, now))

    @property
    def can_save(self) -> bool:
        """Whether there is a way to ask for a checkpoint."""
        return self.spec.channel(RequestKind.CHECKPOINT) is not None and not self.spec.dry_run

    def preempt(self, number: int) -> None:
        """A scheduler wants the machine back: ask for a checkpoint, and pass the signal on after its effect."""
        again = self.outcome == "preempted"
        self.outcome = "preempted"
        if again or not self.can_save:
            self._end_by(number)
            return
        grace_s = self.bounds.grace_s
        self.say(f"told to make room: asks for a checkpoint, then passes SIGTERM on, in {format_duration(grace_s)} at "
                 "the latest")  # fmt: skip
        self._asked = self._ask("the scheduler wants the machine back", grace_s)
        self._pass_on, self._pass_at = signal.SIGTERM, time.monotonic() + grace_s

    def tick(self) -> float:
        """Do what is due; how long until something may be due again (seconds)."""
        now = time.monotonic()
        waits = [float("inf")]
        if self._pass_on:
            waits.append(self._see_preemption(now))
        if self.bounds.deadline is not None and not self._saved and self.can_save:
            waits.append(self._see_deadline(self.bounds.deadline))
        for clock in self._clocks:
            if clock.name == "stall":
                waits.append(self._see_progress(clock, now))
            waits.append(self._see(clock, now))
        return max(0.0, min(waits))

    def _see_preemption(self, now: float) -> float:
        asked = self._asked
        if now < self._pass_at and asked is not None and not (asked.over and (asked.seen or not self._observable)):
            return self._pass_at - now
        if asked is not None and asked.seen:
            self.say("the checkpoint is there; SIGTERM is passed on")
        number, self._pass_on = self._pass_on, 0
        self._end_by(number)
        return float("inf")

    @property
    def _observable(self) -> bool:
        """Whether a checkpoint that comes later could still be seen: else waiting for it is all there is."""
        return self._asked is not None and not self._asked.seen

    def _see_deadline(self, deadline: float) -> float:
        left = limits.save_at(deadline, self.bounds.write_s) - time.time()
        if left > 0:
            return min(left, 60.0)  # the wall clock may jump
        remaining = max(0.0, deadline - time.time())
        asked = self._saving
        if asked is None:
            self.say(f"the scheduler ends this job in {format_duration(remaining)}: asks for a checkpoint")
        elif not asked.over:
            return 1.0
        elif not asked.refused or not remaining:
            self._saved = True
            return float("inf")
        elif time.monotonic() < self._save_again:
            return self._save_again - time.monotonic()
        self._saving = self._ask("the time that the scheduler gave ends soon", max(1.0, remaining))
        self._save_again = time.monotonic() + _AGAIN_S  # it may not have been ready to hear it
        return 1.0

    def _see_progress(self, clock: _Escalation, now: float) -> float:
        """Start the clock anew where the job has got on, or is paused."""
        if now < self._look_at:
            return self._look_at - now
        pause_s = min(30.0, max(0.05, clock.limit_s / _LOOKS))
        self._look_at = now + pause_s
        written = self.written()
        leader = processes.read_stat(self.held.process.pid)
        if written != self._seen or (leader is not None and leader.state in _STOPPED):
            self._seen, clock.since = written, now
        elif now - clock.since >= limits.WARN_AT * clock.limit_s and clock.stage < Stage.STOP:
            told = self.errands.job()  # silent: has it got on all the same, by a step or a checkpoint?
            progress = (told or {}).get("last_progress")
            if isinstance(progress, int | float) and progress > self._progress:
                self._progress = progress
                clock.since = max(clock.since, now - max(0.0, time.time() - progress))
        if (
            clock.stage < Stage.STOP
            and limits.stage(now - clock.since, clock.limit_s, self.bounds.grace_s) < Stage.WARN
        ):
            clock.stage = Stage.QUIET
        return pause_s

    def _see(self, clock: _Escalation, now: float) -> float:
        elapsed, grace_s = now - clock.since, self.bounds.grace_s
        reached = limits.stage(elapsed, clock.limit_s, grace_s)
        for stage in Stage:
            if clock.stage < stage <= reached:
                clock.stage = stage
                self._do(clock, stage)
        return limits.next_change(elapsed, clock.limit_s, grace_s)

    def _do(self, clock: _Escalation, stage: Stage) -> None:
        left = max(0.0, clock.limit_s - (time.monotonic() - clock.since))
        match stage:
            case Stage.WARN:
                message = f"{format_duration(left)} are left until {clock.words}; then it is stopped"
                self.say(message)
                self.errands.say(f"{clock.name}_near", message)
            case Stage.ASK if self.can_save:
                self._ask(f"it is stopped in {format_duration(left)}: {clock.words}", max(1.0, left))
            case Stage.STOP:
                self.outcome = self.outcome or clock.name
                self.say(f"{clock.words} {'is' if clock.name == 'timeout' else 'are'} over: it is stopped")
                self.grove.stop()
            case Stage.KILL:
                if killed := self.grove.kill():
                    self.say(f"{killed} processes did not end within {format_duration(self.bounds.grace_s)} of TERM "
                             "and were killed")  # fmt: skip
            case _:
                pass

    def _ask(self, reason: str, within_s: float) -> Asked:
        return self.errands.checkpoint(reason, within_s, self.grove, self.wake)

    def _end_by(self, number: int) -> None:
        self._pass_on = 0
        try:
            self.held.check()
            self.held.send(number)
        except signals.NotSent:
            pass
