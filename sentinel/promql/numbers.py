"""Numbers as Go writes them, where Prometheus turns a value into a label."""

from __future__ import annotations

import math
from decimal import Decimal


def go_float(value: float) -> str:
    """The shortest decimal that reads back as `value`, without an exponent."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    if value == int(value) and abs(value) < 1e15:
        return "-0" if value == 0 and math.copysign(1, value) < 0 else str(int(value))
    return format(Decimal(repr(value)), "f")


def openmetrics_float(value: float) -> str:
    """As OpenMetrics writes the value of a `le` or `quantile` label: always with a point or an exponent."""
    if math.isnan(value) or math.isinf(value):
        return go_float(value)
    if value == int(value) and abs(value) < 1e21:
        return f"{int(value)}.0"
    shortest = repr(value)
    if "e" in shortest:
        mantissa, exponent = shortest.split("e")
        return f"{mantissa}e{int(exponent):+03d}"
    return shortest
