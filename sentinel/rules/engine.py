"""The rule engine: groups in, transitions out. It knows no action, no receiver and no database."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sentinel.clock import Clock
from sentinel.model import wire
from sentinel.model.alerts import Alert, AlertState, Reason, RuleSpec, Transition
from sentinel.model.families import SENTINEL_GROUP, SENTINEL_RULE
from sentinel.model.journal import Record
from sentinel.model.labels import EMPTY, Labels
from sentinel.model.series import Batch
from sentinel.rules.asked import Asked
from sentinel.rules.machine import close
from sentinel.rules.ports import Append, Deep, Sees
from sentinel.rules.rounds import Fault, Round, RuleStatus
from sentinel.rules.ruleset import Group, Rule, RuleSet
from sentinel.rules.schedule import Schedule
from sentinel.rules.scope import narrowed
from sentinel.rules.states import RuleFault, RuleState
from sentinel.rules.templates import Facts
from sentinel.rules.written import Written, family_name

if TYPE_CHECKING:
    from sentinel.promql.series import SeriesReader, Value

KEPT_AFTER_RESOLVED_S = 900.0
"""How long a resolved alert is still shown."""

GRACE_S = 60.0
"""After a restart collectors need a moment: so long, darkness ends no alert of before."""

_STEPPED_S = 1.0
_ABOUT_ENDS = frozenset({"job_up", "job_state"})


@dataclass(slots=True)
class _Moment:
    wall: float
    monotonic: float


class Engine:
    """Evaluates groups and keeps their alerts.

    Not thread-safe: one thread owns it. `due`, `next_due` and `nudge` speak in
    monotonic seconds of the clock, everything else in Unix seconds.

    Args:
        reader: Where series come from.
        rules: What to evaluate.
        clock: For the schedule, and to see a step of the wall clock.
        append: Takes each batch as soon as it is made, so that the next rule of
            the group reads it; the batches are in the round all the same.
        lookback_s: How long a sample stands for its series; None: as its block says.
        sees: Which jobs' series a rule may read.
        deep: For rules that look further back than `reader` reaches. They are asked in their
            turn, and `answered` gives their rounds. None: every rule has to do with `reader`.
        external_labels: For templates.
        external_url: For templates.
        reports_itself: Whether rounds carry sentinel_rule_seconds and sentinel_rule_up.
    """

    def __init__(
        self,
        reader: SeriesReader,
        rules: RuleSet,
        *,
        clock: Clock,
        append: Append | None = None,
        lookback_s: float | None = None,
        sees: Sees | None = None,
        deep: Deep | None = None,
        external_labels: Labels = EMPTY,
        external_url: str = "",
        reports_itself: bool = True,
    ) -> None:
        self._reader = reader
        self._clock = clock
        self._append = append
        self._lookback_s = lookback_s
        self._sees = sees
        self._asked = None if deep is None else Asked(deep, lookback_s)
        self._external_labels = external_labels
        self._external_url = external_url
        self._reports_itself = reports_itself
        self._started = clock.monotonic()
        self._groups: dict[str, Group] = {group.name: group for group in rules.groups}
        self._states: dict[str, list[RuleState]] = {name: _states(group) for name, group in self._groups.items()}
        self._schedule = Schedule(rules.groups, self._started)
        self._moments: dict[str, _Moment] = {}
        self._resolved: dict[str, Alert] = {}
        self._folded: set[str] = set()
        self._orphans: dict[str, Alert] = {}
        self._ended: dict[str, float] = {}

    # The schedule

    def due(self, now: float) -> list[str]:
        """The groups whose turn it is at `now`, a monotonic time."""
        return self._schedule.due(now)

    def next_due(self) -> float:
        """When the next group is due (monotonic); infinity without groups."""
        return self._schedule.next_due()

    def groups_reading(self, metrics: Iterable[str]) -> list[str]:
        """The groups with a rule that reads one of these metrics."""
        wanted = frozenset(metrics)
        return [
            name for name, group in self._groups.items() if any(not wanted.isdisjoint(r.reads) for r in group.rules)
        ]

    def nudge(self, metrics: Iterable[str]) -> None:
        """Something happened to these metrics: evaluate what reads them at once, at most every 250 ms."""
        self._schedule.nudge(self.groups_reading(metrics), self._clock.monotonic())

    def paces(self) -> dict[str, float]:
        """How often the families that rules write are written (seconds), by family name: for the window's lookback."""
        found: dict[str, float] = {}
        for name, group in self._groups.items():
            for rule in group.rules:
                metrics = (rule.name,) if rule.spec.recording else ("ALERTS", "ALERTS_FOR_STATE")
                found.update({family_name(metric, name): group.interval_s for metric in metrics})
        return found

    # Evaluation

    def evaluate(self, group: str, at: float) -> Round:
        """Evaluate every rule of a group, in order. A rule that fails stops no other.

        Raises:
            KeyError: There is no such group.
        """
        begun = time.perf_counter()
        chosen = self._groups[group]
        self._watch_the_clock(group, at)
        transitions: list[Transition] = []
        batches: list[Batch] = []
        for state in self._states[group]:
            if self._asks(state, chosen, at):
                continue
            changes, written = self._rule(state, chosen, at)
            transitions += changes
            batches += written
            self._append_all(written)
        self._remember(transitions, at)
        self._schedule.done(group, self._clock.monotonic())
        seconds = time.perf_counter() - begun
        faults = tuple(Fault(group, s.rule.name, s.fault) for s in self._states[group] if s.fault)
        if self._reports_itself:
            own = self._own_series(group, at, seconds)
            batches += own
            self._append_all(own)
        return Round(group, at, tuple(transitions), tuple(batches), faults, seconds)

    def answered(self) -> list[Round]:
        """Rounds of the rules that looked further back than the window, one of each whose answer has come.

        Each speaks of the time for which it was asked, some seconds ago.
        """
        rounds: list[Round] = []
        for question in self._asked.answered() if self._asked is not None else ():
            state, group, begun = question.state, question.group, time.perf_counter()
            changes, batches = self._rule(state, group, question.at, question.answer.result)
            state.seconds = self._clock.monotonic() - question.begun
            self._append_all(batches)
            self._remember(changes, question.at)
            faults = (Fault(group.name, state.rule.name, state.fault),) if state.fault else ()
            seconds = time.perf_counter() - begun
            rounds.append(Round(group.name, question.at, tuple(changes), tuple(batches), faults, seconds))
        return rounds

    def _append_all(self, batches: Iterable[Batch]) -> None:
        if self._append is not None:
            for batch in batches:
                self._append(batch)

    def _asks(self, state: RuleState, group: Group, at: float) -> bool:
        """Whether a rule looks too far back to be answered here; then it is asked elsewhere."""
        looking_at = at - group.query_offset_s
        if self._asked is None or not self._asked.needed(state, looking_at):
            return False
        from sentinel.promql.evaluation import evaluate

        rule, lookback_s = state.rule, self._lookback_s
        jobs = None if self._sees is None else self._sees(rule.spec)

        def work(reader: SeriesReader) -> Value:
            return evaluate(rule.expr, narrowed(reader, jobs), looking_at, lookback_s=lookback_s)

        self._asked.ask(state, group, at, self._clock.monotonic(), work)
        return True

    def _rule(
        self, state: RuleState, group: Group, at: float, answer: Callable[[], Value] | None = None
    ) -> tuple[list[Transition], list[Batch]]:
        """Evaluate one rule here, or take the answer that has come."""
        from sentinel.promql.evaluation import evaluate

        rule = state.rule
        begun = time.perf_counter()
        changes: list[Transition]
        batches: list[Batch]
        looking_at = at - group.query_offset_s
        try:
            reader = narrowed(self._reader, None if self._sees is None else self._sees(rule.spec))
            found = evaluate(rule.expr, reader, looking_at, lookback_s=self._lookback_s) if answer is None else answer()
            if rule.spec.recording:
                changes, batches = [], state.record(found, looking_at, group.limit)
            else:
                changes, batches = state.judge(
                    found,
                    looking_at,
                    limit=group.limit,
                    facts=lambda labels, value: self._facts(labels, value, looking_at, reader),
                    ended=() if rule.reads & _ABOUT_ENDS else self._ended,
                    patient=self._patient(),
                )
            state.fault = ""
        except Exception as fault:  # one broken rule stops no other, and keeps its alerts as they are
            state.fault = fault.message if isinstance(fault, RuleFault) else str(fault) or type(fault).__name__
            changes, batches = [], []
        state.evaluated = at
        state.seconds = time.perf_counter() - begun
        return changes, batches

    def _facts(self, labels: Labels, value: float, at: float, reader: SeriesReader) -> Facts:
        from sentinel.promql.evaluation import evaluate
        from sentinel.promql.parser import parse
        from sentinel.promql.series import Scalar, Vector

        def query(text: str) -> list[tuple[Mapping[str, str], float]]:
            found = evaluate(parse(text), reader, at, lookback_s=self._lookback_s)
            if isinstance(found, Scalar):
                return [({}, found.value)]
            return [*found.samples()] if isinstance(found, Vector) else []

        return Facts(labels, value, self._external_labels, self._external_url, query)

    def _patient(self) -> frozenset[str]:
        """Alerts of before a restart that nothing has been seen of yet."""
        if self._folded and self._clock.monotonic() - self._started >= GRACE_S:
            self._folded.clear()
        return frozenset(self._folded)

    def _watch_the_clock(self, group: str, at: float) -> None:
        """Where the wall clock stepped, or the machine slept, move the clocks of alerts along.

        Time in which nothing was watched counts neither towards `for` nor
        towards `dark_after`.
        """
        now = self._clock.monotonic()
        last = self._moments.get(group)
        self._moments[group] = _Moment(at, now)
        stepped = 0.0 if last is None else (at - last.wall) - (now - last.monotonic)
        if abs(stepped) < _STEPPED_S:
            return
        for state in self._states[group]:
            state.alerts = {labels: _moved(alert, stepped) for labels, alert in state.alerts.items()}

    def _remember(self, transitions: Iterable[Transition], at: float) -> None:
        for change in transitions:
            alert = change.alert
            if alert.state is AlertState.RESOLVED:
                self._resolved[alert.id] = alert
            else:
                self._resolved.pop(alert.id, None)
        forgotten = at - KEPT_AFTER_RESOLVED_S
        self._resolved = {k: alert for k, alert in self._resolved.items() if (alert.resolved or 0.0) > forgotten}

    def _own_series(self, group: str, at: float, seconds: float) -> list[Batch]:
        up: dict[tuple[str, ...], tuple[float]] = {}
        for state in self._states[group]:
            key = (state.rule.name,)
            up[key] = (min(0.0 if state.fault else 1.0, up.get(key, (1.0,))[0]),)
        return [SENTINEL_GROUP.batch(at, {(group,): (seconds,)}), SENTINEL_RULE.batch(at, up)]

    # Alerts

    def alerts(self, *, resolved: bool = True) -> list[Alert]:
        """Firing first, then pending, then (if asked for) those resolved in the last 15 minutes."""
        found = [alert for state in self._all() for alert in state.alerts.values()] + [*self._orphans.values()]
        if resolved:
            open_ids = {alert.id for alert in found}
            found += [alert for alert in self._resolved.values() if alert.id not in open_ids]
        return sorted(found, key=lambda alert: (_LOUDNESS[alert.state], alert.began, alert.id))

    def acknowledge(self, alert_id: str, by: str) -> Alert | None:
        """Note who has seen an alert; None where there is no such open alert."""
        for state in self._all():
            for labels, alert in state.alerts.items():
                if alert.id == alert_id:
                    state.alerts[labels] = replace(alert, acknowledged_by=by)
                    return state.alerts[labels]
        return None

    def job_ended(self, job: str, at: float) -> list[Transition]:
        """Close what is open about a job, and say no more about it until it starts again.

        Rules that read job_up or job_state speak of the end itself; they go on.
        """
        self._ended[job] = at
        changes: list[Transition] = []
        for state in self._all():
            if not state.rule.reads & _ABOUT_ENDS:
                changes += _closed(state, [a for a in state.alerts.values() if a.job == job], Reason.JOB_ENDED, at)
        self._remember(changes, at)
        return changes

    def job_started(self, job: str) -> None:
        """A job of this name lives (again), so rules may speak of it."""
        self._ended.pop(job, None)

    # The rules

    def rule(self, name: str) -> RuleSpec | None:
        """The first rule of that name, or None."""
        return next((state.rule.spec for state in self._all() if state.rule.name == name), None)

    def rules(self) -> list[RuleStatus]:
        """How every rule stands, in order."""
        return [_status(state, self._groups[name]) for name, states in self._states.items() for state in states]

    def in_force(self) -> RuleSet:
        """The rules themselves, as they were loaded."""
        return RuleSet(tuple(self._groups.values()))

    def replace(self, rules: RuleSet, at: float) -> list[Transition]:
        """Other rules from now on. Alerts of rules that stay are kept; those of the others end, and say why.

        A rule stays when its group, its name and the labels it adds are the same.
        """
        old = self._states
        self._groups = {group.name: group for group in rules.groups}
        self._states = {name: _states(group) for name, group in self._groups.items()}
        self._schedule.replace(rules.groups, self._clock.monotonic())
        self._moments = {name: moment for name, moment in self._moments.items() if name in self._groups}
        changes: list[Transition] = []
        for name, states in old.items():
            fresh = self._states.get(name, [])
            for state in states:
                heir = next((each for each in fresh if _same(each.rule, state.rule)), None)
                if heir is None:
                    changes += _closed(state, [*state.alerts.values()], Reason.RULE_REMOVED, at)
                    continue
                fresh = [each for each in fresh if each is not heir]
                heir.alerts, heir.written = state.alerts, state.written
                heir.evaluated, heir.seconds, heir.fault, heir.value = (
                    state.evaluated, state.seconds, state.fault, state.value,
                )  # fmt: skip
        for alert in [*self._orphans.values()]:
            if (home := self._home(alert)) is not None:
                home.alerts[alert.labels] = self._orphans.pop(alert.id)
        if self._asked is not None:
            self._asked.keep({*self._all()})
        self._remember(changes, at)
        return changes

    # Restart

    def fold(self, record: Record) -> None:
        """Take in one record of the journal: `alert` (a transition without its rule) or `ack`."""
        if record.kind == "ack":
            self.acknowledge(str(record.data["alert"]), str(record.data["by"]))
            return
        if record.kind != "alert":
            return
        alert = wire.decode(Alert, record.data["alert"])
        home = self._home(alert)
        known = self._orphans if home is None else None
        if alert.state in (AlertState.PENDING, AlertState.FIRING):
            self._folded.add(alert.id)
            if home is None:
                self._orphans[alert.id] = alert
            else:
                home.alerts[alert.labels] = alert
            self._resolved.pop(alert.id, None)
            return
        self._folded.discard(alert.id)
        if known is not None:
            known.pop(alert.id, None)
        elif home is not None:
            home.alerts.pop(alert.labels, None)
        if alert.state is AlertState.RESOLVED:
            self._resolved[alert.id] = alert

    def settle(self, at: float) -> list[Transition]:
        """After the last record, once all rules are in force: close the alerts whose rules are gone.

        The rules that jobs bring along belong to "all rules": `replace` finds their alerts a home.
        The clocks of darkness start anew.
        """
        changes = [close(None, alert, Reason.RULE_REMOVED, at) for alert in self._orphans.values()]
        self._orphans.clear()
        for state in self._all():
            state.alerts = {labels: replace(alert, seen=max(alert.seen, at)) for labels, alert in state.alerts.items()}
        self._started = self._clock.monotonic()
        self._remember(changes, at)
        return changes

    def snapshot(self) -> Iterator[tuple[str, dict[str, object]]]:
        """Kind and data of the records that say all that is open, for the journal's compaction."""
        for alert in self.alerts():
            yield "alert", journalled(Transition(alert, alert.state, Reason.BEGAN, alert.seen))

    def _all(self) -> Iterator[RuleState]:
        for states in self._states.values():
            yield from states

    def _home(self, alert: Alert) -> RuleState | None:
        """The rule that an alert of the journal belongs to."""
        candidates = [state for state in self._states.get(alert.group, ()) if state.rule.name == alert.rule]
        return next((state for state in candidates if _fits(state.rule, alert)), None)


