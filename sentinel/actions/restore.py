"""The way back up after a degrade, as pure functions.

One level for each quiet period; a job that has to be degraded again soon after
a restore gets twice the wait next time, up to six hours.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

RELAPSE_S = 1800.0
LONGEST_WAIT_S = 6 * 3600.0


@dataclass(frozen=True, slots=True)
class Ladder:
    """Where one job stands between its full and its lowest level.

    Attributes:
        job_id: Which job.
        level: Acknowledged degrades not yet restored, 0 to the job's `degrade_levels`.
        base_s: The quiet period that the rule of the last degrade wants; None: never restored by itself.
        wait_s: The quiet period in force: `base_s`, or doubled after relapses.
        quiet_since: Since when no open alert holds a degrade on it; None while one does.
        restored: When it last went up a level, or None (Unix seconds).
    """

    job_id: str
    level: int = 0
    base_s: float | None = None
    wait_s: float | None = None
    quiet_since: float | None = None
    restored: float | None = None


def degraded(ladder: Ladder, level: int, base_s: float | None, at: float) -> Ladder:
    """A degrade to `level` was acknowledged."""
    relapse = ladder.restored is not None and at - ladder.restored < RELAPSE_S
    if base_s is None:
        wait = ladder.wait_s if relapse else None
    elif relapse and ladder.wait_s is not None:
        wait = min(LONGEST_WAIT_S, max(base_s, ladder.wait_s * 2))
    else:
        wait = base_s
    base = base_s if base_s is not None else ladder.base_s if relapse else None
    return replace(ladder, level=level, base_s=base, wait_s=wait, quiet_since=at)


def held(ladder: Ladder, *, held: bool, at: float) -> Ladder:
    """An open alert holds a degrade on the job, or none does (any more)."""
    if held:
        return ladder if ladder.quiet_since is None else replace(ladder, quiet_since=None)
    return ladder if ladder.quiet_since is not None else replace(ladder, quiet_since=at)


def restored(ladder: Ladder, level: int, at: float) -> Ladder:
    """A restore to `level` was acknowledged: the next quiet period begins."""
    return replace(ladder, level=level, restored=at, quiet_since=at)


def put_off(ladder: Ladder, at: float) -> Ladder:
    """A restore was asked and did not come through: wait for another quiet period."""
    return replace(ladder, quiet_since=at)


def due(ladder: Ladder, at: float) -> bool:
    """Whether the quiet period is over and a level can be given back."""
    return (
        ladder.level > 0
        and ladder.wait_s is not None
        and ladder.quiet_since is not None
        and at - ladder.quiet_since >= ladder.wait_s
    )
