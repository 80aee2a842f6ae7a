"""What follows the end of an attempt: nothing more, or a wait and the next one."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sentinel.jobs import failures, retry
from sentinel.jobs.errands import Errands
from sentinel.jobs.failures import Evidence, Judgement, Verdict
from sentinel.jobs.link import Ending, Link
from sentinel.jobs.resume import newest_checkpoint
from sentinel.jobs.retry import Account, Again, Ended, Policy
from sentinel.model.jobs import Job, JobSpec, JobState
from sentinel.units import format_duration

_ROOM_S = 60.0
_LOOK_S = 1.0
Pause = Callable[[float], int]
"""Waits so many seconds; the number of the signal that ended the wait, or 0."""


@dataclass(frozen=True, slots=True)
class End:
    """How an attempt ended.

    Attributes:
        attempt: From 1.
        exit_code: None for a signal.
        exit_signal: None for an exit code.
        at: Unix seconds.
        ran_s: How long it ran.
        outcome: `preempted`, `timeout` or `stall` where one of these ended it, else "".
        last_lines: The last of its output.
    """

    attempt: int
    exit_code: int | None
    exit_signal: int | None
    at: float
    ran_s: float
    outcome: str = ""
    last_lines: Sequence[str] = ()

    @property
    def failed(self) -> bool:
        """Whether another attempt would make sense."""
        interrupted = self.exit_signal == signal.SIGINT or self.exit_code == 128 + signal.SIGINT
        return self.exit_code != 0 and not interrupted and self.outcome != "preempted"


@dataclass(frozen=True, slots=True)
class Next:
    """Another attempt.

    Attributes:
        level: Its degrade level.
        resume_from: The newest whole checkpoint, or "".
    """

    level: int
    resume_from: str


class Following:
    """Decides after each attempt, with the daemon's judgement where there is one.

    Args:
        spec: What the owner declared.
        link: Tells the daemon.
        errands: Asks it.
        say: Our words for the user.
        pause: Waits.
        level: The degrade level of the first attempt.
        resume_from: Its checkpoint.

    Attributes:
        outcome: How the job ended: finished, failed, gave-up, preempted or stopped; "" before that.
        resume_from: The newest whole checkpoint that is known, or "".
    """

    def __init__(
        self,
        spec: JobSpec,
        link: Link,
        errands: Errands,
        say: Callable[[str], None],
        pause: Pause,
        *,
        level: int = 0,
        resume_from: str = "",
    ) -> None:
        self._spec = spec
        self._link = link
        self._errands = errands
        self._say = say
        self._pause = pause
        self._policy = Policy(spec.retries, spec.budget_s, spec.levels)
        self._account = Account(level=level)
        self.resume_from = resume_from
        self._began = time.monotonic()
        self.outcome = ""

    def after(self, end: End) -> Next | None:
        """Tell the daemon, decide, and wait; None: that was the last one, and the daemon knows."""
        ending = Ending(
            end.attempt, end.exit_code, end.exit_signal, end.at, outcome=end.outcome, last_lines=tuple(end.last_lines)
        )
        if not end.failed or self._policy.retries == 0:
            return self._last(ending, end)
        told = self._link.broke_off(ending)
        if told is not None and JobState(told["state"]).ended:
            self.outcome = "stopped" if told["state"] == JobState.STOPPED.value else "failed"
            self._link.close()
            return None
        said = (told or {}).get("next") or {}
        if said.get("restart"):
            return self._now(said)
        made = retry.decide(
            self._policy,
            self._account,
            Ended(
                _judgement(end, said),
                bool(said.get("progressed")),
                end.ran_s,
                time.monotonic() - self._began,
                int.from_bytes(os.urandom(6), "big") / (1 << 48),
            ),
        )
        if told is None and self._spec.checkpoints and (found := newest_checkpoint(self._spec)) is not None:
            self.resume_from = found.path
        self.resume_from = said.get("resume_from") or self.resume_from
        if isinstance(made, Again):
            self._account = made.account
            return self._wait(ending, end, made)
        self._give_up(ending, made.reason)
        return None

    def _last(self, ending: Ending, end: End) -> Next | None:
        """An end after which none is meant to follow, unless somebody has asked for a restart."""
        self._link.ended(ending)
        self._link.finish(keep=True)
        told = self._link.answer
        said = (told or {}).get("next") or {}
        if said.get("restart"):
            return self._now(said)
        self._link.close()
        stopped = (told or {}).get("state") == JobState.STOPPED.value
        self.outcome = (
            "preempted"
            if end.outcome == "preempted"
            else "stopped"
            if stopped
            else "finished"
            if end.exit_code == 0
            else "failed"
            if end.failed
            else "stopped"
        )
        return None

    def _now(self, said: Mapping[str, Any]) -> Next:
        self._say("started anew, as asked")
        self.resume_from = said.get("resume_from") or self.resume_from
        self._account = Account(level=int(said.get("degrade_level") or 0))
        return Next(self._account.level, self.resume_from)

    def _give_up(self, ending: Ending, reason: str, outcome: str = "gave-up") -> None:
        self._say(f"gives up: {reason}" if outcome == "gave-up" else reason)
        self.outcome = outcome
        self._link.ended(
            Ending(ending.attempt, ending.exit_code, ending.exit_signal, ending.at, outcome=outcome, reason=reason)
        )
        self._link.finish()

    def _wait(self, ending: Ending, end: End, made: Again) -> Next | None:
        until = time.monotonic() + made.wait_s
        how = f"exit code {end.exit_code}" if end.exit_code is not None else f"signal {end.exit_signal}"
        from_where = f", from {self.resume_from}" if self.resume_from else ""
        words = f"{made.reason} in {format_duration(made.wait_s)}{from_where}"
        self._say(f"attempt {end.attempt} ended with {how}; {words}")
        self._errands.waits(time.time() + made.wait_s, words)
        looks_s = 0.0
        while True:
            number = self._pause(min(_LOOK_S, max(looks_s, until - time.monotonic())))
            if number:
                self._give_up(ending, "ended while it waited", "stopped" if number == signal.SIGINT else "preempted")
                return None
            job = self._errands.job()
            if job is not None and JobState(job["state"]).ended:
                self._say("it is not started again: somebody asked for its end")
                self.outcome = "stopped"
                self._link.close()
                return None
            if job is not None and job.get("restarting"):
                break
            if time.monotonic() < until:
                continue
            room = self._errands.room()
            if room is None or room.get("free"):
                break
            if time.monotonic() >= until + _ROOM_S:
                self._give_up(ending, f"gpu_memory_not_free: {room.get('reason')}")
                return None
            looks_s = _LOOK_S
        return Next(made.level, self.resume_from)


def _judgement(end: End, said: Mapping[str, Any]) -> Judgement:
    """The daemon's, else our own, from what we have seen ourselves."""
    if end.outcome in {"timeout", "stall"}:
        return Judgement(Verdict.RETRYABLE, f"own_{end.outcome}", f"sentinel ended it: {end.outcome}")
    if said.get("verdict"):
        after = said.get("retry_after_seconds")
        return Judgement(
            Verdict(said["verdict"]),
            str(said.get("error", "")),
            str(said.get("evidence", "")),
            str(said.get("change", "")),
            smaller=bool(said.get("smaller")),
            retry_after_s=float(after) if after is not None else None,
        )
    job = Job("", "", 0, "", JobSpec((), ""), JobState.FAILED, exit_code=end.exit_code, exit_signal=end.exit_signal)
    return failures.judge(job, Evidence(last_lines=end.last_lines))
