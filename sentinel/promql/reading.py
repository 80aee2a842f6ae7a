"""From the reader's blocks to frames: the newest sample at each step, or a window of samples before it."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from sentinel.promql import limits
from sentinel.promql.frames import Frame, Ints, LabelSets, all_false, all_true, every, joined
from sentinel.promql.series import Block, Floats, Mask

_SMALL = 16_384
_SHORTEST_RUN = 8
MOST_CELLS = 2_000_000
"""Windows of many steps are gathered in pieces of about this many samples."""


Number = TypeVar("Number", np.float64, np.int64)


def milliseconds(times: Floats) -> Ints:
    """Whole milliseconds, in which all times are compared."""
    return np.rint(times * 1000.0).astype(np.int64)


# -- instant selectors ----------------------------------------------------------------------------------------


def newest(
    blocks: list[Block], at_ms: Ints, lookback_s: float | None, *, stamped: bool = False
) -> tuple[Frame, Floats | None]:
    """Each series' newest sample at each step, and if asked for, when those were taken (Unix seconds)."""
    frames: list[Frame] = []
    stamps: list[Floats] = []
    once = len(at_ms) == 1
    for block in blocks:
        if block.labels:
            lookback_ms = round((block.lookback_s if lookback_s is None else lookback_s) * 1000)
            frame, when = (
                _newest_once(block, int(at_ms[0]), lookback_ms, stamped=stamped)
                if once
                else _newest(block, at_ms, lookback_ms)
            )
            frames.append(frame)
            if stamped:
                assert when is not None
                stamps.append(when)
    frame = joined(frames, len(at_ms))
    return frame, (np.concatenate(stamps) if stamps else np.zeros((0, len(at_ms)))) if stamped else None


def _column(times: Floats, until_ms: int) -> int:
    """How many of `times` are at most `until_ms`, when both are rounded to milliseconds."""
    return int(times.searchsorted((until_ms + 0.5) / 1000.0))


def _newest_once(block: Block, at_ms: int, lookback_ms: int, *, stamped: bool) -> tuple[Frame, Floats | None]:
    rows = len(block.labels)
    end = _column(block.times, at_ms)
    begin = _column(block.times, at_ms - lookback_ms)
    if begin >= end:
        nothing = np.zeros((rows, 1), dtype=bool)
        return Frame(block.labels, np.full((rows, 1), np.nan), nothing, nothing, all_false(rows)), np.zeros((rows, 1))
    values, present = block.values[:, end - 1 : end], block.present[:, end - 1 : end]
    stamps = np.full((rows, 1), block.times[end - 1]) if stamped else None
    if not every(present):
        # Those without a sample in the last column: look for their last sample or mark.
        late = (~present[:, 0]).nonzero()[0]
        before = block.present[late, begin:end]
        if not np.count_nonzero(before):
            return Frame(block.labels, values, present, present, all_false(rows)), stamps
        marked = before | block.stale[late, begin:end]
        column = end - 1 - marked[:, ::-1].argmax(axis=1)
        values, present = values.copy(), present.copy()
        values[late, 0] = block.values[late, column]
        present[late, 0] = block.present[late, column]
        if stamps is not None:
            stamps[late, 0] = block.times[column]
    return Frame(block.labels, values, present, present, all_false(rows)), stamps


def _newest(block: Block, at_ms: Ints, lookback_ms: int) -> tuple[Frame, Floats]:
    rows, steps = len(block.labels), len(at_ms)
    times = milliseconds(block.times)
    ends = np.searchsorted(times, at_ms, side="right")
    no_drop = all_false(rows)
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


@dataclass(slots=True, eq=False)
class Samples:
    """Series on one time axis, to be looked at through windows.

    Attributes:
        labels: One label set per series.
        times: float64[C], Unix seconds.
        values: float64[S, C].
        present: bool[S, C].
        masked: bool[S, C]: a filter masked a sample here; None where nothing was filtered.
        drop: bool[S]: the name is to go already.
    """

    labels: LabelSets
    times: Floats
    values: Floats
    present: Mask
    masked: Mask | None
    drop: Mask


