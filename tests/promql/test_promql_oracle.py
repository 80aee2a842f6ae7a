"""The vectorised evaluation against a plain one, on random series with gaps, marks and odd values."""

from __future__ import annotations

import math
import os

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sentinel.model.labels import Labels
from sentinel.promql import EvaluationError, evaluate, evaluate_range, parse
from sentinel.promql.series import Block, Matcher, Vector
from tests.promql.memory import STALE, MemoryReader, Sample
from tests.promql.reference import Fails, Reference
from tests.promql.strategies import METRICS, OVER_TIME, vectors

LOOKBACK_S = 12.0
EXAMPLES = int(os.environ.get("SENTINEL_EXAMPLES", "25"))
"""More of them find rarer faults; the default keeps the suite quick."""
Points = list[tuple[int, float | None]]
World = dict[Labels, Points]


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """A few series on a common 2 s raster: values, gaps and staleness markers."""
    found: World = {}
    for metric in METRICS:
        for job, gpu in draw(
            st.lists(
                st.tuples(st.sampled_from(["train", "eval"]), st.sampled_from(["0", "1"])), max_size=3, unique=True
            )
        ):
            value = st.sampled_from([0.0, 1.0, 2.0, 5.0, -3.0, 0.25, 1e6, math.nan, math.inf])
            cells = draw(st.lists(st.one_of(value, value, value, st.none(), st.just("stale")), min_size=1, max_size=30))
            points: Points = [
                (place * 2000, None if cell == "stale" else float(cell))
                for place, cell in enumerate(cells)
                if cell is not None
            ]
            found[Labels({"__name__": metric, "job": job, "gpu": gpu})] = points
    return found


class OneBlock:
    """All series of a MemoryReader on one time axis, as the window of a family has them."""

    def __init__(self, world: World) -> None:
        times = sorted({time for points in world.values() for time, _ in points})
        column = {time: place for place, time in enumerate(times)}
        shape = (len(world), len(times))
        self._values, self._present = np.full(shape, 7.5), np.zeros(shape, dtype=bool)
        self._stale = np.zeros(shape, dtype=bool)
        self._labels = tuple(world)
        self._times = np.array(times) / 1000.0
        for row, points in enumerate(world.values()):
            for time, value in points:
                self._present[row, column[time]] = value is not None
                self._stale[row, column[time]] = value is None
                self._values[row, column[time]] = 7.5 if value is None else value

    def select(self, matchers: tuple[Matcher, ...], start: float, end: float) -> list[Block]:
        whole = MemoryReader({labels: [] for labels in self._labels})
        wanted = {labels for block in whole.select(matchers, 0, 0) for labels in block.labels}
        rows = [row for row, labels in enumerate(self._labels) if labels in wanted]
        cut = (self._times >= start) & (self._times <= end)
        labels = tuple(self._labels[row] for row in rows)
        parts = (self._values[rows][:, cut], self._present[rows][:, cut], self._stale[rows][:, cut])
        return [Block(labels, self._times[cut], *parts, LOOKBACK_S)] if rows else []


def reader(world: World) -> MemoryReader:
    made: dict[Labels, list[Sample]] = {
        labels: [(time / 1000.0, STALE if value is None else value) for time, value in points]
        for labels, points in world.items()
    }
    return MemoryReader(made, LOOKBACK_S)


def close(a: float, b: float) -> bool:
    if math.isnan(a) or math.isnan(b):
        return math.isnan(a) and math.isnan(b)
    return a == b or math.isclose(a, b, rel_tol=1e-6, abs_tol=1e-6)


def same(ours: dict[Labels, float], theirs: dict[Labels, float]) -> bool:
    return set(ours) == set(theirs) and all(close(value, theirs[labels]) for labels, value in ours.items())


quick = settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@quick
@given(worlds(), vectors(), st.sampled_from([0, 7_000, 30_000, 41_000, 60_000]))
def test_one_moment_is_what_the_plain_evaluation_says(world: World, text: str, at_ms: int) -> None:
    expr = parse(text)
    try:
        expected = Reference(world, round(LOOKBACK_S * 1000)).evaluate(expr, at_ms)
    except Fails:
        for source in (reader(world), OneBlock(world)):
            with pytest.raises(EvaluationError):
                evaluate(expr, source, at_ms / 1000.0)
        return
    for source in (reader(world), OneBlock(world)):
        found = evaluate(expr, source, at_ms / 1000.0)
        assert isinstance(found, Vector)
        assert same(dict(found.samples()), expected), (found.samples(), expected)


