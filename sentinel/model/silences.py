"""Silences: for a while, alerts with certain labels neither tell people nor ask jobs."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from sentinel.errors import UsageError

_MATCHER = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_]*)\s*(=~|!~|!=|=)\s*(.*?)\s*", re.DOTALL)


@dataclass(frozen=True, slots=True)
class LabelMatcher:
    """One condition on one label of an alert.

    Attributes:
        name: The label; one that is absent has the value "".
        op: `=`, `!=`, `=~` or `!~`. Regular expressions match the whole value.
        value: What it is compared with.
    """

    name: str
    op: str
    value: str

    @classmethod
    def parse(cls, text: str) -> LabelMatcher:
        """Read `job=train`, `alertname=~"Memory.*"`.

        Raises:
            UsageError: It is none.
        """
        found = _MATCHER.fullmatch(text)
        if not found:
            raise UsageError(
                f"{text!r} is not a condition on a label", hint="job=train, severity!=critical, alertname=~'Memory.*'"
            )
        name, op, value = found.groups()
        if len(value) >= 2 and value[0] == value[-1] and value[0] in "\"'":
            value = value[1:-1]
        return cls(name, op, value)

    def holds(self, labels: Mapping[str, str], whole: Callable[[str, str], bool]) -> bool:
        """Whether `labels` fulfil it. `whole(pattern, text)` tells if a regular expression matches all of a text."""
        value = labels.get(self.name, "")
        match self.op:
            case "=":
                return value == self.value
            case "!=":
                return value != self.value
            case "=~":
                return whole(self.value, value)
            case _:
                return not whole(self.value, value)

    def __str__(self) -> str:
        return f'{self.name}{self.op}"{self.value}"'


@dataclass(frozen=True, slots=True)
class Silence:
    """For a while, alerts with these labels are shown and journalled, and nothing else.

    Attributes:
        id: Unique for ever.
        matchers: All must hold; never empty.
        starts: Unix seconds.
        ends: Unix seconds; an end that has passed ends it.
        by: "user:NAME".
        comment: Why, in the words of who made it.
        uid: Whose jobs' alerts it can silence; None: all.
    """

    id: str
    matchers: tuple[LabelMatcher, ...]
    starts: float
    ends: float
    by: str
    comment: str = ""
    uid: int | None = None

    def active(self, at: float) -> bool:
        """Whether it is in force."""
        return self.starts <= at < self.ends

    def covers(self, labels: Mapping[str, str], whole: Callable[[str, str], bool]) -> bool:
        """Whether an alert with these labels is one that it silences."""
        return all(matcher.holds(labels, whole) for matcher in self.matchers)
