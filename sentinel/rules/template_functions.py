"""The functions of rule templates, as Prometheus and Go behave."""

from __future__ import annotations

import html
import math
import re
import urllib.parse
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from sentinel.errors import UsageError
from sentinel.rules.goformat import general, plain, sprintf
from sentinel.units import parse_duration

NOT_HERE = frozenset({"tmpl", "toTime", "toDuration", "now", "js", "call"})
"""Functions that Prometheus or Go have and rules here do not."""

_BIG = ("k", "M", "G", "T", "P", "E", "Z", "Y")
_SMALL = ("m", "u", "n", "p", "f", "a", "z", "y")


class FunctionError(ValueError):
    """A function cannot do this with these arguments."""


def number(value: object) -> float:
    """A number, or a text that reads as one."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise FunctionError(f"{plain(value)} is no number")
    try:
        return float(value)
    except ValueError:
        raise FunctionError(f"{value!r} is no number") from None


def humanize(value: object) -> str:
    """With metric prefixes and four significant digits: `1.235M`, `30m`."""
    amount = number(value)
    if amount == 0 or not math.isfinite(amount):
        return general(amount, 4)
    if abs(amount) >= 1:
        return _scaled(amount, _BIG, 1000.0)
    amount, prefix = _raised(amount)
    return general(amount, 4) + prefix


def humanize1024(value: object) -> str:
    """With binary prefixes: `1.5Gi`."""
    amount = number(value)
    if abs(amount) <= 1 or not math.isfinite(amount):
        return general(amount, 4)
    return _scaled(amount, tuple(f"{prefix}i" for prefix in ("k", *_BIG[1:])), 1024.0)


def humanize_duration(value: object) -> str:
    """Seconds as `1h 2m 3s`, `4.5s`, `20ms`."""
    amount = number(value)
    if not math.isfinite(amount):
        return general(amount, 4)
    if amount == 0:
        return "0s"
    if abs(amount) < 1:
        amount, prefix = _raised(amount)
        return f"{general(amount, 4)}{prefix}s"
    sign, amount = ("-", -amount) if amount < 0 else ("", amount)
    whole = int(amount)
    days, hours, minutes, seconds = whole // 86400, whole // 3600 % 24, whole // 60 % 60, whole % 60
    if days:
        return f"{sign}{days}d {hours}h {minutes}m {seconds}s"
    if hours:
        return f"{sign}{hours}h {minutes}m {seconds}s"
    if minutes:
        return f"{sign}{minutes}m {seconds}s"
    return f"{sign}{general(amount, 4)}s"


def humanize_percentage(value: object) -> str:
    """A ratio as `12.5%`."""
    return general(number(value) * 100, 4) + "%"


def humanize_timestamp(value: object) -> str:
    """Unix seconds as `2026-01-02 03:04:05 +0000 UTC`."""
    amount = number(value)
    if not math.isfinite(amount):
        return general(amount, 4)
    try:
        moment = datetime.fromtimestamp(math.floor(amount), UTC)
    except (OverflowError, ValueError, OSError):
        raise FunctionError(f"{plain(amount)} is no time") from None
    part = f"{amount - math.floor(amount):.3f}".lstrip("0").rstrip("0").rstrip(".")
    return f"{moment:%Y-%m-%d %H:%M:%S}{part} +0000 UTC"


def truth(value: object) -> bool:
    """Whether Go's templates take it as true: not zero, not empty, not nil."""
    if isinstance(value, float) and math.isnan(value):
        return True
    return bool(value)


def _scaled(amount: float, prefixes: tuple[str, ...], base: float) -> str:
    prefix = ""
    for candidate in prefixes:
        if abs(amount) < base:
            break
        prefix, amount = candidate, amount / base
    return general(amount, 4) + prefix


def _raised(amount: float) -> tuple[float, str]:
    prefix = ""
    for candidate in _SMALL:
        if abs(amount) >= 1:
            break
        prefix, amount = candidate, amount * 1000
    return amount, prefix