_LOUDNESS = {AlertState.FIRING: 0, AlertState.PENDING: 1, AlertState.RESOLVED: 2, AlertState.INACTIVE: 3}


def journalled(change: Transition) -> dict[str, object]:
    """A transition as the journal keeps it: without its rule, which the rule files say anew."""
    return {
        "alert": wire.encode(change.alert),
        "was": change.was.value,
        "reason": change.reason.value,
        "at": change.at,
    }


def _states(group: Group) -> list[RuleState]:
    return [RuleState(rule, Written(group.name)) for rule in group.rules]


def _status(state: RuleState, group: Group) -> RuleStatus:
    alerts = tuple(sorted(state.alerts.values(), key=lambda alert: (_LOUDNESS[alert.state], alert.began, alert.id)))
    return RuleStatus(
        state.rule.spec,
        group.interval_s,
        alerts[0].state if alerts else AlertState.INACTIVE,
        alerts,
        state.value,
        state.evaluated,
        state.seconds,
        state.fault,
    )


def _closed(state: RuleState, alerts: Iterable[Alert], reason: Reason, at: float) -> list[Transition]:
    changes = [close(state.rule.spec, alert, reason, at) for alert in alerts]
    for change in changes:
        state.alerts.pop(change.alert.labels, None)
    return changes


def _moved(alert: Alert, seconds: float) -> Alert:
    """The alert with its running clocks moved; the times that people are told stay."""
    return replace(
        alert,
        began=alert.began + seconds if alert.state is AlertState.PENDING else alert.began,
        seen=alert.seen + seconds,
        quiet_since=None if alert.quiet_since is None else alert.quiet_since + seconds,
    )


def _same(new: Rule, old: Rule) -> bool:
    return (
        new.name == old.name
        and new.spec.recording == old.spec.recording
        and new.spec.labels == old.spec.labels
        and new.spec.job_id == old.spec.job_id
        and new.spec.uid == old.spec.uid
    )


def _fits(rule: Rule, alert: Alert) -> bool:
    return all(alert.labels.get(name) == value for name, value in rule.fixed_labels().items())