@dataclass(slots=True, eq=False)
class Windows:
    """The samples that each series has in each step's window, moved to the left so that there are no holes.

    Attributes:
        values: float64[S, t, W]; what lies behind `count` is not to be looked at.
        moments: int64[S or 1, t, W], when they were taken, in milliseconds.
        count: int[S, t] of samples.
        full: Whether every window is full, so that `count` is W everywhere.
        at_ms: int64[t], the evaluation times.
        end_ms: int64[t], the closed right ends of the windows; as `at_ms` without offset and `@`.
        range_s: The length of the window.
        steps: Which steps of the whole query these are.
        source: The samples that the windows look at, where they overlap in memory; else None.
        mask: For a kernel without order: which of `values` are samples, where gaps were left as they are.
    """

    values: Floats
    moments: Ints
    count: Ints
    full: bool
    at_ms: Ints
    end_ms: Ints
    range_s: float
    steps: slice
    source: Floats | None = None
    mask: Mask | None = None

    @property
    def times(self) -> Floats:
        """float64[S or 1, t, W], seconds relative to the evaluation time."""
        return np.asarray((self.moments - self.at_ms[:, None]) / 1000.0)

    @property
    def end(self) -> Floats:
        """float64[t], the closed right end of each window, seconds relative to the evaluation time."""
        return np.asarray((self.end_ms - self.at_ms) / 1000.0)

    @property
    def begin(self) -> Floats:
        """float64[t], the open left end."""
        return self.end - self.range_s

    @property
    def one_sign(self) -> bool:
        """Whether no value is negative or NaN, so that sums cannot cancel."""
        values = self.values if self.source is None else self.source
        return bool(values.min(initial=0.0) >= 0)

    @property
    def valid(self) -> Mask:
        """bool[S, t, W]: which of `values` are samples."""
        if self.mask is not None:
            return self.mask
        return np.asarray(np.arange(self.values.shape[2]) < self.count[..., None])

    @property
    def single(self) -> bool:
        """Whether this is one step with full windows, so that all series share their times."""
        return self.full and self.values.shape[1] == 1 and self.moments.shape[0] == 1

    def sized(self) -> Ints | int:
        """How many samples to divide by: never 0."""
        return self.values.shape[2] if self.full else np.maximum(self.count, 1)

    def filled(self, with_: float) -> Floats:
        """The values with `with_` where there is no sample."""
        return self.values if self.full else np.where(self.valid, self.values, with_)

    def last(self, back: int = 0) -> Floats:
        """float64[S, t]: the newest value, or one `back` before it; nonsense where there are too few."""
        if self.full:
            return self.values[:, :, -1 - min(back, self.values.shape[2] - 1)]
        return self.pick(self.values, self.count - 1 - back)

    def first_time(self) -> Floats:
        """float64[S or 1, t]: when the oldest was taken, seconds relative to the evaluation time."""
        return np.asarray((self.moments[:, :, 0] - self.at_ms) / 1000.0)

    def last_time(self, back: int = 0) -> Floats:
        """float64[S or 1, t]: when the newest was taken, or one `back` before it."""
        if self.full:
            found = self.moments[:, :, -1 - min(back, self.moments.shape[2] - 1)]
        else:
            found = self.pick(np.broadcast_to(self.moments, self.values.shape), self.count - 1 - back)
        return np.asarray((found - self.at_ms) / 1000.0)

    def pick(self, array: NDArray[Number], index: Ints) -> NDArray[Number]:
        """`array` at `index` along the windows, clipped to what is there."""
        rows, steps = index.shape
        place = np.maximum(index, 0)
        if steps == 1:
            return np.asarray(array[np.arange(rows), 0, place[:, 0]].reshape(-1, 1))
        return np.asarray(array[np.arange(rows)[:, None], np.arange(steps), place])


Kernel = Callable[[Windows], tuple[Floats, Mask]]
"""From windows to a value per series and step, and whether there is one."""


