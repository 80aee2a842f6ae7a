"""What rules would have said about what was recorded."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from sentinel.cli.backtest import lines
from sentinel.clock import ManualClock
from sentinel.daemon.replaying import backtest
from sentinel.errors import Problems, SentinelError
from sentinel.model.families import HOST, JOB
from sentinel.model.series import Batch
from sentinel.rules.backtest import Replay, replay
from sentinel.rules.engine import Engine
from sentinel.rules.loader import load, load_text
from sentinel.rules.ruleset import RuleSet
from sentinel.store.settings import Settings
from sentinel.store.store import Store
from sentinel.store.window import Window

START = 1_800_000_000.0
TICK = 5.0

RULES = dedent(
    """\
    groups:
      - name: g
        interval: 5s
        rules:
          - alert: Many
            expr: job_processes > 10
            for: 20s
            labels: {severity: warning}
            annotations: {summary: "{{ $labels.job }} has {{ $value }} processes"}
            actions:
              - request: checkpoint
              - request: degrade
          - record: job:processes:max1m
            expr: max_over_time(job_processes[1m])
          - alert: ManyLately
            expr: job:processes:max1m > 10
    """
)


def measured(at: float, processes: float | None, up: float = 1.0) -> list[Batch]:
    values = {"job_processes": processes, "job_up": up}
    row = tuple(values.get(metric.name) for metric in JOB.metrics)
    host = tuple(64e9 if metric.name == "host_memory_total_bytes" else None for metric in HOST.metrics)
    return [JOB.batch(at, {("train",): row}), HOST.batch(at, {(): host})]


def curve(now: float) -> float:
    """Above 10 for a moment, then for two minutes, then until the end."""
    return 20.0 if 100 <= now < 110 or 600 <= now < 720 or now >= 1500 else 5.0


@pytest.fixture
def recorded(tmp_path: Path) -> Iterator[Store]:
    store = Store.open(tmp_path, replace(Settings(), flush_s=3600.0), ManualClock(START), lambda event: None)
    for step in range(int(1800 / TICK) + 1):
        for batch in measured(START + step * TICK, curve(step * TICK)):
            store.put(batch)
    assert store.flush()
    yield store
    store.close()


def ran(store: Store, rules: RuleSet, **more: Any) -> Replay:
    return replay(rules, store.history(lambda family: 3 * TICK), START, START + 1800, **more)


def told(found: Replay) -> list[tuple[str, float, float | None]]:
    return [
        (each.rule, each.fired - START, None if each.ended is None else each.ended - START) for each in found.firings
    ]


def test_it_says_when_for_how_long_and_what_would_have_been_asked(recorded: Store) -> None:
    found = ran(recorded, load_text(RULES))

    many = [each for each in found.firings if each.rule == "Many"]
    assert [(each.fired - START, each.ended and each.ended - START) for each in many] == [(620, 720), (1520, None)]
    assert many[0].began == START + 600
    assert many[0].summary == "train has 20 processes"
    assert [(job, request.value) for job, request in many[0].requests] == [
        ("train", "checkpoint"),
        ("train", "degrade"),
    ]
    assert many[1].seconds(START + 1800) == 280
    assert found.faults == {}


def test_what_rules_record_is_there_for_the_rules_after_them(recorded: Store) -> None:
    assert [each for each in told(ran(recorded, load_text(RULES))) if each[0] == "ManyLately"] == [
        ("ManyLately", 100, 165),
        ("ManyLately", 600, 775),
        ("ManyLately", 1500, None),
    ]


@pytest.mark.parametrize("steps", [7, 100, 10_800])
def test_pieces_join_up(recorded: Store, monkeypatch: pytest.MonkeyPatch, steps: int) -> None:
    whole = ran(recorded, load_text(RULES))
    monkeypatch.setattr("sentinel.rules.backtest.STEPS_AT_ONCE", steps)

    assert told(ran(recorded, load_text(RULES))) == told(whole)


def test_it_says_what_the_engine_itself_has_said(recorded: Store) -> None:
    """The same world, lived through at the same moments."""
    clock, window = ManualClock(START), Window(tick_s=TICK)
    rules = load_text(RULES)
    engine = Engine(window, rules, clock=clock, append=window.append, reports_itself=False)
    window.set_tick("job", TICK)
    for family, seconds in engine.paces().items():
        window.set_tick(family, seconds)
    lived: list[tuple[str, str, float]] = []
    for step in range(int(1800 / TICK) + 1):
        for batch in measured(START + step * TICK, curve(step * TICK)):
            window.append(batch)
        changes = engine.evaluate("g", clock.now()).transitions
        lived += [(c.alert.rule, c.alert.state.value, c.at - START) for c in changes if c.firing or c.resolving]
        clock.advance(TICK)

    replayed: list[tuple[str, str, float]] = []
    for rule, fired, ended in told(ran(recorded, rules)):
        replayed.append((rule, "firing", fired))
        if ended is not None:
            replayed.append((rule, "resolved", ended))
    assert sorted(replayed) == sorted(lived)


def test_the_end_of_a_job_ends_its_alerts(tmp_path: Path) -> None:
    store = Store.open(tmp_path, replace(Settings(), flush_s=3600.0), ManualClock(START), lambda event: None)
    try:
        for step in range(121):
            now = step * TICK
            for batch in measured(START + now, 20.0 if now < 300 else None, up=1.0 if now < 300 else 0.0):
                store.put(batch)
        assert store.flush()
        found = ran(store, load_text(RULES))
    finally:
        store.close()

    (many,) = [each for each in found.firings if each.rule == "Many"]
    assert (many.fired - START, many.ended, many.reason) == (20, START + 300, "job_ended")


def test_the_difference_from_the_rules_in_force(recorded: Store) -> None:
    in_force = load_text(RULES)
    changed = RULES.replace("for: 20s", "for: 5s").replace("ManyLately", "Another")

    found = _backtest(recorded, [("new.yaml", changed)], in_force)

    many, another = found["difference"]
    assert (many["rule"], many["in_force"], many["same"]) == ("Many", True, 2)
    assert [each["fired"] - START for each in many["more"]] == [105]
    assert many["fewer"] == []
    assert (another["rule"], another["in_force"]) == ("Another", False)
    said = "\n".join(lines(found, every=False))
    assert "Many: would have fired 3 times, 6m 55s in all" in said
    assert "train has 20 processes; asks checkpoint of train, then degrade of train" in said
    assert "Many: 1 more, 0 fewer, 2 alike" in said
    assert "Another: new, no rule of this name is in force" in said
    json.dumps(found)


def test_without_files_the_rules_in_force_are_replayed(recorded: Store) -> None:
    found = _backtest(recorded, [], load_text(RULES))

    assert [(each["rule"], len(each["firings"])) for each in found["rules"]] == [("Many", 2), ("ManyLately", 3)]
    assert found["difference"] is None
    assert found["start"] == START, "it begins where the history does"


def test_a_rule_that_fails_is_told_and_stops_no_other(recorded: Store) -> None:
    broken = RULES.replace("expr: job_processes > 10", "expr: job_processes + on () group_left () {job='train'} > 0")
    found = _backtest(recorded, [("new.yaml", broken)], load_text(RULES))

    assert "Many" in found["faults"]
    assert [len(each["firings"]) for each in found["rules"]] == [0, 3]


def test_a_file_that_is_wrong_is_refused(recorded: Store) -> None:
    with pytest.raises(Problems, match="expr"):
        _backtest(recorded, [("new.yaml", RULES.replace("> 10", ">"))], load_text(RULES))


def test_it_gives_up_when_it_takes_too_long(recorded: Store) -> None:
    with pytest.raises(SentinelError, match="longer than 0 s"):
        _backtest(recorded, [], load_text(RULES), budget_s=0.0)


def test_the_shipped_rules_are_replayed(recorded: Store) -> None:
    pack = load([Path(__file__).resolve().parents[2] / "rules"])
    found = _backtest(recorded, [], pack)

    assert found["faults"] == {}
    assert not math.isnan(found["rules"][0]["seconds"])


def _backtest(
    store: Store, files: list[tuple[str, str]], in_force: RuleSet, *, budget_s: float = 60.0
) -> dict[str, Any]:
    return backtest(
        files,
        in_force,
        store.history(lambda family: 3 * TICK),
        START - 7200,
        START + 1800,
        step_s=None,
        sees=lambda rule: None,
        budget_s=budget_s,
    )
