"""The newest samples of one family: one time axis, per metric an array of series by time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from sentinel.model.labels import Labels
from sentinel.model.series import Batch, Entity, Family
from sentinel.promql.series import Block, Floats, Mask, Matcher
from sentinel.store.matching import matches

Rows = NDArray[np.intp]

_FEWEST_COLUMNS = 32
_FEWEST_ROWS = 4
_MOST_CACHED = 512
_TOO_OLD_IN_A_ROW = 3


class Ring:
    """Columns are appended at the end and dropped at the start of buffers that are longer than what they hold.

    The living columns always lie side by side, so every lookback is one slice
    of the buffers, not a copy. When the end of the buffers is reached, what
    lives is moved to their front; with a quarter of slack a column is moved
    four times in its life. Rows of entities that have no sample left are given
    back at the same occasion.

    Attributes:
        family: What is measured.
        lookback_s: How long a sample stands for its series.
        dropped: Batches that were older than all that is kept.
        kept_after: All columns later than this are here (Unix seconds).
    """

    def __init__(self, family: Family, *, span_s: float, columns: int, lookback_s: float) -> None:
        self.family = family
        self.lookback_s = lookback_s
        self.dropped = 0
        self.kept_after = float("-inf")
        self._span_s = span_s
        self._columns = columns
        self._values: Floats
        self._present: Mask
        self._stale: Mask
        self._times: Floats
        self._start = self._end = 0  # of the living columns in the buffers
        self._row_of: dict[Entity, int] = {}
        self._entities: list[Entity] = []
        self._names: list[list[Labels | None]] = [[] for _ in family.metrics]
        self._selected: dict[tuple[int, tuple[Matcher, ...]], tuple[Rows | None, tuple[Labels, ...]]] = {}
        self._last: tuple[tuple[Entity, ...], tuple[Entity, ...], Rows, Rows] | None = None
        self._too_old = 0
        self._allocate(_FEWEST_ROWS, min(_FEWEST_COLUMNS, self._largest()))

    @property
    def times(self) -> Floats:
        """Of the living columns, ascending."""
        return self._times[self._start : self._end]

    @property
    def newest(self) -> float | None:
        """The time of the last column."""
        return float(self._times[self._end - 1]) if self._end > self._start else None

    def append(self, batch: Batch) -> None:
        """Take in one pass. A late one is put where it belongs, one at a time already here adds to that column."""
        newest = self.newest
        if newest is not None and batch.at < newest - self._span_s and not self._clock_went_back():
            self.dropped += 1
            return
        self._too_old = 0
        if self._end >= self._values.shape[2]:
            self._forget()
        rows, empty = self._rows(batch)
        column = self._column(batch.at)
        if column is None:
            self.dropped += 1
            return
        self._stale[:, empty, column] = True
        self._present[:, empty, column] = False
        self._values[:, empty, column] = np.nan
        if len(rows):
            values = np.asarray(batch.columns, dtype=np.float64)
            missing = np.isnan(values)
            self._values[:, rows, column] = values
            self._present[:, rows, column] = ~missing
            self._stale[:, rows, column] = missing
        self._evict()

    def load(self, times: Floats, entities: Sequence[Entity], values: Floats, seen: Mask) -> None:
        """Take what there was before, while nothing is here; see `Window.load`."""
        if self._end or self._entities or not len(times):
            return
        first = max(len(times) - self._columns, int(np.searchsorted(times, times[-1] - self._span_s)))
        valued = ~np.isnan(values[:, :, first:])
        rows = np.flatnonzero(valued.any(axis=(0, 2)))
        count, living = len(rows), len(times) - first
        self._allocate(max(_FEWEST_ROWS, count), min(self._largest(), living + _FEWEST_COLUMNS))
        self._end = living
        self._times[:living] = times[first:]
        self._values[:, :count, :living] = values[:, rows, first:]
        self._present[:, :count, :living] = valued[:, rows]
        self._stale[:, :count, :living] = seen[rows, first:] & ~valued[:, rows]
        self._entities = [entities[int(row)] for row in rows]
        self._row_of = {entity: row for row, entity in enumerate(self._entities)}
        self._names = [[None] * count for _ in self.family.metrics]
        if first:
            self.kept_after = float(times[first - 1])

    def select(self, metric: int, matchers: tuple[Matcher, ...], start: float, end: float) -> Block | None:
        """The series of one metric from `start` to `end`: views into the buffers where all series match."""
        times = self._times[self._start : self._end]
        first = self._start + int(np.searchsorted(times, start, side="left"))
        last = self._start + int(np.searchsorted(times, end, side="right"))
        if first >= last:
            return None
        rows, labels = self._matching(metric, matchers)
        if not labels:
            return None
        chosen = slice(0, len(labels)) if rows is None else rows
        values = self._values[metric, chosen, first:last]
        present = self._present[metric, chosen, first:last]
        stale = self._stale[metric, chosen, first:last]
        shared = self._times[first:last]
        for array in (values, present, stale, shared):
            array.flags.writeable = False
        return Block(labels, shared, values, present, stale, self.lookback_s)

    def latest(self, metric: int, matchers: tuple[Matcher, ...]) -> float | None:
        """The newest value of the first matching series that has one and has not ended since."""
        rows, labels = self._matching(metric, matchers)
        living = slice(self._start, self._end)
        for row in range(len(labels)) if rows is None else rows:
            present = np.flatnonzero(self._present[metric, row, living])
            if len(present) and not self._stale[metric, row, self._start + present[-1] : self._end].any():
                return float(self._values[metric, row, self._start + present[-1]])
        return None

    def _clock_went_back(self) -> bool:
        """One batch from long ago is a straggler; several in a row are a clock that was set back."""
        self._too_old += 1
        if self._too_old < _TOO_OLD_IN_A_ROW:
            return False
        self._start = self._end = 0
        return True

    def _matching(self, metric: int, matchers: tuple[Matcher, ...]) -> tuple[Rows | None, tuple[Labels, ...]]:
        key = metric, matchers
        if (found := self._selected.get(key)) is not None:
            return found
        names = self._names[metric]
        for row, entity in enumerate(self._entities):
            if names[row] is None:
                names[row] = self.family.series(self.family.metrics[metric].name, entity)
        known = [(row, labels) for row, labels in enumerate(names) if labels is not None and matches(labels, matchers)]
        labels = tuple(labels for _, labels in known)
        rows = None if len(known) == len(names) else np.array([row for row, _ in known], dtype=np.intp)
        if len(self._selected) >= _MOST_CACHED:
            self._selected.clear()
        self._selected[key] = rows, labels
        return rows, labels

    # Rows

    def _rows(self, batch: Batch) -> tuple[Rows, Rows]:
        """The row of each entity that has values, and of each known one that was covered and has none."""
        last = self._last
        if last is not None and last[0] == batch.labels and last[1] == batch.covers:
            return last[2], last[3]
        self._admit(batch.labels)
        rows = np.array([self._row_of[entity] for entity in batch.labels], dtype=np.intp)
        valued = set(batch.labels)
        covered = (self._row_of.get(entity) for entity in batch.covers if entity not in valued)
        empty = np.array([row for row in covered if row is not None], dtype=np.intp)
        self._last = batch.labels, batch.covers, rows, empty
        return rows, empty

    def _admit(self, entities: Sequence[Entity]) -> None:
        """Give each of them a row."""
        fresh = self._strangers(entities)
        if not fresh:
            return
        if len(self._entities) + len(fresh) > self._values.shape[1]:
            self._forget()
            fresh = self._strangers(entities)
            needed = len(self._entities) + len(fresh)
            if needed > self._values.shape[1]:
                self._allocate(max(needed, self._values.shape[1] * 3 // 2), self._values.shape[2])
        first = len(self._entities)
        for entity in fresh:
            self._row_of[entity] = len(self._entities)
            self._entities.append(entity)
            for names in self._names:
                names.append(None)
        self._blank(slice(first, len(self._entities)), slice(self._start, self._end))
        self._changed()

    def _strangers(self, entities: Sequence[Entity]) -> list[Entity]:
        return list(dict.fromkeys(entity for entity in entities if entity not in self._row_of))

    def _forget(self) -> None:
        """Give back the rows without a sample."""
        count = len(self._entities)
        if not count:
            return
        alive = np.zeros(count, dtype=np.bool_)
        for metric in range(len(self._present)):
            alive |= self._present[metric, :count, self._start : self._end].any(axis=1)
        if alive.all():
            return
        keep = np.flatnonzero(alive)
        living = slice(self._start, self._end)
        for array in (self._values, self._present, self._stale):
            for metric in range(len(array)):
                array[metric, : len(keep), living] = array[metric, keep, living]
        self._entities = [self._entities[row] for row in keep]
        self._names = [[names[row] for row in keep] for names in self._names]
        self._row_of = {entity: row for row, entity in enumerate(self._entities)}
        self._changed()
        if len(keep) * 4 < self._values.shape[1] > _FEWEST_ROWS:
            self._allocate(max(_FEWEST_ROWS, len(keep) * 2), self._values.shape[2])

    def _changed(self) -> None:
        self._selected.clear()
        self._last = None

    # Columns

    def _column(self, at: float) -> int | None:
        """Where the column of this time is, made empty if it is new; None where it would be too old to keep."""
        if self._end > self._start and at <= self._times[self._end - 1]:
            place = self._start + int(np.searchsorted(self.times, at, side="left"))
            if self._times[place] == at:
                return place
            if place == self._start and self._end - self._start >= self._columns:
                return None
            back = self._end - place
            self._make_room()
            place, end = self._end - back, self._end
            for array in (self._values, self._present, self._stale):
                array[:, : len(self._entities), place + 1 : end + 1] = array[:, : len(self._entities), place:end]
            self._times[place + 1 : end + 1] = self._times[place:end]
        else:
            self._make_room()
            place = self._end
        self._end += 1
        self._times[place] = at
        self._blank(slice(0, len(self._entities)), slice(place, place + 1))
        return place

    def _make_room(self) -> None:
        """See to it that one more column fits."""
        capacity = self._values.shape[2]
        if self._end < capacity:
            return
        living = self._end - self._start
        if living > capacity * 4 // 5 and capacity < self._largest():
            self._allocate(self._values.shape[1], min(capacity * 2, self._largest()))
            return
        count = len(self._entities)
        for array in (self._values, self._present, self._stale):
            for metric in range(len(array)):
                array[metric, :count, :living] = array[metric, :count, self._start : self._end]
        self._times[:living] = self._times[self._start : self._end]
        self._start, self._end = 0, living

    def _evict(self) -> None:
        first = max(self._start, self._end - self._columns)
        while self._times[first] < self._times[self._end - 1] - self._span_s:
            first += 1
        if first > self._start:
            self.kept_after = float(self._times[first - 1])
            self._start = first

    def _largest(self) -> int:
        return self._columns + max(2, self._columns // 4)

    def _blank(self, rows: slice, columns: slice) -> None:
        self._values[:, rows, columns] = np.nan
        self._present[:, rows, columns] = False
        self._stale[:, rows, columns] = False

    def _allocate(self, rows: int, columns: int) -> None:
        """Buffers of this size, with what lives at their front. Pages that nothing is written to cost no memory."""
        metrics, count, living = len(self.family.metrics), len(self._entities), self._end - self._start
        values: Floats = np.empty((metrics, rows, columns))
        present: Mask = np.zeros((metrics, rows, columns), dtype=np.bool_)
        stale: Mask = np.zeros((metrics, rows, columns), dtype=np.bool_)
        times: Floats = np.empty(columns)
        if living:
            values[:, :count, :living] = self._values[:, :count, self._start : self._end]
            present[:, :count, :living] = self._present[:, :count, self._start : self._end]
            stale[:, :count, :living] = self._stale[:, :count, self._start : self._end]
            times[:living] = self._times[self._start : self._end]
        self._values, self._present, self._stale, self._times = values, present, stale, times
        self._start, self._end = 0, living
