"""Our parser and another one, promql-parser, on the same expressions."""

from __future__ import annotations

import dataclasses
import os
import re
from pathlib import Path

import promql_parser
import pytest
from hypothesis import given, settings

from sentinel.promql import PromQLError, canonical, parse
from sentinel.promql.errors import Refused
from sentinel.promql.tree import (
    Aggregate,
    Binary,
    Call,
    Expr,
    Number,
    Paren,
    Range,
    Selector,
    Subquery,
    Unary,
)
from tests.promql import language
from tests.promql.strategies import vectors

ROOT = Path(__file__).parents[2]
SHARED = Path(os.environ.get("SENTINEL_SHARED", ROOT.parent / "shared")) / "data" / "promqltest"
FILES = sorted([*SHARED.glob("*.test"), *(Path(__file__).parent / "cases").glob("*.test")])
NOT_THEIRS = re.compile(r"\d_\d|\\x")
"""Spellings that the other parser does not know: 1_000, and bytes in strings."""


def agree(text: str) -> None:
    """Both accept it and, printed by the other, it reads the same; or both refuse it."""
    try:
        ours = parse(text)
    except Refused:
        return
    except PromQLError:
        with pytest.raises(ValueError, match=r"."):
            promql_parser.parse(text)
        return
    theirs = parse(promql_parser.parse(text).prettify())
    assert canonical(shape(theirs)) == canonical(shape(ours))


def shape(expr: Expr) -> Expr:
    """Without what the two print differently: parentheses, the order of matchers, a plus sign."""
    match expr:
        case Paren(expr=inner) | Unary(op="+", expr=inner):
            return shape(inner)
        case Unary(op="-", expr=inner):
            inner = shape(inner)
            return Number(-inner.value) if isinstance(inner, Number) else dataclasses.replace(expr, expr=inner)
        case Selector(matchers=matchers):
            return dataclasses.replace(expr, name="", matchers=tuple(sorted(matchers, key=str)))
        case Range(selector=selector):
            inner = shape(selector)
            assert isinstance(inner, Selector)
            return dataclasses.replace(expr, selector=inner)
        case Subquery(expr=inner):
            return dataclasses.replace(expr, expr=shape(inner))
        case Call(args=args):
            return dataclasses.replace(expr, args=tuple(map(shape, args)))
        case Aggregate(expr=inner, param=param):
            return dataclasses.replace(expr, expr=shape(inner), param=None if param is None else shape(param))
        case Binary(left=left, right=right):
            return dataclasses.replace(expr, left=shape(left), right=shape(right))
        case _:
            return expr


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_the_cases_read_the_same(path: Path) -> None:
    for command in language.read(path):
        if isinstance(command, language.Case) and not NOT_THEIRS.search(command.expr):
            agree(command.expr)


@given(vectors())
@settings(max_examples=150, deadline=None)
def test_made_up_expressions_read_the_same(text: str) -> None:
    agree(text)


@pytest.mark.parametrize(
    "text",
    ["up[5m", "sum(", "up + ", "rate(up)", "1 > 2", "up and 1", "{}", "abs()", "up{a=b}", "up[5m] + 1", "a b", "topk(a)"],
)  # fmt: skip
def test_what_is_wrong_is_wrong_for_both(text: str) -> None:
    agree(text)
