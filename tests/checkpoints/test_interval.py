"""How often a checkpoint is worth its cost."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sentinel.checkpoints.interval import (
    advise,
    daly,
    lost_ratio,
    mean_time_between_failures,
    write_cost,
    young,
)

seconds = st.floats(0.1, 1e4)
hours = st.floats(1e4, 1e7)


def test_the_formulas_say_what_the_papers_say() -> None:
    assert young(60, 86400) == pytest.approx(math.sqrt(2 * 60 * 86400))
    # By hand: 3219.9 * (1 + 0.01863/3 + 0.000347/9) - 60
    assert daly(60, 86400) == pytest.approx(3180.1, abs=0.2)
    assert daly(200_000, 86400) == 86400


@given(seconds, hours)
def test_no_other_interval_loses_much_less(write_s: float, mtbf_s: float) -> None:
    best = lost_ratio(daly(write_s, mtbf_s), write_s, mtbf_s)

    for factor in (0.1, 0.5, 0.8, 1.25, 2.0, 10.0):
        assert best <= lost_ratio(daly(write_s, mtbf_s) * factor, write_s, mtbf_s) + 1e-6 + 0.02 * best


@given(seconds, hours)
def test_dearer_writes_and_rarer_failures_make_it_longer(write_s: float, mtbf_s: float) -> None:
    assert young(write_s * 2, mtbf_s) > young(write_s, mtbf_s)
    assert daly(write_s, mtbf_s * 2) > daly(write_s, mtbf_s)


def test_a_job_that_never_failed_is_not_taken_for_one_that_never_will() -> None:
    assert mean_time_between_failures(0, 0) == 86400
    assert mean_time_between_failures(10 * 86400, 0) == 11 * 86400
    assert mean_time_between_failures(86400, 3) == 43200


def test_what_a_write_costs_is_what_is_usual() -> None:
    assert write_cost([10, None, 12, 300, 11]) == 11.5
    assert write_cost([None]) is None


def test_advice_comes_with_its_numbers() -> None:
    advice = advise(30.0, 3 * 86400, 1)

    assert advice is not None
    assert advice.mtbf_s == 2 * 86400
    assert advice.interval_s == pytest.approx(daly(30, 2 * 86400))
    assert (
        advice.reason == "a write takes 30 s, and it fails every 48.0 h (1 failure in 72.0 h and one assumed in a day)"
    )
    assert advise(None, 1000, 0) is None
