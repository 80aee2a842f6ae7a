"""The functions over a window that summarise it: `avg_over_time` and its kin."""

from __future__ import annotations

import numpy as np

from sentinel.promql.frames import Ints, every
from sentinel.promql.reading import Kernel, Windows
from sentinel.promql.series import Floats, Mask
from sentinel.promql.sums import doubtful, mean, neumaier

Answer = tuple[Floats, Mask]


def _some(windows: Windows) -> Mask:
    return np.asarray(windows.count > 0)


def total(windows: Windows) -> Floats:
    """Sums, compensated where plain addition might lose digits."""
    values = windows.filled(0.0)
    sums = np.asarray(values.sum(axis=2))
    # Terms of one sign cannot cancel, and then a plain sum is as good.
    if values.shape[2] > 1 and not windows.one_sign:
        check = doubtful(sums, np.abs(values).sum(axis=2), values.shape[2])
        for row, step in np.argwhere(check):
            sums[row, step] = neumaier(_list(windows, int(row), int(step)))
    return sums


def _list(windows: Windows, row: int, step: int) -> list[float]:
    if windows.mask is not None:
        found: list[float] = windows.values[row, step, windows.mask[row, step]].tolist()
    else:
        found = windows.values[row, step, : windows.count[row, step]].tolist()
    return found


def means(windows: Windows) -> Floats:
    """Arithmetic means that do not overflow."""
    sums = total(windows)
    made = sums / windows.sized()
    if not every(np.isfinite(sums)):
        for row, step in np.argwhere(~np.isfinite(sums) & (windows.count > 0)):
            made[row, step] = mean(_list(windows, int(row), int(step)))
    return made


def sum_over_time(windows: Windows) -> Answer:
    """The sum."""
    return total(windows), _some(windows)


def avg_over_time(windows: Windows) -> Answer:
    """The mean."""
    return means(windows), _some(windows)


def count_over_time(windows: Windows) -> Answer:
    """How many samples."""
    return windows.count.astype(np.float64), _some(windows)


def min_over_time(windows: Windows) -> Answer:
    """The least; NaN only where there is nothing else."""
    if windows.full:
        least = windows.values.min(axis=2)
        if every(least == least):  # noqa: PLR0124 - no NaN
            return least, _some(windows)
    return np.fmin.reduce(windows.filled(np.nan), axis=2), _some(windows)


def max_over_time(windows: Windows) -> Answer:
    """The greatest; NaN only where there is nothing else."""
    if windows.full:
        most = windows.values.max(axis=2)
        if every(most == most):  # noqa: PLR0124 - no NaN
            return most, _some(windows)
    return np.fmax.reduce(windows.filled(np.nan), axis=2), _some(windows)


def last_over_time(windows: Windows) -> Answer:
    """The newest."""
    return windows.last(), _some(windows)


def first_over_time(windows: Windows) -> Answer:
    """The oldest."""
    return windows.values[:, :, 0], _some(windows)


def present_over_time(windows: Windows) -> Answer:
    """1 where there is any."""
    return np.ones(windows.count.shape), _some(windows)


def stdvar_over_time(windows: Windows) -> Answer:
    """The population variance."""
    # Seen from the first value, a constant has no variance at all, not just a tiny one.
    centred = windows.values - windows.values[:, :, :1]
    if not windows.full:
        centred = np.where(windows.valid, centred, 0.0)
    centred = centred - (centred.sum(axis=2) / windows.sized())[..., None]
    if not windows.full:
        centred = np.where(windows.valid, centred, 0.0)
    return np.einsum("stw,stw->st", centred, centred) / windows.sized(), _some(windows)


def stddev_over_time(windows: Windows) -> Answer:
    """The population standard deviation."""
    variance, some = stdvar_over_time(windows)
    return np.sqrt(variance), some


def ts_of_first_over_time(windows: Windows) -> Answer:
    """When the oldest was taken (Unix seconds)."""
    return _moment(windows, np.zeros_like(windows.count)), _some(windows)


def ts_of_last_over_time(windows: Windows) -> Answer:
    """When the newest was taken (Unix seconds)."""
    return _moment(windows, windows.count - 1), _some(windows)


