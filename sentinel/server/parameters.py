"""Parameters of Prometheus's API, and its words where one is wrong."""

from __future__ import annotations

import datetime as dt
import math
import re

from sentinel.errors import UsageError
from sentinel.promql import PromQLError, parse
from sentinel.promql.tree import Expr, Selector, bare
from sentinel.server.respond import HttpError, Parameters
from sentinel.units import parse_duration

MOST_POINTS = 11_000
_RFC3339 = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(?:\.\d+)?(?:[Zz]|[+-]\d\d:\d\d)")


def expression(parameters: Parameters, name: str = "query") -> Expr:
    """The PromQL in a parameter."""
    text = parameters.get(name)
    try:
        return parse(text)
    except PromQLError as fault:
        line, column = fault.position(text)
        raise bad(name, f"{line}:{column}: parse error: {fault.message}", fault.hint) from None


def selectors_of(parameters: Parameters, *, required: bool = True) -> list[Selector]:
    """The selectors in `match[]`."""
    texts = parameters.all("match[]")
    if not texts and required:
        raise HttpError(400, "no match[] parameter provided", kind="bad_data")
    found: list[Selector] = []
    for text in texts:
        try:
            expr = bare(parse(text))
        except PromQLError as fault:
            line, column = fault.position(text)
            raise bad("match[]", f"{line}:{column}: parse error: {fault.message}", fault.hint) from None
        if not isinstance(expr, Selector):
            raise bad("match[]", "expected a vector selector")
        found.append(expr)
    return found


def moment(parameters: Parameters, name: str, default: float) -> float:
    """Unix seconds, from a number or RFC 3339."""
    text = parameters.get(name)
    if not text:
        return default
    try:
        value = float(text)
    except ValueError:
        value = math.nan
        if _RFC3339.fullmatch(text):
            try:
                value = dt.datetime.fromisoformat(text.upper()).timestamp()
            except ValueError:
                value = math.nan
    if not math.isfinite(value) or abs(value) > 1e13:
        raise bad(name, f'cannot parse "{text}" to a valid timestamp')
    return value


def duration(parameters: Parameters, name: str) -> float | None:
    """Seconds, from a number or a duration; None where absent."""
    text = parameters.get(name)
    if not text:
        return None
    try:
        value = parse_duration(text.removeprefix("-"))
    except UsageError:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
    if not math.isfinite(value) or value > 1e11:
        raise bad(name, f'cannot parse "{text}" to a valid duration')
    return -value if text.startswith("-") else value


def limit(parameters: Parameters, name: str = "limit") -> int:
    """How many at most; 0 means all."""
    text = parameters.get(name)
    if not text:
        return 0
    if not text.isdigit() or len(text) > 18:
        raise bad(
            name,
            f'cannot parse "{text}" to a whole number' if not text.startswith("-") else "limit must be non-negative",
        )
    return int(text)


def steps(parameters: Parameters, now: float) -> tuple[float, float, float]:
    """Start, end and step of a range query."""
    for name in ("start", "end"):
        if not parameters.get(name):
            raise bad(name, 'cannot parse "" to a valid timestamp')
    start, end = moment(parameters, "start", now), moment(parameters, "end", now)
    if end < start:
        raise bad("end", "end timestamp must not be before start time")
    step = duration(parameters, "step")
    if step is None:
        raise bad("step", 'cannot parse "" to a valid duration')
    if step <= 0:
        raise bad("step", "zero or negative query resolution step widths are not accepted. Try a positive integer")
    if (end - start) / step > MOST_POINTS:
        raise HttpError(
            400,
            "exceeded maximum resolution of 11,000 points per timeseries. "
            "Try decreasing the query resolution (?step=XX)",
            kind="bad_data",
        )
    return start, end, step


def bad(name: str, words: str, hint: str | None = None) -> HttpError:
    """The error for a parameter, in Prometheus's form."""
    return HttpError(400, f'invalid parameter "{name}": {words}', hint=hint, kind="bad_data")
