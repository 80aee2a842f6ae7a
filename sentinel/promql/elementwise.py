"""Functions of one element at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from sentinel.promql.frames import Frame, with_values
from sentinel.promql.series import Floats

Function = Callable[[Floats], Floats]

PLAIN: dict[str, Function] = {
    "abs": np.abs,
    "ceil": np.ceil,
    "floor": np.floor,
    "exp": np.exp,
    "sqrt": np.sqrt,
    "ln": np.log,
    "log2": np.log2,
    "log10": np.log10,
    "sgn": np.sign,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "tanh": np.tanh,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "rad": lambda values: values * np.pi / 180.0,
    "deg": lambda values: values * 180.0 / np.pi,
}


def rounded(frame: Frame, nearest: Floats) -> Frame:
    """To the nearest multiple, halves up."""
    inverse = 1.0 / nearest
    return with_values(frame, np.floor(frame.values * inverse + 0.5) / inverse)


def clamped(frame: Frame, least: Floats, most: Floats) -> Frame:
    """Between two bounds; nothing where they cross."""
    made = np.maximum(least, np.minimum(most, frame.values))
    sane = ~(most < least)
    if sane.all():
        return with_values(frame, made)
    return Frame(frame.labels, made, frame.present, frame.kept & sane, np.ones(len(frame.labels), dtype=bool))


def _split(values: Floats) -> tuple[Any, Any]:
    """Whole seconds, and which of them are moments at all."""
    sound = np.isfinite(values) & (np.abs(values) < 6e10)
    return np.where(sound, values, 0.0).astype(np.int64).astype("datetime64[s]"), sound


def _date(function: Callable[[Any], Any]) -> Function:
    def apply(values: Floats) -> Floats:
        moments, sound = _split(values)
        return np.where(sound, np.asarray(function(moments), dtype=np.float64), np.nan)

    return apply


def _count(moments: Any, unit: str, within: str) -> Any:
    """How many whole `unit`s since the last `within` began."""
    begun = moments.astype(f"datetime64[{within}]").astype(f"datetime64[{unit}]")
    return (moments.astype(f"datetime64[{unit}]") - begun).astype(np.int64)


def _days_in_month(moments: Any) -> Any:
    month = moments.astype("datetime64[M]")
    return ((month + 1).astype("datetime64[D]") - month.astype("datetime64[D]")).astype(np.int64)


DATES: dict[str, Function] = {
    "year": _date(lambda moments: moments.astype("datetime64[Y]").astype(np.int64) + 1970),
    "month": _date(lambda moments: moments.astype("datetime64[M]").astype(np.int64) % 12 + 1),
    "day_of_month": _date(lambda moments: _count(moments, "D", "M") + 1),
    # 1970 began on a Thursday, and Sunday is 0.
    "day_of_week": _date(lambda moments: (moments.astype("datetime64[D]").astype(np.int64) + 4) % 7),
    "day_of_year": _date(lambda moments: _count(moments, "D", "Y") + 1),
    "days_in_month": _date(_days_in_month),
    "hour": _date(lambda moments: _count(moments, "h", "D")),
    "minute": _date(lambda moments: _count(moments, "m", "h")),
}
