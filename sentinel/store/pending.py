"""What waits to be written, by table."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import isnan

from sentinel.model.events import Event
from sentinel.model.labels import Labels
from sentinel.model.series import Batch, Entity, Family
from sentinel.model.wire import encode

Row = tuple[object, ...]
MOST_SAMPLES = 500_000
MOST_RECORDS = 50_000
_MOST_KEYS = 4096


@dataclass(slots=True)
class Queue:
    """The batches of one family, or the rows of one table, oldest first.

    Attributes:
        family: None for a table of records.
        batches: Each with the entities that ended with it: a row of NULLs marks them.
        rows: Of a table of records.
        oldest: The time of its oldest content (Unix seconds).
        count: Rows that it will write.
    """

    family: Family | None
    batches: list[tuple[Batch, tuple[Entity, ...]]] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    oldest: float = 0.0
    count: int = 0

    @property
    def amount(self) -> int:
        """Batches or rows that it holds."""
        return len(self.batches) + len(self.rows)

    @property
    def samples(self) -> int:
        """Numbers that it holds in memory."""
        return sum(len(batch.labels) * len(batch.columns) for batch, _ in self.batches)

    def wide(self) -> Iterator[Row]:
        """Rows of the family's table: time, labels, values; None where there is no value."""
        for batch, ended in self.batches:
            at, nothing = batch.at, (None,) * len(batch.family.metrics)
            gaps = any(isnan(sum(column)) for column in batch.columns)
            for entity, values in zip(batch.labels, zip(*batch.columns, strict=True), strict=True):
                if gaps:
                    yield (at, *entity, *[None if isnan(value) else value for value in values])
                else:
                    yield (at, *entity, *values)
            for entity in ended:
                yield (at, *entity, *nothing)

    def narrow(self) -> Iterator[tuple[float, str, Entity, float | None]]:
        """Time, metric, entity, value; None where the series ended."""
        for batch, ended in self.batches:
            for metric, column in zip(batch.family.metrics, batch.columns, strict=True):
                for entity, value in zip(batch.labels, column, strict=True):
                    yield batch.at, metric.name, entity, None if isnan(value) else value
                for entity in ended:
                    yield batch.at, metric.name, entity, None


class Pending:
    """Sorts what comes in by table, and remembers which entities have values, so that an end is written once.

    Attributes:
        queues: By key: a family's name, labels and metrics, or the name of a table of
            records.
        dropped: Samples and rows that were given up because too much waited.
    """

    def __init__(self) -> None:
        self.queues: dict[object, Queue] = {}
        self.dropped = 0
        self._alive: dict[object, set[Entity]] = {}
        self._last: dict[object, tuple[tuple[Entity, ...], tuple[Entity, ...]]] = {}
        self._keys: dict[int, tuple[Family, object]] = {}
        self._samples = 0
        self._sequence = 0

    def add(self, item: Batch | Event | tuple[str, float, Mapping[str, object]]) -> None:
        """One thing that was put; a table's row is given as table, time, noun."""
        if isinstance(item, Batch):
            self._batch(item)
        elif isinstance(item, Event):
            data = json.dumps(encode(item.data))
            row = (item.time, item.id, item.kind, item.job, item.severity.value, item.message, data, item.uid)
            self._row("events", item.time, row)
        else:
            table, at, noun = item
            self._sequence = max(self._sequence + 1, int(at * 1e6))
            self._row(table, at, (at, self._sequence, identity(noun), json.dumps(noun)))

    def taken(self, key: object, amount: int) -> None:
        """So much of the front of a queue has been written, or given up."""
        queue = self.queues[key]
        before = queue.samples
        del queue.batches[:amount], queue.rows[:amount]
        self._samples -= before - queue.samples
        if not queue.amount:
            del self.queues[key]
            return
        queue.count = len(queue.rows) + sum(len(batch.labels) + len(ended) for batch, ended in queue.batches)
        queue.oldest = queue.batches[0][0].at if queue.batches else float(str(queue.rows[0][0]))

    @property
    def oldest(self) -> float | None:
        """The time of the oldest content."""
        return min((queue.oldest for queue in self.queues.values()), default=None)

    def _batch(self, batch: Batch) -> None:
        family = batch.family
        key = self._key(family)
        last = self._last.get(key)
        if last is not None and last[0] == batch.labels and last[1] == batch.covers:
            ended: tuple[Entity, ...] = ()
        else:
            self._last[key] = batch.labels, batch.covers
            alive, valued = self._alive.setdefault(key, set()), set(batch.labels)
            ended = tuple(entity for entity in batch.covers if entity in alive and entity not in valued)
            alive -= set(ended)
            alive |= valued
        if not batch.labels and not ended:
            return
        queue = self.queues.get(key)
        if queue is None:
            queue = self.queues[key] = Queue(family, oldest=batch.at)
        queue.batches.append((batch, ended))
        queue.count += len(batch.labels) + len(ended)
        queue.oldest = min(queue.oldest, batch.at)
        self._samples += len(batch.labels) * len(batch.columns)
        if self._samples > MOST_SAMPLES:
            self._give_up()

    def _key(self, family: Family) -> object:
        known = self._keys.get(id(family))
        if known is None:
            if len(self._keys) >= _MOST_KEYS:
                self._keys.clear()
            key = (family.name, family.labels, tuple(metric.name for metric in family.metrics))
            known = self._keys[id(family)] = family, key  # the family too, so that its id stays its own
        return known[1]

    def _row(self, table: str, at: float, row: Row) -> None:
        queue = self.queues.setdefault(table, Queue(None, oldest=at))
        queue.rows.append(row)
        queue.count += 1
        if queue.count > MOST_RECORDS:
            half = queue.count // 2
            del queue.rows[:half]
            queue.count -= half
            self.dropped += half

    def _give_up(self) -> None:
        """Drop the older half of each family: it is in the window still, and the newer half matters more."""
        for queue in self.queues.values():
            if queue.family is None or len(queue.batches) < 2:
                continue
            before = queue.samples
            del queue.batches[: len(queue.batches) // 2]
            queue.count = sum(len(batch.labels) + len(ended) for batch, ended in queue.batches)
            queue.oldest = queue.batches[0][0].at
            self._samples -= before - queue.samples
            self.dropped += before - queue.samples


def identity(noun: Mapping[str, object]) -> str:
    """What makes two rows speak of the same thing: its id, or that of the alert in it."""
    inner = noun.get("alert")
    found = noun.get("id") or (inner.get("id") if isinstance(inner, Mapping) else None)
    return str(found or "")


def series_labels(family: Family, entity: Entity) -> str:
    """The labels of a narrow series as JSON text, without empty ones."""
    return json.dumps(Labels(zip(family.labels, entity, strict=True)).as_dict())
