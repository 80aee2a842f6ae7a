"""Once more? What must always be true, and a few stories."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sentinel.jobs.failures import Judgement, Verdict
from sentinel.jobs.retry import CAP_S, FRUITLESS, QUIET_S, Account, Again, Ended, Enough, Policy, Why, decide, wait

PASSES = Judgement(Verdict.RETRYABLE, "connection_lost", "a connection was lost")
UNCLEAR = Judgement(Verdict.UNKNOWN, "exit_3", "exit code 3")
NEVER = Judgement(Verdict.DETERMINISTIC, "disk_full", "the disk was full", "room on the disk")
OOM = Judgement(Verdict.DETERMINISTIC, "gpu_oom", "ran out of GPU memory", "less GPU memory", smaller=True)

judgements = st.sampled_from([PASSES, UNCLEAR, NEVER, OOM]) | st.builds(
    Judgement,
    st.just(Verdict.RETRYABLE),
    st.just("rate_limited"),
    st.just("429"),
    retry_after_s=st.none() | st.floats(0, 1000),
)
ends = st.builds(Ended, judgements, st.booleans(), st.floats(0, 1e5), st.just(0.0), st.floats(0, 1, exclude_max=True))
policies = st.builds(Policy, st.integers(0, 100), st.none() | st.floats(1, 1e6), st.integers(0, 3))


def after(judgement: Judgement, *, progressed: bool = False, ran_s: float = 10.0, since: float = 10.0) -> Ended:
    return Ended(judgement, progressed, ran_s, since, 0.5)


@given(policies, st.lists(ends, max_size=60))
def test_no_attempt_ever_begins_after_the_budget(policy: Policy, story: list[Ended]) -> None:
    account, clock = Account(), 0.0
    for one in story:
        clock += one.ran_s
        made = decide(policy, account, Ended(one.judgement, one.progressed, one.ran_s, clock, one.chance))
        if isinstance(made, Enough):
            return
        clock += made.wait_s
        account = made.account
        assert policy.budget_s is None or clock < policy.budget_s
        assert 1 <= account.retries <= min(policy.retries, FRUITLESS)
        assert 0 <= account.level <= policy.levels


@given(st.integers(0, 10_000), st.floats(0, 1, exclude_max=True), st.none() | st.floats(0, 1e6))
def test_the_jitter_stays_within_its_half(retries: int, chance: float, retry_after_s: float | None) -> None:
    span = min(CAP_S, 2.0 ** min(retries, 60))
    waited = wait(retries, chance, retry_after_s) - (retry_after_s or 0.0)

    assert span / 2 - 1e-6 <= waited <= span + 1e-6


@given(st.integers(0, 2**32), st.sampled_from([None, 60.0]))
def test_a_thousand_jobs_do_not_come_back_as_a_herd(seed: int, retry_after_s: float | None) -> None:
    """All fail at the same moment, for the fifth time; no second of the span sees more than its share and a half."""
    source = random.Random(seed)
    retries = 5
    arrivals = Counter(int(wait(retries, source.random(), retry_after_s)) for _ in range(1000))

    seconds = 2**retries // 2
    assert len(arrivals) >= seconds - 1
    assert max(arrivals.values()) < 1.9 * 1000 / seconds


@given(policies, st.lists(ends, max_size=30))
def test_without_progress_it_ends_soon(policy: Policy, story: list[Ended]) -> None:
    account, attempts = Account(), 0
    for one in story:
        made = decide(policy, account, Ended(one.judgement, False, one.ran_s, one.ran_s, one.chance))
        if isinstance(made, Enough):
            return
        account, attempts = made.account, attempts + 1
    assert attempts <= FRUITLESS


@given(ends, st.integers(0, 3))
def test_what_would_fail_again_is_tried_again_only_smaller(one: Ended, levels: int) -> None:
    made = decide(Policy(100, None, levels), Account(), one)

    if one.judgement.verdict is Verdict.DETERMINISTIC:
        assert isinstance(made, Again) == (one.judgement.smaller and levels > 0)
        assert not isinstance(made, Again) or made.level == 1


def test_an_oom_goes_one_level_down_and_then_it_is_enough() -> None:
    first = decide(Policy(5, None, 1), Account(), after(OOM))
    assert isinstance(first, Again)
    assert (first.level, first.reason) == (1, "retry 1 of 5, one level down (level 1)")

    second = decide(Policy(5, None, 1), first.account, after(OOM, progressed=True))
    assert isinstance(second, Enough)
    assert second.why is Why.DETERMINISTIC
    assert "lowest level" in second.reason
    assert "less GPU memory" in second.reason


def test_a_job_that_cannot_degrade_is_told_how_it_could() -> None:
    made = decide(Policy(5), Account(), after(OOM))

    assert isinstance(made, Enough)
    assert "--degrade-levels" in made.reason


def test_after_a_quiet_time_it_steps_back_up() -> None:
    made = decide(Policy(5, None, 2), Account(level=2), after(PASSES, ran_s=QUIET_S))
    soon = decide(Policy(5, None, 2), Account(level=2), after(PASSES, ran_s=QUIET_S - 1))

    assert isinstance(made, Again)
    assert isinstance(soon, Again)
    assert (made.level, soon.level) == (1, 2)


def test_progress_sets_the_counts_back() -> None:
    used = Account(3, {"connection_lost": 3})
    assert isinstance(decide(Policy(3), used, after(PASSES)), Enough)

    made = decide(Policy(3), used, after(PASSES, progressed=True))

    assert isinstance(made, Again)
    assert (made.account.retries, made.account.by_error) == (1, {"connection_lost": 1})


@pytest.mark.parametrize(
    ("policy", "account", "ended", "why"),
    [
        (Policy(), Account(), after(PASSES), Why.NOT_DECLARED),
        (Policy(9), Account(), after(NEVER), Why.DETERMINISTIC),
        (Policy(2), Account(2), after(UNCLEAR), Why.RETRIES),
        (Policy(9), Account(3), after(UNCLEAR), Why.FRUITLESS),
        (Policy(9), Account(1, {"gpu_fault": 1}), after(Judgement(Verdict.RETRYABLE, "gpu_fault", "Xid 31")),
         Why.ERROR_BUDGET),
        (Policy(9, 60.0), Account(), after(UNCLEAR, since=59.5), Why.BUDGET),
        (Policy(9, 60.0), Account(), after(Judgement(Verdict.RETRYABLE, "rate_limited", "429", retry_after_s=50)),
         Why.BUDGET),
    ],
)  # fmt: skip
def test_why_it_is_enough(policy: Policy, account: Account, ended: Ended, why: Why) -> None:
    made = decide(policy, account, ended)

    assert isinstance(made, Enough)
    assert made.why is why
    assert made.reason
