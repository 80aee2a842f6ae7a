"""What an expression is made of. Every node knows its place in the text; places do not count for equality."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from sentinel.promql.match import Match, Matcher


class Type(StrEnum):
    """What a node evaluates to."""

    SCALAR = "scalar"
    VECTOR = "instant vector"
    RANGE = "range vector"
    STRING = "string"


@dataclass(frozen=True, slots=True)
class Span:
    """Where a node stands: offsets of its first character and just after its last."""

    start: int
    end: int


NOWHERE = Span(0, 0)


class At(StrEnum):
    """The two moments that `@` knows by name."""

    START = "start"
    END = "end"


@dataclass(frozen=True, slots=True)
class Number:
    """A number, or a duration in seconds."""

    value: float
    span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class String:
    """A string literal."""

    value: str
    span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Selector:
    """An instant vector selector.

    Attributes:
        name: The metric's name as written in front of the braces or quoted inside, or "".
        matchers: All of them, the one on `__name__` included where `name` is set.
        offset_s: Seconds back; negative looks ahead.
        at: The fixed moment (Unix seconds), or start or end of the query, or None.
    """

    name: str
    matchers: tuple[Matcher, ...]
    offset_s: float = 0.0
    at: float | At | None = None
    span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Range:
    """A range vector selector: `selector[range]`. Offset and `@` are the selector's."""

    selector: Selector
    range_s: float
    span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Subquery:
    """`expr[range:step]`; no step means the default one."""

    expr: Expr
    range_s: float
    step_s: float | None
    offset_s: float = 0.0
    at: float | At | None = None
    span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Call:
    """A function and its arguments."""

    function: str
    args: tuple[Expr, ...]
    span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Aggregate:
    """An aggregation over groups.

    Attributes:
        op: `sum`, `topk`, …, in lower case.
        expr: What is aggregated.
        param: The first argument of topk, bottomk, limitk, quantile and count_values.
        grouping: Label names.
        without: Whether `grouping` is what goes, not what stays.
    """

    op: str
    expr: Expr
    param: Expr | None = None
    grouping: tuple[str, ...] = ()
    without: bool = False
    span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Unary:
    """`-expr` or `+expr`."""

    op: str
    expr: Expr
    span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Matching:
    """How the two sides of a binary operator find each other.

    Attributes:
        on: Whether `labels` are those that must agree; else those that are ignored.
        labels: Label names.
        group: "left", "right" or "" for one-to-one.
        include: Labels taken over from the side of one.
        fill_left: Stands for a partner missing on the left, or None.
        fill_right: The same on the right.
    """

    on: bool = False
    labels: tuple[str, ...] = ()
    group: str = ""
    include: tuple[str, ...] = ()
    fill_left: float | None = None
    fill_right: float | None = None


ONE_TO_ONE = Matching()


@dataclass(frozen=True, slots=True)
class Binary:
    """Two sides and an operator between them."""

    op: str
    left: Expr
    right: Expr
    returns_bool: bool = False
    matching: Matching = ONE_TO_ONE
    span: Span = field(default=NOWHERE, compare=False)
    op_span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Paren:
    """`(expr)`, kept so that printing gives back what was written."""

    expr: Expr
    span: Span = field(default=NOWHERE, compare=False)


Expr = Number | String | Selector | Range | Subquery | Call | Aggregate | Unary | Binary | Paren

ARITHMETIC = frozenset({"+", "-", "*", "/", "%", "^", "atan2"})
COMPARISON = frozenset({"==", "!=", ">", "<", ">=", "<="})
SET = frozenset({"and", "or", "unless"})
WITH_PARAM = frozenset({"topk", "bottomk", "count_values", "quantile", "limitk", "limit_ratio"})
AGGREGATIONS = WITH_PARAM | {"sum", "avg", "min", "max", "count", "group", "stddev", "stdvar"}


def bare(expr: Expr) -> Expr:
    """What stands inside all parentheses."""
    while isinstance(expr, Paren):
        expr = expr.expr
    return expr


def children(expr: Expr) -> tuple[Expr, ...]:
    """The parts that are expressions themselves, left to right."""
    match expr:
        case Range(selector=selector):
            return (selector,)
        case Subquery(expr=inner) | Unary(expr=inner) | Paren(expr=inner):
            return (inner,)
        case Call(args=args):
            return args
        case Aggregate(expr=inner, param=param):
            return (inner,) if param is None else (param, inner)
        case Binary(left=left, right=right):
            return (left, right)
        case _:
            return ()


def walk(expr: Expr) -> Iterator[Expr]:
    """`expr` and everything in it, parents first."""
    yield expr
    for child in children(expr):
        yield from walk(child)


__all__ = [
    "AGGREGATIONS", "ARITHMETIC", "COMPARISON", "NOWHERE", "SET", "WITH_PARAM", "Aggregate", "At", "Binary", "Call",
    "Expr", "Match", "Matcher", "Matching", "Number", "Paren", "Range", "Selector", "Span", "String", "Subquery",
    "Type", "Unary", "bare", "children", "walk",
]  # fmt: skip
