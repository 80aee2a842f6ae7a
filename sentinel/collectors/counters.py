"""Counters that events move: log records, requests, messages, calls."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from sentinel.model.families import (
    API,
    API_COST,
    API_TOKENS,
    CHECKPOINTS,
    GPU_XID,
    JOB_REQUESTS,
    LOG,
    LOG_VOLUME,
    SENTINEL_NOTIFY,
)
from sentinel.model.series import Batch, Entity, Family, Support

COUNTED = (JOB_REQUESTS, CHECKPOINTS, LOG, LOG_VOLUME, API, API_TOKENS, API_COST, GPU_XID, SENTINEL_NOTIFY)
"""The families that events move."""
JUST_AFTER_S = 0.001


class Counters:
    """Counts for families whose metrics only grow. Safe to use from any thread.

    A counter that appears gets a 0 before its first value, because `increase()`
    cannot see one that is born at 1: declare it as soon as its job is known, and
    where that is not possible the 0 is written one tick back, or just after the
    last pass where that is later.

    Args:
        tick_s: How far back that 0 lies.
    """

    name = "counters"
    interval_s: float | None = None

    def __init__(self, tick_s: float = 2.0, families: tuple[Family, ...] = COUNTED) -> None:
        self.families = families
        self._tick_s = tick_s
        self._lock = threading.Lock()
        self._tables: dict[str, _Table] = {}
        self._dirty: set[str] = set()

    def supported(self) -> Support:
        """Always."""
        return Support()

    @property
    def dirty(self) -> frozenset[str]:
        """The names of the families that changed since they were last collected."""
        with self._lock:
            return frozenset(self._dirty)

    def declare(self, family: Family, entity: Entity) -> None:
        """Let every counter of `entity` exist, at 0 unless it has counted already."""
        with self._lock:
            if self._table(family).declare(entity):
                self._dirty.add(family.name)

    def inc(self, family: Family, entity: Entity, metric: str, by: float = 1.0) -> None:
        """Count. `by` is never negative; a counter only grows."""
        if by < 0:
            raise ValueError(f"{metric} cannot be moved by {by}: a counter only grows")
        with self._lock:
            table = self._table(family)
            table.declare(entity)
            table.rows[entity][table.columns[metric]] += by
            self._dirty.add(family.name)

    def restore(self, family: Family, entity: Entity, metric: str, value: float) -> None:
        """Let a counter go on from where the store left it; it is not new, so it gets no 0."""
        with self._lock:
            table = self._table(family)
            if table.declare(entity):
                table.born.discard(entity)
            index = table.columns[metric]
            table.rows[entity][index] = max(value, table.rows[entity][index])

    def value(self, family: Family, entity: Entity, metric: str) -> float:
        """The count now; 0 where there is none."""
        with self._lock:
            table = self._table(family)
            found = table.rows.get(entity)
            return 0.0 if found is None else found[table.columns[metric]]

    def end(self, family: Family, entity: Entity) -> None:
        """The entity is gone: its series end with the next pass."""
        with self._lock:
            self._drop(self._table(family), family.name, entity)

    def end_where(self, label: str, value: str) -> None:
        """Every entity with this label value is gone (a job has ended)."""
        with self._lock:
            for name, table in self._tables.items():
                if label in table.family.labels:
                    at = table.family.labels.index(label)
                    for entity in [one for one in table.rows if one[at] == value]:
                        self._drop(table, name, entity)

    def collect(self, at: float) -> Sequence[Batch]:
        """All counters as they stand at `at`, before them the zeros of the new ones."""
        with self._lock:
            batches = [batch for table in self._tables.values() for batch in table.collect(at, self._tick_s)]
            self._dirty.clear()
            return batches

    def collect_changed(self, at: float) -> Sequence[Batch]:
        """Only the families that changed: what an event asks for, ahead of the tick."""
        with self._lock:
            batches = [batch for name in sorted(self._dirty) for batch in self._tables[name].collect(at, self._tick_s)]
            self._dirty.clear()
            return batches

    def _table(self, family: Family) -> _Table:
        if family.name not in self._tables:
            self._tables[family.name] = _Table(family)
        return self._tables[family.name]

    def _drop(self, table: _Table, name: str, entity: Entity) -> None:
        if table.rows.pop(entity, None) is not None:
            table.born.discard(entity)
            table.ended.append(entity)
            self._dirty.add(name)


class _Table:
    def __init__(self, family: Family) -> None:
        self.family = family
        self.columns = {metric.name: index for index, metric in enumerate(family.metrics)}
        self.rows: dict[Entity, list[float]] = {}
        self.born: set[Entity] = set()
        self.ended: list[Entity] = []
        self._last_at = float("-inf")

    def declare(self, entity: Entity) -> bool:
        """Whether it is new."""
        if entity in self.rows:
            return False
        if len(entity) != len(self.family.labels):
            raise ValueError(f"{self.family.name} has the labels {self.family.labels}, not {len(entity)} of them")
        self.rows[entity] = [0.0] * len(self.columns)
        self.born.add(entity)
        if entity in self.ended:
            self.ended.remove(entity)
        return True

    def collect(self, at: float, tick_s: float) -> list[Batch]:
        """What stands here, as one batch, or two where somebody is new."""
        if not self.rows and not self.ended:
            return []
        batches = []
        zeros = {entity: [0.0] * len(self.columns) for entity in self.rows if entity in self.born}
        if any(any(self.rows[entity]) for entity in zeros):
            back = max(at - tick_s, self._last_at + JUST_AFTER_S)
            if back < at:
                batches.append(self.family.batch(back, zeros))
        batches.append(self.family.batch(at, dict(self.rows), covers=[*self.rows, *self.ended]))
        self.born.clear()
        self.ended.clear()
        self._last_at = at
        return batches