def through_windows(
    samples: Samples, kernel: Kernel, at_ms: Ints, end_ms: Ints, range_ms: int, *, keeps_name: bool, ordered: bool
) -> Frame:
    """`kernel` over every series and step; `ordered` where it minds which sample comes first."""
    rows, steps = len(samples.labels), len(at_ms)
    drop = samples.drop if keeps_name else all_true(rows)
    if steps == 1 and samples.masked is None:
        values, kept = _once(samples, kernel, at_ms, end_ms, range_ms, ordered=ordered)
        return Frame(samples.labels, values, kept, kept, drop)
    values = np.full((rows, steps), np.nan)
    kept = np.zeros((rows, steps), dtype=bool)
    times = milliseconds(samples.times)
    firsts = np.searchsorted(times, end_ms - range_ms, side="right")
    lasts = np.searchsorted(times, end_ms, side="right")
    gapless = every(samples.present)
    for piece, even in _pieces(rows, firsts, lasts):
        limits.check()
        if int((lasts[piece] - firsts[piece]).max(initial=0)) == 0:
            continue
        look = _overlapping if even and gapless else _gather
        windows = look(samples, times, firsts[piece], lasts[piece], at_ms[piece], end_ms[piece], range_ms, piece)
        found, there = kernel(windows)
        values[:, piece] = found
        kept[:, piece] = there & (windows.count > 0)
    present = kept
    if samples.masked is not None and len(samples.times):
        seen = np.concatenate([np.zeros((rows, 1), np.int64), np.cumsum(samples.masked, axis=1)], axis=1)
        present = kept | (seen[:, lasts] > seen[:, firsts])
    return Frame(samples.labels, values, present, kept, drop)


def _once(
    samples: Samples, kernel: Kernel, at_ms: Ints, end_ms: Ints, range_ms: int, *, ordered: bool
) -> tuple[Floats, Mask]:
    """One step. Series with gaps are treated apart, so that the others keep the short way."""
    rows = len(samples.labels)
    until = int(end_ms[0])
    first = _column(samples.times, until - range_ms)
    last = _column(samples.times, until)
    if first >= last or not rows:
        return np.full((rows, 1), np.nan), np.zeros((rows, 1), dtype=bool)
    here = slice(first, last)
    values, present = samples.values[:, here], samples.present[:, here]
    times = milliseconds(samples.times[here])
    if every(present):
        return kernel(_full(values, times, at_ms, end_ms, range_ms))
    complete: Mask = np.asarray(present.all(axis=1), dtype=np.bool_)
    some = np.asarray(present.any(axis=1), dtype=np.bool_)
    holes = some & ~complete
    if not np.count_nonzero(holes):
        # Whole or not there at all: what is not there may be computed too, it is not looked at.
        found, there = kernel(_full(values, times, at_ms, end_ms, range_ms))
        return found, there & some[:, None]
    if not ordered:
        count = present.sum(axis=1).reshape(-1, 1)
        found, there = kernel(
            Windows(
                values[:, None],
                times[None, None],
                count,
                False,
                at_ms,
                end_ms,
                range_ms / 1000.0,
                slice(0, 1),
                mask=present[:, None],
            )
        )
        return found, there & (count > 0)
    gappy = holes.nonzero()[0]
    if values.size <= _SMALL:
        windows = _ragged(values, present, gappy, times, at_ms, end_ms, range_ms)
        found, there = kernel(windows)
        return found, there & (windows.count > 0)
    made, kept = np.full((rows, 1), np.nan), np.zeros((rows, 1), dtype=bool)
    whole = complete.nonzero()[0]
    if len(whole):
        made[whole], kept[whole] = kernel(_full(values[whole], times, at_ms, end_ms, range_ms))
    windows = _ragged(values[gappy], present[gappy], np.arange(len(gappy)), times, at_ms, end_ms, range_ms)
    found, there = kernel(windows)
    made[gappy], kept[gappy] = found, there & (windows.count > 0)
    return made, kept


@functools.lru_cache(maxsize=512)
def _counts(rows: int, width: int) -> Ints:
    made = np.full((rows, 1), width, dtype=np.int64)
    made.flags.writeable = False
    return made


def _full(values: Floats, times: Ints, at_ms: Ints, end_ms: Ints, range_ms: int) -> Windows:
    count = _counts(values.shape[0], values.shape[1])
    return Windows(values[:, None], times[None, None], count, True, at_ms, end_ms, range_ms / 1000.0, slice(0, 1))


