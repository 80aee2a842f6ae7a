"""The door of the language: what it asks for series, and what it answers with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from sentinel.model.labels import Labels
from sentinel.promql.match import Match, Matcher

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """Series that share one time axis.

    Attributes:
        labels: One label set per series, `__name__` included. The same tuple
            object for as long as the entities do not change, so that what is
            derived from it may be cached by its identity.
        times: float64[T], Unix seconds, ascending.
        values: float64[S, T]. A real sample may be NaN.
        present: bool[S, T]: a sample was taken here.
        stale: bool[S, T]: here the series was marked as ended. Never where `present`.
        lookback_s: How long a sample stands for its series where the caller of
            the evaluation does not say (three ticks of the family).
    """

    labels: tuple[Labels, ...]
    times: Floats
    values: Floats
    present: Mask
    stale: Mask
    lookback_s: float = 300.0


class SeriesReader(Protocol):
    """Where series come from: the window, the store, or a test.

    A reader whose blocks differ in `lookback_s` may have an attribute
    `widest_lookback_s`, the longest of them: so far back an instant selector
    reads where the caller of the evaluation gives no lookback (else 10 minutes).
    """

    def select(self, matchers: tuple[Matcher, ...], start: float, end: float) -> Sequence[Block]:
        """All series that match, with their samples from `start` to `end`, both included.

        A series without a sample in that time may be left out.
        """
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Vector:
    """An instant vector, with the mask of what a filter let through.

    Attributes:
        labels: One label set per element.
        values: float64[N].
        kept: bool[N]. An element that is here but not kept is *clear*: there was
            data and the condition does not hold. What is not here at all is *dark*.
    """

    labels: tuple[Labels, ...]
    values: Floats
    kept: Mask

    def samples(self) -> list[tuple[Labels, float]]:
        """What Prometheus would answer: the kept elements."""
        return [
            (labels, float(value))
            for labels, value, kept in zip(self.labels, self.values, self.kept, strict=True)
            if kept
        ]


@dataclass(frozen=True, slots=True)
class Scalar:
    """A single number."""

    value: float


@dataclass(frozen=True, slots=True)
class Text:
    """A string literal as the whole expression."""

    value: str


@dataclass(frozen=True, slots=True, eq=False)
class Matrix:
    """Series over a range.

    Attributes:
        labels: One label set per series.
        times: float64[T] where all share an axis.
        values: float64[S, T].
        present: bool[S, T]: where there is a value.
    """

    labels: tuple[Labels, ...]
    times: Floats
    values: Floats
    present: Mask


@dataclass(frozen=True, slots=True, eq=False)
class Course:
    """An instant vector at each of many times, with the mask of what a filter let through.

    Attributes:
        labels: One label set per series; a scalar is one series without labels.
        times: float64[T].
        values: float64[S, T].
        present: bool[S, T]: there is an element at that time.
        kept: bool[S, T]: and no filter masked it; never where not `present`.
    """

    labels: tuple[Labels, ...]
    times: Floats
    values: Floats
    present: Mask
    kept: Mask

    def at(self, column: int) -> Vector:
        """What `evaluate` gives at `times[column]`."""
        rows = np.flatnonzero(self.present[:, column])
        every = len(rows) == len(self.labels)
        labels = self.labels if every else tuple(self.labels[row] for row in rows.tolist())
        return Vector(labels, self.values[rows, column], self.kept[rows, column])


Value = Vector | Scalar | Text | Matrix

__all__ = [
    "Block",
    "Course",
    "Floats",
    "Mask",
    "Match",
    "Matcher",
    "Matrix",
    "Scalar",
    "SeriesReader",
    "Text",
    "Value",
    "Vector",
]
