"""Runs unit tests of rules in promtool's format, and what we add to it: `expect_alerts` and its siblings."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from sentinel.clock import ManualClock
from sentinel.errors import Problem, SentinelError
from sentinel.model.alerts import AlertState, Transition
from sentinel.model.labels import Labels
from sentinel.rules.engine import Engine
from sentinel.rules.expectations import planned
from sentinel.rules.loader import Options, read
from sentinel.rules.memory import MemorySeries
from sentinel.rules.ruleset import Group, RuleSet
from sentinel.rules.stories import (
    Expected,
    ExpectedAlerts,
    ExpectedRequests,
    ExpectedSilence,
    Sample,
    Story,
    StoryFile,
    read_story_file,
)
from sentinel.units import format_duration

LOOKBACK_S = 300.0
"""As promtool's."""


@dataclass(slots=True)
class Verdict:
    """What came of one test file.

    Attributes:
        file: Its path.
        problems: Why it, or a rule file it names, cannot be read.
        failures: What did not come as expected, one text each.
        warnings: What is odd without being wrong.
        stories: How many tests it has.
    """

    file: str
    problems: list[Problem] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    stories: int = 0

    @property
    def passed(self) -> bool:
        """Whether all is as expected."""
        return not self.problems and not self.failures


def run(path: Path | str) -> Verdict:
    """Run every test of one file."""
    verdict = Verdict(str(path))
    story_file = read_story_file(path, verdict.problems)
    if story_file is None or verdict.problems:
        return verdict
    rules = _rules(Path(path).parent, story_file, verdict)
    if verdict.problems:
        return verdict
    verdict.stories = len(story_file.stories)
    for story in story_file.stories:
        failures = _Telling(story, story_file, rules).failures()
        title = f"    name: {story.name},\n" if story.name and failures else ""
        verdict.failures += [title + failure for failure in failures]
    return verdict


def _rules(directory: Path, story_file: StoryFile, verdict: Verdict) -> RuleSet:
    options = Options(interval_s=story_file.interval_s, dark_after_s=0.0)
    groups: list[Group] = []
    for pattern in story_file.rule_files:
        base = Path(pattern)
        found = sorted(base.parent.glob(base.name)) if base.is_absolute() else sorted(directory.glob(pattern))
        if not found and not any(char in pattern for char in "*?["):
            found = [base if base.is_absolute() else directory / base]
        if not found:
            verdict.warnings.append(f"no file matches {pattern}")
        for path in found:
            groups += read(path, verdict.problems, options).groups
    order = {name: place for place, name in enumerate(story_file.group_order)}
    ordered = sorted(RuleSet().with_(RuleSet(tuple(groups))).groups, key=lambda group: order.get(group.name, 0))
    return RuleSet(tuple(replace(group, interval_s=story_file.interval_s) for group in ordered))