def _pattern(text: str) -> Any:
    import re2  # linear time: patterns and texts come from users

    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(text, options)
    except re2.error as fault:
        raise FunctionError(f"bad regular expression {text!r}: {fault}") from None


def _match(pattern: object, text: object) -> bool:
    return _pattern(_text(pattern)).search(_text(text)) is not None


def _replace_all(pattern: object, replacement: object, text: object) -> str:
    compiled = _pattern(_text(pattern))
    template = _text(replacement)

    def fill(found: Any) -> str:
        def group(name: re.Match[str]) -> str:
            key = name[1] or name[2]
            if key is None:
                return "$"
            try:
                return found.group(int(key) if key.isdigit() else key) or ""
            except (IndexError, KeyError):
                return ""

        return re.sub(r"\$(?:\{(\w+)\}|(\w+)|\$)", group, template)

    return str(compiled.sub(fill, _text(text)))


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    raise FunctionError(f"{plain(value)} is no text")


def _title(value: object) -> str:
    return re.sub(r"(^|[^\w'])(\w)", lambda found: found[1] + found[2].upper(), _text(value))


def _strip_port(value: object) -> str:
    text = _text(value)
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdigit():
        return text
    return host.removeprefix("[").removesuffix("]")


def _strip_domain(value: object) -> str:
    text = _text(value)
    host, colon, port = text.partition(":")
    if re.fullmatch(r"[\d.]+|\[.*\]?", host):
        return text
    return host.partition(".")[0] + colon + port


def _first(samples: object) -> object:
    if isinstance(samples, Sequence) and samples:
        return samples[0]
    raise FunctionError("first() of an empty result")


def _sample(value: object) -> Mapping[str, Any]:
    if isinstance(value, Mapping) and "Value" in value:
        return value
    raise FunctionError(f"{plain(value)} is no sample of a query")


def _sort_by_label(name: object, samples: object) -> list[object]:
    if not isinstance(samples, Sequence):
        raise FunctionError("sortByLabel needs the result of a query")
    return sorted(samples, key=lambda sample: str(_sample(sample)["Labels"].get(_text(name), "")))


def _index(container: object, *keys: object) -> object:
    for key in keys:
        if isinstance(container, Mapping):
            container = container.get(key, "")
        elif isinstance(container, Sequence) and isinstance(key, int) and 0 <= key < len(container):
            container = container[key]
        else:
            raise FunctionError(f"cannot index {plain(container)} with {plain(key)}")
    return container


def _slice(container: object, *ends: object) -> object:
    whole = [end for end in ends if isinstance(end, int)]
    if not isinstance(container, Sequence) or len(whole) != len(ends):
        raise FunctionError(f"cannot slice {plain(container)}")
    low = whole[0] if whole else 0
    high = whole[1] if len(whole) > 1 else len(container)
    if not 0 <= low <= high <= len(container):
        raise FunctionError(f"cannot slice {plain(container)} from {low} to {high}")
    return container[low:high]


def _len(value: object) -> int:
    if isinstance(value, str):
        return len(value.encode())
    if isinstance(value, Mapping | Sequence):
        return len(value)
    raise FunctionError(f"{plain(value)} has no length")


def _kind(value: object) -> str:
    for kind, name in ((bool, "bool"), (int, "int"), (float, "float64"), (str, "string")):
        if isinstance(value, kind):
            return name
    return "nil" if value is None else "composite"


def _comparable(left: object, right: object) -> None:
    kinds = _kind(left), _kind(right)
    if "composite" in kinds or (kinds[0] != kinds[1] and "nil" not in kinds):
        raise FunctionError(
            f"incompatible types for comparison: {kinds[0]} and {kinds[1]}"
            + ("; write the number with a point, as 5.0" if set(kinds) == {"int", "float64"} else "")
        )