def _ragged(
    values: Floats, present: Mask, gappy: Ints, times: Ints, at_ms: Ints, end_ms: Ints, range_ms: int
) -> Windows:
    """One step, with the samples of the `gappy` rows moved together."""
    order = np.argsort(~present[gappy], axis=1, kind="stable")
    moved, moments = values.copy(), np.repeat(times[None], len(values), axis=0)
    moved[gappy] = values[gappy[:, None], order]
    moments[gappy] = times[order]
    count = present.sum(axis=1).reshape(-1, 1)
    return Windows(moved[:, None], moments[:, None], count, False, at_ms, end_ms, range_ms / 1000.0, slice(0, 1))


def _pieces(rows: int, firsts: Ints, lasts: Ints) -> Iterator[tuple[slice, bool]]:
    """The steps in pieces that fit in memory, and whether the windows of a piece are alike and evenly apart."""
    for begin, end, even in _runs(firsts, lasts):
        width = int((lasts[begin:end] - firsts[begin:end]).max(initial=1))
        size = max(1, MOST_CELLS // max(1, rows * width))
        for first in range(begin, end, size):
            yield slice(first, min(end, first + size)), even


def _runs(firsts: Ints, lasts: Ints) -> list[tuple[int, int, bool]]:
    """Stretches of windows that are alike and evenly apart, and between them what is not."""
    steps = len(firsts)
    apart = np.diff(firsts)
    # A new stretch begins where the width changes, or where the distance to the window before does.
    breaks = np.flatnonzero((np.diff(lasts - firsts) != 0) | (np.diff(apart, prepend=apart[:1]) != 0)) + 1
    if len(breaks) > steps // _SHORTEST_RUN:
        return [(0, steps, False)]
    found: list[tuple[int, int, bool]] = []
    for begin, end in itertools.pairwise([0, *breaks.tolist(), steps]):
        even = end - begin >= _SHORTEST_RUN
        if found and not even and not found[-1][2]:
            found[-1] = (found[-1][0], end, False)
        else:
            found.append((begin, end, even))
    return found


def _overlapping(
    samples: Samples, all_times: Ints, firsts: Ints, lasts: Ints, at_ms: Ints, end_ms: Ints, range_ms: int, piece: slice
) -> Windows:
    """Windows of the same width, evenly apart and without gaps: views of the samples, nothing is copied."""
    width, steps = int(lasts[0] - firsts[0]), len(firsts)
    apart = int(firsts[1] - firsts[0]) if steps > 1 else 1
    begin, end = int(firsts[0]), int(lasts[-1])
    source, times = samples.values[:, begin:end], all_times[begin:end]
    rows = len(source)
    down, across = source.strides
    values = as_strided(source, (rows, steps, width), (down, apart * across, across), writeable=False)
    moments = as_strided(times, (1, steps, width), (0, apart * times.strides[0], times.strides[0]), writeable=False)
    count = np.full((rows, steps), width, dtype=np.int64)
    return Windows(values, moments, count, True, at_ms, end_ms, range_ms / 1000.0, piece, source)


def _gather(
    samples: Samples, all_times: Ints, firsts: Ints, lasts: Ints, at_ms: Ints, end_ms: Ints, range_ms: int, piece: slice
) -> Windows:
    widths = lasts - firsts
    width = int(widths.max())
    index = firsts[:, None] + np.arange(width)
    even = bool((widths == width).all())
    if not even:
        np.minimum(index, len(all_times) - 1, out=index)
    values = samples.values[:, index]
    present = samples.present[:, index]
    times = all_times[index][None]
    if not even:
        present &= np.arange(width) < widths[:, None]
    return _packed(values, present, times, at_ms, end_ms, range_ms, piece)


def _packed(
    values: Floats, present: Mask, times: Ints, at_ms: Ints, end_ms: Ints, range_ms: int, piece: slice
) -> Windows:
    """Windows whose samples are moved to the left where there are gaps between them."""
    width = values.shape[2]
    if every(present):
        count = np.full(values.shape[:2], width, dtype=np.int64)
        full = True
    else:
        count = present.sum(axis=2)
        full = False
        if not every(present == (np.arange(width) < count[..., None])):
            order = np.argsort(~present, axis=2, kind="stable")
            values = np.take_along_axis(values, order, axis=2)
            times = np.take_along_axis(np.broadcast_to(times, present.shape), order, axis=2)
    return Windows(values, times, count, full, at_ms, end_ms, range_ms / 1000.0, piece)
