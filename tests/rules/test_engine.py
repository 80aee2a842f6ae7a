"""The engine over a real window: what it hands out, what it keeps, what survives a restart."""

from __future__ import annotations

from dataclasses import dataclass, field
from textwrap import dedent

import pytest

from sentinel.clock import ManualClock
from sentinel.model.alerts import Alert, AlertState, Reason, RuleSpec, Transition
from sentinel.model.families import JOB, JOB_STATE, LOG
from sentinel.model.journal import Record
from sentinel.model.series import Entity
from sentinel.rules.engine import Engine, journalled
from sentinel.rules.loader import Options, load_text
from sentinel.rules.rounds import Round
from sentinel.rules.ruleset import RuleSet
from sentinel.store.window import Window

RULES = dedent(
    """\
    groups:
      - name: g
        interval: 2s
        rules:
          - alert: ManyProcesses
            expr: job_processes > 10
            for: 4s
            dark_after: 30s
            labels: {severity: critical}
            annotations: {summary: "{{ $labels.job }}: {{ $value }}"}
    """
)


@dataclass
class House:
    """A window, a clock and an engine, as the daemon joins them."""

    text: str = RULES
    rules: RuleSet | None = None
    clock: ManualClock = field(default_factory=lambda: ManualClock(1_800_000_000.0))
    window: Window = field(default_factory=Window)
    sees: frozenset[str] | None = None

    def __post_init__(self) -> None:
        self.engine = self.started()

    def started(self) -> Engine:
        return Engine(
            self.window,
            self.rules or load_text(self.text, "rules.yaml"),
            clock=self.clock,
            append=self.window.append,
            sees=lambda spec: self.sees if spec.job_id else None,
        )

    def measure(self, **processes: float | None) -> None:
        rows: dict[Entity, tuple[float | None, ...]] = {
            (job,): tuple(value if metric.name == "job_processes" else None for metric in JOB.metrics)
            for job, value in processes.items()
        }
        self.window.append(JOB.batch(self.clock.now(), rows))

    def round(self, group: str = "g") -> Round:
        return self.engine.evaluate(group, self.clock.now())

    def tick(self, seconds: float = 2.0, **processes: float | None) -> list[tuple[str | None, str, str]]:
        self.clock.advance(seconds)
        if processes:
            self.measure(**processes)
        return told(self.round().transitions)


def told(changes: list[Transition] | tuple[Transition, ...]) -> list[tuple[str | None, str, str]]:
    return [(change.alert.job, change.alert.state.value, change.reason.value) for change in changes]


@pytest.fixture
def house() -> House:
    return House()


def fired(house: House) -> None:
    for _ in range(3):
        house.tick(train=20.0)
    assert [alert.state for alert in house.engine.alerts()] == [AlertState.FIRING]


def test_an_alert_from_its_beginning_to_its_end(house: House) -> None:
    assert house.tick(train=5.0, other=5.0) == []
    assert house.tick(train=20.0, other=5.0) == [("train", "pending", "began")]
    assert house.tick(train=20.0, other=5.0) == []
    assert house.tick(train=21.0, other=5.0) == [("train", "firing", "held")]
    assert house.tick(train=5.0, other=5.0) == [("train", "resolved", "ended")]

    (alert,) = house.engine.alerts()
    assert alert.annotation("summary") == "train: 21"
    assert alert.labels.as_dict() == {"alertname": "ManyProcesses", "job": "train", "severity": "critical"}
    assert house.engine.alerts(resolved=False) == []


def test_a_resolved_alert_is_shown_for_a_quarter_of_an_hour(house: House) -> None:
    fired(house)
    house.tick(train=5.0)

    house.tick(880.0, train=5.0)
    assert len(house.engine.alerts()) == 1
    house.tick(30.0, train=5.0)
    assert house.engine.alerts() == []


def test_a_collector_that_died_resolves_nothing_until_dark_after(house: House) -> None:
    fired(house)

    assert [change for _ in range(14) for change in house.tick()] == []
    assert [change for _ in range(5) for change in house.tick()] == [("train", "resolved", "went_dark")]


def test_a_job_that_ended_closes_its_alerts_and_is_not_spoken_of_again() -> None:
    house = House(
        "groups: [{name: g, rules: [{alert: Limited, expr: 'sum by (job) (increase(log_events_total[1m])) > 1'}]}]"
    )
    for count in (0.0, 5.0):
        house.clock.advance(2)
        house.window.append(LOG.batch(house.clock.now(), {("train", "rate_limited"): (count,)}))
    assert told(house.round().transitions) == [("train", "firing", "began")]

    ended = house.engine.job_ended("train", house.clock.now())

    assert told(ended) == [("train", "resolved", "job_ended")]
    # The range still holds its lines, but the job is over.
    assert house.tick() == []
    house.engine.job_started("train")
    assert house.tick() == [("train", "firing", "began")]


