"""Rules that look further back than the window: asked beside the engine's thread, answered when the answer is there."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sentinel.promql.analysis import readings
from sentinel.rules.ports import Deep
from sentinel.rules.ruleset import Group
from sentinel.rules.states import RuleState

if TYPE_CHECKING:
    from sentinel.promql.analysis import Reading
    from sentinel.promql.series import SeriesReader, Value

PATIENCE_S = 120.0
"""A rule that has waited so long for its answer, the rules before it included, is unhealthy."""


@dataclass(frozen=True, slots=True, eq=False)
class Question:
    """One evaluation under way.

    Attributes:
        state: The rule.
        group: Its group, as it was when the question was asked.
        at: What time it is evaluated for (Unix seconds).
        begun: When it was asked (monotonic).
        answer: Where the answer comes to.
    """

    state: RuleState
    group: Group
    at: float
    begun: float
    answer: Future[Value]


class Asked:
    """What is under way; one question of each rule at most.

    Args:
        deep: Who answers.
        lookback_s: As the engine's.
    """

    def __init__(self, deep: Deep, lookback_s: float | None) -> None:
        self._deep = deep
        self._lookback_s = lookback_s or 0.0
        self._open: dict[RuleState, Question] = {}
        self._readings: dict[RuleState, tuple[Reading, ...]] = {}

    def needed(self, state: RuleState, at: float) -> bool:
        """Whether a rule wants more than the window has. An instant selector without offset never does."""
        found = self._readings.get(state)
        if found is None:
            every = readings(state.rule.expr, self._lookback_s)
            found = tuple(one for one in every if one.back_s > self._lookback_s or one.since is not None)
            self._readings[state] = found
        return bool(found) and self._deep.needed(found, at)

    def ask(self, state: RuleState, group: Group, at: float, now: float, work: Callable[[SeriesReader], Value]) -> None:
        """Ask, where the last answer is there; else say of the rule that it waits, once it has waited long.

        Args:
            state: The rule.
            group: Its group.
            at: What time it is evaluated for (Unix seconds).
            now: Monotonic.
            work: The evaluation.
        """
        waiting = self._open.get(state)
        if waiting is None:
            self._open[state] = Question(state, group, at, now, self._deep.ask(work))
        elif now - waiting.begun > PATIENCE_S:
            state.fault = f"no answer from the store for {now - waiting.begun:.0f} s"

    def answered(self) -> list[Question]:
        """The questions whose answer is there, in the order in which they were asked."""
        done = [question for question in self._open.values() if question.answer.done()]
        for question in done:
            del self._open[question.state]
        return done

    def keep(self, states: set[RuleState]) -> None:
        """Only these rules are in force now; the answers to the others are waited for by nobody."""
        for state in [state for state in self._open if state not in states]:
            self._open.pop(state).answer.cancel()
        self._readings = {state: found for state, found in self._readings.items() if state in states}
