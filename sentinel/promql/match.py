"""Matchers: which series a selector means."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Match(StrEnum):
    """How a matcher compares."""

    EQUAL = "="
    NOT_EQUAL = "!="
    REGEX = "=~"
    NOT_REGEX = "!~"


@dataclass(frozen=True, slots=True)
class Matcher:
    """One condition on one label; the metric's name is the label `__name__`."""

    name: str
    match: Match
    value: str
