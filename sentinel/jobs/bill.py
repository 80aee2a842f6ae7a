"""What an attempt was good for: useful, lost, at risk, saved. Pure.

start ────── checkpoint ────── asked for ────── end
  └──────────── useful ──────────┘└─── lost ────┘
                   └─── saved ───┘
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sentinel.model.jobs import Job, JobState, Past


@dataclass(frozen=True, slots=True)
class Kept:
    """The whole checkpoints of an attempt.

    Attributes:
        newest: When the newest was finished (Unix seconds); None: there is none.
        before: When the one before it was finished; None: there is none.
        asked: Whether sentinel had asked for the newest.
    """

    newest: float | None = None
    before: float | None = None
    asked: bool = False


@dataclass(frozen=True, slots=True)
class Worth:
    """Seconds of work.

    Attributes:
        useful_s: Kept.
        lost_s: Since the last whole checkpoint at the end.
        saved_s: The part of what is kept that a requested checkpoint preserved.
    """

    useful_s: float
    lost_s: float
    saved_s: float


def worth(started: float, ended: float, kept: Kept, *, succeeded: bool) -> Worth:
    """What the work from `started` to `ended` was good for."""
    whole = max(0.0, ended - started)
    inside = kept.newest is not None and kept.newest > started
    until = min(max(kept.newest, started), ended) if kept.newest is not None and inside else started
    useful = whole if succeeded else until - started
    since = max(started, kept.before) if kept.before is not None else started
    saved = max(0.0, until - since) if inside and kept.asked and not succeeded else 0.0
    return Worth(useful, whole - useful, saved)


def past(job: Job, *, started: float, ended: float, kept: Kept, verdict: str, error: str, gpus: int) -> Past:
    """The attempt of a job that has just ended, as it is remembered."""
    succeeded = job.state is JobState.SUCCEEDED
    value = worth(started, ended, kept, succeeded=succeeded)
    outcome = "restarted" if job.restarting else "failed" if job.state is JobState.WAITING else job.state.value
    return Past(
        attempt=job.attempt,
        started=started,
        ended=ended,
        outcome=outcome,
        exit_code=job.exit_code,
        exit_signal=job.exit_signal,
        cause=job.cause,
        verdict=verdict,
        error=error,
        level=job.degrade_level,
        gpus=gpus,
        useful_s=value.useful_s,
        lost_s=value.lost_s,
        saved_s=value.saved_s,
    )


def money(job: Job, seconds: float) -> float | None:
    """What so many seconds of the job cost; None where it has no price."""
    return None if job.spec.cost_per_hour is None else job.spec.cost_per_hour * seconds / 3600.0


def lost_s(attempts: Sequence[Past]) -> float:
    """The work that several attempts have lost together."""
    return sum(one.lost_s for one in attempts)
