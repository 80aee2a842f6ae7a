"""The window: the newest samples of everything, in memory. Rules read this and never wait for the database."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from sentinel.model.series import Batch, Entity, Family
from sentinel.promql.series import Block, Floats, Mask, Match, Matcher
from sentinel.store.matching import split
from sentinel.store.ring import Ring

_TICKS_OF_LOOKBACK = 3
_SWEEP_EVERY = 1024
"""Batches between two looks for families that nothing is heard of any more."""

_MOST_IDENTITIES = 4096

Key = tuple[str, tuple[str, ...], tuple[str, ...]]


class Window:
    """Per family at most `columns` passes and `span_s` seconds.

    Append and read on one thread: what `select` answers with are views of the
    buffers, good until the next append. Another thread reads through
    `detached()`.

    Args:
        span_s: How far back it reaches (seconds).
        columns: How many passes of a family it keeps at most.
        tick_s: The interval of families for which `set_tick` was not called.
    """

    def __init__(self, span_s: float = 1800.0, columns: int = 1800, *, tick_s: float = 2.0) -> None:
        self._span_s = span_s
        self._columns = columns
        self._tick_s = tick_s
        self._ticks: dict[str, float] = {}
        self._widest_s = _TICKS_OF_LOOKBACK * tick_s
        self._rings: dict[Key, Ring] = {}
        self._by_identity: dict[int, tuple[Family, Ring]] = {}
        self._by_metric: dict[str, list[tuple[Ring, int]]] = {}
        self._lock = threading.Lock()
        self._appended = 0
        self._newest = float("-inf")
        self._filled_from = float("inf")

    def set_tick(self, family: str, seconds: float) -> None:
        """How often a family is sampled; a sample stands for its series for three ticks."""
        self._ticks[family] = seconds
        self._widest_s = _TICKS_OF_LOOKBACK * max(self._tick_s, *self._ticks.values())
        for ring in self._rings.values():
            if ring.family.name == family:
                ring.lookback_s = _TICKS_OF_LOOKBACK * seconds

    def lookback_s(self, family: str) -> float:
        """How long a sample of a family stands for its series (seconds)."""
        return _TICKS_OF_LOOKBACK * self._ticks.get(family, self._tick_s)

    def append(self, batch: Batch) -> None:
        """Take in one pass of a collector."""
        with self._lock:
            self._ring(batch.family).append(batch)
            self._newest = max(self._newest, batch.at)
            self._filled_from = min(self._filled_from, batch.at) if self._appended == 0 else self._filled_from
            self._appended += 1
            if self._appended % _SWEEP_EVERY == 0:
                self._sweep()

    def select(self, matchers: tuple[Matcher, ...], start: float, end: float) -> Sequence[Block]:
        """All series that match, with their samples from `start` to `end`, both included.

        The `labels` of a block are the same tuple for the same matchers until
        entities come or go.
        """
        name, rest = split(matchers)
        if isinstance(name, str):
            found = self._by_metric.get(name, ())
        else:
            found = [each for key, rings in self._by_metric.items() if name is None or name(key) for each in rings]
        blocks = (ring.select(metric, rest, start, end) for ring, metric in found)
        return [block for block in blocks if block is not None]

    def detached(self) -> _Detached:
        """The same series for another thread: copies, taken while nothing is appended."""
        return _Detached(self, self._lock)

    def latest(self, metric: str, **labels: str) -> float | None:
        """The newest value of a series, or None where there is none or it has ended."""
        matchers = tuple(Matcher(name, Match.EQUAL, value) for name, value in labels.items())
        values = (ring.latest(index, matchers) for ring, index in self._by_metric.get(metric, ()))
        return next((value for value in values if value is not None), None)

    def last_at(self, family: str) -> float | None:
        """When a family was last measured (Unix seconds), or None."""
        times = [ring.newest for ring in self._rings.values() if ring.family.name == family]
        return max((at for at in times if at is not None), default=None)

    def load(self, family: Family, times: Floats, entities: Sequence[Entity], values: Floats, seen: Mask) -> None:
        """All at once what a family had before; only while nothing of it has been appended.

        Args:
            family: What was measured.
            times: float64[T], ascending.
            entities: S of them.
            values: float64[M, S, T], NaN where there was no value.
            seen: bool[S, T]: looked at then; without a value it had ended.
        """
        with self._lock:
            self._ring(family).load(times, entities, values, seen)
            if len(times):
                self._newest = max(self._newest, float(times[-1]))

    def filled(self, since: float) -> None:
        """The window has been given all that was measured since then."""
        self._filled_from = since

    def complete_after(self, matchers: tuple[Matcher, ...]) -> float:
        """All samples later than this of whatever matches are here (Unix seconds)."""
        name, _ = split(matchers)
        keys = [name] if isinstance(name, str) else [key for key in self._by_metric if name is None or name(key)]
        evicted = [ring.kept_after for key in keys for ring, _ in self._by_metric.get(key, ())]
        return max(self._filled_from, self._newest - self._span_s, *evicted)

    def reaches(self, matchers: tuple[Matcher, ...], since: float) -> bool:
        """Whether nothing that matches and was measured after `since` (Unix seconds) has left the window again."""
        if since < self.horizon:
            return False
        if since >= max((ring.kept_after for ring in self._rings.values()), default=since):
            return True
        name, _ = split(matchers)
        keys = [name] if isinstance(name, str) else [key for key in self._by_metric if name is None or name(key)]
        return all(ring.kept_after <= since for key in keys for ring, _ in self._by_metric.get(key, ()))

    @property
    def horizon(self) -> float:
        """Nothing before this is kept (Unix seconds), however much room there is."""
        return self._newest - self._span_s

    @property
    def widest_lookback_s(self) -> float:
        """The longest time that a sample of any family stands for its series (seconds)."""
        return self._widest_s

    def metrics(self) -> dict[str, Family]:
        """The names of all metrics here, and a family of each."""
        return {name: rings[0][0].family for name, rings in self._by_metric.items()}

    @property
    def dropped(self) -> int:
        """Batches that came too late to be kept."""
        return sum(ring.dropped for ring in self._rings.values())

    def _ring(self, family: Family) -> Ring:
        known = self._by_identity.get(id(family))
        if known is not None:
            return known[1]
        key = family.name, family.labels, tuple(metric.name for metric in family.metrics)
        ring = self._rings.get(key)
        if ring is None:
            ring = Ring(family, span_s=self._span_s, columns=self._columns, lookback_s=self.lookback_s(family.name))
            self._rings[key] = ring
            for index, metric in enumerate(family.metrics):
                self._by_metric.setdefault(metric.name, []).append((ring, index))
        if len(self._by_identity) >= _MOST_IDENTITIES:
            self._by_identity.clear()
        self._by_identity[id(family)] = family, ring  # the family too, so that its id stays its own
        return ring

    def _sweep(self) -> None:
        """Drop the families of which nothing is left in the span."""
        times = [ring.newest for ring in self._rings.values()]
        self._newest = max((at for at in times if at is not None), default=self._newest)  # the clock may have gone back
        horizon = self._newest - self._span_s
        gone = {key for key, ring in self._rings.items() if (ring.newest or horizon) < horizon}
        if not gone:
            return
        self._rings = {key: ring for key, ring in self._rings.items() if key not in gone}
        living = set(map(id, self._rings.values()))
        self._by_identity.clear()
        by_metric = (
            (name, [each for each in rings if id(each[0]) in living]) for name, rings in self._by_metric.items()
        )
        self._by_metric = {name: rings for name, rings in by_metric if rings}


class _Detached:
    """Copies of the window's blocks."""

    def __init__(self, window: Window, lock: threading.Lock) -> None:
        self._window = window
        self._lock = lock

    @property
    def widest_lookback_s(self) -> float:
        """As the window's."""
        return self._window.widest_lookback_s

    def complete_after(self, matchers: tuple[Matcher, ...]) -> float:
        """As the window's."""
        with self._lock:
            return self._window.complete_after(matchers)

    def select(self, matchers: tuple[Matcher, ...], start: float, end: float) -> Sequence[Block]:
        """As the window's."""
        with self._lock:
            return [
                Block(
                    block.labels,
                    block.times.copy(),
                    block.values.copy(),
                    block.present.copy(),
                    block.stale.copy(),
                    block.lookback_s,
                )
                for block in self._window.select(matchers, start, end)
            ]
