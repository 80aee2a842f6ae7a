"""The state machine of one alert: stories, and what must always be true."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sentinel.model.alerts import Alert, AlertState, Reason, RuleSpec, Transition
from sentinel.model.labels import Labels
from sentinel.rules.machine import Clear, Dark, Holds, Observation, close, step

RULE = RuleSpec("g", "Leak", "x > 1", for_s=60, dark_after_s=300)
AS_PROMETHEUS = replace(RULE, dark_after_s=0)
AT_ONCE = replace(RULE, for_s=0)
STUBBORN = replace(RULE, keep_firing_for_s=120)
LABELS = Labels({"alertname": "Leak", "job": "train"})

Story = list[tuple[float, Observation]]


@dataclass(frozen=True)
class Case:
    name: str
    story: Story
    expected: list[tuple[float, Reason]]
    rule: RuleSpec = field(default=RULE)


def play(rule: RuleSpec, story: Story) -> list[Transition]:
    changes: list[Transition] = []
    alert: Alert | None = None
    for at, seen in story:
        taken = step(rule, LABELS, alert, seen, at)
        alert = taken.alert
        if taken.change is not None:
            changes.append(taken.change)
    return changes


FIRED: Story = [(0, Holds(0.0)), (60, Holds(1.0))]
BOTH = [(0.0, Reason.BEGAN), (60.0, Reason.HELD)]

CASES = [
    Case("nothing seen is nothing kept", [(0, Clear()), (1, Dark())], []),
    Case("a short dip never fires", [(0, Holds(0.0)), (30, Clear())], [(0, Reason.BEGAN), (30, Reason.ENDED_EARLY)]),
    Case("one that holds long enough fires once", [*FIRED, (70, Holds(2.0))], BOTH),
    Case("one second short of `for` is still pending", [(0, Holds(0.0)), (59, Holds(0.0))], [(0, Reason.BEGAN)]),
    Case("without `for` it fires at once", [(0, Holds(0.0)), (1, Holds(0.0))], [(0, Reason.BEGAN)], AT_ONCE),
    Case(
        "half a second of `for` is some",
        [(0, Holds(0.0)), (0.5, Holds(0.0))],
        [(0, Reason.BEGAN), (0.5, Reason.HELD)],
        replace(RULE, for_s=0.5),
    ),
    Case(
        "clear data while it is kept firing is data: darkness begins after it",
        [*FIRED, (100, Clear()), (125, Dark()), (150, Dark())],
        [*BOTH, (150, Reason.WENT_DARK)],
        replace(RULE, keep_firing_for_s=20, dark_after_s=50),
    ),
    Case("when the data says it is over, it ends", [*FIRED, (70, Clear())], [*BOTH, (70, Reason.ENDED)]),
    Case("a dead collector is no recovery", [*FIRED, (70, Dark()), (359, Dark())], BOTH),
    Case(
        "darkness ends it after `dark_after`, and says so",
        [*FIRED, (70, Dark()), (360, Dark())],
        [*BOTH, (360, Reason.WENT_DARK)],
    ),
    Case("a pending one in the dark waits too", [(0, Holds(0.0)), (299, Dark())], [(0, Reason.BEGAN)]),
    Case(
        "and goes dark in the end",
        [(0, Holds(0.0)), (299, Dark()), (300, Dark())],
        [(0, Reason.BEGAN), (300, Reason.WENT_DARK)],
    ),
    Case(
        "a gap in the data does not start `for` again",
        [(0, Holds(0.0)), (30, Dark()), (60, Holds(0.0))],
        BOTH,
    ),
    Case(
        "with dark_after 0 darkness ends an alert, as in Prometheus, and says so",
        [*FIRED, (75, Dark()), (105, Dark())],
        [*BOTH, (75, Reason.WENT_DARK)],
        AS_PROMETHEUS,
    ),
    Case(
        "clear data during darkness starts its clock again",
        [*FIRED, (300, Holds(0.0)), (400, Dark()), (599, Dark()), (600, Dark())],
        [*BOTH, (600, Reason.WENT_DARK)],
    ),
    Case(
        "it fires on for `keep_firing_for`",
        [*FIRED, (70, Clear()), (189, Clear()), (190, Clear())],
        [*BOTH, (190, Reason.ENDED)],
        STUBBORN,
    ),
    Case(
        "and a relapse starts that clock again",
        [*FIRED, (70, Clear()), (100, Holds(3.0)), (180, Clear()), (299, Clear()), (300, Clear())],
        [*BOTH, (300, Reason.ENDED)],
        STUBBORN,
    ),
    Case(
        "a pending one is not kept by `keep_firing_for`",
        [(0, Holds(0.0)), (10, Clear())],
        [(0, Reason.BEGAN), (10, Reason.ENDED_EARLY)],
        STUBBORN,
    ),
    Case(
        "darkness counts as quiet only after `dark_after`",
        [*FIRED, (70, Dark()), (360, Dark()), (479, Dark()), (480, Dark())],
        [*BOTH, (480, Reason.WENT_DARK)],
        STUBBORN,
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_story(case: Case) -> None:
    assert [(change.at, change.reason) for change in play(case.rule, case.story)] == case.expected


def test_an_alert_remembers_when_and_what() -> None:
    began, held, ended = play(RULE, [*FIRED, (70, Holds(7.0)), (80, Clear())])

    assert (began.alert.state, began.was) == (AlertState.PENDING, AlertState.INACTIVE)
    assert held.firing
    assert held.alert.fired == 60
    assert ended.resolving
    assert (ended.alert.began, ended.alert.fired, ended.alert.resolved, ended.alert.value) == (0, 60, 80, 7.0)
    assert {change.alert.id for change in (began, held, ended)} == {began.alert.id}


def test_the_end_of_its_job_closes_it_whatever_it_was() -> None:
    pending = play(RULE, [(0, Holds(0.0))])[0].alert
    firing = play(RULE, FIRED)[-1].alert

    assert close(RULE, pending, Reason.JOB_ENDED, 70).alert.state is AlertState.INACTIVE
    ended = close(RULE, firing, Reason.JOB_ENDED, 70)
    assert ended.resolving
    assert ended.alert.resolved == 70


observations = st.one_of(st.builds(Holds, st.floats(0, 10)), st.just(Clear()), st.just(Dark()))
ticks = st.lists(st.tuples(st.integers(1, 90), observations), max_size=40)
rules = st.builds(
    lambda hold, keep, dark: replace(RULE, for_s=hold, keep_firing_for_s=keep, dark_after_s=dark),
    st.sampled_from([0.0, 30.0, 60.0]),
    st.sampled_from([0.0, 45.0]),
    st.sampled_from([0.0, 100.0]),
)


def timed(gaps: list[tuple[int, Observation]]) -> Story:
    at, story = 0.0, []
    for gap, seen in gaps:
        at += gap
        story.append((at, seen))
    return story


@given(rules, ticks)
def test_changes_always_join_up(rule: RuleSpec, gaps: list[tuple[int, Observation]]) -> None:
    """Each change starts in the state where the one before it ended."""
    state = AlertState.INACTIVE
    for change in play(rule, timed(gaps)):
        assert change.was is state
        assert change.alert.state is not change.was
        state = AlertState.INACTIVE if change.alert.state is AlertState.RESOLVED else change.alert.state


@given(rules, ticks)
def test_nothing_fires_before_its_time(rule: RuleSpec, gaps: list[tuple[int, Observation]]) -> None:
    for change in play(rule, timed(gaps)):
        if change.firing:
            assert change.at - change.alert.began >= rule.for_s


@given(ticks)
def test_without_clear_or_long_darkness_nothing_resolves(gaps: list[tuple[int, Observation]]) -> None:
    story: Story = [(at, Dark() if isinstance(seen, Clear) else seen) for at, seen in timed(gaps)]
    patient = replace(RULE, dark_after_s=1e9)

    assert not any(change.resolving for change in play(patient, story))


@given(ticks)
def test_with_dark_after_0_dark_and_clear_end_at_the_same_moments(gaps: list[tuple[int, Observation]]) -> None:
    story = timed(gaps)
    lit: Story = [(at, Clear() if isinstance(seen, Dark) else seen) for at, seen in story]

    as_dark = [(change.at, change.alert.state) for change in play(AS_PROMETHEUS, story)]
    as_clear = [(change.at, change.alert.state) for change in play(AS_PROMETHEUS, lit)]
    assert as_dark == as_clear
