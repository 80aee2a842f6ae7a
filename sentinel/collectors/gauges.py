"""A board on which the rest of the daemon writes what it knows: checkpoints, progress, cost, rules, store."""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping, Sequence

from sentinel.collectors.coverage import row
from sentinel.model.families import API_LIMIT, HOST, JOB, MONEY, SENTINEL, SENTINEL_GROUP, SENTINEL_RULE
from sentinel.model.series import Batch, Entity, Family, Support

TOLD = (MONEY, API_LIMIT, SENTINEL_GROUP, SENTINEL_RULE)
"""The families that nobody else measures."""


class Board:
    """The present value of each gauge that is told rather than measured. Safe to use from any thread.

    A value stands until it is set anew or its entity ends. What others know of an
    entity that a collector measures (a job's step) goes into that collector's row.

    Args:
        joined: Families whose rows another collector makes, asking `facts` for
            what is written here; a family has one row per entity and pass.
    """

    name = "board"
    interval_s: float | None = None

    def __init__(self, joined: Collection[Family] = (JOB, HOST, SENTINEL), families: tuple[Family, ...] = TOLD) -> None:
        self.families = families
        self._joined = frozenset(family.name for family in joined)
        self._lock = threading.Lock()
        self._known: dict[str, Family] = {}
        self._rows: dict[str, dict[Entity, dict[str, float]]] = {}
        self._ended: dict[str, set[Entity]] = {}
        self._dirty: set[str] = set()

    def supported(self) -> Support:
        """Always."""
        return Support()

    @property
    def dirty(self) -> frozenset[str]:
        """The names of the families that changed since they were last collected."""
        with self._lock:
            return frozenset(self._dirty)

    def set(self, family: Family, entity: Entity, **values: float | None) -> None:
        """Write values by metric name; None takes one away. The others of the entity stay."""
        known = {metric.name for metric in family.metrics}
        if not known.issuperset(values):
            raise ValueError(f"{family.name} does not measure {', '.join(sorted(set(values) - known))}")
        if len(entity) != len(family.labels):
            raise ValueError(f"{family.name} has the labels {family.labels}, not {len(entity)} of them")
        with self._lock:
            self._known[family.name] = family
            rows = self._rows.setdefault(family.name, {})
            kept = {**rows.get(entity, {}), **values}
            rows[entity] = {name: float(value) for name, value in kept.items() if value is not None}
            self._ended.setdefault(family.name, set()).discard(entity)
            self._dirty.add(family.name)

    def end(self, family: Family, entity: Entity) -> None:
        """The entity is gone: its series end with the next pass."""
        with self._lock:
            self._end(family.name, entity)

    def end_where(self, label: str, value: str) -> None:
        """Every entity with this label value is gone (a job has ended)."""
        with self._lock:
            for name, family in self._known.items():
                if label in family.labels:
                    at = family.labels.index(label)
                    for entity in [one for one in self._rows[name] if one[at] == value]:
                        self._end(name, entity)

    def facts(self, family: Family, entity: Entity) -> Mapping[str, float]:
        """What is written of one entity: the port through which other collectors join it."""
        with self._lock:
            return dict(self._rows.get(family.name, {}).get(entity, {}))

    def collect(self, at: float) -> Sequence[Batch]:
        """Everything written here, less the joined families."""
        with self._lock:
            self._dirty.clear()
            return [batch for name in self._known if (batch := self._batch(name, at))]

    def collect_changed(self, at: float) -> Sequence[Batch]:
        """Only the families that changed, ahead of the tick."""
        with self._lock:
            changed, self._dirty = sorted(self._dirty), set()
            return [batch for name in changed if (batch := self._batch(name, at))]

    def _end(self, name: str, entity: Entity) -> None:
        if self._rows.get(name, {}).pop(entity, None) is not None:
            self._ended.setdefault(name, set()).add(entity)
            self._dirty.add(name)

    def _batch(self, name: str, at: float) -> Batch | None:
        rows, ended = self._rows.get(name, {}), self._ended.pop(name, set())
        if name in self._joined or not (rows or ended):
            return None
        family = self._known[name]
        return family.batch(at, {entity: row(family, values) for entity, values in rows.items()}, [*rows, *ended])