def _equal(left: object, *others: object) -> bool:
    for other in others:
        _comparable(left, other)
    return any(left == other for other in others)


def _order(test: Callable[[Any, Any], bool]) -> Callable[[object, object], bool]:
    def compare(left: object, right: object) -> bool:
        _comparable(left, right)
        return test(left, right)

    return compare


def _print(*values: object) -> str:
    out = ""
    for position, value in enumerate(values):
        apart = position and not isinstance(value, str) and not isinstance(values[position - 1], str)
        out += (" " if apart else "") + plain(value)
    return out


def _args(*values: object) -> dict[str, object]:
    return {f"arg{position}": value for position, value in enumerate(values)}


def _link(tab: int) -> Callable[[object], str]:
    return lambda expr: f"/graph?g0.expr={urllib.parse.quote_plus(_text(expr))}&g0.tab={tab}"


def _parse_duration(value: object) -> float:
    try:
        return parse_duration(_text(value))
    except UsageError as fault:
        raise FunctionError(fault.message) from None


_ANY = 100

FUNCTIONS: dict[str, tuple[int, int, Callable[..., object]]] = {
    "humanize": (1, 1, humanize),
    "humanize1024": (1, 1, humanize1024),
    "humanizeDuration": (1, 1, humanize_duration),
    "humanizePercentage": (1, 1, humanize_percentage),
    "humanizeTimestamp": (1, 1, humanize_timestamp),
    "title": (1, 1, _title),
    "toUpper": (1, 1, lambda value: _text(value).upper()),
    "toLower": (1, 1, lambda value: _text(value).lower()),
    "match": (2, 2, _match),
    "reReplaceAll": (3, 3, _replace_all),
    "stripPort": (1, 1, _strip_port),
    "stripDomain": (1, 1, _strip_domain),
    "graphLink": (1, 1, _link(0)),
    "tableLink": (1, 1, _link(1)),
    "parseDuration": (1, 1, _parse_duration),
    "safeHtml": (1, 1, _text),
    "first": (1, 1, _first),
    "value": (1, 1, lambda sample: _sample(sample)["Value"]),
    "label": (2, 2, lambda name, sample: _sample(sample)["Labels"].get(_text(name), "")),
    "strvalue": (1, 1, lambda sample: _sample(sample)["Labels"].get("__value__", "")),
    "sortByLabel": (2, 2, _sort_by_label),
    "args": (0, _ANY, _args),
    "print": (0, _ANY, _print),
    "println": (0, _ANY, lambda *values: " ".join(plain(value) for value in values) + "\n"),
    "printf": (1, _ANY, lambda pattern, *values: sprintf(_text(pattern), list(values))),
    "html": (
        1,
        _ANY,
        lambda *values: html.escape(_print(*values)).replace("&#x27;", "&#39;").replace("&quot;", "&#34;"),
    ),
    "urlquery": (1, _ANY, lambda *values: urllib.parse.quote_plus(_print(*values))),
    "len": (1, 1, _len),
    "index": (1, _ANY, _index),
    "slice": (1, 3, _slice),
    "not": (1, 1, lambda value: not truth(value)),
    "eq": (2, _ANY, _equal),
    "ne": (2, 2, lambda left, right: not _equal(left, right)),
    "lt": (2, 2, _order(lambda left, right: left < right)),
    "le": (2, 2, _order(lambda left, right: left <= right)),
    "gt": (2, 2, _order(lambda left, right: left > right)),
    "ge": (2, 2, _order(lambda left, right: left >= right)),
}

ARITY: dict[str, tuple[int, int]] = {
    **{name: (least, most) for name, (least, most, _) in FUNCTIONS.items()},
    "and": (1, _ANY),
    "or": (1, _ANY),
    "query": (1, 1),
    "externalURL": (0, 0),
    "pathPrefix": (0, 0),
}
"""Least and most arguments of every function a template may name."""
