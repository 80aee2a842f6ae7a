"""The parser: tokens to a checked tree. Precedence climbing, with a cap on depth instead of a crash."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

from sentinel.errors import nearest
from sentinel.promql import check
from sentinel.promql.errors import PromQLError, Refused
from sentinel.promql.functions import REFUSED, SIGNATURES
from sentinel.promql.match import Match, Matcher
from sentinel.promql.tokens import Kind, Token, tokens
from sentinel.promql.tree import (
    AGGREGATIONS,
    WITH_PARAM,
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
    Span,
    String,
    Subquery,
    Unary,
)

MAX_DEPTH = 100
"""How deep an expression may nest; a chain of operators counts one level for each."""

_PRECEDENCE = {
    "or": 1, "and": 2, "unless": 2,
    "==": 3, "!=": 3, ">": 3, "<": 3, ">=": 3, "<=": 3,
    "+": 4, "-": 4,
    "*": 5, "/": 5, "%": 5, "atan2": 5,
    "^": 6,
}  # fmt: skip
_POWER = 6
_WORD_OPERATORS = frozenset({"and", "or", "unless", "atan2"})
_NO_METRIC = frozenset({"bool", "on", "ignoring", "group_left", "group_right", "atan2"})
_LABEL = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_MATCHES = {"=": Match.EQUAL, "!=": Match.NOT_EQUAL, "=~": Match.REGEX, "!~": Match.NOT_REGEX}
_FILLS = frozenset({"fill", "fill_left", "fill_right"})


def parse(text: str) -> Expr:
    """The tree of one expression, with its types checked.

    Raises:
        PromQLError: What is wrong, where, what was expected, and for a name the nearest known one.
    """
    return _Parser(text).whole()


class _Parser:
    def __init__(self, text: str) -> None:
        self._tokens = tokens(text)
        self._at = 0
        self._nesting = 0
        self._depths: dict[int, int] = {}

    def whole(self) -> Expr:
        if self._now.kind is Kind.END:
            raise PromQLError("the expression is empty", 0, 1, expected="an expression such as `up == 0`")
        expr = self._binary(0)
        if self._at < len(self._tokens) - 1:
            self._unexpected("an operator or the end of the expression")
        check.check(expr)
        return expr

    # -- tokens ---------------------------------------------------------------------------------------------

    @property
    def _now(self) -> Token:
        return self._tokens[self._at]

    @property
    def _last_end(self) -> int:
        return self._tokens[self._at - 1].end

    def _take(self) -> Token:
        token = self._tokens[self._at]
        self._at += 1
        return token

    def _peek(self, ahead: int = 1) -> Token:
        return self._tokens[min(self._at + ahead, len(self._tokens) - 1)]

    def _is(self, text: str) -> bool:
        return self._now.text == text and self._now.kind in {Kind.PUNCTUATION, Kind.OPERATOR}

    def _word(self) -> str:
        return self._now.text.lower() if self._now.kind is Kind.NAME else ""

    def _expect(self, text: str, wanted: str | None = None) -> Token:
        if not self._is(text):
            self._unexpected(wanted or f"`{text}`")
        return self._take()

    def _unexpected(self, wanted: str, hint: str | None = None) -> None:
        token = self._now
        if hint is None and token.kind is Kind.NAME and wanted.startswith("an operator"):
            close = nearest(token.text.lower(), set(_PRECEDENCE) | {"by", "without", "offset"})
            hint = f"`{close}`" if close and close.isalpha() and close != token.text.lower() else None
        if token.kind is Kind.OPERATOR and token.text == "=":
            hint = "`==` compares"
        raise PromQLError(f"unexpected {token.shown()}", token.start, token.end, wanted, hint)

    def _made(self, expr: Expr, *parts: Expr) -> Expr:
        """Note how deep `expr` is; refuse what is deeper than evaluation can follow."""
        depth = 1 + max((self._depths.get(id(part), 1) for part in parts), default=0)
        if depth > MAX_DEPTH:
            raise PromQLError(
                "the expression nests too deep",
                expr.span.start,
                expr.span.start + 1,
                expected=f"at most {MAX_DEPTH} levels",
            )
        self._depths[id(expr)] = depth
        return expr

    def _deeper(self, part: Callable[[], Expr]) -> Expr:
        self._nesting += 1
        if self._nesting > MAX_DEPTH:
            token = self._now
            raise PromQLError(
                "the expression nests too deep", token.start, token.end, expected=f"at most {MAX_DEPTH} levels"
            )
        expr = part()
        self._nesting -= 1
        return expr

    # -- operators ------------------------------------------------------------------------------------------

    def _operator(self) -> str:
        token = self._now
        if token.kind is Kind.OPERATOR and token.text in _PRECEDENCE:
            return token.text
        word = self._word()
        return word if word in _WORD_OPERATORS else ""

    def _binary(self, least: int) -> Expr:
        left = self._unary()
        while (op := self._operator()) and _PRECEDENCE[op] >= max(least, 1):
            token = self._take()
            returns_bool, matching = self._matching()
            rank = _PRECEDENCE[op]
            right = self._deeper(lambda rank=rank, op=op: self._binary(rank if op == "^" else rank + 1))  # type: ignore[misc]
            left = self._made(
                Binary(
                    op,
                    left,
                    right,
                    returns_bool,
                    matching,
                    Span(left.span.start, right.span.end),
                    Span(token.start, token.end),
                ),
                left,
                right,
            )
        return left

    def _matching(self) -> tuple[bool, Matching]:
        returns_bool = False
        matching = Matching()
        if self._word() == "bool":
            self._take()
            returns_bool = True
        if self._word() in {"on", "ignoring"} and self._peek().text == "(":
            on = self._take().text.lower() == "on"
            matching = replace(matching, on=on, labels=self._labels())
            if self._word() in {"group_left", "group_right"}:
                side = self._take().text.lower().removeprefix("group_")
                include = self._labels() if self._is("(") else ()
                matching = replace(matching, group=side, include=include)
        elif self._word() in {"group_left", "group_right"}:
            self._unexpected("`on(…)` or `ignoring(…)` before it")
        while self._word() in _FILLS and self._peek().text == "(":
            word = self._take().text.lower()
            self._expect("(")
            value = self._signed("a number to fill in")
            self._expect(")")
            if word != "fill_right":
                matching = replace(matching, fill_left=value)
            if word != "fill_left":
                matching = replace(matching, fill_right=value)
        return returns_bool, matching

    def _signed(self, wanted: str) -> float:
        sign = 1.0
        if self._now.kind is Kind.OPERATOR and self._now.text in {"+", "-"}:
            sign = -1.0 if self._take().text == "-" else 1.0
        token = self._now
        if token.kind in {Kind.NUMBER, Kind.DURATION}:
            return sign * self._take().value
        if self._word() in {"inf", "nan"}:
            return sign * float(self._take().text)
        self._unexpected(wanted)
        raise AssertionError

    def _labels(self) -> tuple[str, ...]:
        self._expect("(", "`(` and label names")
        found: list[str] = []
        while not self._is(")"):
            token = self._now
            plain = token.kind is Kind.NAME and _LABEL.fullmatch(token.text)
            if not (plain or (token.kind is Kind.STRING and token.text)):
                self._unexpected("a label name or `)`")
            found.append(token.text)
            self._take()
            if not self._is(")"):
                self._expect(",", "`,` or `)`")
        self._take()
        return tuple(found)

    def _unary(self) -> Expr:
        if self._now.kind is Kind.OPERATOR and self._now.text in {"+", "-"}:
            token = self._take()
            # A sign binds as tightly as `*`: `-2^2` is -(2^2).
            inner = self._deeper(lambda: self._binary(_POWER))
            return self._made(Unary(token.text, inner, Span(token.start, inner.span.end)), inner)
        return self._modified(self._primary())

    # -- modifiers ------------------------------------------------------------------------------------------

    def _modified(self, expr: Expr) -> Expr:
        while True:
            if self._is("["):
                expr = self._brackets(expr)
            elif self._is("@"):
                expr = self._pinned(expr)
            elif self._word() == "offset":
                expr = self._shifted(expr)
            elif self._word() in {"anchored", "smoothed"}:
                token = self._now
                raise Refused(f"`{token.text}` is experimental in Prometheus and refused here", token.start, token.end)
            else:
                return expr

    def _brackets(self, expr: Expr) -> Expr:
        opening = self._take()
        range_s = self._duration("a range such as 5m")
        if range_s <= 0:
            token = self._tokens[self._at - 1]
            raise PromQLError("a range must be longer than 0", token.start, token.end)
        if self._is(":"):
            self._take()
            step_s = None if self._is("]") else self._duration("a step such as 30s, or `]`")
            closing = self._expect("]")
            if step_s is not None and step_s <= 0:
                raise PromQLError("a step must be longer than 0", opening.start, closing.end)
            return self._made(Subquery(expr, range_s, step_s, span=Span(expr.span.start, closing.end)), expr)
        closing = self._expect("]", "`]`, or `:` and a step")
        if not isinstance(expr, Selector):
            raise PromQLError(
                "a range needs a plain selector in front of it",
                opening.start,
                closing.end,
                hint=f"a subquery: `[{self._written(opening, closing)}:]`",
            )
        if expr.offset_s or expr.at is not None:
            raise PromQLError(
                "offset and @ stand behind the range, not in front of it",
                opening.start,
                closing.end,
                hint="`metric[5m] offset 1h`",
            )
        return self._made(Range(expr, range_s, Span(expr.span.start, closing.end)), expr)

    def _written(self, opening: Token, closing: Token) -> str:
        inside = [token.text for token in self._tokens if opening.end <= token.start < closing.start]
        return "".join(inside)

    def _duration(self, wanted: str) -> float:
        token = self._now
        if token.kind not in {Kind.NUMBER, Kind.DURATION}:
            if self._is("(") or self._is("-") or self._is("+") or self._word() in {"step", "range", "min", "max"}:
                raise Refused(
                    "duration expressions are experimental in Prometheus and refused here",
                    token.start,
                    token.end,
                    hint="a plain duration, such as 5m",
                )
            self._unexpected(wanted)
        self._take()
        if self._now.kind is Kind.OPERATOR and self._now.text in {"+", "-", "*", "/", "%", "^"} and self._inside():
            raise Refused(
                "duration expressions are experimental in Prometheus and refused here",
                token.start,
                self._now.end,
                hint="a plain duration, such as 5m",
            )
        if not abs(token.value) < _LONGEST:
            raise PromQLError(f"duration {token.shown()} is out of range", token.start, token.end)
        return round(token.value, 3)

    def _inside(self) -> bool:
        """Whether the nearest bracket to the left is an open `[`."""
        for token in reversed(self._tokens[: self._at]):
            if token.kind is Kind.PUNCTUATION and token.text in "[]":
                return token.text == "["
        return False

    def _shifted(self, expr: Expr) -> Expr:
        word = self._take()
        sign = 1.0
        if self._is("-") or self._is("+"):
            sign = -1.0 if self._take().text == "-" else 1.0
        offset = sign * self._duration("a duration such as 5m")
        return self._adjust(expr, word, offset=offset)

    def _pinned(self, expr: Expr) -> Expr:
        mark = self._take()
        at: float | At
        if self._word() in {"start", "end"} and self._peek().text == "(":
            at = At(self._take().text.lower())
            self._expect("(")
            self._expect(")")
        else:
            token = self._now
            if token.text == "st":
                raise Refused(
                    "start timestamps (`@st`) are experimental in Prometheus and refused here", mark.start, token.end
                )
            at = self._signed("a Unix time in seconds, start() or end()")
            if not abs(at) < _LATEST:
                raise PromQLError("this moment is out of range", token.start, token.end)
            at = round(at, 3)
        return self._adjust(expr, mark, at=at)

    def _adjust(self, expr: Expr, mark: Token, *, offset: float | None = None, at: float | At | None = None) -> Expr:
        """`expr` with an offset or a fixed time."""
        target = expr.selector if isinstance(expr, Range) else expr
        if not isinstance(target, Selector | Subquery):
            raise PromQLError(
                f"`{mark.text}` must stand right behind a selector, a range or a subquery", mark.start, mark.end
            )
        span = Span(expr.span.start, self._last_end)
        changed: Selector | Subquery
        if offset is not None:
            if target.offset_s:
                raise PromQLError("offset may not be set twice", mark.start, self._last_end)
            changed = replace(target, offset_s=offset)
        else:
            if target.at is not None:
                raise PromQLError("@ may not be set twice", mark.start, self._last_end)
            changed = replace(target, at=at)
        if isinstance(expr, Range):
            assert isinstance(changed, Selector)
            made: Expr = replace(expr, selector=changed, span=span)
            return self._made(made, changed)
        made = replace(changed, span=span)
        self._depths[id(made)] = self._depths.get(id(expr), 1)
        return made

    # -- the smallest parts ---------------------------------------------------------------------------------

    def _primary(self) -> Expr:
        token = self._now
        match token.kind:
            case Kind.NUMBER | Kind.DURATION:
                self._take()
                return Number(token.value, Span(token.start, token.end))
            case Kind.STRING:
                self._take()
                return String(token.text, Span(token.start, token.end))
            case Kind.NAME:
                return self._named()
            case _ if self._is("("):
                self._take()
                if self._is(")"):
                    self._unexpected("an expression")
                inner = self._deeper(lambda: self._binary(0))
                closing = self._expect(")", "`)` or an operator")
                return self._made(Paren(inner, Span(token.start, closing.end)), inner)
            case _ if self._is("{"):
                return self._selector("", token.start)
            case _:
                self._unexpected("an expression")
                raise AssertionError

    def _named(self) -> Expr:
        token = self._now
        word = token.text.lower()
        following = self._peek()
        if word in {"inf", "nan"} and following.text not in {"{", "["}:
            self._take()
            return Number(float(word), Span(token.start, token.end))
        if word in AGGREGATIONS and (following.text == "(" or following.text.lower() in {"by", "without"}):
            return self._aggregate()
        if following.kind is Kind.PUNCTUATION and following.text == "(":
            return self._call()
        if word in _NO_METRIC or (word in _WORD_OPERATORS and following.kind is not Kind.PUNCTUATION):
            self._unexpected("an expression")
        self._take()
        return self._selector(token.text, token.start)

    def _aggregate(self) -> Expr:
        token = self._take()
        op = token.text.lower()
        if op == "limit_ratio":
            raise Refused(
                "`limit_ratio` is experimental in Prometheus and refused here",
                token.start,
                token.end,
                hint="`limitk` or `topk`",
            )
        grouping: tuple[str, ...] = ()
        without = grouped = False
        if self._word() in {"by", "without"}:
            without, grouped = self._take().text.lower() == "without", True
            grouping = self._labels()
        args = self._arguments()
        if not grouped and self._word() in {"by", "without"}:
            without = self._take().text.lower() == "without"
            grouping = self._labels()
        span = Span(token.start, self._last_end)
        wanted = 2 if op in WITH_PARAM else 1
        if len(args) != wanted:
            raise PromQLError(
                f"`{op}` takes {_count(wanted)}, not {len(args)}",
                span.start,
                span.end,
                hint=_AGGREGATION_EXAMPLES.get(op, f"`{op} by (job) (metric)`"),
            )
        param = args[0] if wanted == 2 else None
        return self._made(Aggregate(op, args[-1], param, grouping, without, span), *args)

    def _call(self) -> Expr:
        token = self._take()
        name = token.text
        if name not in SIGNATURES:
            if name in REFUSED:
                raise Refused(f"`{name}` is refused: {REFUSED[name]}", token.start, token.end)
            close = nearest(name.lower(), set(SIGNATURES) | AGGREGATIONS)
            raise PromQLError(
                f"unknown function `{name[:60]}`", token.start, token.end, hint=f"`{close}`" if close else None
            )
        args = self._arguments()
        return self._made(Call(name, args, Span(token.start, self._last_end)), *args)

    def _arguments(self) -> tuple[Expr, ...]:
        self._expect("(")
        args: list[Expr] = []
        while not self._is(")"):
            args.append(self._deeper(lambda: self._binary(0)))
            if self._is(","):
                comma = self._take()
                if self._is(")"):
                    raise PromQLError("no argument after this comma", comma.start, comma.end, expected="an argument")
            elif not self._is(")"):
                self._unexpected("`,`, `)` or an operator")
        self._take()
        return tuple(args)

    def _selector(self, name: str, start: int) -> Expr:
        matchers: list[Matcher] = []
        if name:
            matchers.append(Matcher("__name__", Match.EQUAL, name))
        if self._is("{"):
            self._take()
            while not self._is("}"):
                name = self._matcher(matchers, name)
                if not self._is("}"):
                    self._expect(",", "`,` or `}`")
            self._take()
        span = Span(start, self._last_end)
        check.selector(matchers, span)
        return self._made(Selector(name, tuple(matchers), span=span))

    def _matcher(self, matchers: list[Matcher], name: str) -> str:
        token = self._take()
        quoted = token.kind is Kind.STRING
        if not quoted and not (token.kind is Kind.NAME and _LABEL.fullmatch(token.text)):
            self._at -= 1
            self._unexpected("a label name or `}`")
        if quoted and (self._is(",") or self._is("}")):
            if name:
                raise PromQLError(
                    f"the metric's name is given twice: {name!r} and {token.text!r}", token.start, token.end
                )
            if not token.text:
                raise PromQLError("the metric's name is empty", token.start, token.end)
            matchers.insert(0, Matcher("__name__", Match.EQUAL, token.text))
            return token.text
        if self._now.text not in _MATCHES or self._now.kind is not Kind.OPERATOR:
            hint = "`=` compares labels" if self._is("==") else None
            self._unexpected("`=`, `!=`, `=~` or `!~`", hint)
        match = _MATCHES[self._take().text]
        if self._now.kind is not Kind.STRING:
            self._unexpected("a quoted string")
        value = self._take()
        if match in {Match.REGEX, Match.NOT_REGEX}:
            check.pattern(value.text, Span(value.start, value.end))
        if token.text == "__name__" and name:
            raise PromQLError(f"the metric's name is given twice: {name!r} and again here", token.start, value.end)
        matchers.append(Matcher(token.text, match, value.text))
        return name


_LONGEST = 292 * 31_536_000.0
_LATEST = 9.2e15
_AGGREGATION_EXAMPLES = {
    "topk": "`topk(3, metric)`",
    "bottomk": "`bottomk(3, metric)`",
    "limitk": "`limitk(3, metric)`",
    "quantile": "`quantile(0.9, metric)`",
    "count_values": '`count_values("version", metric)`',
}


def _count(number: int) -> str:
    return "one argument" if number == 1 else f"{number} arguments"
