"""How `sentinel rules backtest` shows what it found."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from sentinel.cli.common import clock
from sentinel.cli.tables import plain
from sentinel.units import format_duration

FEW = 5
"""Firings of a rule that are shown without being asked for."""


def lines(found: dict[str, Any], *, every: bool) -> Iterator[str]:
    """The whole answer, for people."""
    begin, end = float(found["start"]), float(found["end"])
    yield f"{_span(end - begin)} of recorded history, from {clock(begin)} to {clock(end)}"
    quiet = [rule["rule"] for rule in found["rules"] if not rule["firings"] and not rule["fault"]]
    for rule in found["rules"]:
        if rule["firings"]:
            yield ""
            yield from _rule(rule, every=every)
    if quiet:
        yield ""
        yield "would not have fired: " + ", ".join(quiet)
    if found["difference"] is not None:
        yield ""
        yield "compared with the rules in force:"
        for one in found["difference"]:
            yield from _difference(one, every=every)


def _rule(rule: dict[str, Any], *, every: bool) -> Iterator[str]:
    firings = rule["firings"]
    yield f"{rule['rule']}: would have fired {_times(len(firings))}, {_span(rule['seconds'])} in all"
    yield from _firings(firings, every=every)


def _firings(firings: Sequence[dict[str, Any]], *, every: bool) -> Iterator[str]:
    shown = firings if every else firings[:FEW]
    for each in shown:
        lasted = f"for {_span(each['seconds'])}" if each["ended"] is not None else "and to the end"
        asked = [f"{one['request']} of {one['job'] or 'nobody'}" for one in each["requests"]]
        what = plain(each["summary"]) or _labels(each["labels"])
        yield f"  {clock(each['fired'])} {lasted}: {what}" + (f"; asks {', then '.join(asked)}" if asked else "")
    if len(shown) < len(firings):
        yield f"  and {len(firings) - len(shown)} more (--all)"


def _difference(one: dict[str, Any], *, every: bool) -> Iterator[str]:
    more, fewer = one["more"], one["fewer"]
    if not one["in_force"]:
        yield f"  {one['rule']}: new, no rule of this name is in force"
        return
    if not more and not fewer:
        yield f"  {one['rule']}: no difference" + (f", {_times(one['same'])} alike" if one["same"] else "")
        return
    yield f"  {one['rule']}: {len(more)} more, {len(fewer)} fewer, {one['same']} alike"
    for word, firings in (("more", more), ("fewer", fewer)):
        for line in _firings(firings, every=every):
            yield f"    {word}{line}" if line.startswith("  ") and not line.startswith("  and") else f"    {line}"


def _labels(labels: dict[str, str]) -> str:
    return ", ".join(f"{name}={plain(value)}" for name, value in labels.items() if name != "alertname") or "firing"


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _span(seconds: float) -> str:
    return format_duration(round(seconds)) if seconds >= 1 else format_duration(seconds)
