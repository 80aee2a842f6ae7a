"""Classic histograms: quantiles and fractions from cumulative buckets, all steps at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from sentinel.model.labels import METRIC_NAME
from sentinel.promql.frames import Frame, Groups, LabelSets, group, memo
from sentinel.promql.series import Floats, Mask

_SMALL = 1e-12
BUCKET = "le"


@dataclass(frozen=True, slots=True, eq=False)
class Bad:
    """A series that is no bucket: its `le` is missing or no number.

    Attributes:
        metric: The metric's name.
        value: What its `le` says.
    """

    metric: str
    value: str


@dataclass(frozen=True, slots=True, eq=False)
class Mended:
    """Buckets that were not monotonic and were taken as if they were.

    Attributes:
        metric: The metric's name.
    """

    metric: str


class Summary:
    """What is made of the buckets of one histogram, with arguments that may differ from step to step."""

    def __init__(self, function: Callable[..., Floats], *arguments: Floats) -> None:
        self._function = function
        self._arguments = arguments

    def at(self, chosen: Mask) -> Callable[[Floats, Floats], Floats]:
        """The function of bounds and cumulative counts for some of the steps."""
        arguments = [argument[chosen] for argument in self._arguments]
        return lambda bounds, counts: self._function(bounds, counts, *arguments)


Report = Callable[[Bad | Mended], None]


@dataclass(frozen=True, slots=True, eq=False)
class _Buckets:
    """The rows that are buckets, by histogram, with their upper bounds."""

    groups: Groups
    rows: list[list[int]]
    bounds: list[Floats]
    bad: list[Bad]


def _buckets(labels: LabelSets) -> _Buckets:
    def make() -> _Buckets:
        bad: list[Bad] = []
        good: list[tuple[int, float]] = []
        for row, one in enumerate(labels):
            text = one.get(BUCKET, "")
            try:
                good.append((row, _bound(text)))
            except ValueError:
                bad.append(Bad(one.get(METRIC_NAME, ""), text))
        groups = group([labels[row].without((BUCKET,)) for row, _ in good])
        rows: list[list[int]] = []
        bounds: list[Floats] = []
        for at in range(len(groups.labels)):
            begin = int(groups.starts[at])
            members = [good[place] for place in groups.order[begin : begin + int(groups.sizes[at])].tolist()]
            members.sort(key=lambda member: member[1])
            rows.append([row for row, _ in members])
            bounds.append(np.array([bound for _, bound in members]))
        return _Buckets(groups, rows, bounds, bad)

    return memo("buckets", (labels,), None, make)


def _bound(text: str) -> float:
    if "_" in text or text != text.strip():
        raise ValueError(text)
    return float(text)


def summarised(frame: Frame, summary: Summary, report: Report) -> Frame:
    """One value per histogram and step."""
    buckets = _buckets(frame.labels)
    for bad in buckets.bad:
        report(bad)
    count, steps = len(buckets.rows), frame.steps
    values = np.full((count, steps), np.nan)
    present = np.zeros((count, steps), dtype=bool)
    kept = np.zeros((count, steps), dtype=bool)
    for at, rows in enumerate(buckets.rows):
        mine = frame.kept[rows]
        present[at] = frame.present[rows].any(axis=0)
        kept[at] = mine.any(axis=0)
        mended = False
        for pattern, chosen in _patterns(mine):
            if pattern.any():
                counts = frame.values[np.array(rows)[pattern]][:, chosen]
                values[at, chosen], fixed = _one(buckets.bounds[at][pattern], counts, summary, chosen)
                mended = mended or fixed
        if mended:
            report(Mended(buckets.groups.labels[at].get(METRIC_NAME, "")))
    labels = buckets.groups.labels
    return Frame(labels, values, present, kept, np.ones(count, dtype=bool))


def _patterns(kept: Mask) -> list[tuple[Mask, Mask]]:
    """Which buckets are there, and at which steps just those."""
    if kept.all():
        return [(np.ones(kept.shape[0], dtype=bool), np.ones(kept.shape[1], dtype=bool))]
    different, which = np.unique(kept, axis=1, return_inverse=True)
    return [(different[:, at], np.asarray(which.ravel() == at)) for at in range(different.shape[1])]


def _one(bounds: Floats, counts: Floats, summary: Summary, chosen: Mask) -> tuple[Floats, bool]:
    if not np.isposinf(bounds[-1]):
        return np.full(counts.shape[1], np.nan), False
    bounds, counts = _coalesced(bounds, counts)
    counts, mended = _monotonic(counts)
    return summary.at(chosen)(bounds, counts), mended


def _coalesced(bounds: Floats, counts: Floats) -> tuple[Floats, Floats]:
    """Buckets with the same bound, written differently, are one."""
    different, which = np.unique(bounds, return_inverse=True)
    if len(different) == len(bounds):
        return bounds, counts
    starts = np.searchsorted(which, np.arange(len(different)))
    return different, np.add.reduceat(counts, starts, axis=0)


def _monotonic(counts: Floats) -> tuple[Floats, bool]:
    """Cumulative counts that never fall; whether that took more than mending rounding errors."""
    made = counts.copy()
    mended = False
    for at in range(1, len(made)):
        before, now = made[at - 1], made[at]
        close = np.abs(before - now) <= _SMALL * np.minimum(np.abs(before) + np.abs(now), np.finfo(np.float64).max)
        falls = now < before
        mended = mended or bool((falls & ~close).any())
        made[at] = np.where(close | falls, before, now)
    return made, mended


def quantile(phi: Floats) -> Summary:
    """The φ-quantile, by linear interpolation within its bucket."""
    return Summary(_quantile, phi)


def _quantile(bounds: Floats, counts: Floats, phi: Floats) -> Floats:
    size, steps = counts.shape
    observations = counts[-1]
    if size < 2:
        made = np.full(steps, np.nan)
    else:
        rank = phi * observations
        reached = counts[:-1] >= rank
        at = np.where(reached.any(axis=0), np.argmax(reached, axis=0), size - 1)
        every = np.arange(steps)
        before = np.maximum(at - 1, 0)
        start = np.where(at > 0, bounds[before], 0.0)
        below = np.where(at > 0, counts[before, every], 0.0)
        inside = counts[at, every] - below
        made = start + (bounds[at] - start) * ((rank - below) / inside)
        made = np.where((at == 0) & (bounds[0] <= 0), bounds[0], made)
        made = np.where(at == size - 1, bounds[-2], made)
        made = np.where((observations == 0) | np.isnan(observations), np.nan, made)
    made = np.where(phi < 0, -np.inf, np.where(phi > 1, np.inf, made))
    return np.where(np.isnan(phi), np.nan, made)


def fraction(lower: Floats, upper: Floats) -> Summary:
    """The share of observations between two bounds."""
    return Summary(_fraction, lower, upper)


def _fraction(bounds: Floats, counts: Floats, lower: Floats, upper: Floats) -> Floats:
    total = counts[-1]
    made = (_rank(bounds, counts, upper) - _rank(bounds, counts, lower)) / total
    made = np.where(lower >= upper, 0.0, made)
    nothing = (total == 0) | np.isnan(total) | np.isnan(lower) | np.isnan(upper)
    return np.where(nothing, np.nan, made)


def _rank(bounds: Floats, counts: Floats, value: Floats) -> Floats:
    """How many observations are at most `value`, interpolated where a bucket has a width."""
    size, steps = counts.shape
    ranks = counts[-1].copy()
    known = np.zeros(steps, dtype=bool)
    below = np.zeros(steps)
    for at in range(size):
        start = bounds[at - 1] if at else (0.0 if bounds[0] > 0 else -np.inf)
        end = bounds[at]
        here = ~known & (start >= value)
        ranks = np.where(here, below, ranks)
        known |= here
        inside = ~known & (start < value) & (end > value)
        if np.isneginf(start):
            found = counts[at]
        elif np.isposinf(end):
            found = below
        else:
            found = below + (counts[at] - below) * (value - start) / (end - start)
        ranks = np.where(inside, found, ranks)
        known |= inside
        below = counts[at]
    return np.asarray(np.minimum(ranks, counts[-1]))


def quantile_label(labels: LabelSets, name: str, text: str) -> LabelSets:
    """The label sets with the quantile as one more label."""
    return memo("quantile label", (labels,), (name, text), lambda: tuple(one.merged({name: text}) for one in labels))
