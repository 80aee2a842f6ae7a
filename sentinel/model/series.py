"""Families and batches: what a collector measures, and how it hands it over."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from sentinel.model.labels import Labels

Entity = tuple[str, ...]
"""The label values of one entity, in the order of its family's label names."""

NAN = float("nan")


class Kind(StrEnum):
    """What a metric's numbers mean over time."""

    GAUGE = "gauge"
    COUNTER = "counter"


GAUGE = Kind.GAUGE
COUNTER = Kind.COUNTER


@dataclass(frozen=True, slots=True)
class Metric:
    """One number measured of each entity of a family. Base units; ratios 0 to 1."""

    name: str
    kind: Kind
    help: str


@dataclass(frozen=True, slots=True)
class Family:
    """Metrics measured together, for entities that are told apart by the same labels.

    Attributes:
        name: Names its table in the store; unique.
        labels: Label names, in the order used by every `Entity`.
        metrics: In the order used by every row.
        narrow: Whether its samples go into the one narrow table, because its
            shape is not ours to choose (recording rules, users' own metrics).
    """

    name: str
    labels: tuple[str, ...]
    metrics: tuple[Metric, ...]
    narrow: bool = False

    def batch(
        self,
        at: float,
        values: Mapping[Entity, Sequence[float | None]],
        covers: Iterable[Entity] | None = None,
    ) -> Batch:
        """One pass over some entities of this family.

        Args:
            at: When it was measured (Unix seconds).
            values: A row per entity that has values, in the order of `metrics`;
                None or NaN where this entity has no such value.
            covers: The entities that were looked at; those without a row are
                stale from now on. Default: just those in `values`.
        """
        labels = tuple(values)
        rows = [values[entity] for entity in labels]
        columns = tuple(
            tuple(NAN if (value := row[index]) is None else float(value) for row in rows)
            for index in range(len(self.metrics))
        )
        covered = labels if covers is None else tuple(dict.fromkeys((*labels, *covers)))
        return Batch(self, at, labels, columns, covered)

    def series(self, metric: str, entity: Entity) -> Labels:
        """The full label set of one series."""
        return Labels([("__name__", metric), *zip(self.labels, entity, strict=True)])


@dataclass(frozen=True, slots=True)
class Batch:
    """What one pass of a collector saw.

    Attributes:
        family: What was measured.
        at: Unix seconds.
        labels: The entity of each row.
        columns: Per metric of the family, one value per row; NaN stands for
            "no value", is masked as stale in the window and NULL in the store.
        covers: All entities that were looked at. A covered entity without a row is
            stale; one not covered was simply not sampled in this pass.
    """

    family: Family
    at: float
    labels: tuple[Entity, ...]
    columns: tuple[tuple[float, ...], ...]
    covers: tuple[Entity, ...]

    def rows(self) -> dict[Entity, dict[str, float]]:
        """Per entity, its values by metric name, without those it does not have."""
        found: dict[Entity, dict[str, float]] = {}
        for index, entity in enumerate(self.labels):
            pairs = ((m.name, column[index]) for m, column in zip(self.family.metrics, self.columns, strict=True))
            found[entity] = {name: value for name, value in pairs if not math.isnan(value)}
        return found


@dataclass(frozen=True, slots=True)
class Support:
    """Whether a collector can measure here, and if not, why, in words for the user."""

    available: bool = True
    reason: str = ""
    hint: str = ""
    off: tuple[str, ...] = field(default=())
    """Metrics that this machine cannot give, where the rest works."""
