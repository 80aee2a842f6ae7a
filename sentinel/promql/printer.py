"""The tree back to text: one canonical way to write each expression."""

from __future__ import annotations

import math
import re

from sentinel.promql.match import Match
from sentinel.promql.tree import (
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
    String,
    Subquery,
    Unary,
)

_METRIC = re.compile(r"[A-Za-z_:][A-Za-z0-9_:]*")
_LABEL = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_RESERVED = frozenset({"bool", "on", "ignoring", "group_left", "group_right", "inf", "nan", "atan2"})
_UNITS = (("w", 604_800_000), ("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1))


def canonical(expr: Expr) -> str:
    """`expr` as text that parses to the same tree."""
    match expr:
        case Number(value=value):
            return number(value)
        case String(value=value):
            return quoted(value)
        case Selector():
            return _selector(expr) + _modifiers(expr)
        case Range(selector=selector, range_s=range_s):
            return f"{_selector(selector)}[{duration(range_s)}]{_modifiers(selector)}"
        case Subquery(expr=inner, range_s=range_s, step_s=step_s):
            step = "" if step_s is None else duration(step_s)
            return f"{canonical(inner)}[{duration(range_s)}:{step}]{_modifiers(expr)}"
        case Call(function=name, args=args):
            return f"{name}({', '.join(map(canonical, args))})"
        case Aggregate():
            return _aggregate(expr)
        case Unary(op=op, expr=inner):
            return op + canonical(inner)
        case Paren(expr=inner):
            return f"({canonical(inner)})"
        case Binary(op=op, left=left, right=right, returns_bool=returns_bool, matching=matching):
            words = [canonical(left), op, *(["bool"] if returns_bool else []), *_matching(matching), canonical(right)]
            return " ".join(words)


def _selector(selector: Selector) -> str:
    name = selector.name
    plain = bool(_METRIC.fullmatch(name)) and name.lower() not in _RESERVED
    parts = [] if plain or not name else [quoted(name)]
    matchers = list(selector.matchers)
    if name:
        matchers.pop(next(i for i, m in enumerate(matchers) if m.name == "__name__" and m.match is Match.EQUAL))
    for matcher in matchers:
        label = matcher.name if _LABEL.fullmatch(matcher.name) else quoted(matcher.name)
        parts.append(f"{label}{matcher.match.value}{quoted(matcher.value)}")
    return (name if plain else "") + (f"{{{', '.join(parts)}}}" if parts else "")


def _modifiers(node: Selector | Subquery) -> str:
    text = ""
    if isinstance(node.at, At):
        text += f" @ {node.at.value}()"
    elif node.at is not None:
        text += f" @ {number(node.at)}"
    if node.offset_s:
        text += f" offset {'-' if node.offset_s < 0 else ''}{duration(abs(node.offset_s))}"
    return text


def _aggregate(expr: Aggregate) -> str:
    clause = ""
    if expr.grouping or expr.without:
        clause = f" {'without' if expr.without else 'by'} ({_labels(expr.grouping)}) "
    inside = canonical(expr.expr) if expr.param is None else f"{canonical(expr.param)}, {canonical(expr.expr)}"
    return f"{expr.op}{clause}({inside})"


def _matching(matching: Matching) -> list[str]:
    words = []
    if matching.on or matching.labels or matching.group:
        words.append(f"{'on' if matching.on else 'ignoring'} ({_labels(matching.labels)})")
    if matching.group:
        words.append(f"group_{matching.group} ({_labels(matching.include)})")
    left, right = matching.fill_left, matching.fill_right
    if left is not None and right is not None and number(left) == number(right):
        return [*words, f"fill ({number(left)})"]
    words += [f"fill_left ({number(left)})"] if left is not None else []
    words += [f"fill_right ({number(right)})"] if right is not None else []
    return words


def _labels(names: tuple[str, ...]) -> str:
    return ", ".join(name if _LABEL.fullmatch(name) else quoted(name) for name in names)


def number(value: float) -> str:
    """The shortest text that reads back as `value`."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Inf" if value > 0 else "-Inf"
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value)}" if math.copysign(1, value) > 0 or value else "-0"
    return repr(value)


def duration(seconds: float) -> str:
    """`1h30m`, as Prometheus writes it."""
    left = round(seconds * 1000)
    if not left:
        return "0s"
    text = ""
    years, rest = divmod(left, 31_536_000_000)
    if years and not rest:
        return f"{years}y"
    for unit, size in _UNITS:
        count, rest = divmod(left, size)
        # Weeks and days only where they come out even, so that 40d is not 5w5d.
        if count and not (rest and unit in {"w", "d"} and not text):
            text += f"{count}{unit}"
            left = rest
    return text


def quoted(text: str) -> str:
    """In double quotes, with what must be escaped escaped."""
    made = []
    for char in text:
        if char in '"\\':
            made.append("\\" + char)
        elif char == "\n":
            made.append("\\n")
        elif char == "\t":
            made.append("\\t")
        elif char == "\r":
            made.append("\\r")
        elif 0xDC80 <= ord(char) <= 0xDCFF:
            made.append(f"\\x{ord(char) - 0xDC00:02x}")
        elif ord(char) < 32 or ord(char) == 127:
            made.append(f"\\x{ord(char):02x}")
        else:
            made.append(char)
    return '"' + "".join(made) + '"'
