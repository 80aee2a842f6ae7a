"""Series kept in memory, for tests: the language's own `SeriesReader`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from sentinel.model.labels import Labels
from sentinel.promql.regex import matches
from sentinel.promql.series import Block, Matcher

STALE = object()
"""Stands for a staleness marker among the samples of a series."""

Sample = tuple[float, object]


class MemoryReader:
    """Any number of series, each with its own times; one Block for all that share their times."""

    def __init__(self, series: Mapping[Labels, Iterable[Sample]] | None = None, lookback_s: float = 300.0) -> None:
        self._series: dict[Labels, dict[float, object]] = {}
        self._lookback_s = lookback_s
        self._blocks: list[Block] | None = None
        self._selected: dict[tuple[Matcher, ...], list[Block]] = {}
        for labels, samples in (series or {}).items():
            self.add(labels, samples)

    def add(self, labels: Labels, samples: Iterable[Sample]) -> None:
        """More samples (Unix seconds, value or STALE) of one series; a later one at the same time wins."""
        self._series.setdefault(labels, {}).update(dict(samples))
        self._blocks = None
        self._selected.clear()

    def clear(self) -> None:
        """Forget everything."""
        self._series.clear()
        self._blocks = None
        self._selected.clear()

    @property
    def labels(self) -> list[Labels]:
        """All label sets there are."""
        return list(self._series)

    def select(self, matchers: tuple[Matcher, ...], start: float, end: float) -> Sequence[Block]:
        """Everything that matches, cut to the time asked for."""
        found = self._selected.get(matchers)
        if found is None:
            found = self._selected[matchers] = [
                block for block in (_matching(block, matchers) for block in self._all()) if block.labels
            ]
        return [_cut(block, start, end) for block in found]

    def _all(self) -> list[Block]:
        if self._blocks is None:
            by_times: dict[tuple[float, ...], list[Labels]] = {}
            for labels in sorted(self._series, key=lambda labels: tuple(labels.items())):
                by_times.setdefault(tuple(sorted(self._series[labels])), []).append(labels)
            self._blocks = [self._block(times, labels) for times, labels in by_times.items()]
        return self._blocks

    def _block(self, times: tuple[float, ...], labels: list[Labels]) -> Block:
        shape = (len(labels), len(times))
        values, present, stale = np.full(shape, np.nan), np.zeros(shape, dtype=bool), np.zeros(shape, dtype=bool)
        for row, one in enumerate(labels):
            samples = self._series[one]
            for column, time in enumerate(times):
                if samples[time] is STALE:
                    stale[row, column] = True
                else:
                    values[row, column] = samples[time]
                    present[row, column] = True
        return Block(tuple(labels), np.array(times, dtype=np.float64), values, present, stale, self._lookback_s)


def _matching(block: Block, matchers: tuple[Matcher, ...]) -> Block:
    rows = [
        row
        for row, labels in enumerate(block.labels)
        if all(matches(matcher, labels.get(matcher.name, "")) for matcher in matchers)
    ]
    return Block(
        tuple(block.labels[row] for row in rows),
        block.times,
        block.values[rows],
        block.present[rows],
        block.stale[rows],
        block.lookback_s,
    )


def _cut(block: Block, start: float, end: float) -> Block:
    first = int(np.searchsorted(block.times, start, side="left"))
    last = int(np.searchsorted(block.times, end, side="right"))
    return Block(
        block.labels,
        block.times[first:last],
        block.values[:, first:last],
        block.present[:, first:last],
        block.stale[:, first:last],
        block.lookback_s,
    )