@pytest.mark.parametrize("name", [*OVER_TIME, "quantile_over_time"])
@given(worlds())
@settings(max_examples=EXAMPLES // 3, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_each_function_over_windows_with_gaps(name: str, world: World) -> None:
    first = "0.3, " if name.startswith("quantile") else ""
    for metric in METRICS:
        expr = parse(f"{name}({first}{metric}[33s])")
        expected = Reference(world, round(LOOKBACK_S * 1000)).evaluate(expr, 41_000)
        for source in (reader(world), OneBlock(world)):
            found = evaluate(expr, source, 41.0)
            assert isinstance(found, Vector)
            assert same(dict(found.samples()), expected), (found.samples(), expected)


@quick
@given(worlds(), vectors())
def test_a_range_query_is_its_moments_side_by_side(world: World, text: str) -> None:
    expr = parse(text)
    source = OneBlock(world)
    moments = [20.0 + 5 * step for step in range(9)]
    single: list[dict[Labels, float]] = []
    try:
        for moment in moments:
            found = evaluate(expr, source, moment, lookback_s=LOOKBACK_S)
            assert isinstance(found, Vector)
            single.append(dict(found.samples()))
        matrix = evaluate_range(expr, source, 20, 60, 5, lookback_s=LOOKBACK_S)
    except EvaluationError:
        return
    for column, expected in enumerate(single):
        ours = {
            labels: float(matrix.values[row, column])
            for row, labels in enumerate(matrix.labels)
            if matrix.present[row, column]
        }
        assert same(ours, expected), (moments[column], ours, expected)


@quick
@given(worlds(), vectors())
def test_a_mask_never_says_more_than_the_samples(world: World, text: str) -> None:
    """Every element has a label set of its own, and what is kept is there."""
    try:
        found = evaluate(parse(text), reader(world), 40.0)
    except EvaluationError:
        return
    assert isinstance(found, Vector)
    assert len(set(found.labels)) == len(found.labels) == len(found.values) == len(found.kept)


@pytest.mark.parametrize("step", [2.0, 6.0, 7.0])
@pytest.mark.parametrize("name", [*OVER_TIME, "quantile_over_time"])
def test_windows_that_overlap_are_each_what_they_are_alone(name: str, step: float) -> None:
    """Without gaps a range query looks at one stretch of memory through many windows."""
    rng = np.random.default_rng(5)
    source = OneBlock(
        {
            Labels({"__name__": "m_a", "gpu": str(row)}): [
                (place * 2000, float(value)) for place, value in enumerate(rng.integers(-5, 50, 120))
            ]
            for row in range(3)
        }
    )
    expr = parse(f"{name}({'0.3, ' if name.startswith('quantile') else ''}m_a[21s] offset 1s)")

    matrix = evaluate_range(expr, source, 0, 238, step, lookback_s=LOOKBACK_S)
    for column, moment in enumerate(matrix.times):
        alone = evaluate(expr, source, float(moment), lookback_s=LOOKBACK_S)
        assert isinstance(alone, Vector)
        ours = {
            labels: float(matrix.values[row, column])
            for row, labels in enumerate(matrix.labels)
            if matrix.present[row, column]
        }
        assert same(ours, dict(alone.samples()))


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([2.0, 8.0, 1e100, -1e100], 10.0),
        ([1e16, 1.0, -1e16], 1.0),
        ([-1e308, -1e308, 1e308, 1e308], -math.inf),
        ([math.inf, 1.0, -math.inf], math.nan),
        ([math.inf, 1.0], math.inf),
        ([math.nan, 1.0], math.nan),
        ([0.1] * 10, 1.0),
    ],
)
def test_sums_are_compensated(values: list[float], expected: float) -> None:
    source = MemoryReader({Labels({"__name__": "m"}): [(float(place), value) for place, value in enumerate(values)]})
    several = MemoryReader(
        {Labels({"__name__": "m", "x": str(place)}): [(0.0, value)] for place, value in enumerate(values)}
    )

    for text, reader_, at in (("sum_over_time(m[1m])", source, 30.0), ("sum(m)", several, 0.0)):
        found = evaluate(parse(text), reader_, at)
        assert isinstance(found, Vector)
        assert close(float(found.values[0]), expected)


def test_a_mean_does_not_overflow() -> None:
    values = [-1e308, -1e308, 1e308, 1e308, 4.0, -1.5e308, 1.5e308, 0.0, 1e308, -1e308]
    source = MemoryReader({Labels({"__name__": "m"}): [(float(place), value) for place, value in enumerate(values)]})

    found = evaluate(parse("avg_over_time(m[1m])"), source, 30.0)

    assert isinstance(found, Vector)
    assert close(float(found.values[0]), 0.4)
