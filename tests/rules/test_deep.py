"""Rules that look further back than the window: the store answers, and nobody waits for it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from textwrap import dedent

import pytest

from sentinel.clock import ManualClock
from sentinel.daemon.deep import DeepReader
from sentinel.model.alerts import AlertState
from sentinel.model.families import JOB
from sentinel.model.series import Batch
from sentinel.promql import evaluate, limits, parse, readings
from sentinel.promql.series import SeriesReader, Value, Vector
from sentinel.rules.asked import PATIENCE_S
from sentinel.rules.engine import Engine
from sentinel.rules.loader import load_text
from sentinel.store.layered import layered
from sentinel.store.settings import Settings
from sentinel.store.store import Store
from sentinel.store.window import Window

START = 1_800_000_000.0
RULES = dedent(
    """\
    groups:
      - name: g
        interval: 2s
        rules:
          - record: job:processes:max2h
            expr: max_over_time(job_processes[2h])
          - alert: ManyNow
            expr: job_processes > 10
          - alert: ManyOnceToday
            expr: max_over_time(job_processes[2h]) > 10
            annotations: {summary: "{{ $labels.job }} had {{ $value }}"}
    """
)


def processes(at: float, count: float) -> Batch:
    row = tuple(count if metric.name == "job_processes" else None for metric in JOB.metrics)
    return JOB.batch(at, {("train",): row})


class House:
    """Window, store and engine, joined as the daemon joins them."""

    def __init__(self, directory: Path, rules: str = RULES, budget_s: float = 20.0) -> None:
        self.clock = ManualClock(START)
        self.window = Window(tick_s=60.0)
        self.store = Store.open(directory, replace(Settings(), flush_s=3600.0), self.clock, lambda event: None)
        self.told = threading.Event()
        self.deep = DeepReader(self.window, self.store, self.told.set, budget_s=budget_s)
        self.engine = Engine(
            self.window,
            load_text(rules, "rules.yaml"),
            clock=self.clock,
            append=self.window.append,
            deep=self.deep,
            reports_itself=False,
        )

    def live(self, seconds: float, count: float) -> None:
        for _ in range(int(seconds / 60)):
            self.clock.advance(60)
            batch = processes(self.clock.now(), count)
            self.window.append(batch)
            self.store.put(batch)
        assert self.store.flush()

    def answers(self, count: int) -> list[list[tuple[str, str]]]:
        found: list[list[tuple[str, str]]] = []
        until = time.monotonic() + 20
        while len(found) < count and time.monotonic() < until:
            self.told.wait(0.05)
            found += [
                [(change.alert.rule, change.alert.state.value) for change in each.transitions]
                for each in self.engine.answered()
            ]
        assert len(found) == count
        return found

    def faults(self) -> dict[str, str]:
        return {status.rule.name: status.fault for status in self.engine.rules()}

    def close(self) -> None:
        self.deep.close()
        self.store.close()


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    made = House(tmp_path)
    yield made
    made.close()


def test_what_the_window_has_forgotten_comes_from_the_store(house: House) -> None:
    house.live(300, 20)
    house.live(3600, 5)

    round_ = house.engine.evaluate("g", house.clock.now())
    assert round_.transitions == ()

    assert house.answers(2) == [[], [("ManyOnceToday", "firing")]]
    (alert,) = house.engine.alerts()
    assert alert.annotation("summary") == "train had 20"
    assert house.window.latest("job:processes:max2h", job="train") == 20


def test_a_rule_that_looks_no_further_than_the_window_asks_nobody(house: House) -> None:
    house.live(3600, 20)
    done = house.engine.evaluate("g", house.clock.now())

    assert [change.alert.rule for change in done.transitions] == ["ManyNow"]


@pytest.mark.parametrize(
    ("text", "needed"),
    [
        ("job_processes", False),
        ("rate(job_processes[29m])", False),
        ("rate(job_processes[30m])", False),
        ("rate(job_processes[31m])", True),
        ("job_processes offset 1h", True),
        ("max_over_time(deriv(job_processes[20m])[15m:1m])", True),
        ("job_processes @ 1800000000", True),
        ("max_over_time(job_processes[10m] @ end())", False),
        ("never_seen[1d]", True),
    ],
)
def test_what_looks_further_is_known_from_the_expression(house: House, text: str, *, needed: bool) -> None:
    house.live(3600, 1)

    assert house.deep.needed(readings(parse(text), 0.0), house.clock.now()) is needed


def test_a_window_full_of_fast_samples_is_filled_up_from_the_store(tmp_path: Path) -> None:
    """An endangered job is sampled fast, so its columns are used up long before the span is."""
    window = Window(columns=100)
    for second in range(400):
        window.append(processes(START + second, 1))
    matchers = parse("job_processes").matchers  # type: ignore[union-attr]

    assert window.reaches(matchers, START + 310)
    assert not window.reaches(matchers, START + 100)
    assert window.reaches(parse("other").matchers, START + 100)  # type: ignore[union-attr]


class Slow:
    """Answers when it is told to."""

    def __init__(self) -> None:
        self.asked: list[Future[Value]] = []

    def needed(self, found: Sequence[object], at: float) -> bool:
        return any(getattr(one, "back_s", 0) > 1800 for one in found)

    def ask(self, work: Callable[[SeriesReader], Value]) -> Future[Value]:
        self.asked.append(Future())
        return self.asked[-1]


def with_slow_store() -> tuple[Engine, Slow, Window, ManualClock]:
    clock, window, slow = ManualClock(START), Window(), Slow()
    engine = Engine(window, load_text(RULES), clock=clock, append=window.append, deep=slow, reports_itself=False)
    return engine, slow, window, clock


def test_a_slow_store_delays_no_other_rule_of_the_group() -> None:
    engine, slow, window, clock = with_slow_store()
    told = []
    for count in (5.0, 20.0, 5.0):
        clock.advance(2)
        window.append(processes(clock.now(), count))
        told += [(c.alert.rule, c.alert.state.value) for c in engine.evaluate("g", clock.now()).transitions]

    assert told == [("ManyNow", "firing"), ("ManyNow", "resolved")]
    assert len(slow.asked) == 2, "each rule is asked once at a time"
    assert engine.answered() == []


def test_a_store_that_fails_makes_the_rule_unhealthy_and_ends_no_alert(house: House) -> None:
    house.live(300, 20)
    house.live(3600, 5)
    house.engine.evaluate("g", house.clock.now())
    house.answers(2)
    house.store.close()
    house.clock.advance(2)

    house.engine.evaluate("g", house.clock.now())

    house.answers(2)
    assert "the store is not open" in house.faults()["ManyOnceToday"]
    assert [alert.state for alert in house.engine.alerts()] == [AlertState.FIRING]


def test_a_rule_over_its_budget_is_unhealthy(tmp_path: Path) -> None:
    house = House(tmp_path, budget_s=0.0)
    try:
        house.live(3600, 20)
        house.engine.evaluate("g", house.clock.now())
        house.answers(2)

        assert "longer than 0 s" in house.faults()["ManyOnceToday"]
        assert house.faults()["ManyNow"] == ""
    finally:
        house.close()


def test_a_rule_that_waits_for_ever_says_so() -> None:
    engine, slow, _, clock = with_slow_store()
    engine.evaluate("g", clock.now())
    clock.advance(PATIENCE_S + 1)
    engine.evaluate("g", clock.now())

    faults = {status.rule.name: status.fault for status in engine.rules()}
    assert faults["ManyOnceToday"].startswith("no answer from the store for 121 s")
    assert len(slow.asked) == 2


def test_an_answer_for_a_rule_that_is_gone_is_dropped() -> None:
    engine, slow, _, clock = with_slow_store()
    engine.evaluate("g", clock.now())
    engine.replace(load_text("groups: []"), clock.now())

    assert all(answer.cancelled() for answer in slow.asked)
    assert engine.answered() == []


def test_an_evaluation_looks_at_the_clock() -> None:
    window = Window()
    window.append(processes(START, 1))
    with limits.within(0.0), pytest.raises(TimeoutError):
        evaluate(parse("job_processes + 1"), window, START)


def test_a_sample_of_a_slow_family_stands_for_three_of_its_ticks() -> None:
    window = Window()
    window.set_tick("job", 600.0)
    window.append(processes(START, 7))

    found = evaluate(parse("job_processes"), window, START + 1500)
    assert isinstance(found, Vector)
    assert [value for _, value in found.samples()] == [7]
    gone = evaluate(parse("job_processes"), window, START + 1801)
    assert isinstance(gone, Vector)
    assert gone.samples() == []


def test_which_series_there_were_is_known_over_the_whole_range_without_reading_them(house: House) -> None:
    house.live(300, 20)
    house.clock.advance(7200)
    later = processes(house.clock.now(), 1)
    house.window.append(later)
    house.store.put(later)
    assert house.store.flush()

    reader = layered(house.window.detached(), house.store.history(house.window.lookback_s))
    (name,) = parse("job_processes").matchers  # type: ignore[union-attr]

    assert [labels["job"] for labels in reader.known((name,), START, START + 400)] == ["train"]
    assert [labels["job"] for labels in reader.known((), START, house.clock.now())] == ["train"]
    assert reader.known((name,), START + 1000, START + 2000) == set()
    assert [labels["job"] for labels in reader.known((name,), house.clock.now() - 1, house.clock.now())] == ["train"]
    assert reader.known((*parse('{job="other"}').matchers, name), START, START + 400) == set()  # type: ignore[union-attr]
