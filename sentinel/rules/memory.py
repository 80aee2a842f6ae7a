"""Series in memory, for tests of rules: what a unit test feeds, and what the rules write on top."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sentinel.model.labels import METRIC_NAME, Labels
from sentinel.model.series import Batch
from sentinel.promql.regex import matches
from sentinel.promql.series import Block, Matcher
from sentinel.rules.notation import Point, Stale


class MemorySeries:
    """A `SeriesReader` over series that were given, or written by rules.

    Nothing later than `visible` is shown, so a story unfolds as time goes on.
    """

    def __init__(self, lookback_s: float = 300.0) -> None:
        self.visible = float("inf")
        self._lookback_s = lookback_s
        self._samples: dict[Labels, list[tuple[float, Point]]] = {}
        self._by_name: dict[str, list[Labels]] = {}
        self._blocks: dict[Labels, Block] = {}

    def add(self, labels: Labels, samples: Sequence[tuple[float, Point]]) -> None:
        """More of one series: ascending times, each a value or its end; None is no sample."""
        known = self._samples.get(labels)
        if known is None:
            known = self._samples[labels] = []
            self._by_name.setdefault(labels.get(METRIC_NAME, ""), []).append(labels)
        known += [(at, point) for at, point in samples if point is not None]
        self._blocks.pop(labels, None)

    def append(self, batch: Batch) -> None:
        """What a rule has written."""
        rows = batch.rows()
        for entity in batch.covers:
            for metric in batch.family.metrics:
                value = rows.get(entity, {}).get(metric.name)
                labels = batch.family.series(metric.name, entity)
                if value is not None:
                    self.add(labels, [(batch.at, value)])
                elif labels in self._samples and not isinstance(self._samples[labels][-1][1], Stale):
                    self.add(labels, [(batch.at, Stale())])

    def select(self, matchers: tuple[Matcher, ...], start: float, end: float) -> Sequence[Block]:
        """One block for each series that matches, from `start` to `end`, both included."""
        end = min(end, self.visible)
        found: list[Block] = []
        for labels in self._candidates(matchers):
            if all(matches(matcher, labels.get(matcher.name, "")) for matcher in matchers):
                block = self._block(labels)
                low = int(np.searchsorted(block.times, start, side="left"))
                high = int(np.searchsorted(block.times, end, side="right"))
                if low < high:
                    found.append(_cut(block, low, high))
        return found

    def _candidates(self, matchers: tuple[Matcher, ...]) -> Sequence[Labels]:
        for matcher in matchers:
            if matcher.name == METRIC_NAME and matcher.match.value == "=":
                return self._by_name.get(matcher.value, ())
        return [*self._samples]

    def _block(self, labels: Labels) -> Block:
        block = self._blocks.get(labels)
        if block is None:
            samples = self._samples[labels]
            ends = np.array([[isinstance(point, Stale) for _, point in samples]], dtype=np.bool_)
            values = [[point if isinstance(point, float) else float("nan") for _, point in samples]]
            block = Block(
                (labels,),
                np.array([at for at, _ in samples], dtype=np.float64),
                np.array(values, dtype=np.float64),
                ~ends,
                ends,
                self._lookback_s,
            )
            self._blocks[labels] = block
        return block


def _cut(block: Block, low: int, high: int) -> Block:
    return Block(
        block.labels,
        block.times[low:high],
        block.values[:, low:high],
        block.present[:, low:high],
        block.stale[:, low:high],
        block.lookback_s,
    )
