"""Numbers as Go writes them, where Prometheus turns a value into a label."""

from __future__ import annotations

import math
from decimal import Decimal

from sentinel.model.labels import Labels
from sentinel.promql.printer import quoted


def go_float(value: float) -> str:
    """The shortest decimal that reads back as `value`, without an exponent."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    if value == int(value) and abs(value) < 1e15:
        return "-0" if value == 0 and math.copysign(1, value) < 0 else str(int(value))
    return format(Decimal(repr(value)), "f")


def go_g(value: float) -> str:
    """As Go prints a float by itself: an exponent from 21 digits on."""
    if not math.isfinite(value) or 1e-4 <= abs(value) < 1e21 or value == 0:
        return go_float(value)
    mantissa, _, exponent = repr(value).partition("e")
    if not exponent:
        mantissa, _, exponent = f"{value:e}".partition("e")
        digits = mantissa.rstrip("0").rstrip(".")
        return f"{digits}e{int(exponent):+03d}"
    return f"{mantissa.removesuffix('.0')}e{int(exponent):+03d}"


def go_labels(labels: Labels) -> str:
    """As Prometheus's errors show a label set, the name among the others."""
    return "{" + ", ".join(f"{name}={quoted(value)}" for name, value in labels.items()) + "}"


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
