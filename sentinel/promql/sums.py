"""Sums and means as exact as compensated summation, at the price of a plain sum where that is as good."""

from __future__ import annotations

import math

import numpy as np

from sentinel.promql.series import Floats

_TRUSTED = 1e-10


def neumaier(values: list[float]) -> float:
    """The compensated sum, term by term, with infinities and NaN as plain addition has them."""
    total = lost = 0.0
    for value in values:
        new = total + value
        if math.isinf(new):
            lost = 0.0
        elif abs(total) >= abs(value):
            lost += (total - new) + value
        else:
            lost += (value - new) + total
        total = new
    return total if math.isinf(total) else total + lost


def doubtful(total: Floats, magnitude: Floats, count: int) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    """Where the order of addition may have cost more than the last few digits, or decides about an overflow."""
    lost = np.isfinite(magnitude) & (magnitude * (count * 1.2e-16) > np.abs(total) * _TRUSTED)
    return lost | np.isposinf(magnitude)


def mean(values: list[float]) -> float:
    """The mean; by way of a running mean where the sum itself overflows."""
    total = neumaier(values)
    if not math.isinf(total) or any(math.isinf(value) for value in values):
        return total / len(values)
    # The sum overflows although every value is finite: scale down first.
    return neumaier([value / len(values) for value in values])
