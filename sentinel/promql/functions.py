"""The functions of the language: their names, arguments and results."""

from __future__ import annotations

from dataclasses import dataclass

from sentinel.promql.tree import Type

_V, _S, _R, _T = Type.VECTOR, Type.SCALAR, Type.RANGE, Type.STRING


@dataclass(frozen=True, slots=True)
class Signature:
    """What a function takes and gives.

    Attributes:
        args: Types in order; with `repeats` the last one may come again, also not at all.
        least: How many arguments there must be.
        repeats: How many more of the last type may follow; None for any number.
        returns: The type of the result.
    """

    args: tuple[Type, ...]
    least: int
    repeats: int | None
    returns: Type


def _takes(*args: Type, optional: int = 0, returns: Type = _V) -> Signature:
    return Signature(args, len(args) - optional, 0, returns)


def _many(names: str, signature: Signature) -> dict[str, Signature]:
    return dict.fromkeys(names.split(), signature)


SIGNATURES: dict[str, Signature] = {
    **_many("abs ceil floor exp sqrt ln log2 log10 sgn sort sort_desc absent timestamp", _takes(_V)),
    **_many("sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh rad deg", _takes(_V)),
    **_many("year month day_of_month day_of_week day_of_year days_in_month hour minute", _takes(_V, optional=1)),
    **_many("rate irate increase delta idelta deriv changes resets absent_over_time", _takes(_R)),
    **_many(
        "avg_over_time min_over_time max_over_time sum_over_time count_over_time last_over_time first_over_time "
        "present_over_time stddev_over_time stdvar_over_time mad_over_time "
        "ts_of_first_over_time ts_of_last_over_time ts_of_min_over_time ts_of_max_over_time",
        _takes(_R),
    ),
    "quantile_over_time": _takes(_S, _R),
    "predict_linear": _takes(_R, _S),
    "double_exponential_smoothing": _takes(_R, _S, _S),
    "clamp": _takes(_V, _S, _S),
    "clamp_min": _takes(_V, _S),
    "clamp_max": _takes(_V, _S),
    "round": _takes(_V, _S, optional=1),
    "scalar": _takes(_V, returns=_S),
    "vector": _takes(_S),
    **_many("time pi start end step range", _takes(returns=_S)),
    **_many("min_of max_of", _takes(_S, _S, returns=_S)),
    "label_replace": _takes(_V, _T, _T, _T, _T),
    "label_join": Signature((_V, _T, _T, _T), 3, None, _V),
    "sort_by_label": Signature((_V, _T), 1, None, _V),
    "sort_by_label_desc": Signature((_V, _T), 1, None, _V),
    "histogram_quantile": _takes(_S, _V),
    "histogram_quantiles": Signature((_V, _T, _S), 3, 9, _V),
    "histogram_fraction": _takes(_S, _S, _V),
}

REFUSED: dict[str, str] = {
    **dict.fromkeys(
        ["histogram_avg", "histogram_count", "histogram_sum", "histogram_stddev", "histogram_stdvar"],
        "it reads native histograms, which sentinel does not have",
    ),
    "info": "it is experimental in Prometheus",
    "integral": "it is experimental in Prometheus",
    **dict.fromkeys(
        ["start_timestamp", "ignore_start_times", "st_of_first_over_time", "st_of_last_over_time"],
        "it reads start timestamps, which are experimental in Prometheus and which sentinel does not have",
    ),
    "holt_winters": "Prometheus 3 calls it `double_exponential_smoothing`",
}
"""Functions that Prometheus has or had and sentinel refuses, with the reason."""
