"""Expressions made by hypothesis: well-typed, over a handful of metrics and labels."""

from __future__ import annotations

from hypothesis import strategies as st

METRICS = ("m_a", "m_b", "m_c_total")
LABELS = ("job", "gpu", "zone")
_VALUES = {"job": ("train", "eval"), "gpu": ("0", "1", "2"), "zone": ("x", "y")}
OVER_TIME = (
    *("avg_over_time", "min_over_time", "max_over_time", "sum_over_time", "count_over_time", "last_over_time"),
    *("first_over_time", "present_over_time", "stddev_over_time", "stdvar_over_time", "mad_over_time"),
    *("ts_of_first_over_time", "ts_of_last_over_time", "ts_of_min_over_time", "ts_of_max_over_time"),
    *("rate", "increase", "delta", "irate", "idelta", "changes", "resets", "deriv"),
)
ELEMENTWISE = ("abs", "ceil", "floor", "sgn", "-", "exp")
AGGREGATIONS = ("sum", "avg", "min", "max", "count", "group", "stddev", "stdvar")


@st.composite
def matchers(draw: st.DrawFn) -> str:
    found = []
    for label in draw(st.lists(st.sampled_from(LABELS), max_size=2, unique=True)):
        kind = draw(st.sampled_from(["=", "!=", "=~", "!~"]))
        value = draw(st.sampled_from(_VALUES[label]))
        value = {"=": value, "!=": value, "=~": f"{value}|zz.*", "!~": f"{value}.*"}[kind]
        found.append(f'{label}{kind}"{value}"')
    return "{" + ", ".join(found) + "}" if found else ""


@st.composite
def selectors(draw: st.DrawFn) -> str:
    return draw(st.sampled_from(METRICS)) + draw(matchers())


@st.composite
def modifiers(draw: st.DrawFn) -> str:
    return draw(st.sampled_from(["", "", "", " offset 7s", " offset -3s", " @ 40", " @ 55 offset 2s"]))


@st.composite
def ranges(draw: st.DrawFn, depth: int) -> str:
    length = draw(st.sampled_from(["5s", "12s", "30s", "1m"]))
    if depth > 0 and draw(st.integers(0, 3)) == 0:
        step = draw(st.sampled_from(["", "5s", "10s"]))
        return f"({draw(vectors(depth - 1))})[{length}:{step}]{draw(modifiers())}"
    return f"{draw(selectors())}[{length}]{draw(modifiers())}"


@st.composite
def groupings(draw: st.DrawFn) -> str:
    names = ", ".join(draw(st.lists(st.sampled_from(LABELS), max_size=2, unique=True)))
    return draw(st.sampled_from(["", f" by ({names})", f" without ({names})"]))


@st.composite
def scalars(draw: st.DrawFn, depth: int) -> str:
    if depth <= 0 or draw(st.booleans()):
        return draw(st.sampled_from(["0", "1", "2.5", "-3", "0.5", "100"]))
    op = draw(st.sampled_from(["+", "-", "*", "/"]))
    return f"({draw(scalars(depth - 1))} {op} {draw(scalars(depth - 1))})"


@st.composite
def joins(draw: st.DrawFn) -> str:
    names = ", ".join(draw(st.lists(st.sampled_from(LABELS), min_size=1, max_size=2, unique=True)))
    return draw(st.sampled_from(["", "", f" on ({names})", f" ignoring ({names})"]))


@st.composite
def vectors(draw: st.DrawFn, depth: int = 3) -> str:
    """The text of an instant vector."""
    if depth <= 0:
        return draw(selectors()) + draw(modifiers())
    match draw(st.integers(0, 8)):
        case 0:
            return draw(selectors()) + draw(modifiers())
        case 1 | 2:
            return f"{draw(st.sampled_from(OVER_TIME))}({draw(ranges(depth - 1))})"
        case 3:
            return f"{draw(st.sampled_from(ELEMENTWISE))}({draw(vectors(depth - 1))})"
        case 4:
            op = draw(st.sampled_from(AGGREGATIONS))
            return f"{op}{draw(groupings())} ({draw(vectors(depth - 1))})"
        case 5:
            op = draw(st.sampled_from(["+", "-", "*", "/", ">", "<", "==", "!=", ">= bool", "<= bool"]))
            left, right = draw(vectors(depth - 1)), draw(scalars(1))
            return f"({left}) {op} {right}" if draw(st.booleans()) else f"{right} {op} ({left})"
        case 6:
            op = draw(st.sampled_from(["+", "-", "*", "/", ">", "<", "== bool", "!="]))
            return f"({draw(vectors(depth - 1))}) {op}{draw(joins())} ({draw(vectors(depth - 1))})"
        case 7:
            op = draw(st.sampled_from(["and", "or", "unless"]))
            return f"({draw(vectors(depth - 1))}) {op}{draw(joins())} ({draw(vectors(depth - 1))})"
        case _:
            return f"quantile_over_time({draw(scalars(0))}, {draw(ranges(depth - 1))})"