def ts_of_min_over_time(windows: Windows) -> Answer:
    """When the least was last seen (Unix seconds)."""
    return _extreme(windows, min_over_time(windows)[0])


def ts_of_max_over_time(windows: Windows) -> Answer:
    """When the greatest was last seen (Unix seconds)."""
    return _extreme(windows, max_over_time(windows)[0])


def _extreme(windows: Windows, extreme: Floats) -> Answer:
    wanted = extreme[..., None]
    hit = windows.valid & ((windows.values == wanted) | (np.isnan(windows.values) & np.isnan(wanted)))
    index = hit.shape[2] - 1 - np.argmax(hit[..., ::-1], axis=2)
    return _moment(windows, index), _some(windows)


def _moment(windows: Windows, index: Ints) -> Floats:
    return np.asarray(windows.pick(np.broadcast_to(windows.moments, windows.values.shape), index) / 1000.0)


def quantiles(values: Floats, valid: Mask | None, count: Ints, phi: Floats) -> Floats:
    """The φ-quantile along the last axis of the valid values, NaN counting as the smallest.

    Args:
        values: float64[..., W].
        valid: bool[..., W], `count` of them along the last axis; None: all.
        count: int[...].
        phi: Broadcasts against `count`.
    """
    width = values.shape[-1]
    odd = np.isnan(values) if valid is None else np.isnan(values) & valid
    # Sorted downwards, NaN and what is no sample come last; so ascending rank i is descending rank r - 1 - i
    # among the r real numbers, and the NaNs are the ranks below 0.
    falling = -values if valid is None else np.where(valid, -values, np.nan)
    falling.sort(axis=-1)
    falling = -falling
    odds = odd.sum(axis=-1) if np.count_nonzero(odd) else np.zeros(count.shape, dtype=np.int64)
    real = count - odds
    most = np.maximum(count - 1, 0)
    rank = phi * most
    floor = np.floor(rank)
    low = np.minimum(np.maximum(np.nan_to_num(floor, posinf=0.0, neginf=0.0), 0.0).astype(np.int64), most)
    high = np.minimum(low + 1, most)
    weight = rank - floor
    flat = falling.reshape(-1)
    begin = np.arange(count.size).reshape(count.shape) * width

    def at(index: Ints) -> Floats:
        place = np.minimum(np.maximum(real - 1 - (index - odds), 0), width - 1)
        return np.asarray(np.where(index < odds, np.nan, flat[begin + place]))

    made = at(low) * (1 - weight) + at(high) * weight
    if not every((phi >= 0) & (phi <= 1)):
        made = np.where(phi < 0, -np.inf, np.where(phi > 1, np.inf, made))
        made = np.where(np.isnan(phi), np.nan, made)
    return np.asarray(np.where(count == 0, np.nan, made))


def quantile_over_time(phi: Floats) -> Kernel:
    """The φ-quantile; φ may differ from step to step."""

    def kernel(windows: Windows) -> Answer:
        wanted = np.broadcast_to(phi[windows.steps], windows.count.shape)
        return quantiles(windows.values, _valid(windows), windows.count, wanted), _some(windows)

    return kernel


def mad_over_time(windows: Windows) -> Answer:
    """The median distance from the median."""
    half = np.full(windows.count.shape, 0.5)
    valid = _valid(windows)
    middle = quantiles(windows.values, valid, windows.count, half)
    return quantiles(np.abs(windows.values - middle[..., None]), valid, windows.count, half), _some(windows)


def _valid(windows: Windows) -> Mask | None:
    return None if windows.full else windows.valid


WITHOUT_ORDER = frozenset(
    {
        *("sum_over_time", "avg_over_time", "count_over_time", "min_over_time", "max_over_time"),
        *("present_over_time", "absent_over_time", "quantile_over_time", "mad_over_time"),
    }
)
"""Those that do not mind which sample comes first."""

KERNELS: dict[str, Kernel] = {
    kernel.__name__: kernel
    for kernel in (
        sum_over_time, avg_over_time, count_over_time, min_over_time, max_over_time, last_over_time,
        first_over_time, present_over_time, stdvar_over_time, stddev_over_time, mad_over_time,
        ts_of_first_over_time, ts_of_last_over_time, ts_of_min_over_time, ts_of_max_over_time,
    )
}  # fmt: skip
