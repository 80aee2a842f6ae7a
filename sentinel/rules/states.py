"""One rule at work: its alerts or its recorded series, from one round to the next."""

from __future__ import annotations

import functools
from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass, field, replace

from sentinel.errors import SentinelError
from sentinel.model.alerts import Alert, Transition
from sentinel.model.labels import METRIC_NAME, Labels
from sentinel.model.series import Batch
from sentinel.promql.series import Scalar, Text, Value, Vector
from sentinel.rules.machine import ALERT_NAME, Clear, Dark, Holds, Observation, Step, step
from sentinel.rules.ruleset import Rule
from sentinel.rules.templates import Facts, fill
from sentinel.rules.written import Written

MakeFacts = Callable[[Labels, float], Facts]

_MOST_CACHED = 10_000


class RuleFault(SentinelError):
    """A rule could not be evaluated; its alerts stay as they are."""


@dataclass(slots=True, eq=False)
class RuleState:
    """What is kept of one rule between rounds.

    Attributes:
        rule: The rule.
        written: The series it writes.
        alerts: Pending and firing ones, by their labels.
        fault: Why its last evaluation failed, or "".
        evaluated: When it was last evaluated (Unix seconds), or None.
        seconds: How long that took.
        value: Of its first element in the last round, or None.
    """

    rule: Rule
    written: Written
    alerts: dict[Labels, Alert] = field(default_factory=dict)
    fault: str = ""
    evaluated: float | None = None
    seconds: float = 0.0
    value: float | None = None
    _named: dict[Labels, Labels] = field(default_factory=dict)

    def record(self, found: Value, at: float, limit: int) -> list[Batch]:
        """The series that a recording rule writes in this round.

        Raises:
            RuleFault: Two would be the same, or there are too many.
        """
        elements = _kept(found)
        self.value = elements[0][1] if elements else None
        _within(limit, len(elements), "series")
        added = {**{name: template.text for name, template in self.rule.labels}, METRIC_NAME: self.rule.name}
        samples: dict[Labels, float] = {}
        for labels, value in elements:
            samples[labels.merged(added)] = value
        if len(samples) < len(elements):
            raise RuleFault("two of its results would be the same series once its labels are added")
        return self.written.batches(at, samples.items())

    def judge(
        self,
        found: Value,
        at: float,
        *,
        limit: int,
        facts: MakeFacts,
        ended: Container[str],
        patient: Container[str],
    ) -> tuple[list[Transition], list[Batch]]:
        """Advance every alert by what was found.

        Args:
            found: The result of the expression.
            at: When (Unix seconds).
            limit: Most alerts at once; 0: any number.
            facts: What its templates can speak of.
            ended: Jobs that have ended: nothing is said about them any more.
            patient: Ids of alerts that darkness must not end yet.

        Raises:
            RuleFault: Two alerts would have the same labels, or there are too many.
        """
        holding: dict[Labels, tuple[Labels, float]] = {}
        for source, value in _kept(found):
            if source.get("job", "") in ended:
                continue
            labels = self._labels(source, value, facts)
            if labels in holding:
                raise RuleFault("two of its alerts would have the same labels")
            holding[labels] = source, value
        self.value = next((value for _, value in holding.values()), None)
        _within(limit, len(holding), "alerts")
        changes: list[Transition] = []
        if quiet := [labels for labels in self.alerts if labels not in holding]:
            sources = (source for source in _sources(found) if source.get("job", "") not in ended)
            changes += self._quiet(quiet, sources, at, patient)
        for labels, (source, value) in holding.items():
            changes += self._advance(labels, Holds(value), at, functools.partial(facts, source, value))
        return changes, self._alert_series(at)

    def _quiet(
        self, quiet: Iterable[Labels], sources: Iterable[Labels], at: float, patient: Container[str]
    ) -> list[Transition]:
        added = {ALERT_NAME, METRIC_NAME, *(name for name, _ in self.rule.labels)}
        present = {source.without(added) for source in sources}
        changes: list[Transition] = []
        for labels in quiet:
            if labels.without(added) in present:
                changes += self._advance(labels, Clear(), at)
            elif self.alerts[labels].id not in patient:
                changes += self._advance(labels, Dark(), at)
        return changes

    def _advance(
        self, labels: Labels, seen: Observation, at: float, facts: Callable[[], Facts] | None = None
    ) -> list[Transition]:
        before = self.alerts.get(labels)
        taken = step(self.rule.spec, labels, before, seen, at)
        alert = taken.alert
        # A pending one is described when it changes, a firing one also when its value does.
        moved = before is not None and alert is not None and alert.fired is not None and alert.value != before.value
        if facts is not None and alert is not None and (taken.change is not None or moved):
            taken = self._annotated(taken, facts())
        if taken.alert is None:
            self.alerts.pop(labels, None)
        else:
            self.alerts[labels] = taken.alert
        return [] if taken.change is None else [taken.change]

    def _annotated(self, taken: Step, facts: Facts) -> Step:
        assert taken.alert is not None
        texts = tuple((name, fill(template, facts)) for name, template in self.rule.annotations)
        alert = replace(taken.alert, annotations=texts)
        change = None if taken.change is None else replace(taken.change, alert=alert)
        return Step(alert, change)

    def _labels(self, source: Labels, value: float, facts: MakeFacts) -> Labels:
        if (found := self._named.get(source)) is not None:
            return found
        constant = all(template.constant for _, template in self.rule.labels)
        known = None if constant else facts(source, value)
        added = {name: template.text if known is None else fill(template, known) for name, template in self.rule.labels}
        labels = source.without((METRIC_NAME,)).merged({**added, ALERT_NAME: self.rule.name})
        if constant:
            if len(self._named) >= _MOST_CACHED:
                self._named.clear()
            self._named[source] = labels
        return labels

    def _alert_series(self, at: float) -> list[Batch]:
        if not self.alerts and not self.written.living:
            return []
        return self.written.alert_batches(at, self.alerts.values())


def _kept(found: Value) -> list[tuple[Labels, float]]:
    """What holds. Thousands of elements may be there and clear, so those are not looked at one by one."""
    match found:
        case Vector():
            return [(found.labels[index], float(found.values[index])) for index in found.kept.nonzero()[0].tolist()]
        case Scalar(value):
            return [(Labels(), value)]
        case Text():
            raise RuleFault("its expression is a text, which is neither true nor false")
    raise RuleFault("its expression yields a range, not one value per series")


def _sources(found: Value) -> tuple[Labels, ...]:
    """The labels of everything that is here, whether it holds or is clear."""
    return found.labels if isinstance(found, Vector) else (Labels(),)


def _within(limit: int, count: int, what: str) -> None:
    if limit and count > limit:
        raise RuleFault(f"it yields {count} {what}, more than the limit of its group, {limit}")
