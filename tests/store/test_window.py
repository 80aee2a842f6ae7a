"""The window, told against a dictionary."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sentinel.errors import UsageError
from sentinel.model.labels import Labels
from sentinel.model.series import GAUGE, Batch, Entity, Family, Metric
from sentinel.promql.series import Block, Match, Matcher
from sentinel.store.window import Window

T0 = 1_800_000_000.0
JOBS = Family("job", ("job",), (Metric("job_up", GAUGE, ""), Metric("job_memory", GAUGE, "")))


def equal(name: str, value: str) -> Matcher:
    return Matcher(name, Match.EQUAL, value)


def named(metric: str, *more: Matcher) -> tuple[Matcher, ...]:
    return (equal("__name__", metric), *more)


def only(blocks: Sequence[Block]) -> Block:
    assert len(blocks) == 1
    return blocks[0]


def row(block: Block, **labels: str) -> list[tuple[float, float | None]]:
    """Times and values of one series; None where it was marked as ended."""
    (index,) = [n for n, each in enumerate(block.labels) if labels.items() <= each.as_dict().items()]
    return [
        (float(at) - T0, None if stale else float(value))
        for at, value, here, stale in zip(
            block.times, block.values[index], block.present[index], block.stale[index], strict=True
        )
        if here or stale
    ]


def test_a_sample_is_read_back_where_it_was_put() -> None:
    window = Window()
    window.append(JOBS.batch(T0, {("a",): (1, 10), ("b",): (1, 20)}))
    window.append(JOBS.batch(T0 + 2, {("a",): (1, 11)}))

    block = only(window.select(named("job_memory"), T0, T0 + 2))

    assert block.labels[0] == Labels({"__name__": "job_memory", "job": "a"})
    assert row(block, job="a") == [(0, 10), (2, 11)]
    assert row(block, job="b") == [(0, 20)]
    assert block.lookback_s == 6.0


def test_covered_without_a_value_is_ended_and_not_covered_is_nothing() -> None:
    window = Window()
    window.append(JOBS.batch(T0, {("a",): (1, 10), ("b",): (1, 20)}))
    window.append(JOBS.batch(T0 + 2, {("a",): (1, None)}, covers=[("a",), ("b",), ("never seen",)]))
    window.append(JOBS.batch(T0 + 4, {("a",): (1, 12)}))

    memory = only(window.select(named("job_memory"), T0, T0 + 9))

    assert row(memory, job="a") == [(0, 10), (2, None), (4, 12)]
    assert row(memory, job="b") == [(0, 20), (2, None)]
    assert len(memory.labels) == 2
    assert window.latest("job_memory", job="a") == 12
    assert window.latest("job_memory", job="b") is None


def test_where_all_series_match_nothing_is_copied_and_nobody_can_write() -> None:
    window = Window()
    for tick in range(100):
        window.append(JOBS.batch(T0 + tick, {("a",): (1, tick), ("b",): (1, tick)}))

    first = only(window.select(named("job_memory"), T0 + 50, T0 + 99))
    second = only(window.select(named("job_memory"), T0 + 60, T0 + 99))

    assert np.shares_memory(first.values, second.values)
    assert first.labels is second.labels
    with pytest.raises(ValueError, match="read-only"):
        second.values[0, 0] = 1


def test_labels_are_the_same_tuple_until_entities_change() -> None:
    window = Window()
    window.append(JOBS.batch(T0, {("a",): (1, 1), ("b",): (1, 1)}))
    matchers = named("job_up", Matcher("job", Match.REGEX, "a|c"))
    before = only(window.select(matchers, T0, T0)).labels

    window.append(JOBS.batch(T0 + 1, {("a",): (1, 1), ("b",): (1, 1)}))
    assert only(window.select(matchers, T0, T0 + 1)).labels is before

    window.append(JOBS.batch(T0 + 2, {("c",): (1, 1)}))
    assert [labels["job"] for labels in only(window.select(matchers, T0, T0 + 2)).labels] == ["a", "c"]


MATCHERS = [
    ("=", Match.EQUAL, "a1", {"a1"}),
    ("= empty", Match.EQUAL, "", {""}),
    ("!=", Match.NOT_EQUAL, "a1", {"a2", "b", ""}),
    ("=~ anchored", Match.REGEX, "a", set()),
    ("=~", Match.REGEX, "a.", {"a1", "a2"}),
    ("=~ over lines", Match.REGEX, ".*", {"a1", "a2", "b", ""}),
    ("!~", Match.NOT_REGEX, "a.|", {"b"}),
]


@pytest.mark.parametrize(
    ("match", "value", "expected"), [case[1:] for case in MATCHERS], ids=[case[0] for case in MATCHERS]
)
def test_matchers(match: Match, value: str, expected: set[str]) -> None:
    window = Window()
    window.append(JOBS.batch(T0, {(name,): (1, 1) for name in ("a1", "a2", "b", "")}))

    blocks = window.select(named("job_up", Matcher("job", match, value)), T0, T0)

    assert {labels.get("job", "") for block in blocks for labels in block.labels} == expected


def test_a_name_may_be_matched_by_an_expression() -> None:
    window = Window()
    window.append(JOBS.batch(T0, {("a",): (1, 1)}))

    assert len(window.select((Matcher("__name__", Match.REGEX, "job_.*"),), T0, T0)) == 2
    assert len(window.select((equal("job", "a"),), T0, T0)) == 2
    assert window.select(named("nothing"), T0, T0) == []


def test_an_expression_that_cannot_be_read_is_said() -> None:
    window = Window()
    window.append(JOBS.batch(T0, {("a",): (1, 1)}))

    with pytest.raises(UsageError, match="cannot be read"):
        window.select(named("job_up", Matcher("job", Match.REGEX, "a(")), T0, T0)


def test_a_late_batch_goes_where_it_belongs() -> None:
    window = Window()
    for tick in (0, 4, 6):
        window.append(JOBS.batch(T0 + tick, {("a",): (1, tick)}))
    window.append(JOBS.batch(T0 + 2, {("b",): (1, 2)}))
    window.append(JOBS.batch(T0 + 4, {("b",): (1, 44)}))

    block = only(window.select(named("job_memory"), T0, T0 + 6))

    assert row(block, job="a") == [(0, 0), (4, 4), (6, 6)]
    assert row(block, job="b") == [(2, 2), (4, 44)]


def test_a_straggler_is_dropped_but_a_clock_that_was_set_back_is_followed() -> None:
    window = Window()
    window.append(JOBS.batch(T0, {("a",): (1, 0)}))
    window.append(JOBS.batch(T0 - 7200, {("a",): (1, 1)}))
    assert row(only(window.select(named("job_memory"), 0, T0)), job="a") == [(0, 0)]

    for tick in range(4):
        window.append(JOBS.batch(T0 - 7000 + tick, {("a",): (1, tick)}))

    times = only(window.select(named("job_memory"), 0, T0)).times
    assert list(times - T0) == [-6999, -6998, -6997]


def test_jobs_that_come_and_go_do_not_fill_the_memory() -> None:
    window = Window(span_s=60, columns=60)
    for tick in range(2000):
        entities: dict[Entity, tuple[float, float]] = {(f"job-{n}",): (1.0, float(tick)) for n in (tick, tick + 1)}
        window.append(JOBS.batch(T0 + tick, entities))

    block = only(window.select(named("job_memory"), 0, T0 + 2000))

    assert len(block.labels) < 200
    assert row(block, job="job-2000") == [(1999, 1999)]
    assert row(block, job="job-1999") == [(1998, 1998), (1999, 1999)]
    assert block.values.base is not None
    assert block.values.base.size < 2 * 200 * 75


def test_recorded_series_of_changing_shape_live_side_by_side() -> None:
    window = Window()
    for labels in (("job",), ("gpu",)):
        family = Family("rule:x", labels, (Metric("x", GAUGE, ""),), narrow=True)
        window.append(family.batch(T0, {("1",): (5,)}))

    blocks = window.select(named("x"), T0, T0)

    assert [labels.as_dict() for block in blocks for labels in block.labels] == [
        {"__name__": "x", "job": "1"},
        {"__name__": "x", "gpu": "1"},
    ]


def test_families_that_ended_are_swept() -> None:
    window = Window(span_s=10, columns=100)
    gone = Family("gone", (), (Metric("gone", GAUGE, ""),))
    window.append(gone.batch(T0, {(): (1,)}))
    for tick in range(1100):
        window.append(JOBS.batch(T0 + tick, {("a",): (1, tick)}))

    assert "gone" not in window.metrics()
    assert window.last_at("gone") is None
    assert window.last_at("job") == T0 + 1099


def test_it_knows_from_when_on_it_is_complete() -> None:
    window = Window(span_s=1000, columns=10)
    window.append(JOBS.batch(T0, {("a",): (1, 1)}))
    assert window.complete_after(named("job_up")) == T0
    window.filled(T0 - 500)
    assert window.complete_after(named("job_up")) == T0 - 500
    for tick in range(1, 20):
        window.append(JOBS.batch(T0 + tick, {("a",): (1, 1)}))

    assert window.complete_after(named("job_up")) == T0 + 9
    assert window.complete_after(named("other")) == T0 - 500


def test_another_thread_gets_copies() -> None:
    window = Window()
    window.append(JOBS.batch(T0, {("a",): (1, 1)}))

    mine = only(window.select(named("job_up"), T0, T0))
    theirs = only(window.detached().select(named("job_up"), T0, T0))

    assert theirs.labels is mine.labels
    assert not np.shares_memory(mine.values, theirs.values)


@dataclass
class Oracle:
    """The same promises with dictionaries: marks by series and time."""

    span_s: float
    columns: int
    times: set[float] = field(default_factory=set)
    marks: dict[tuple[Labels, float], float | None] = field(default_factory=dict)
    known: set[Entity] = field(default_factory=set)

    def append(self, batch: Batch) -> None:
        newest = max(self.times, default=batch.at)
        if batch.at < newest - self.span_s:
            return
        if batch.at not in self.times and len(self.times) == self.columns and batch.at < min(self.times):
            return
        self.times.add(batch.at)
        rows = batch.rows()
        for entity in batch.covers:
            for metric in batch.family.metrics:
                self.marks[batch.family.series(metric.name, entity), batch.at] = rows.get(entity, {}).get(metric.name)
        newest = max(self.times)
        self.times = {at for at in sorted(self.times)[-self.columns :] if at >= newest - self.span_s}
        self.marks = {key: value for key, value in self.marks.items() if key[1] in self.times}

    def samples(self, start: float, end: float) -> dict[tuple[Labels, float], float]:
        found = self.marks.items()
        return {key: value for key, value in found if value is not None and start <= key[1] <= end}

    def ended(self, series: Labels, at: float) -> bool:
        return (series, at) in self.marks and self.marks[series, at] is None


passes = st.tuples(
    st.integers(0, 12),
    st.dictionaries(
        st.sampled_from([("a",), ("b",), ("c",), ("d",), ("e",), ("f",)]),
        st.tuples(st.one_of(st.none(), st.just(1.0)), st.one_of(st.none(), st.floats(0, 100))),
        max_size=4,
    ),
    st.sets(st.sampled_from([("a",), ("b",), ("c",)])),
    st.sampled_from([0, 0, 0, 1, 5, -1, -2, -3]),
)


@settings(max_examples=300)
@given(st.lists(passes, max_size=60), st.integers(0, 40), st.integers(0, 40))
def test_it_holds_what_a_dictionary_would(
    story: list[tuple[int, dict[Entity, tuple[float | None, float | None]], set[Entity], int]], first: int, length: int
) -> None:
    window, oracle = Window(span_s=30, columns=7), Oracle(30, 7)
    now = T0
    behind = 0
    for gap, values, covers, shift in story:
        now += gap
        at = now + shift
        behind = behind + 1 if oracle.times and at < max(oracle.times) - 30 else 0
        batch = JOBS.batch(at, values, covers=[*values, *covers])
        if behind < 3:
            window.append(batch)
            oracle.append(batch)

    for start, end in ((0.0, math.inf), (T0 + first, T0 + first + length)):
        blocks = window.select((Matcher("__name__", Match.REGEX, "job_.*"),), start, end)
        seen: dict[tuple[Labels, float], float] = {}
        for block in blocks:
            assert not (block.present & block.stale).any()
            assert list(block.times) == sorted(set(block.times))
            for index, labels in enumerate(block.labels):
                for column, at in enumerate(block.times):
                    if block.present[index, column]:
                        seen[labels, float(at)] = float(block.values[index, column])
                    elif block.stale[index, column]:
                        assert oracle.ended(labels, float(at))
                    else:
                        assert np.isnan(block.values[index, column])
        assert seen == oracle.samples(start, end)


def test_an_ended_mark_is_kept_wherever_there_was_a_sample_before() -> None:
    window = Window(span_s=30, columns=7)
    for tick in range(5):
        window.append(JOBS.batch(T0 + tick, {("a",): (1, tick), (f"b{tick}",): (1, 1)}))
    window.append(JOBS.batch(T0 + 5, {("c",): (1, 1)}, covers=[("a",), *((f"b{n}",) for n in range(5))]))

    block = only(window.select(named("job_up"), T0, T0 + 5))

    assert all(row(block, job=job)[-1] == (5, None) for job in ("a", "b0", "b4"))
