"""Samples as Prometheus writes them, in JSON and in text."""

from __future__ import annotations


def sample(value: float) -> str:
    """Shortest digits that read back the same, never an exponent; `+Inf`, `-Inf`, `NaN`."""
    text = repr(value)
    if text.endswith(".0"):
        return text[:-2]
    if "e" in text:
        from decimal import Decimal

        return format(Decimal(text), "f")
    return _ODD.get(text, text)


_ODD = {"inf": "+Inf", "-inf": "-Inf", "nan": "NaN"}
