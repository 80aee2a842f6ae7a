"""From the reader's blocks to frames: the newest sample at each step, or a window of samples before it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from sentinel.promql.frames import Frame, Ints, LabelSets, joined
from sentinel.promql.series import Block, Floats, Mask

MOST_CELLS = 2_000_000
"""Windows of many steps are gathered in pieces of about this many samples."""


def milliseconds(times: Floats) -> Ints:
    """Whole milliseconds, in which all times are compared."""
    return np.rint(times * 1000.0).astype(np.int64)


# -- instant selectors ----------------------------------------------------------------------------------------


def newest(blocks: list[Block], at_ms: Ints, lookback_s: float | None) -> tuple[Frame, Floats]:
    """Each series' newest sample at each step, and when those were taken (Unix seconds)."""
    frames, stamps = [], []
    for block in blocks:
        if block.labels:
            frame, when = _newest(block, at_ms, block.lookback_s if lookback_s is None else lookback_s)
            frames.append(frame)
            stamps.append(when)
    frame = joined(frames, len(at_ms))
    return frame, np.concatenate(stamps) if stamps else np.zeros((0, len(at_ms)))


def _newest(block: Block, at_ms: Ints, lookback_s: float) -> tuple[Frame, Floats]:
    rows, steps = len(block.labels), len(at_ms)
    times = milliseconds(block.times)
    lookback_ms = round(lookback_s * 1000)
    ends = np.searchsorted(times, at_ms, side="right")
    no_drop = np.zeros(rows, dtype=bool)
    if steps == 1:
        end = int(ends[0])
        begin = int(np.searchsorted(times, at_ms[0] - lookback_ms, side="right"))
        if begin >= end:
            nothing = np.zeros((rows, 1), dtype=bool)
            return Frame(block.labels, np.full((rows, 1), np.nan), nothing, nothing, no_drop), np.zeros((rows, 1))
        values, present = block.values[:, end - 1], block.present[:, end - 1]
        column: Ints | None = None
        if not present.all():
            marked = block.present[:, begin:end] | block.stale[:, begin:end]
            column = end - 1 - np.argmax(marked[:, ::-1], axis=1)
            every = np.arange(rows)
            values, present = block.values[every, column], block.present[every, column]
        present = present.reshape(-1, 1)
        when = block.times[end - 1 : end] if column is None else block.times[column]
        stamps = np.broadcast_to(when.reshape(-1, 1), (rows, 1))
        return Frame(block.labels, values.reshape(-1, 1).copy(), present, present, no_drop), stamps
    if len(times) == 0:
        nothing = np.zeros((rows, steps), dtype=bool)
        return Frame(block.labels, np.full((rows, steps), np.nan), nothing, nothing, no_drop), np.zeros((rows, steps))
    last = np.where(block.present | block.stale, np.arange(len(times)), -1)
    np.maximum.accumulate(last, axis=1, out=last)
    columns = last[:, np.maximum(ends - 1, 0)]
    columns[:, ends == 0] = -1
    picked = np.maximum(columns, 0)
    fresh = (columns >= 0) & (times[picked] > at_ms - lookback_ms)
    present = np.take_along_axis(block.present, picked, axis=1) & fresh
    values = np.take_along_axis(block.values, picked, axis=1)
    return Frame(block.labels, values, present, present, no_drop), block.times[picked]


# -- windows --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Samples:
    """Series on one time axis, to be looked at through windows.

    Attributes:
        labels: One label set per series.
        times: int64[C], milliseconds.
        values: float64[S, C].
        present: bool[S, C].
        masked: bool[S, C]: a filter masked a sample here; None where nothing was filtered.
        drop: bool[S]: the name is to go already.
    """

    labels: LabelSets
    times: Ints
    values: Floats
    present: Mask
    masked: Mask | None
    drop: Mask


