"""What flows through an evaluation: series by steps, and memory for what depends on labels alone."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from sentinel.model.labels import METRIC_NAME, Labels
from sentinel.promql.series import Floats, Mask

T = TypeVar("T")
LabelSets = tuple[Labels, ...]
Ints = NDArray[np.int64]


@dataclass(slots=True, eq=False)  # not frozen: made by the thousand, and that costs three times as much
class Frame:
    """An instant vector at each of several steps.

    Rows may be without data at a step, so that the label sets, and all that is
    derived from them, stay the same from one round to the next.

    Attributes:
        labels: One label set per row, the metric's name still in it.
        values: float64[N, T].
        present: bool[N, T]: there is an element at this step.
        kept: bool[N, T]: and no filter masked it; never where not `present`.
        drop: bool[N]: the metric's name goes when the evaluation is over.
        ordered: For a single step: the order in which the rows are to be shown, or None.
    """

    labels: LabelSets
    values: Floats
    present: Mask
    kept: Mask
    drop: Mask
    ordered: Ints | None = None

    @property
    def steps(self) -> int:
        """How many steps there are."""
        return int(self.values.shape[1])


def every(mask: Mask) -> bool:
    """`mask.all()`, at a quarter of its price for small ones."""
    return int(np.count_nonzero(mask)) == mask.size


@functools.lru_cache(maxsize=512)
def all_true(rows: int) -> Mask:
    """As many times True; shared, so it cannot be written to."""
    made = np.ones(rows, dtype=bool)
    made.flags.writeable = False
    return made


@functools.lru_cache(maxsize=512)
def all_false(rows: int) -> Mask:
    """As many times False; shared, so it cannot be written to."""
    made = np.zeros(rows, dtype=bool)
    made.flags.writeable = False
    return made


@functools.lru_cache(maxsize=512)
def constant(value: float, steps: int) -> Floats:
    """The same number at each step; shared, so it cannot be written to."""
    made = np.full(steps, value)
    made.flags.writeable = False
    return made


def empty(steps: int) -> Frame:
    """No rows."""
    none = np.zeros((0, steps), dtype=bool)
    return Frame((), np.zeros((0, steps)), none, none, np.zeros(0, dtype=bool))


def single(labels: Labels, values: Floats, kept: Mask | None = None) -> Frame:
    """One row that is there at every step."""
    everywhere = np.ones((1, values.shape[0]), dtype=bool)
    keeps = everywhere if kept is None else kept.reshape(1, -1)
    return Frame(_alone(labels), values.reshape(1, -1), everywhere, keeps, np.zeros(1, dtype=bool))


def _alone(labels: Labels) -> LabelSets:
    return memo("alone", (), labels, lambda: (labels,))


def with_values(frame: Frame, values: Floats, *, drop: bool = True) -> Frame:
    """The same rows with other values; by default their names go."""
    drops = all_true(len(frame.labels)) if drop else frame.drop
    return Frame(frame.labels, values, frame.present, frame.kept, drops)


def rows(frame: Frame, index: Ints, labels: LabelSets) -> Frame:
    """Some of the rows, in the order of `index`; `labels` are theirs."""
    return Frame(labels, frame.values[index], frame.present[index], frame.kept[index], frame.drop[index])


def joined(frames: list[Frame], steps: int) -> Frame:
    """All rows of several frames."""
    frames = [frame for frame in frames if frame.labels]
    if not frames:
        return empty(steps)
    if len(frames) == 1:
        return frames[0]
    parts = tuple(frame.labels for frame in frames)
    labels = memo("joined", parts, None, lambda: tuple(labels for part in parts for labels in part))
    return Frame(
        labels,
        np.concatenate([frame.values for frame in frames]),
        np.concatenate([frame.present for frame in frames]),
        np.concatenate([frame.kept for frame in frames]),
        np.concatenate([frame.drop for frame in frames]),
    )


class _Memory:
    """What follows from label sets alone: groups, joins, labels without names.

    It is the same in every round until a series comes or goes, so it is
    remembered by the identity of the tuples of label sets, which readers keep.
    Each entry keeps its tuples alive, so that an identity is never taken over.
    A generation ends when a minute is over and enough has come to it; what was
    not asked for since is forgotten with the next. So ended series hold little.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.young: dict[Hashable, tuple[tuple[LabelSets, ...], Any]] = {}
        self._old: dict[Hashable, tuple[tuple[LabelSets, ...], Any]] = {}
        self._clock = clock
        self._began = clock()
        self._rows = 0

    def add(self, name: Hashable, of: tuple[LabelSets, ...], make: Callable[[], Any]) -> tuple[Any, Any]:
        """From the older generation, or made."""
        found = self._old.pop(name, None) or (of, make())
        if self._rows > _ENOUGH and (self._rows > _TOO_MANY or self._clock() - self._began > _GENERATION_S):
            self._old, self.young, self._rows, self._began = self.young, {}, 0, self._clock()
        self._rows += 8 + sum(map(len, of))
        self.young[name] = found
        return found


