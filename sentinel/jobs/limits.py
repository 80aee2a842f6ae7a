"""How long something may take, and what happens on the way to its end. Pure.

    0 ────────── 80 % ────── limit - grace ────── limit ────── limit + grace
      quiet       warn           ask              stop            kill

The checkpoint is asked for before the limit, so that the end comes at the limit, and
never before four fifths of it.
"""

from __future__ import annotations

from enum import IntEnum

WARN_AT = 0.8
LEAST_GRACE_S = 30.0
UNKNOWN_WRITE_S = 30.0
"""How long a checkpoint is taken to need while none was seen being written."""
BEFORE_DEADLINE_S = 60.0
AUTO_RUNS = 20
AUTO_MARGIN = 1.5
AUTO_DEFAULT_S = 24 * 3600.0
"""The limit of `--timeout auto` while fewer than `AUTO_RUNS` runs of this job are known."""


class Stage(IntEnum):
    """How far it has come."""

    QUIET = 0
    WARN = 1
    ASK = 2
    STOP = 3
    KILL = 4


def stage(elapsed_s: float, limit_s: float, grace_s: float) -> Stage:
    """Where `elapsed_s` stands."""
    if elapsed_s >= limit_s + grace_s:
        return Stage.KILL
    if elapsed_s >= limit_s:
        return Stage.STOP
    if elapsed_s >= ask_at(limit_s, grace_s):
        return Stage.ASK
    return Stage.WARN if elapsed_s >= WARN_AT * limit_s else Stage.QUIET


def next_change(elapsed_s: float, limit_s: float, grace_s: float) -> float:
    """How long until the stage changes (seconds); infinite where it does not any more."""
    moments = (WARN_AT * limit_s, ask_at(limit_s, grace_s), limit_s, limit_s + grace_s)
    return min((moment - elapsed_s for moment in moments if moment > elapsed_s), default=float("inf"))


def ask_at(limit_s: float, grace_s: float) -> float:
    """When the checkpoint is asked for."""
    return max(WARN_AT * limit_s, limit_s - grace_s)


def grace(write_s: float | None) -> float:
    """How long a checkpoint is waited for, and a TERM: twice what writing one takes, at least half a minute."""
    return max(LEAST_GRACE_S, 2.0 * (write_s or 0.0))


def save_at(deadline: float, write_s: float | None) -> float:
    """When a checkpoint is asked for before a scheduler's end (Unix seconds)."""
    return deadline - (2.0 * (write_s or UNKNOWN_WRITE_S) + BEFORE_DEADLINE_S)


def learnt(p99_s: float | None, runs: int) -> float:
    """The limit of `--timeout auto`."""
    return AUTO_DEFAULT_S if p99_s is None or runs < AUTO_RUNS else p99_s * AUTO_MARGIN


def stall_limit(gaps_s: list[float]) -> float:
    """After how long without progress a job counts as stalled: five times its P99, at least ten minutes."""
    if not gaps_s:
        return 600.0
    ordered = sorted(gaps_s)
    p99 = ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))]
    return max(600.0, 5.0 * p99)
