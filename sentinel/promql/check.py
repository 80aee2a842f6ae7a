"""Types, and what else can be known to be wrong before any data is seen."""

from __future__ import annotations

from collections.abc import Iterable

from sentinel.promql.errors import PromQLError
from sentinel.promql.functions import SIGNATURES, Signature
from sentinel.promql.match import Match, Matcher
from sentinel.promql.regex import BadPattern, compiled, matches
from sentinel.promql.tree import (
    COMPARISON,
    SET,
    Aggregate,
    Binary,
    Call,
    Expr,
    Number,
    Paren,
    Range,
    Selector,
    Span,
    String,
    Subquery,
    Type,
    Unary,
    bare,
    children,
)

_TYPES: dict[int, tuple[Expr, Type]] = {}
_MOST_TYPES = 16_384


def type_of(expr: Expr) -> Type:
    """What `expr` evaluates to."""
    # Remembered by identity, with the node itself so that the identity stays taken.
    found = _TYPES.get(id(expr))
    if found is None:
        if len(_TYPES) >= _MOST_TYPES:
            _TYPES.clear()
        found = _TYPES[id(expr)] = (expr, _type_of(expr))
    return found[1]


def _type_of(expr: Expr) -> Type:
    match bare(expr):
        case Number():
            return Type.SCALAR
        case String():
            return Type.STRING
        case Range() | Subquery():
            return Type.RANGE
        case Call(function=name):
            return SIGNATURES[name].returns
        case Unary(expr=inner):
            return type_of(inner)
        case Binary(left=left, right=right):
            scalar = type_of(left) is Type.SCALAR and type_of(right) is Type.SCALAR
            return Type.SCALAR if scalar else Type.VECTOR
        case _:
            return Type.VECTOR


def check(root: Expr) -> None:
    """Refuse what cannot be evaluated on any data.

    Raises:
        PromQLError: The first thing that is wrong, from the inside out.
    """
    _visit(root)


def _visit(expr: Expr) -> Type:
    kinds = [_visit(child) for child in children(expr)]
    match expr:
        case Number():
            return Type.SCALAR
        case String():
            return Type.STRING
        case Selector():
            return Type.VECTOR
        case Range():
            return Type.RANGE
        case Paren():
            return kinds[0]
        case Subquery():
            if kinds[0] is not Type.VECTOR and kinds[0] is not Type.SCALAR:
                _wrong(expr.expr, "a subquery needs an instant vector", kinds[0])
            if kinds[0] is Type.SCALAR:
                _wrong(expr.expr, "a subquery needs an instant vector", kinds[0], "`vector(…)`")
            return Type.RANGE
        case Unary():
            if kinds[0] not in {Type.SCALAR, Type.VECTOR}:
                _wrong(expr.expr, f"a sign `{expr.op}` needs a number or an instant vector", kinds[0])
            return kinds[0]
        case Aggregate():
            return _aggregate(expr, kinds)
        case Call():
            return _call(expr, kinds)
        case Binary():
            return _binary(expr, kinds[0], kinds[1])


def _wrong(expr: Expr, what: str, got: Type, hint: str | None = None) -> None:
    raise PromQLError(f"{what}, not {_a(got)}", expr.span.start, expr.span.end, hint=hint)


def _a(kind: Type) -> str:
    return f"an {kind}" if kind is Type.VECTOR else f"a {kind}"


def _aggregate(expr: Aggregate, kinds: list[Type]) -> Type:
    if kinds[-1] is not Type.VECTOR:
        hint = "a function over the range first, such as `avg_over_time(…)`" if kinds[-1] is Type.RANGE else None
        _wrong(expr.expr, f"`{expr.op}` needs an instant vector", kinds[-1], hint)
    if expr.param is not None:
        wanted = Type.STRING if expr.op == "count_values" else Type.SCALAR
        if kinds[0] is not wanted:
            _wrong(expr.param, f"`{expr.op}` needs {_a(wanted)} first", kinds[0])
        if expr.op == "count_values":
            name = bare(expr.param)
            assert isinstance(name, String)
            if not is_label(name.value):
                raise PromQLError("`count_values` needs a label name first", name.span.start, name.span.end)
    return Type.VECTOR


