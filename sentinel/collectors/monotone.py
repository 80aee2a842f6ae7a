"""Counters of a process tree that never go back, although its processes die."""

from __future__ import annotations

from collections.abc import Mapping

Member = tuple[int, int]
"""Pid and start time."""


class TreeCounter:
    """Sums a counter over the processes of a tree.

    The kernel adds what a process used to the children's share of the parent that
    reaps it, so a death usually moves the number within the tree. What is lost on
    the way (nobody of the tree reaped it) is kept here: the part of a vanished
    process's last reading by which the survivors' counters did not grow.

    Args:
        base: Where to go on from, after a restart of sentinel.
    """

    def __init__(self, base: float = 0.0) -> None:
        self._kept = 0.0
        self._floor = base
        self._last = 0.0
        self._own: dict[Member, float] = {}
        self._inherited: dict[Member, float] = {}

    def update(self, own: Mapping[Member, float], inherited: Mapping[Member, float] | None = None) -> float:
        """The total now.

        Args:
            own: Per living member what it used; inherited shares included where the
                kernel does not tell them apart.
            inherited: Per living member what its reaped children used, where it does.
        """
        shares = {} if inherited is None else inherited
        lost = sum(self._own[key] + self._inherited.get(key, 0.0) for key in self._own.keys() - own.keys())
        if lost:
            grown = shares if inherited is not None else own
            before = self._inherited if inherited is not None else self._own
            absorbed = sum(max(0.0, value - before[key]) for key, value in grown.items() if key in before)
            self._kept += max(0.0, lost - absorbed)
        self._own, self._inherited = dict(own), dict(shares)
        total = self._kept + sum(own.values()) + sum(shares.values())
        if self._floor:
            # After a restart the store's last value wins over what the living still show.
            self._kept += max(0.0, self._floor - total)
            total, self._floor = max(total, self._floor), 0.0
        self._last = max(total, self._last)
        return self._last