def test_a_rule_about_the_end_of_jobs_speaks_of_it() -> None:
    house = House("groups: [{name: g, rules: [{alert: Failed, expr: 'job_state{state=\"failed\"} == 1'}]}]")
    house.engine.job_ended("train", house.clock.now())
    house.window.append(JOB_STATE.batch(house.clock.now(), {("train", "failed"): (1.0,)}))

    assert told(house.round().transitions) == [("train", "firing", "began")]
    assert house.engine.job_ended("train", house.clock.now()) == []


def test_recorded_series_are_there_for_the_next_rule_and_end_when_they_vanish() -> None:
    house = House(
        dedent(
            """\
            groups:
              - name: g
                rules:
                  - {record: "job:busy", expr: "job_processes > 10", labels: {kind: x}}
                  - {alert: Busy, expr: "job:busy > 15"}
            """
        )
    )
    assert house.tick(train=20.0) == [("train", "firing", "began")]
    assert house.window.latest("job:busy", job="train", kind="x") == 20.0
    assert house.window.latest("ALERTS", alertname="Busy", alertstate="firing") == 1.0

    done = None
    house.clock.advance(2)
    house.measure(train=5.0)
    done = house.round()

    assert house.window.latest("job:busy", job="train", kind="x") is None
    narrow = {batch.family.name: batch for batch in done.batches if batch.family.narrow}
    assert narrow["job:busy@g"].covers == (("train", "x"),)
    assert narrow["job:busy@g"].labels == ()
    assert house.engine.paces()["job:busy@g"] == 15.0


def test_an_error_at_run_time_makes_the_rule_unhealthy_and_keeps_its_alerts() -> None:
    text = RULES.replace(
        "job_processes > 10", "job_processes * on () group_left () host_load1 > 10 or job_processes > 10"
    )
    house = House(text.replace("on () group_left () host_load1", "on () job_processes"))

    broken = house.round()
    assert broken.faults == ()
    house.measure(train=20.0, other=30.0)
    broken = house.round()

    assert [fault.rule for fault in broken.faults] == ["ManyProcesses"]
    assert house.engine.rules()[0].fault != ""
    up = next(batch for batch in broken.batches if batch.family.name == "sentinel_rule")
    assert up.rows() == {("ManyProcesses",): {"sentinel_rule_up": 0.0}}


def test_a_rule_that_fails_keeps_what_was_firing(house: House) -> None:
    fired(house)
    broken = load_text(RULES.replace("job_processes > 10", "job_processes * on () job_processes > 10"))
    assert house.engine.replace(broken, house.clock.now()) == []

    assert house.tick(train=1.0, other=2.0) == []
    assert [alert.state for alert in house.engine.alerts()] == [AlertState.FIRING]


def test_a_reload_keeps_the_alerts_of_rules_that_stay_and_ends_the_others(house: House) -> None:
    fired(house)
    stays = load_text(RULES.replace("> 10", "> 12"))
    assert house.engine.replace(stays, house.clock.now()) == []
    assert house.tick(train=20.0) == []

    gone = house.engine.replace(load_text("groups: []"), house.clock.now())

    assert told(gone) == [("train", "resolved", "rule_removed")]
    assert house.engine.rules() == []


def restarted(house: House, changes: list[Transition], more: list[Record] | None = None) -> list[Transition]:
    house.engine = house.started()
    for number, change in enumerate(changes):
        house.engine.fold(Record(number, change.at, "alert", journalled(change)))
    for record in more or []:
        house.engine.fold(record)
    return house.engine.settle(house.clock.now())


def test_alerts_and_their_clocks_survive_a_restart(house: House) -> None:
    changes: list[Transition] = []
    house.tick(train=5.0)
    for _ in range(2):
        house.clock.advance(2)
        house.measure(train=20.0)
        changes += house.round().transitions

    assert restarted(house, changes) == []

    assert house.tick(train=20.0) == [("train", "firing", "held")]
    assert house.tick(train=20.0) == []


