"""The life of a job, as a table and as a walk through it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sentinel.jobs.machine import Impossible, Seen, must_step, step
from sentinel.model.jobs import JobState

S = JobState
STORIES = [
    ("a job that finishes", [Seen.STARTED, Seen.FINISHED], S.SUCCEEDED),
    ("a job that fails", [Seen.STARTED, Seen.FAILED], S.FAILED),
    ("a command that cannot be run", [Seen.FAILED], S.FAILED),
    ("a job that is paused and goes on", [Seen.STARTED, Seen.PAUSED, Seen.RESUMED], S.RUNNING),
    ("a job that dies while paused", [Seen.STARTED, Seen.PAUSED, Seen.FAILED], S.FAILED),
    ("a job that is stopped and saves first", [Seen.STARTED, Seen.STOP_ASKED, Seen.FINISHED], S.STOPPED),
    ("a job that is stopped and must be killed", [Seen.STARTED, Seen.STOP_ASKED, Seen.FAILED], S.STOPPED),
    ("a stopped job whose end nobody saw", [Seen.STARTED, Seen.STOP_ASKED, Seen.VANISHED], S.STOPPED),
    ("a job whose end nobody saw", [Seen.STARTED, Seen.VANISHED], S.LOST),
    ("a job that its user interrupts", [Seen.STARTED, Seen.INTERRUPTED], S.STOPPED),
    ("a job that a scheduler ends", [Seen.STARTED, Seen.PREEMPTED], S.PREEMPTED),
    ("a supervisor that says it again", [Seen.STARTED, Seen.PAUSED, Seen.STARTED], S.PAUSED),
]


@pytest.mark.parametrize(
    ("story", "end"), [(seen, end) for _, seen, end in STORIES], ids=[name for name, _, _ in STORIES]
)
def test_story(story: list[Seen], end: JobState) -> None:
    state = JobState.STARTING
    for seen in story:
        state = must_step("llama", state, seen)
    assert state is end


def test_what_is_impossible_is_said_with_what_is_possible() -> None:
    with pytest.raises(Impossible) as caught:
        must_step("llama", JobState.STARTING, Seen.PAUSED)

    assert str(caught.value).startswith("job 'llama' is starting, so it cannot be paused; possible: ")


@given(st.lists(st.sampled_from(Seen)))
def test_what_has_ended_stays_ended(story: list[Seen]) -> None:
    state = JobState.STARTING
    for seen in story:
        after = step(state, seen)
        if state.ended:
            assert after is None
        state = after or state


@pytest.mark.parametrize("state", [state for state in JobState if not state.ended])
@pytest.mark.parametrize("seen", [Seen.FINISHED, Seen.FAILED, Seen.VANISHED])
def test_whatever_lives_can_end(state: JobState, seen: Seen) -> None:
    after = step(state, seen)
    assert after is not None
    assert after.ended
