"""When each group is evaluated next. All times here are monotonic seconds."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from dataclasses import dataclass

from sentinel.rules.ruleset import Group

SHORTEST_GAP_S = 0.25
"""Between two evaluations of a group, however many events ask for one."""

_LONGEST_DELAY_S = 10.0
_STAGGERED_FROM_S = 10.0


@dataclass(slots=True)
class _Turn:
    interval_s: float
    due: float
    last: float | None = None


class Schedule:
    """Groups at their intervals; an event brings a group forward.

    Groups of 10 s and more start up to 10 s apart, so that they do not all
    fall into the same tick. Shorter ones start at once: they are the ones that
    foresee.
    """

    def __init__(self, groups: Iterable[Group], now: float) -> None:
        self._turns: dict[str, _Turn] = {}
        self.replace(groups, now)

    def replace(self, groups: Iterable[Group], now: float) -> None:
        """Other groups from now on; one that stays keeps its turn."""
        turns: dict[str, _Turn] = {}
        for group in groups:
            old = self._turns.get(group.name)
            if old is not None and old.interval_s == group.interval_s:
                turns[group.name] = old
            else:
                turns[group.name] = _Turn(group.interval_s, now + _delay(group))
        self._turns = turns

    def due(self, now: float) -> list[str]:
        """The groups whose turn it is, the most overdue first."""
        return sorted((name for name, turn in self._turns.items() if turn.due <= now), key=self._due_at)

    def next_due(self) -> float:
        """When the next group is due; infinity without groups."""
        return min((turn.due for turn in self._turns.values()), default=float("inf"))

    def nudge(self, names: Iterable[str], now: float) -> None:
        """Bring groups forward to now, or to a quarter of a second after their last turn."""
        for name in names:
            if (turn := self._turns.get(name)) is not None:
                earliest = now if turn.last is None else max(now, turn.last + SHORTEST_GAP_S)
                turn.due = min(turn.due, earliest)

    def done(self, name: str, now: float) -> None:
        """A group was evaluated; turns that were missed are not made up for."""
        if (turn := self._turns.get(name)) is not None:
            turn.last = now
            turn.due = now + turn.interval_s if turn.due + turn.interval_s <= now else turn.due + turn.interval_s
            turn.due = min(turn.due, now + turn.interval_s)

    def _due_at(self, name: str) -> float:
        return self._turns[name].due


def _delay(group: Group) -> float:
    if group.interval_s < _STAGGERED_FROM_S:
        return 0.0
    share = zlib.crc32(group.name.encode()) / 2**32
    return share * min(_LONGEST_DELAY_S, group.interval_s)
