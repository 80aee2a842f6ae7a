"""Series as unit tests write them: `up{job="a"}` and `0+10x5 _ stale 3x2`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TypeAlias

from sentinel.errors import SentinelError
from sentinel.model.labels import METRIC_NAME, Labels

MOST_SAMPLES = 1_000_000


class NotationError(SentinelError):
    """A series or its values cannot be read.

    Attributes:
        start: Offset into the text of what is wrong.
        end: Offset behind it.
    """

    def __init__(self, message: str, start: int, end: int, *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.start = start
        self.end = max(end, start + 1)


@dataclass(frozen=True, slots=True)
class Stale:
    """The series ends here."""


STALE = Stale()
Point: TypeAlias = "float | Stale | None"
"""One step of a series: a value, its end, or nothing."""

# No hexadecimal here: `0x10` is a zero and ten more of them.
_NUMBER = r"(?:\d+(?:_\d+)*(?:\.\d*)?(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?|[Nn][Aa][Nn]|[Ii][Nn][Ff](?:inity)?)"
_ITEM = re.compile(
    rf"""(?:
        (?P<gap>_)(?:x(?P<gaps>\d+))?
      | (?P<stale>stale)(?:x(?P<stales>\d+))?
      | (?P<first>[+-]?{_NUMBER})(?P<step>[+-]{_NUMBER})?(?:x(?P<times>\d+))?
    )(?=\s|$)""",
    re.VERBOSE,
)


def read_values(text: str) -> list[Point]:
    """The steps of one series.

    `a+bxn` is a, then n steps of b; `axn` is a, then n times a again; `_` is no
    sample; `stale` ends the series.

    Raises:
        NotationError: With the place of what is wrong.
    """
    points: list[Point] = []
    at = 0
    while at < len(text):
        if text[at].isspace():
            at += 1
            continue
        found = _ITEM.match(text, at)
        if found is None:
            word = re.compile(r"\S+").match(text, at)
            end = word.end() if word else at + 1
            if text.startswith("{{", at):
                raise NotationError("native histograms are not supported", at, end)
            raise NotationError(f"cannot read `{text[at:end]}`", at, end, hint="1, 1+2x3, 1x3, _, _x3, stale")
        points += _points(found)
        if len(points) > MOST_SAMPLES:
            raise NotationError(f"more than {MOST_SAMPLES} samples", found.start(), found.end())
        at = found.end()
    return points


def _points(found: re.Match[str]) -> list[Point]:
    if found["gap"]:
        return [None] * _times(found, "gaps", 1)
    if found["stale"]:
        return [STALE] * _times(found, "stales", 1)
    first = _number(found["first"])
    if found["times"] is None:
        if found["step"] is not None:
            raise NotationError("a step needs to be told how often", found.start(), found.end(), hint=f"{found[0]}x5")
        return [first]
    step = _number(found["step"]) if found["step"] else 0.0
    points: list[Point] = []
    value = first
    # Added up one by one, as Prometheus does: multiplying would round differently.
    for _ in range(_times(found, "times", 0) + 1):
        points.append(value)
        value += step
    return points


def _times(found: re.Match[str], name: str, default: int) -> int:
    count = default if found[name] is None else int(found[name])
    if count > MOST_SAMPLES:
        raise NotationError(f"more than {MOST_SAMPLES} samples", found.start(), found.end())
    return count


def _number(text: str) -> float:
    return float(text.replace("_", ""))


def read_series(text: str) -> Labels:
    """The labels of `up{job="a"}`; an empty text or `{}` is no labels.

    Raises:
        NotationError: It is no series, or does not name one exactly.
    """
    from sentinel.promql import PromQLError, parse
    from sentinel.promql.series import Match
    from sentinel.promql.tree import Selector

    stripped = text.strip()
    if stripped in ("", "{}"):
        return Labels()
    # A selector must not match everything, but a series may have any labels.
    probe = stripped if not stripped.startswith("{") else "x" + stripped
    try:
        found = parse(probe)
    except PromQLError as error:
        shift = len(stripped) - len(probe)
        raise NotationError(error.message, max(0, error.start + shift), error.end + shift, hint=error.hint) from None
    if not isinstance(found, Selector) or found.offset_s or found.at is not None:
        raise NotationError("this is no series", 0, len(text), hint='up{job="a"}')
    if any(matcher.match is not Match.EQUAL for matcher in found.matchers):
        raise NotationError("the labels of a series have values, not conditions", 0, len(text), hint='up{job="a"}')
    return Labels(
        (matcher.name, matcher.value)
        for matcher in found.matchers
        if not (matcher.name == METRIC_NAME and probe != stripped and matcher.value == "x")
    )
