"""Remarks on an answer: warnings and infos, as Prometheus calls them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    """How serious it is: a warning questions the answer, an info the question."""

    WARNING = "warning"
    INFO = "info"


@dataclass(frozen=True, slots=True)
class Note:
    """One remark.

    Attributes:
        level: Warning or info.
        message: In Prometheus's words.
        start: Offset of the part of the expression it is about.
    """

    level: Level
    message: str
    start: int