def test_a_restart_begins_nothing_anew_and_ends_nothing_for_want_of_data(house: House) -> None:
    changes: list[Transition] = []
    for _ in range(3):
        house.clock.advance(2)
        house.measure(train=20.0)
        changes += house.round().transitions
    acked = Record(9, house.clock.now(), "ack", {"alert": changes[-1].alert.id, "by": "user:ann", "at": 0.0})
    house.clock.advance(3600)

    restarted(house, changes, [acked])

    assert [alert.acknowledged_by for alert in house.engine.alerts()] == ["user:ann"]
    assert [change for _ in range(10) for change in house.tick()] == []
    assert house.tick(train=20.0) == []
    assert house.tick(train=5.0) == [("train", "resolved", "ended")]


def test_after_a_restart_collectors_have_a_minute_before_darkness_ends_anything(house: House) -> None:
    house.text = RULES.replace("dark_after: 30s", "dark_after: 0s")
    house.engine = house.started()
    fired(house)
    records = [Record(n, 0.0, kind, data) for n, (kind, data) in enumerate(house.engine.snapshot())]
    house.clock.advance(10)

    restarted(house, [], records)

    assert [change for _ in range(29) for change in house.tick()] == []
    assert [change for _ in range(2) for change in house.tick()] == [("train", "resolved", "went_dark")]


def test_a_firing_alert_is_described_as_it_is_now(house: House) -> None:
    fired(house)

    house.tick(train=33.0)

    assert [alert.annotation("summary") for alert in house.engine.alerts()] == ["train: 33"]


def test_a_snapshot_is_all_that_a_restart_needs(house: House) -> None:
    fired(house)
    house.engine.acknowledge(house.engine.alerts()[0].id, "user:ann")
    records = [Record(n, 0.0, kind, data) for n, (kind, data) in enumerate(house.engine.snapshot())]
    before = house.engine.alerts()

    restarted(house, [], records)

    assert house.engine.alerts() == before


def test_an_alert_of_the_journal_whose_rule_is_gone_is_closed(house: House) -> None:
    fired(house)
    records = [Record(n, 0.0, kind, data) for n, (kind, data) in enumerate(house.engine.snapshot())]
    house.text = RULES.replace("ManyProcesses", "Other")

    assert told(restarted(house, [], records)) == [("train", "resolved", "rule_removed")]


def test_time_asleep_counts_for_nothing() -> None:
    """The wall clock goes on while a laptop sleeps, the monotonic one does not."""

    class Laptop(ManualClock):
        asleep = 0.0

        def monotonic(self) -> float:
            return super().monotonic() - self.asleep

    clock = Laptop()
    house = House(RULES.replace("for: 4s", "for: 5m"), clock=clock)
    house.tick(train=20.0)
    clock.advance(8 * 3600)
    clock.asleep += 8 * 3600

    assert house.tick(train=20.0) == []
    assert [alert.state for alert in house.engine.alerts()] == [AlertState.PENDING]


def test_an_acknowledgement_stays_with_the_alert(house: House) -> None:
    fired(house)
    (alert,) = house.engine.alerts()

    acknowledged = house.engine.acknowledge(alert.id, "user:ann")

    assert isinstance(acknowledged, Alert)
    assert house.tick(train=22.0) == []
    assert house.engine.alerts()[0].acknowledged_by == "user:ann"
    assert house.engine.acknowledge("nosuch", "user:ann") is None


def test_groups_take_turns_and_events_bring_them_forward(house: House) -> None:
    engine, clock = house.engine, house.clock
    assert engine.due(clock.monotonic()) == ["g"]
    house.round()
    assert engine.due(clock.monotonic()) == []
    assert engine.next_due() == clock.monotonic() + 2

    engine.nudge(["host_load1"])
    assert engine.next_due() == clock.monotonic() + 2
    engine.nudge(["job_processes", "host_load1"])
    assert engine.due(clock.monotonic() + 0.2) == []
    assert engine.due(clock.monotonic() + 0.25) == ["g"]
    assert engine.groups_reading(["job_processes"]) == ["g"]


def test_turns_that_were_missed_are_not_made_up_for(house: House) -> None:
    house.round()
    house.clock.advance(100)
    house.round()

    assert house.engine.next_due() == house.clock.monotonic() + 2


def test_two_alerts_with_the_same_labels_are_a_fault() -> None:
    house = House("groups: [{name: g, rules: [{alert: A, expr: job_processes > 1, labels: {job: x}}]}]")
    house.measure(train=20.0, other=30.0)

    assert [fault.message for fault in house.round().faults] == ["two of its alerts would have the same labels"]


