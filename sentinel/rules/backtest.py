"""Replays recorded history through rules: when would each alert have fired, and what would it have asked?"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from sentinel.errors import SentinelError
from sentinel.model.alerts import Alert, Reason, RuleSpec, Transition
from sentinel.model.labels import Labels
from sentinel.model.requests import RequestKind
from sentinel.promql import evaluate, evaluate_course, limits, longest_range_s, parse
from sentinel.promql.series import Course, Mask, Scalar, SeriesReader, Vector
from sentinel.rules.expectations import planned
from sentinel.rules.machine import close
from sentinel.rules.recorded import Overlay, Pieces
from sentinel.rules.ruleset import Group, Rule, RuleSet
from sentinel.rules.scope import narrowed
from sentinel.rules.states import RuleFault, RuleState
from sentinel.rules.templates import Facts
from sentinel.rules.written import Written

STEPS_AT_ONCE = 10_800
"""Six hours of a rule that is evaluated every 2 s."""
_ABOUT_ENDS = frozenset({"job_up", "job_state"})
_ONE_DAY = 86_400.0


@dataclass(frozen=True, slots=True)
class Firing:
    """One time that an alert would have fired.

    Attributes:
        rule: Its name.
        group: The group of the rule.
        labels: Of the alert, `alertname` included.
        began: When the condition began to hold (Unix seconds).
        fired: When it would have fired.
        ended: When it would have resolved; None: it fires to the end.
        reason: Why it would have ended, or None.
        value: Of the expression, when it fired.
        summary: As people would have read it.
        requests: What would have been asked of whom: pairs of job and request.
    """

    rule: str
    group: str
    labels: Labels
    began: float
    fired: float
    ended: float | None
    reason: Reason | None
    value: float
    summary: str
    requests: tuple[tuple[str, RequestKind], ...] = ()

    def seconds(self, end: float) -> float:
        """How long, at most until `end`."""
        return (end if self.ended is None else self.ended) - self.fired


@dataclass(frozen=True, slots=True)
class Replay:
    """What came of it.

    Attributes:
        firings: In the order of time.
        faults: Why a rule could not be evaluated, by its name; the first reason of each.
    """

    firings: tuple[Firing, ...]
    faults: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Difference:
    """How one rule would have fired, compared with the rule in force.

    Attributes:
        rule: Its name.
        in_force: Whether a rule of this name is in force.
        more: Firings that the one in force has not had.
        fewer: Firings that only the one in force has had.
        same: How many of them overlap.
    """

    rule: str
    in_force: bool
    more: tuple[Firing, ...]
    fewer: tuple[Firing, ...]
    same: int


def replay(
    rules: RuleSet,
    reader: SeriesReader,
    start: float,
    end: float,
    *,
    step_s: float | None = None,
    sees: Callable[[RuleSpec], Collection[str] | None] | None = None,
) -> Replay:
    """How these rules would have judged what was recorded.

    They are evaluated at their groups' interval through the same state machine
    as in the daemon, recording rules first. What the daemon alone knows is left
    out: silences, acknowledgements, and that it slept or was not there.

    Args:
        rules: What to evaluate.
        reader: What was recorded.
        start: Unix seconds.
        end: Unix seconds.
        step_s: Evaluate so often instead.
        sees: Which jobs' series a rule may read.

    Raises:
        TimeoutError: `limits.within` has allowed less.
    """
    recording = [rule for rule in rules if rule.spec.recording]
    keep_s = max((longest_range_s(rule.expr) for rule in rules), default=0.0)
    pieces = Pieces(reader, keep_s)
    overlay = Overlay(pieces, recording, keep_s)
    told = [_Told(rule, group, overlay, sees) for group in rules.groups for rule in group.rules]
    told.sort(key=lambda one: not one.rule.spec.recording)
    step = {id(group): step_s or group.interval_s for group in rules.groups}
    span = STEPS_AT_ONCE * min(step.values(), default=_ONE_DAY)
    at = start
    while at <= end:
        until = min(at + span, end + 0.001)
        pieces.turn(at, until)
        for one in told:
            limits.check()
            one.live(at, until, start, step[id(one.group)])
        at = until
        if until > end:
            break
    firings = sorted((firing for one in told for firing in one.firings()), key=lambda firing: firing.fired)
    return Replay(tuple(firings), {one.rule.name: one.fault for one in reversed(told) if one.fault})


def differences(changed: RuleSet, new: Replay, old: Replay, in_force: RuleSet, end: float) -> list[Difference]:
    """Rule by rule of `changed`: what would be different if it were in force."""
    names = list(dict.fromkeys(rule.name for rule in changed if not rule.spec.recording))
    known = {rule.name for rule in in_force if not rule.spec.recording}
    found: list[Difference] = []
    for name in names:
        ours = [firing for firing in new.firings if firing.rule == name]
        theirs = [firing for firing in old.firings if firing.rule == name]
        more = tuple(one for one in ours if not any(_overlap(one, other, end) for other in theirs))
        fewer = tuple(one for one in theirs if not any(_overlap(one, other, end) for other in ours))
        found.append(Difference(name, name in known, more, fewer, len(ours) - len(more)))
    return found


def _overlap(one: Firing, other: Firing, end: float) -> bool:
    """Whether both are about the same thing at the same time; labels that a rule adds may have changed."""
    about = [{key: value for key, value in each.labels.items() if key != "severity"} for each in (one, other)]
    if about[0] != about[1]:
        return False
    return one.fired <= other.fired + other.seconds(end) and other.fired <= one.fired + one.seconds(end)


class _Told:
    """One rule, told what was recorded, piece by piece."""

    def __init__(
        self,
        rule: Rule,
        group: Group,
        overlay: Overlay,
        sees: Callable[[RuleSpec], Collection[str] | None] | None,
    ) -> None:
        self.rule = rule
        self.group = group
        self.fault = ""
        self._overlay = overlay
        self._reader = narrowed(overlay, None if sees is None else sees(rule.spec))
        self._state = RuleState(rule, Written(group.name))
        self._changes: list[Transition] = []
        self._speaks_of_ends = bool(rule.reads & _ABOUT_ENDS)

    def live(self, start: float, until: float, origin: float, step_s: float) -> None:
        """From `start` to right before `until`, at the multiples of `step_s` after `origin`."""
        first = origin + math.ceil((start - origin) / step_s - 1e-9) * step_s
        last = origin + (math.ceil((until - origin) / step_s - 1e-9) - 1) * step_s
        if last < first:
            return
        offset = self.group.query_offset_s
        try:
            found = evaluate_course(self.rule.expr, self._reader, first - offset, last - offset, step_s)
            if self.rule.spec.recording:
                self._overlay.record(self.rule, found, step_s)
            else:
                self._judge(found, step_s)
        except TimeoutError:
            raise
        except Exception as fault:  # as in the daemon: one broken rule stops no other
            text = fault.message if isinstance(fault, SentinelError) else str(fault) or type(fault).__name__
            self.fault = self.fault or text

    def _judge(self, found: Course, step_s: float) -> None:
        state = self._state
        down = {} if self._speaks_of_ends else self._down(found, step_s)
        holding = np.flatnonzero(found.kept.any(axis=0))
        column, count = 0, len(found.times)
        while column < count:
            limits.check()
            if not state.alerts:
                place = int(np.searchsorted(holding, column))
                if place == len(holding):
                    return
                column = int(holding[place])
            self._step(
                found.at(column), float(found.times[column]), {job for job, is_down in down.items() if is_down[column]}
            )
            column += 1

    def _step(self, seen: Vector, at: float, ended: set[str]) -> None:
        state = self._state
        if ended:
            for alert in [alert for alert in state.alerts.values() if alert.job in ended]:
                self._changes.append(close(self.rule.spec, alert, Reason.JOB_ENDED, at))
                del state.alerts[alert.labels]
        try:
            changes, _ = state.judge(
                seen, at, limit=self.group.limit, facts=functools.partial(self._facts, at), ended=ended, patient=()
            )
        except RuleFault as fault:
            self.fault = self.fault or fault.message
            return
        self._changes += changes

    def _down(self, found: Course, step_s: float) -> dict[str, Mask]:
        """When which job had ended, as the daemon knew: its `job_up` was 0."""
        if not any("job" in labels for labels in found.labels) and not self._state.alerts:
            return {}
        up = evaluate_course(_UP, self._reader, float(found.times[0]), float(found.times[-1]), step_s)
        return {labels["job"]: up.kept[row] for row, labels in enumerate(up.labels) if "job" in labels}

    def _facts(self, at: float, labels: Labels, value: float) -> Facts:
        def query(text: str) -> list[tuple[Mapping[str, str], float]]:
            answer = evaluate(parse(text), self._reader, at)
            if isinstance(answer, Scalar):
                return [({}, answer.value)]
            return [*answer.samples()] if isinstance(answer, Vector) else []

        return Facts(labels, value, query=query)

    def firings(self) -> Iterator[Firing]:
        """Each time that it would have fired."""
        asked: dict[tuple[float, str], list[tuple[str, RequestKind]]] = {}
        for request in planned(self._changes):
            asked.setdefault((request.at, request.job), []).append((request.job, request.request))
        open_: dict[str, Firing] = {}
        for change in self._changes:
            alert = change.alert
            if change.firing:
                open_[alert.id] = _firing(alert, change.at, _asked(asked, change))
            elif change.resolving and alert.id in open_:
                yield replace(open_.pop(alert.id), ended=change.at, reason=change.reason)
        yield from open_.values()


_UP = parse("job_up == 0")


def _asked(
    asked: Mapping[tuple[float, str], list[tuple[str, RequestKind]]], change: Transition
) -> tuple[tuple[str, RequestKind], ...]:
    jobs: Iterable[str] = dict.fromkeys(
        job
        for action in (change.rule.actions if change.rule else ())
        for job in action.jobs or (change.alert.job or "",)
    )
    return tuple(one for job in jobs for one in asked.get((change.at, job), ()))


def _firing(alert: Alert, at: float, requests: Sequence[tuple[str, RequestKind]]) -> Firing:
    return Firing(
        alert.rule,
        alert.group,
        alert.labels,
        alert.began,
        at,
        None,
        None,
        alert.value,
        alert.annotation("summary"),
        tuple(requests),
    )