@dataclass(frozen=True, slots=True, eq=False)
class Windows:
    """The samples that each series has in each step's window, moved to the left so that there are no holes.

    Attributes:
        values: float64[S, t, W]; what lies behind `count` is not to be looked at.
        times: float64[S or 1, t, W], seconds relative to the evaluation time `at`.
        count: int[S, t] of samples.
        full: Whether every window is full, so that `count` is W everywhere.
        at: float64[t], the evaluation times in Unix seconds.
        begin: float64[t], the open left end of the window, seconds relative to `at`.
        end: float64[t], the closed right end, seconds relative to `at`; 0 without offset and `@`.
        range_s: The length of the window.
        steps: Which steps of the whole query these are.
    """

    values: Floats
    times: Floats
    count: Ints
    full: bool
    at: Floats
    begin: Floats
    end: Floats
    range_s: float
    steps: slice

    @property
    def valid(self) -> Mask:
        """bool[S, t, W]: which of `values` are samples."""
        return np.asarray(np.arange(self.values.shape[2]) < self.count[..., None])

    def filled(self, with_: float) -> Floats:
        """The values with `with_` where there is no sample."""
        return self.values if self.full else np.where(self.valid, self.values, with_)

    def last(self) -> Floats:
        """float64[S, t]: the newest value; nonsense where `count` is 0."""
        return self.pick(self.values, self.count - 1)

    def pick(self, array: Floats, index: Ints) -> Floats:
        """`array` at `index` along the windows, clipped to what is there."""
        if self.full and array.shape[2]:
            # The same place in every window: no gather needed.
            place = int(index.flat[0]) if index.size else 0
            if not index.size or (index == place).all():
                return array[:, :, max(0, place)]
        picked = np.take_along_axis(array, np.clip(index, 0, None)[..., None], axis=2)
        return np.asarray(picked[..., 0])


Kernel = Callable[[Windows], tuple[Floats, Mask]]
"""From windows to a value per series and step, and whether there is one."""


def through_windows(
    samples: Samples, kernel: Kernel, at_ms: Ints, end_ms: Ints, range_ms: int, *, keeps_name: bool
) -> Frame:
    """`kernel` over every series and step."""
    rows, steps = len(samples.labels), len(at_ms)
    values = np.full((rows, steps), np.nan)
    kept = np.zeros((rows, steps), dtype=bool)
    firsts = np.searchsorted(samples.times, end_ms - range_ms, side="right")
    lasts = np.searchsorted(samples.times, end_ms, side="right")
    for piece in _pieces(rows, firsts, lasts):
        if int((lasts[piece] - firsts[piece]).max(initial=0)) == 0:
            continue
        windows = _gather(samples, firsts[piece], lasts[piece], at_ms[piece], end_ms[piece], range_ms, piece)
        found, there = kernel(windows)
        values[:, piece] = found
        kept[:, piece] = there & (windows.count > 0)
    present = kept
    if samples.masked is not None and len(samples.times):
        seen = np.concatenate([np.zeros((rows, 1), np.int64), np.cumsum(samples.masked, axis=1)], axis=1)
        present = kept | (seen[:, lasts] > seen[:, firsts])
    drop = samples.drop if keeps_name else np.ones(rows, dtype=bool)
    return Frame(samples.labels, values, present, kept, drop)


def _pieces(rows: int, firsts: Ints, lasts: Ints) -> Iterator[slice]:
    steps = len(firsts)
    width = int((lasts - firsts).max(initial=1))
    size = max(1, MOST_CELLS // max(1, rows * width))
    for begin in range(0, steps, size):
        yield slice(begin, min(steps, begin + size))


def _gather(
    samples: Samples, firsts: Ints, lasts: Ints, at_ms: Ints, end_ms: Ints, range_ms: int, piece: slice
) -> Windows:
    steps = len(firsts)
    widths = lasts - firsts
    width = int(widths.max())
    if steps == 1:
        here = slice(int(firsts[0]), int(lasts[0]))
        values = samples.values[:, None, here]
        present = samples.present[:, None, here]
        times = samples.times[None, None, here]
        even = True
    else:
        index = firsts[:, None] + np.arange(width)
        even = bool((widths == width).all())
        if not even:
            np.minimum(index, len(samples.times) - 1, out=index)
        values = samples.values[:, index]
        present = samples.present[:, index]
        times = samples.times[index][None]
        if not even:
            present &= np.arange(width) < widths[:, None]
    relative = (times - at_ms[:, None]) / 1000.0
    if even and present.all():
        count = np.full(values.shape[:2], width, dtype=np.int64)
        full = True
    else:
        count = present.sum(axis=2)
        full = bool((count == width).all())
        if not (present == (np.arange(width) < count[..., None])).all():
            order = np.argsort(~present, axis=2, kind="stable")
            values = np.take_along_axis(values, order, axis=2)
            relative = np.take_along_axis(np.broadcast_to(relative, present.shape), order, axis=2)
    end = (end_ms - at_ms) / 1000.0
    range_s = range_ms / 1000.0
    return Windows(values, relative, count, full, at_ms / 1000.0, end - range_s, end, range_s, piece)