_GENERATION_S = 60.0
_ENOUGH = 10_000
_TOO_MANY = 2_000_000
_MEMORY = _Memory()


def memo(kind: str, of: tuple[LabelSets, ...], key: Hashable, make: Callable[[], T]) -> T:
    """What `make` gave the last time for these very tuples and this key, or gives now."""
    name = (kind, key, *map(id, of))
    found = _MEMORY.young.get(name) or _MEMORY.add(name, of, make)
    made: T = found[1]
    return made


def nameless(labels: LabelSets) -> LabelSets:
    """Each label set without the metric's name."""
    return memo("nameless", (labels,), None, lambda: tuple(one.without((METRIC_NAME,)) for one in labels))


def named(frame: Frame) -> LabelSets:
    """The label sets as they are shown: without names where those are to go."""
    dropping = int(np.count_nonzero(frame.drop))
    if not dropping:
        return frame.labels
    if dropping == len(frame.labels):
        return nameless(frame.labels)
    stripped = nameless(frame.labels)
    return memo(
        "named",
        (frame.labels,),
        frame.drop.tobytes(),
        lambda: tuple(
            short if gone else full for short, full, gone in zip(stripped, frame.labels, frame.drop, strict=True)
        ),
    )


@dataclass(frozen=True, slots=True, eq=False)
class Groups:
    """Rows that belong together.

    Attributes:
        ids: int[N]: the group of each row.
        order: int[N]: the rows sorted by group.
        starts: int[G]: where each group begins in `order`.
        sizes: int[G].
        labels: One label set per group.
        lone: Whether every group has just one row.
    """

    ids: Ints
    order: Ints
    starts: Ints
    sizes: Ints
    labels: LabelSets
    lone: bool


def group(keys: list[Labels]) -> Groups:
    """Rows with equal keys belong together; groups in the order of their first row."""
    seen: dict[Labels, int] = {}
    ids = np.fromiter((seen.setdefault(key, len(seen)) for key in keys), dtype=np.int64, count=len(keys))
    sizes = np.bincount(ids, minlength=len(seen))
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int64) if seen else np.zeros(0, np.int64)
    order = np.argsort(ids, kind="stable")
    return Groups(ids, order, starts, sizes, tuple(seen), len(seen) == len(keys))


def reduced(function: np.ufunc, groups: Groups, values: NDArray[Any]) -> NDArray[Any]:
    """`function` over the rows of each group, step by step: [N, T] to [G, T]."""
    if groups.lone:
        return values
    if values.shape[1] == 1:
        flat: NDArray[Any] = function.reduceat(values[groups.order, 0], groups.starts)
        return flat.reshape(-1, 1)
    made: NDArray[Any] = function.reduceat(values[groups.order], groups.starts, axis=0)
    return made


def counted(groups: Groups, mask: Mask) -> Ints:
    """How many rows of each group have `mask` set, step by step."""
    return reduced(np.add, groups, mask.astype(np.int64))


def same_labels(labels: LabelSets) -> Groups | None:
    """Groups of rows with equal label sets, or None where all differ."""

    def find() -> Groups | None:
        return None if len(set(labels)) == len(labels) else group(list(labels))

    return memo("same", (labels,), None, find)
