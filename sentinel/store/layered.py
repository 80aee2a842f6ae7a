"""The window where it reaches back far enough, else the store with the window's newest part behind it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

from sentinel.model.labels import METRIC_NAME, Labels
from sentinel.promql.series import Block, Matcher, SeriesReader


class Recent(Protocol):
    """The window, or its copy for another thread."""

    def select(self, matchers: tuple[Matcher, ...], start: float, end: float) -> Sequence[Block]:
        """What it holds."""
        ...

    @property
    def widest_lookback_s(self) -> float:
        """The longest lookback of its blocks."""
        ...

    def complete_after(self, matchers: tuple[Matcher, ...]) -> float:
        """All samples later than this are in it."""
        ...


def layered(window: Recent, history: SeriesReader) -> Layered:
    """One reader over both."""
    return Layered(window, history)


class Layered:
    """Window and store as one reader."""

    def __init__(self, window: Recent, history: SeriesReader) -> None:
        self._window = window
        self._history = history

    @property
    def widest_lookback_s(self) -> float:
        """The longest lookback of any block."""
        return self._window.widest_lookback_s

    def select(self, matchers: tuple[Matcher, ...], start: float, end: float) -> Sequence[Block]:
        """All series that match, each sample once."""
        border = self._window.complete_after(matchers)
        if start > border:
            return self._window.select(matchers, start, end)
        old = self._history.select(matchers, start, min(border, end))
        if end <= border:
            return old
        new = self._window.select(matchers, float(np.nextafter(border, np.inf)), end)
        if not old or not new:
            return old or new
        names: dict[str, list[Block]] = {}
        for block in (*old, *new):
            name = block.labels[0].get(METRIC_NAME, "") if block.labels else ""
            names.setdefault(name, []).append(block)
        return [blocks[0] if len(blocks) == 1 else _joined(blocks) for blocks in names.values()]

    def known(self, matchers: tuple[Matcher, ...], start: float, end: float) -> set[Labels]:
        """The label sets of all series that match and have a sample in that time."""
        border = self._window.complete_after(matchers)
        blocks = self._window.select(matchers, max(start, border), end) if end > border else ()
        found = {block.labels[row] for block in blocks for row in np.flatnonzero(block.present.any(axis=1)).tolist()}
        if start > border:
            return found
        until = min(border, end)
        listed: Callable[..., set[Labels]] | None = getattr(self._history, "known", None)
        if listed is not None:
            return found | listed(matchers, start, until)
        old = self._history.select(matchers, start, until)
        return found | {
            block.labels[row] for block in old for row in np.flatnonzero(block.present.any(axis=1)).tolist()
        }


def _joined(blocks: Sequence[Block]) -> Block:
    """Blocks side by side on one axis; the later in the list wins where both have a sample."""
    rows: dict[Labels, int] = {}
    for block in blocks:
        for labels in block.labels:
            rows.setdefault(labels, len(rows))
    times = np.unique(np.concatenate([block.times for block in blocks]))
    values = np.full((len(rows), len(times)), np.nan)
    present = np.zeros(values.shape, dtype=np.bool_)
    stale = np.zeros(values.shape, dtype=np.bool_)
    for block in blocks:
        chosen = np.array([rows[labels] for labels in block.labels], dtype=np.intp)
        place = np.ix_(chosen, np.searchsorted(times, block.times))
        values[place] = np.where(block.present, block.values, values[place])
        present[place] |= block.present
        stale[place] = (stale[place] | block.stale) & ~present[place]
    return Block(tuple(rows), times, values, present, stale, blocks[-1].lookback_s)