def test_a_group_that_yields_too_much_is_a_fault() -> None:
    house = House("groups: [{name: g, limit: 1, rules: [{alert: A, expr: job_processes > 1}]}]")
    house.measure(train=20.0, other=30.0)

    assert "more than the limit of its group, 1" in house.round().faults[0].message


def test_the_rules_of_a_job_see_that_job_alone() -> None:
    rules = load_text(RULES.replace("for: 4s", "for: 0s"), None, Options(uid=1000, job_id="j1"))
    house = House(rules=rules, sees=frozenset({"mine"}))

    house.measure(mine=20.0, other=30.0)

    assert told(house.round("g@j1").transitions) == [("mine", "firing", "began")]


def test_a_label_that_follows_the_value_makes_another_alert() -> None:
    house = House(
        RULES.replace("for: 4s", "for: 0s").replace(
            "severity: critical", "severity: '{{ if gt $value 50.0 }}critical{{ else }}warning{{ end }}'"
        )
    )

    assert house.tick(train=20.0) == [("train", "firing", "began")]
    assert house.tick(train=60.0) == [("train", "resolved", "ended"), ("train", "firing", "began")]
    assert [alert.severity for alert in house.engine.alerts(resolved=False)] == ["critical"]


def test_every_rule_says_how_it_stands(house: House) -> None:
    fired(house)

    (status,) = house.engine.rules()

    assert isinstance(status.rule, RuleSpec)
    assert (status.state, status.value, status.interval_s, status.fault) == (AlertState.FIRING, 20.0, 2.0, "")
    assert status.evaluated == house.clock.now()
    assert house.engine.rule("ManyProcesses") == status.rule
    assert house.engine.rule("Other") is None
    assert Reason.HELD.value == "held"


MASKED = [
    "job_processes > 10",
    "sum by (job) (job_processes > 10) > 0",
    "(job_processes > 10) / 2",
    "job_processes > 10 and job_runtime_seconds > 0",
    "job_processes unless job_processes <= 10",
    "job_processes > 10 or job_processes > 15",
    "max by (job) (max_over_time(job_processes[3s])) > 10",
    "topk(1, job_processes > 10)",
    "-(job_processes > 10)",
    "clamp_max(job_processes > 10, 100)",
    "label_replace(job_processes > 10, 'x', 'y', 'job', '.*')",
]


@pytest.mark.parametrize("expr", MASKED)
def test_a_condition_that_no_longer_holds_is_clear_however_it_is_written(expr: str) -> None:
    house = House(RULES.replace("job_processes > 10", expr).replace("for: 4s", "for: 0s"))

    def tick(processes: float) -> list[tuple[str | None, str, str]]:
        house.clock.advance(4)
        row = {"job_processes": processes, "job_runtime_seconds": 100.0}
        values = tuple(row.get(metric.name) for metric in JOB.metrics)
        house.window.append(JOB.batch(house.clock.now(), {("train",): values}))
        return told(house.round().transitions)

    assert tick(20.0) == [("train", "firing", "began")]
    assert tick(5.0) == [("train", "resolved", "ended")]


def test_what_was_absent_and_comes_back_is_clear() -> None:
    house = House(
        RULES.replace("job_processes > 10", 'absent(job_processes{job="train"})').replace("for: 4s", "for: 0s")
    )

    assert house.tick(other=1.0) == [("train", "firing", "began")]
    assert house.tick(train=1.0) == [("train", "resolved", "ended")]


def test_an_alert_of_a_jobs_own_rule_finds_its_rule_again_after_a_restart(house: House) -> None:
    """The rules of jobs come into force only after the journal was read."""
    base = load_text(RULES)
    whole = base.with_(load_text(RULES.replace("ManyProcesses", "Mine"), None, Options(uid=1000, job_id="j1")))
    house.rules = whole
    house.engine = house.started()
    changes: list[Transition] = []
    for _ in range(3):
        house.clock.advance(2)
        house.measure(train=20.0)
        changes += house.round("g@j1").transitions

    house.rules, house.sees = base, frozenset({"train"})
    house.engine = house.started()
    for number, change in enumerate(changes):
        house.engine.fold(Record(number, change.at, "alert", journalled(change)))
    house.engine.replace(whole, house.clock.now())

    assert house.engine.settle(house.clock.now()) == []
    assert [(alert.rule, alert.state) for alert in house.engine.alerts()] == [("Mine", AlertState.FIRING)]
    assert house.round("g@j1").transitions == ()
