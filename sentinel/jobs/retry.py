"""Once more? A pure policy: how often, how soon, how small, and when it is enough.

    wait = half of min(cap, first * 2^n), plus a random half of it        (equal jitter)

n counts the retries since the job was last seen to get on. Only progress, a newer
checkpoint or step, sets the counts back; the time budget is never set back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from sentinel.jobs.failures import Judgement, Verdict
from sentinel.units import format_duration

FIRST_S = 1.0
CAP_S = 300.0
FRUITLESS = 3
"""So many retries in a row that got nowhere are enough."""
QUIET_S = 1800.0
"""An attempt that ran for so long at a lower level, and did not end for want of memory, earns a level back."""
_PER_ERROR = {"gpu_fault": 1, "nccl_failure": 2, "sigsegv": 2, "sigbus": 2, "sigill": 1, "sigabrt": 2, "traceback": 2}
"""Errors that are given fewer retries than others: a board that fails twice is broken, and so is a program."""


class Why(StrEnum):
    """Why there is no further attempt."""

    NOT_DECLARED = "no_retries_declared"
    DETERMINISTIC = "would_fail_again"
    RETRIES = "retries_used_up"
    BUDGET = "time_budget_used_up"
    ERROR_BUDGET = "same_error_too_often"
    FRUITLESS = "no_progress"


@dataclass(frozen=True, slots=True)
class Policy:
    """What the owner allows.

    Attributes:
        retries: How many, since the last progress.
        budget_s: How long after the job's first start an attempt may begin; None: for ever.
        levels: How many degrade levels the job has; 0: it did not say that it can degrade.
    """

    retries: int = 0
    budget_s: float | None = None
    levels: int = 0


@dataclass(frozen=True, slots=True)
class Account:
    """What has been used up.

    Attributes:
        retries: Since the last progress.
        by_error: The same, by class of error.
        level: The degrade level of the attempt that ended.
    """

    retries: int = 0
    by_error: Mapping[str, int] = field(default_factory=dict)
    level: int = 0


@dataclass(frozen=True, slots=True)
class Ended:
    """How an attempt went.

    Attributes:
        judgement: What its end says.
        progressed: Whether it was seen to get further than the one before.
        ran_s: How long it ran.
        since_first_s: From the job's first start until now.
        chance: A random number from [0, 1).
    """

    judgement: Judgement
    progressed: bool
    ran_s: float
    since_first_s: float
    chance: float


@dataclass(frozen=True, slots=True)
class Again:
    """One more attempt.

    Attributes:
        wait_s: After so long.
        level: At this degrade level.
        account: What has then been used up.
        reason: In words.
    """

    wait_s: float
    level: int
    account: Account
    reason: str


@dataclass(frozen=True, slots=True)
class Enough:
    """No further attempt."""

    why: Why
    reason: str


def decide(policy: Policy, account: Account, ended: Ended) -> Again | Enough:
    """What follows an attempt that failed. Pure: the same arguments always give the same answer."""
    judgement = ended.judgement
    if policy.retries == 0:
        return Enough(Why.NOT_DECLARED, "no retries were declared")
    level, change = _level(policy, account, ended)
    if judgement.verdict is Verdict.DETERMINISTIC and level <= account.level:
        lowest = judgement.smaller and policy.levels > 0
        said = f"it runs at its lowest level already; what must change: {judgement.change}"
        return Enough(Why.DETERMINISTIC, said if lowest else _unchanged(judgement))
    if ended.progressed:
        account = Account(level=account.level)
    used = account.by_error.get(judgement.error, 0)
    if account.retries >= policy.retries:
        return Enough(Why.RETRIES, f"all {policy.retries} retries are used up, and it got no further")
    if account.retries >= FRUITLESS:
        return Enough(Why.FRUITLESS, f"{account.retries} retries in a row got no further")
    if used >= _PER_ERROR.get(judgement.error, FRUITLESS):
        return Enough(Why.ERROR_BUDGET, f"{judgement.error} has ended it {used + 1} times since it last got further")
    wait_s = wait(account.retries, ended.chance, judgement.retry_after_s)
    if policy.budget_s is not None and ended.since_first_s + wait_s >= policy.budget_s:
        return Enough(
            Why.BUDGET, f"the time budget of {format_duration(policy.budget_s)} leaves no room for another attempt"
        )
    after = replace(
        account,
        retries=account.retries + 1,
        by_error={**account.by_error, judgement.error: used + 1},
        level=level,
    )
    return Again(wait_s, level, after, f"retry {after.retries} of {policy.retries}{change}")


def wait(retries: int, chance: float, retry_after_s: float | None = None) -> float:
    """How long to wait before the next attempt (seconds).

    Args:
        retries: So many since the last progress.
        chance: From [0, 1).
        retry_after_s: Not before; those who were told the same are spread out behind it.
    """
    span = min(CAP_S, FIRST_S * 2.0 ** min(retries, 60))
    jittered = span / 2 + chance * span / 2
    return jittered if retry_after_s is None else retry_after_s + jittered


def _level(policy: Policy, account: Account, ended: Ended) -> tuple[int, str]:
    """The level of the next attempt, and how that is said."""
    if ended.judgement.smaller and account.level < policy.levels:
        return account.level + 1, f", one level down (level {account.level + 1})"
    if account.level > 0 and ended.ran_s >= QUIET_S and not ended.judgement.smaller:
        quiet = format_duration(ended.ran_s)
        return account.level - 1, f", one level up after {quiet} without a want of memory (level {account.level - 1})"
    return account.level, ""


def _unchanged(judgement: Judgement) -> str:
    change = f"; what must change: {judgement.change}" if judgement.change else ""
    declare = ", or --degrade-levels N for a job that can run smaller" if judgement.smaller else ""
    return f"unchanged it would fail again{change}{declare}"
