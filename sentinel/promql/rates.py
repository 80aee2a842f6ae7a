"""The functions over a window that follow its course: rates, differences, trends."""

from __future__ import annotations

from typing import Any

import numpy as np

from sentinel.promql.frames import every
from sentinel.promql.reading import Kernel, Windows
from sentinel.promql.series import Floats, Mask

Answer = tuple[Floats, Mask]


def _pairs(windows: Windows) -> Mask | None:
    """Which neighbours are both samples; None: all of them."""
    if windows.full:
        return None
    return np.asarray(np.arange(1, windows.values.shape[2]) < windows.count[..., None])


def _extrapolated(windows: Windows, *, counter: bool, per_second: bool) -> Answer:
    values, count = windows.values, windows.count
    enough = count >= 2
    if values.shape[2] < 2:
        return np.zeros(count.shape), enough
    first, last = values[:, :, 0], windows.last()
    grown = last - first
    if counter:
        fell = values[:, :, 1:] < values[:, :, :-1]
        pairs = _pairs(windows)
        if pairs is not None:
            fell &= pairs
        if np.count_nonzero(fell):
            grown = grown + np.where(fell, values[:, :, :-1], 0.0).sum(axis=2)
    to_start, sampled, to_end = _spans(windows)
    if counter:
        # A counter cannot have been below zero: do not extrapolate past the moment it was zero.
        to_zero = sampled * (first / grown)
        nearer = (grown > 0) & (first >= 0) & (to_zero < to_start)
        if np.count_nonzero(nearer):
            to_start = np.where(nearer, to_zero, to_start)
    factor = (sampled + to_start + to_end) / sampled
    if per_second:
        factor = factor / windows.range_s
    return grown * factor, enough


def _spans(windows: Windows) -> tuple[Any, Any, Any]:
    """How far to extrapolate to the left, how far apart the ends are, how far to extrapolate to the right.

    Numbers where all series share them, else float64[S or 1, t].
    """
    if windows.single:
        moments, at_ms = windows.moments[0, 0], int(windows.at_ms[0])
        first, last = (int(moments[0]) - at_ms) / 1000.0, (int(moments[-1]) - at_ms) / 1000.0
        end = (int(windows.end_ms[0]) - at_ms) / 1000.0
        begin = end - windows.range_s
        between = (last - first) / (len(moments) - 1)
        to_start, to_end = first - begin, end - last
        return (
            between / 2 if to_start >= between * 1.1 else to_start,
            last - first,
            between / 2 if to_end >= between * 1.1 else to_end,
        )
    firsts, lasts = windows.first_time(), windows.last_time()
    sampled = lasts - firsts
    apart = sampled / np.maximum(windows.count - 1, 1)
    starts, ends = firsts - windows.begin, windows.end - lasts
    return (
        np.where(starts >= apart * 1.1, apart / 2, starts),
        sampled,
        np.where(ends >= apart * 1.1, apart / 2, ends),
    )


def rate(windows: Windows) -> Answer:
    """Growth per second of a counter, resets mended, extrapolated to the ends of the window."""
    return _extrapolated(windows, counter=True, per_second=True)


def increase(windows: Windows) -> Answer:
    """Growth of a counter, extrapolated, so no whole number."""
    return _extrapolated(windows, counter=True, per_second=False)


def delta(windows: Windows) -> Answer:
    """Difference between the ends of the window, extrapolated."""
    return _extrapolated(windows, counter=False, per_second=False)


def _last_two(windows: Windows) -> tuple[Floats, Floats, Floats]:
    return windows.last(1), windows.last(), windows.last_time() - windows.last_time(1)


def irate(windows: Windows) -> Answer:
    """Growth per second between the last two samples of a counter."""
    before, last, apart = _last_two(windows)
    return np.where(last < before, last, last - before) / apart, (windows.count >= 2) & (apart > 0)


def idelta(windows: Windows) -> Answer:
    """Difference of the last two samples."""
    before, last, _ = _last_two(windows)
    return last - before, windows.count >= 2


