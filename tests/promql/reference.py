"""The language again, slow and plain: one series and one moment at a time, no numpy, no masks.

Written from Prometheus's documentation as an oracle for property tests. It
knows what `strategies` makes, not more.
"""

from __future__ import annotations

import itertools
import math
import re
import statistics
from collections.abc import Callable, Mapping

from sentinel.model.labels import METRIC_NAME, Labels
from sentinel.promql.match import Match, Matcher
from sentinel.promql.tree import (
    COMPARISON,
    Aggregate,
    At,
    Binary,
    Call,
    Expr,
    Matching,
    Number,
    Paren,
    Range,
    Selector,
    Subquery,
    Unary,
    bare,
)

Points = list[tuple[int, float]]
Data = Mapping[Labels, list[tuple[int, float | None]]]
"""Milliseconds and values; None is a staleness marker."""
Element = tuple[Labels, bool, float]
"""Labels with the name, whether that is to go, and the value."""


class Fails(Exception):
    """The evaluation has no answer."""


class Reference:
    """Evaluates over `data` with one lookback for everything."""

    def __init__(self, data: Data, lookback_ms: int) -> None:
        self._data = data
        self._lookback_ms = lookback_ms

    def evaluate(self, expr: Expr, at_ms: int) -> dict[Labels, float]:
        """The elements at one moment, by their final labels."""
        found: dict[Labels, float] = {}
        for labels, gone, value in self._vector(expr, at_ms):
            final = labels.without([METRIC_NAME]) if gone else labels
            if final in found:
                raise Fails("the same labels twice")
            found[final] = value
        return found

    def _vector(self, expr: Expr, at: int) -> list[Element]:
        match expr:
            case Paren(expr=inner):
                return self._vector(inner, at)
            case Selector():
                return self._instant(expr, at)
            case Unary(op=op, expr=inner):
                found = self._vector(inner, at)
                return [(labels, True, -value) for labels, _, value in found] if op == "-" else found
            case Call():
                return self._call(expr, at)
            case Aggregate():
                return self._aggregate(expr, at)
            case Binary():
                return self._binary(expr, at)
            case _:
                raise AssertionError(expr)

    def _scalar(self, expr: Expr) -> float:
        match expr:
            case Paren(expr=inner):
                return self._scalar(inner)
            case Number(value=value):
                return value
            case Unary(op=op, expr=inner):
                return -self._scalar(inner) if op == "-" else self._scalar(inner)
            case Binary(op=op, left=left, right=right):
                return _apply(op, self._scalar(left), self._scalar(right))
            case _:
                raise AssertionError(expr)

    # -- reading

    def _moment(self, node: Selector | Subquery, at: int) -> int:
        assert not isinstance(node.at, At)
        fixed = at if node.at is None else round(node.at * 1000)
        return fixed - round(node.offset_s * 1000)

    def _matching(self, selector: Selector) -> list[Labels]:
        return [labels for labels in self._data if all(_meets(matcher, labels) for matcher in selector.matchers)]

    def _instant(self, selector: Selector, at: int) -> list[Element]:
        until = self._moment(selector, at)
        found: list[Element] = []
        for labels in self._matching(selector):
            earlier = [point for point in self._data[labels] if until - self._lookback_ms < point[0] <= until]
            if earlier and (last := earlier[-1][1]) is not None:
                found.append((labels, False, last))
        return found

    def _windows(self, node: Expr, at: int) -> list[tuple[Labels, bool, Points, int, int]]:
        """Labels, whether the name is gone, samples, and the ends of the window."""
        if isinstance(node, Range):
            end = self._moment(node.selector, at)
            begin = end - round(node.range_s * 1000)
            return [
                (
                    labels,
                    False,
                    [(t, v) for t, v in self._data[labels] if begin < t <= end and v is not None],
                    begin,
                    end,
                )
                for labels in self._matching(node.selector)
            ]
        assert isinstance(node, Subquery)
        end = self._moment(node, at)
        begin = end - round(node.range_s * 1000)
        step = round((60 if node.step_s is None else node.step_s) * 1000)
        series: dict[tuple[Labels, bool], Points] = {}
        for moment in range((begin // step + 1) * step, end + 1, step):
            for labels, gone, value in self._vector(node.expr, moment):
                series.setdefault((labels, gone), []).append((moment, value))
        return [(labels, gone, points, begin, end) for (labels, gone), points in series.items()]

    # -- functions

    def _call(self, expr: Call, at: int) -> list[Element]:
        name = expr.function
        if name in _ELEMENTWISE:
            return [(labels, True, _ELEMENTWISE[name](value)) for labels, _, value in self._vector(expr.args[0], at)]
        window = expr.args[-1]
        keeps = name in {"last_over_time", "first_over_time"}
        found: list[Element] = []
        for labels, gone, points, begin, end in self._windows(bare(window), at):
            if name == "quantile_over_time":
                value = _quantile(self._scalar(expr.args[0]), [v for _, v in points]) if points else None
            else:
                value = _WINDOWED[name](points, begin, end) if points else None
            if value is not None:
                found.append((labels, gone if keeps else True, value))
        return found

    # -- aggregations

    def _aggregate(self, expr: Aggregate, at: int) -> list[Element]:
        groups: dict[Labels, list[tuple[bool, float]]] = {}
        for labels, gone, value in self._vector(expr.expr, at):
            key = labels.without([*expr.grouping, METRIC_NAME]) if expr.without else labels.only(expr.grouping)
            groups.setdefault(key, []).append((gone, value))
        return [
            (key, any(gone for gone, _ in members), _summary(expr.op, [value for _, value in members]))
            for key, members in groups.items()
        ]

    # -- operators

    def _binary(self, expr: Binary, at: int) -> list[Element]:
        if _is_number(expr.right):
            return _with_number(expr, self._vector(expr.left, at), self._scalar(expr.right), number_left=False)
        if _is_number(expr.left):
            return _with_number(expr, self._vector(expr.right, at), self._scalar(expr.left), number_left=True)
        left, right = self._vector(expr.left, at), self._vector(expr.right, at)
        mine = [_signature(labels, expr.matching) for labels, _, _ in left]
        theirs = [_signature(labels, expr.matching) for labels, _, _ in right]
        if expr.op == "and":
            return [element for element, signature in zip(left, mine, strict=True) if signature in set(theirs)]
        if expr.op == "unless":
            return [element for element, signature in zip(left, mine, strict=True) if signature not in set(theirs)]
        if expr.op == "or":
            return left + [element for element, key in zip(right, theirs, strict=True) if key not in set(mine)]
        if not left or not right:
            return []
        if len(set(theirs)) < len(theirs):
            raise Fails("several partners on the right")
        partners = dict(zip(theirs, right, strict=True))
        found: list[Element] = []
        used: set[Labels] = set()
        for (labels, gone, value), signature in zip(left, mine, strict=True):
            if signature not in partners:
                continue
            other = partners[signature][2]
            held, result = _compare(expr, value, other)
            if not held:
                continue
            if signature in used:
                raise Fails("several partners on the left")
            used.add(signature)
            final = labels if expr.op in COMPARISON else labels.without([METRIC_NAME])
            names = expr.matching.labels
            final = final.only(names) if expr.matching.on else final.without(names)
            found.append((final, gone or expr.returns_bool, result))
        return found


def _is_number(expr: Expr) -> bool:
    match bare(expr):
        case Number():
            return True
        case Unary(expr=inner):
            return _is_number(inner)
        case Binary(left=left, right=right):
            return _is_number(left) and _is_number(right)
        case _:
            return False


def _meets(matcher: Matcher, labels: Labels) -> bool:
    value = labels.get(matcher.name, "")
    match matcher.match:
        case Match.EQUAL:
            return value == matcher.value
        case Match.NOT_EQUAL:
            return value != matcher.value
        case Match.REGEX:
            return re.fullmatch(matcher.value, value) is not None
        case Match.NOT_REGEX:
            return re.fullmatch(matcher.value, value) is None


def _signature(labels: Labels, matching: Matching) -> Labels:
    return labels.only(matching.labels) if matching.on else labels.without([*matching.labels, METRIC_NAME])


def _with_number(expr: Binary, elements: list[Element], number: float, *, number_left: bool) -> list[Element]:
    found: list[Element] = []
    for labels, gone, value in elements:
        if expr.op in COMPARISON:
            held = bool(_apply(expr.op, number, value) if number_left else _apply(expr.op, value, number))
            if expr.returns_bool:
                found.append((labels, True, float(held)))
            elif held:
                found.append((labels, gone, value))
        else:
            made = _apply(expr.op, number, value) if number_left else _apply(expr.op, value, number)
            found.append((labels, True, made))
    return found


def _compare(expr: Binary, left: float, right: float) -> tuple[bool, float]:
    made = _apply(expr.op, left, right)
    if expr.op not in COMPARISON:
        return True, made
    return (True, float(made)) if expr.returns_bool else (bool(made), left)


def _apply(op: str, a: float, b: float) -> float:
    match op:
        case "+":
            return a + b
        case "-":
            return a - b
        case "*":
            return a * b
        case "/":
            if b == 0:
                return math.nan if a == 0 or math.isnan(a) else math.copysign(math.inf, a) * math.copysign(1, b)
            return a / b
        case "==":
            return a == b
        case "!=":
            return a != b
        case ">":
            return a > b
        case "<":
            return a < b
        case ">=":
            return a >= b
        case "<=":
            return a <= b
        case _:
            raise AssertionError(op)


def _exp(value: float) -> float:
    try:
        return math.exp(value)
    except OverflowError:
        return math.inf


def _whole(function: Callable[[float], int]) -> Callable[[float], float]:
    return lambda value: float(function(value)) if math.isfinite(value) else value


_ELEMENTWISE: dict[str, Callable[[float], float]] = {
    "abs": abs,
    "ceil": _whole(math.ceil),
    "floor": _whole(math.floor),
    "exp": _exp,
    "sgn": lambda value: value if math.isnan(value) else float((value > 0) - (value < 0)),
}


def _least(values: list[float]) -> float:
    real = [value for value in values if not math.isnan(value)]
    return min(real) if real else math.nan


def _most(values: list[float]) -> float:
    real = [value for value in values if not math.isnan(value)]
    return max(real) if real else math.nan


def _mean(values: list[float]) -> float:
    return _total(values) / len(values)


def _total(values: list[float]) -> float:
    if any(math.isnan(value) for value in values) or {math.inf, -math.inf} <= set(values):
        return math.nan
    return math.fsum(values)


def _variance(values: list[float]) -> float:
    if not all(math.isfinite(value) for value in values):
        return math.nan
    return statistics.pvariance(values)


def _summary(op: str, values: list[float]) -> float:
    match op:
        case "sum":
            return _total(values)
        case "avg":
            return _mean(values)
        case "min":
            return _least(values)
        case "max":
            return _most(values)
        case "count":
            return float(len(values))
        case "group":
            return 1.0
        case "stdvar":
            return _variance(values)
        case "stddev":
            return math.sqrt(_variance(values))
        case _:
            raise AssertionError(op)


def _quantile(phi: float, values: list[float]) -> float:
    if phi < 0 or phi > 1:
        return math.copysign(math.inf, phi)
    ordered = [value for value in values if math.isnan(value)] + sorted(v for v in values if not math.isnan(v))
    rank = phi * (len(ordered) - 1)
    low = math.floor(rank)
    weight = rank - low
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] * (1 - weight) + ordered[high] * weight


def _extrapolated(points: Points, begin: int, end: int, *, counter: bool, rate: bool) -> float | None:
    if len(points) < 2:
        return None
    grown = points[-1][1] - points[0][1]
    if counter:
        grown += sum(a for (_, a), (_, b) in itertools.pairwise(points) if b < a)
    sampled = (points[-1][0] - points[0][0]) / 1000
    between = sampled / (len(points) - 1)
    start, finish = (points[0][0] - begin) / 1000, (end - points[-1][0]) / 1000
    if start >= between * 1.1:
        start = between / 2
    if counter and grown > 0 and points[0][1] >= 0:
        start = min(start, sampled * (points[0][1] / grown))
    if finish >= between * 1.1:
        finish = between / 2
    factor = (sampled + start + finish) / sampled
    return grown * factor / ((end - begin) / 1000) if rate else grown * factor


def _slope(points: Points) -> float | None:
    if len(points) < 2:
        return None
    times = [t / 1000 for t, _ in points]
    heights = [v for _, v in points]
    if not all(math.isfinite(height) for height in heights):
        return math.nan
    x, y = statistics.fmean(times), statistics.fmean(heights)
    below = math.fsum((t - x) ** 2 for t in times)
    return math.fsum((t - x) * (h - y) for t, h in zip(times, heights, strict=True)) / below


def _instantly(points: Points, *, rate: bool) -> float | None:
    if len(points) < 2:
        return None
    (earlier, a), (later, b) = points[-2:]
    if not rate:
        return b - a
    return (b if b < a else b - a) / ((later - earlier) / 1000)


def _moment_of(points: Points, value: float) -> float:
    same = [t for t, v in points if v == value or (math.isnan(v) and math.isnan(value))]
    return same[-1] / 1000


def _values(points: Points) -> list[float]:
    return [value for _, value in points]


def _differs(a: float, b: float) -> bool:
    return a != b and not (math.isnan(a) and math.isnan(b))


def _mad(values: list[float]) -> float:
    middle = _quantile(0.5, values)
    return _quantile(0.5, [abs(value - middle) for value in values])


_WINDOWED: dict[str, Callable[[Points, int, int], float | None]] = {
    "avg_over_time": lambda p, _b, _e: _mean(_values(p)),
    "min_over_time": lambda p, _b, _e: _least(_values(p)),
    "max_over_time": lambda p, _b, _e: _most(_values(p)),
    "sum_over_time": lambda p, _b, _e: _total(_values(p)),
    "count_over_time": lambda p, _b, _e: float(len(p)),
    "last_over_time": lambda p, _b, _e: p[-1][1],
    "first_over_time": lambda p, _b, _e: p[0][1],
    "present_over_time": lambda _p, _b, _e: 1.0,
    "stdvar_over_time": lambda p, _b, _e: _variance(_values(p)),
    "stddev_over_time": lambda p, _b, _e: math.sqrt(_variance(_values(p))),
    "mad_over_time": lambda p, _b, _e: _mad(_values(p)),
    "ts_of_first_over_time": lambda p, _b, _e: p[0][0] / 1000,
    "ts_of_last_over_time": lambda p, _b, _e: p[-1][0] / 1000,
    "ts_of_min_over_time": lambda p, _b, _e: _moment_of(p, _least(_values(p))),
    "ts_of_max_over_time": lambda p, _b, _e: _moment_of(p, _most(_values(p))),
    "rate": lambda p, b, e: _extrapolated(p, b, e, counter=True, rate=True),
    "increase": lambda p, b, e: _extrapolated(p, b, e, counter=True, rate=False),
    "delta": lambda p, b, e: _extrapolated(p, b, e, counter=False, rate=False),
    "irate": lambda p, _b, _e: _instantly(p, rate=True),
    "idelta": lambda p, _b, _e: _instantly(p, rate=False),
    "changes": lambda p, _b, _e: float(sum(_differs(a[1], b[1]) for a, b in itertools.pairwise(p))),
    "resets": lambda p, _b, _e: float(sum(b[1] < a[1] for a, b in itertools.pairwise(p))),
    "deriv": lambda p, _b, _e: _slope(p),
}