def _call(expr: Call, kinds: list[Type]) -> Type:
    signature = SIGNATURES[expr.function]
    most = None if signature.repeats is None else len(signature.args) + signature.repeats
    if len(kinds) < signature.least or (most is not None and len(kinds) > most):
        raise PromQLError(
            f"`{expr.function}` takes {_how_many(signature, most)}, not {len(kinds)}",
            expr.span.start,
            expr.span.end,
            hint=f"`{expr.function}({_shape(signature)})`",
        )
    for index, (arg, kind) in enumerate(zip(expr.args, kinds, strict=True)):
        wanted = signature.args[min(index, len(signature.args) - 1)]
        if kind is not wanted:
            hint = None
            if wanted is Type.RANGE and kind is Type.VECTOR:
                hint = "a range behind the selector, such as `[5m]`"
            elif wanted is Type.VECTOR and kind is Type.RANGE:
                hint = "no range, or a function over the range first"
            elif wanted is Type.VECTOR and kind is Type.SCALAR:
                hint = "`vector(…)`"
            elif wanted is Type.SCALAR and kind is Type.VECTOR:
                hint = "`scalar(…)`"
            _wrong(arg, f"argument {index + 1} of `{expr.function}` must be {_a(wanted)}", kind, hint)
    if expr.function in {"label_replace", "label_join"}:
        _label_call(expr)
    return signature.returns


def is_label(name: str) -> bool:
    """Whether a label may have this name: any text that is valid UTF-8, but not none."""
    return bool(name) and not any("\ud800" <= char <= "\udfff" for char in name)


def _label_call(expr: Call) -> None:
    names: Iterable[Expr] = (expr.args[1], expr.args[3]) if expr.function == "label_replace" else expr.args[1:2]
    for place, arg in enumerate(names):
        name = bare(arg)
        assert isinstance(name, String)
        source = expr.function == "label_replace" and place == 1
        if not source and not is_label(name.value):
            raise PromQLError(f"`{expr.function}` needs a label name here", arg.span.start, arg.span.end)
    if expr.function == "label_replace":
        regex = bare(expr.args[4])
        assert isinstance(regex, String)
        pattern(regex.value, regex.span)


def _how_many(signature: Signature, most: int | None) -> str:
    if most is None:
        return f"at least {signature.least} arguments"
    if most == signature.least:
        return {0: "no argument", 1: "one argument"}.get(most, f"{most} arguments")
    return f"{signature.least} to {most} arguments"


def _shape(signature: Signature) -> str:
    return ", ".join(kind.value for kind in signature.args)


def _binary(expr: Binary, left: Type, right: Type) -> Type:
    for side, kind in ((expr.left, left), (expr.right, right)):
        if kind not in {Type.SCALAR, Type.VECTOR}:
            hint = "a function over the range first, such as `rate(…)`" if kind is Type.RANGE else None
            _wrong(side, f"`{expr.op}` needs numbers or instant vectors on both sides", kind, hint)
    both_vectors = left is Type.VECTOR and right is Type.VECTOR
    where = expr.op_span
    matching = expr.matching
    if expr.returns_bool and expr.op not in COMPARISON:
        raise PromQLError(f"`bool` goes with comparisons only, not with `{expr.op}`", where.start, where.end)
    if expr.op in SET:
        if not both_vectors:
            raise PromQLError(
                f"`{expr.op}` needs an instant vector on both sides", where.start, where.end, hint="`vector(…)`"
            )
        if matching.group:
            raise PromQLError(f"`group_{matching.group}` does not go with `{expr.op}`", where.start, where.end)
        if matching.fill_left is not None or matching.fill_right is not None:
            raise PromQLError(f"`fill` does not go with `{expr.op}`", where.start, where.end)
    if not both_vectors and (
        matching.on or matching.labels or matching.fill_left is not None or matching.fill_right is not None
    ):
        raise PromQLError("vectors are matched only where both sides are instant vectors", where.start, where.end)
    if left is right is Type.SCALAR and expr.op in COMPARISON and not expr.returns_bool:
        raise PromQLError("two numbers are compared with `bool`", where.start, where.end, hint=f"`{expr.op} bool`")
    if matching.on and (twice := set(matching.labels) & set(matching.include)):
        raise PromQLError(
            f"label `{min(twice)}` stands in on() and in group_{matching.group}() at once", where.start, where.end
        )
    return Type.SCALAR if left is right is Type.SCALAR else Type.VECTOR


def selector(matchers: list[Matcher], span: Span) -> None:
    """Refuse a selector that would select everything.

    Raises:
        PromQLError: Each of its matchers matches the empty string.
    """
    if not any(not _matches_empty(matcher) for matcher in matchers):
        raise PromQLError(
            "this selector would select every series",
            span.start,
            span.end,
            expected="a metric name, or at least one matcher that does not match the empty string",
        )


def _matches_empty(matcher: Matcher) -> bool:
    match matcher.match:
        case Match.EQUAL:
            return not matcher.value
        case Match.NOT_EQUAL:
            return bool(matcher.value)
        case _:
            return matches(matcher, "")


def pattern(text: str, span: Span) -> None:
    """Refuse a regular expression that RE2 cannot compile.

    Raises:
        PromQLError: With RE2's own words.
    """
    try:
        compiled(text)
    except BadPattern as fault:
        raise PromQLError(f"bad regular expression: {fault}", span.start, span.end) from None