def changes(windows: Windows) -> Answer:
    """How often the value became another one."""
    values = windows.values
    differs = (values[:, :, 1:] != values[:, :, :-1]) & ~(np.isnan(values[:, :, 1:]) & np.isnan(values[:, :, :-1]))
    return _how_often(windows, differs)


def resets(windows: Windows) -> Answer:
    """How often the value fell."""
    return _how_often(windows, windows.values[:, :, 1:] < windows.values[:, :, :-1])


def _how_often(windows: Windows, happened: Mask) -> Answer:
    pairs = _pairs(windows)
    if pairs is not None:
        happened = happened & pairs
    return happened.sum(axis=2).astype(np.float64), windows.count > 0


def _fit(windows: Windows) -> tuple[Floats, Floats]:
    """Least squares: the slope per second, and the height at the evaluation time."""
    values, times = windows.values, windows.times
    base = values[:, :, :1]
    heights = values - base
    if windows.single:
        # All series share their times: one product of a matrix and a vector.
        moments = times[0, 0]
        middle_time = float(moments.sum()) / len(moments)
        apart = moments - middle_time
        slope = (heights[:, 0] @ apart / (apart @ apart)).reshape(-1, 1)
        middle = heights.sum(axis=2) / len(moments)
        slope = _sound(slope, middle)
        return slope, base[:, :, 0] + middle - slope * middle_time
    if windows.full and times.shape[0] == 1:
        centre = times.mean(axis=2)
        spread = times - centre[..., None]
        product = np.einsum("stw,tw->st", heights, spread[0])
        slope = product / np.einsum("stw,stw->st", spread, spread)
        middle = heights.mean(axis=2)
    else:
        count = np.maximum(windows.count, 1)
        valid = windows.valid
        times = np.where(valid, times, 0.0)
        heights = np.where(valid, heights, 0.0)
        centre = times.sum(axis=2) / count
        spread = np.where(valid, times - centre[..., None], 0.0)
        slope = (heights * spread).sum(axis=2) / (spread * spread).sum(axis=2)
        middle = heights.sum(axis=2) / count
    slope = _sound(slope, middle)
    return slope, base[:, :, 0] + middle - slope * centre


def _sound(slope: Floats, middle: Floats) -> Floats:
    """No line goes through an infinity."""
    return slope if every(np.isfinite(middle)) else np.where(np.isfinite(middle), slope, np.nan)


def deriv(windows: Windows) -> Answer:
    """The slope per second of the line of least squares."""
    return _fit(windows)[0], windows.count >= 2


def predict_linear(ahead_s: Floats) -> Kernel:
    """Where the line of least squares will be, so many seconds after the evaluation time."""

    def kernel(windows: Windows) -> Answer:
        slope, now = _fit(windows)
        return slope * ahead_s[windows.steps] + now, windows.count >= 2

    return kernel


def smoothed(level: Floats, trend: Floats) -> Kernel:
    """Double exponential smoothing with factors for the level and the trend."""

    def kernel(windows: Windows) -> Answer:
        values = windows.values
        width = values.shape[2]
        if width < 2:
            return np.zeros(windows.count.shape), windows.count >= 2
        alpha, beta = level[windows.steps], trend[windows.steps]
        before = np.zeros(windows.count.shape)
        now = values[:, :, 0]
        slope = values[:, :, 1] - values[:, :, 0]
        for index in range(1, width):
            if index > 1:
                slope = beta * (now - before) + (1 - beta) * slope
            new = alpha * values[:, :, index] + (1 - alpha) * (now + slope)
            inside = index < windows.count
            before, now = np.where(inside, now, before), np.where(inside, new, now)
        return now, windows.count >= 2

    return kernel


KERNELS: dict[str, Kernel] = {
    kernel.__name__: kernel for kernel in (rate, increase, delta, irate, idelta, changes, resets, deriv)
}