class _Telling:
    """One test, told from its first second to its last."""

    def __init__(self, story: Story, story_file: StoryFile, rules: RuleSet) -> None:
        self._story = story
        self._interval_s = story_file.interval_s
        self._rules = rules
        self._series = MemorySeries(LOOKBACK_S)
        self._clock = ManualClock(story.start)
        self._engine = Engine(
            self._series,
            rules,
            clock=self._clock,
            append=self._series.append,
            lookback_s=LOOKBACK_S,
            external_labels=story.external_labels,
            external_url=story.external_url,
            reports_itself=False,
        )
        self._failures: list[str] = []
        self._transitions: list[Transition] = []

    def failures(self) -> list[str]:
        """What did not come as expected."""
        start, step = self._story.start, self._interval_s
        for series in self._story.series:
            self._series.add(
                series.labels,
                [(start + place * self._story.interval_s, point) for place, point in enumerate(series.points)],
            )
        pending: list[Expected | ExpectedAlerts] = [*self._story.alerts, *self._story.firing]
        pending.sort(key=lambda expected: expected.at)
        rounds = math.floor(self._story.last / step + 1e-9) + 1
        for place in range(rounds):
            now = start + place * step
            self._evaluate(now)
            while pending and pending[0].at < (place + 1) * step - 1e-9:
                expected = pending.pop(0)
                if isinstance(expected, Expected):
                    self._compare_alerts(expected)
                else:
                    self._compare_firing(expected)
            self._clock.advance(step)
        self._series.visible = start + (rounds - 1) * step
        for question in self._story.questions:
            self._compare_samples(question.at, question.expr, question.samples)
        for requests in self._story.requests:
            self._compare_requests(requests)
        for silence in self._story.silences:
            self._compare_silence(silence)
        return self._failures

    def _evaluate(self, now: float) -> None:
        self._series.visible = now
        for group in self._rules.groups:
            done = self._engine.evaluate(group.name, now)
            self._transitions += done.transitions
            self._failures += [
                f"    rule: {fault.rule}, time: {_time(now - self._story.start)}, err: {fault.message}"
                for fault in done.faults
            ]

    def _compare_alerts(self, expected: Expected) -> None:
        got = [
            (alert.labels.without(["alertname"]), dict(alert.annotations))
            for alert in self._engine.alerts(resolved=False)
            if alert.state is AlertState.FIRING and alert.rule == expected.alert
        ]
        wanted = [(labels.without(["alertname"]), texts) for labels, texts in expected.alerts]
        if _sorted(got) != _sorted(wanted):
            where = f"alertname: {expected.alert}, time: {_time(expected.at)}"
            self._fail(where, [_alert(*each) for each in wanted], [_alert(*each) for each in got])

    def _compare_firing(self, expected: ExpectedAlerts) -> None:
        alerts = [
            alert
            for alert in self._engine.alerts(resolved=False)
            if alert.state is AlertState.FIRING and expected.alert in (alert.rule, "")
        ]
        left = list(alerts)
        for wanted in expected.firing:
            match = next((alert for alert in left if wanted.items() <= alert.labels.items()), None)
            if match is not None:
                left.remove(match)
        summaries = {alert.annotation("summary") for alert in alerts}
        told = expected.summary is None or summaries == {expected.summary}
        if left or len(alerts) != len(expected.firing) or not told:
            where = f"firing {expected.alert or 'alerts'}, time: {_time(expected.at)}"
            got = [f"{_braced(alert.labels)} {alert.annotation('summary')}" for alert in alerts]
            self._fail(where, [f"{_braced(each)} {expected.summary or ''}".rstrip() for each in expected.firing], got)

    def _compare_silence(self, expected: ExpectedSilence) -> None:
        got = [
            f"{_braced(change.alert.labels)} at {_time(change.at - self._story.start)}"
            for change in self._transitions
            if change.firing
            and change.at - self._story.start <= expected.until + 1e-9
            and expected.alert in (change.alert.rule, "")
        ]
        if got:
            self._fail(f"silence of {expected.alert or 'all alerts'} until {_time(expected.until)}", [], got)

    def _compare_samples(self, at: float, expr: str, wanted: Sequence[Sample]) -> None:
        from sentinel.promql import evaluate, parse
        from sentinel.promql.series import Scalar, Vector

        where = f"expr: {expr!r}, time: {_time(at)}"
        try:
            found = evaluate(parse(expr), self._series, self._story.start + at, lookback_s=LOOKBACK_S)
        except SentinelError as error:
            self._failures.append(f"    {where}, err: {error.message}")
            return
        if isinstance(found, Scalar):
            got = [Sample(Labels(), found.value)]
        elif isinstance(found, Vector):
            got = [Sample(labels, value) for labels, value in found.samples()]
        else:
            self._failures.append(f"    {where}, err: the result is neither a vector nor a scalar")
            return
        if not _agree(got, wanted):
            self._fail(where, [_sample(each) for each in wanted], [_sample(each) for each in got])

    def _compare_requests(self, expected: ExpectedRequests) -> None:
        got = [
            step.request.value
            for step in planned(self._transitions)
            if step.at - self._story.start <= expected.at + 1e-9
            and expected.job in (step.job, "")
            and expected.alert in (step.rule, "")
        ]
        if got != list(expected.requests):
            where = f"requests of {expected.job or 'any job'}, time: {_time(expected.at)}"
            self._fail(where, list(expected.requests), got)

    def _fail(self, where: str, wanted: Sequence[str], got: Sequence[str]) -> None:
        self._failures.append(f"    {where},\n        exp:[{_listed(wanted)}],\n        got:[{_listed(got)}]")


def _listed(items: Sequence[str]) -> str:
    return "".join(f"\n            {place}: {item}" for place, item in enumerate(items)) + (
        "\n        " if items else ""
    )


def _sorted(alerts: Iterable[tuple[Labels, dict[str, str]]]) -> list[tuple[list[tuple[str, str]], dict[str, str]]]:
    return sorted(((list(labels.items()), texts) for labels, texts in alerts), key=lambda each: each[0])


def _alert(labels: Labels, texts: dict[str, str]) -> str:
    return f"Labels:{_braced(labels)} Annotations:{_braced(Labels(texts))}"


def _braced(labels: Labels) -> str:
    return repr(labels) if len(labels) else "{}"


def _sample(sample: Sample) -> str:
    return f"{_braced(sample.labels)} {sample.value:g}"


def _time(seconds: float) -> str:
    return format_duration(seconds).replace(" ", "")


def _agree(got: Sequence[Sample], wanted: Sequence[Sample]) -> bool:
    """The same series with the same values, up to the last bits, which depend on the order of a sum."""
    if len(got) != len(wanted):
        return False
    left = sorted(got, key=lambda each: list(each.labels.items()))
    right = sorted(wanted, key=lambda each: list(each.labels.items()))
    return all(a.labels == b.labels and _close(a.value, b.value) for a, b in zip(left, right, strict=True))


def _close(left: float, right: float) -> bool:
    if math.isnan(left) or math.isnan(right):
        return math.isnan(left) and math.isnan(right)
    return left == right or math.isclose(left, right, rel_tol=1e-13)
