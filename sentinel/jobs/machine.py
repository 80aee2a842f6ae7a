"""The life of a job as one table: state and observation in, state out, with a named reason. Pure.

starting ──started──▶ running ◀──resumed/paused──▶ paused
    │                    │  └──asked to stop──▶ stopping        (from paused too)
    └────────┬───────────┴──────────┬──────────────┘
             ▼                      ▼
   ended as seen: succeeded, failed, preempted, stopped     vanished: lost

starting, running, paused ──failed, and another attempt may follow──▶ waiting ──started──▶ running
"""

from __future__ import annotations

from enum import StrEnum

from sentinel.errors import SentinelError
from sentinel.model.jobs import JobState


class Seen(StrEnum):
    """What can happen to a job."""

    STARTED = "started"  # an attempt has a process
    PAUSED = "paused"
    RESUMED = "resumed"
    STOP_ASKED = "stop_asked"  # by the owner, root or a rule of theirs
    FINISHED = "finished"  # exit code 0
    FAILED = "failed"  # another exit code, or a signal
    INTERRUPTED = "interrupted"  # by Ctrl-C: somebody asked
    PREEMPTED = "preempted"  # a scheduler wanted the machine back
    VANISHED = "vanished"  # gone, and nobody saw how
    BROKE_OFF = "broke_off"  # the attempt failed or was told to end, and another may follow


_S = JobState
_ENDINGS = {
    Seen.FINISHED: _S.SUCCEEDED,
    Seen.FAILED: _S.FAILED,
    Seen.INTERRUPTED: _S.STOPPED,
    Seen.PREEMPTED: _S.PREEMPTED,
    Seen.VANISHED: _S.LOST,
}
_TABLE: dict[JobState, dict[Seen, JobState]] = {
    _S.STARTING: {
        Seen.STARTED: _S.RUNNING,
        Seen.STOP_ASKED: _S.STOPPING,
        Seen.BROKE_OFF: _S.WAITING,
        **_ENDINGS,
    },
    # A supervisor that found a new daemon says "started" again.
    _S.RUNNING: {
        Seen.STARTED: _S.RUNNING,
        Seen.PAUSED: _S.PAUSED,
        Seen.RESUMED: _S.RUNNING,
        Seen.STOP_ASKED: _S.STOPPING,
        Seen.BROKE_OFF: _S.WAITING,
        **_ENDINGS,
    },
    _S.PAUSED: {
        Seen.STARTED: _S.PAUSED,
        Seen.PAUSED: _S.PAUSED,
        Seen.RESUMED: _S.RUNNING,
        Seen.STOP_ASKED: _S.STOPPING,
        Seen.BROKE_OFF: _S.WAITING,
        **_ENDINGS,
    },
    _S.STOPPING: {
        Seen.STARTED: _S.STOPPING,
        Seen.RESUMED: _S.STOPPING,  # so that it can hear TERM
        Seen.STOP_ASKED: _S.STOPPING,
        **_ENDINGS,
        Seen.FINISHED: _S.STOPPED,  # however it ends now, it ends because somebody asked
        Seen.FAILED: _S.STOPPED,
        Seen.VANISHED: _S.STOPPED,
        Seen.BROKE_OFF: _S.STOPPED,
    },
    _S.WAITING: {Seen.STARTED: _S.RUNNING, Seen.STOP_ASKED: _S.STOPPED, Seen.BROKE_OFF: _S.WAITING, **_ENDINGS},
}


def step(state: JobState, seen: Seen) -> JobState | None:
    """The state after `seen`, or None where that cannot happen."""
    return _TABLE.get(state, {}).get(seen)


def must_step(name: str, state: JobState, seen: Seen) -> JobState:
    """The state after `seen`.

    Raises:
        Impossible: It cannot happen; the message names what can.
    """
    after = step(state, seen)
    if after is None:
        allowed = sorted(possible.value for possible in _TABLE.get(state, {}))
        raise Impossible(name, state, seen, allowed)
    return after


class Impossible(SentinelError):
    """Something that cannot happen to a job in its state."""

    def __init__(self, name: str, state: JobState, seen: Seen, allowed: list[str]) -> None:
        what = f"it cannot be {seen.value.replace('_', ' ')}"
        rest = f"; possible: {', '.join(allowed).replace('_', ' ')}" if allowed else ", for ever"
        super().__init__(f"job {name!r} is {state.value}, so {what}{rest}")
        self.state = state
        self.seen = seen
