"""Which jobs run out of memory soon, and so are sampled ahead of the tick.

This decides only how often to look. Whether anything is wrong is for rules.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping

from sentinel.collectors.settings import Settings

_PACE_OVER_S = 10.0
_SHORTEST_SPAN_S = 0.9
_LOOKS_LEFT = 60
"""A job with T seconds left is looked at about so often before they are over."""


class Watchlist:
    """Jobs by how long their headroom lasts at the pace of the last ten seconds."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._seen: dict[str, deque[tuple[float, float]]] = {}
        self._pinned: set[str] = set()

    def saw(self, at: float, headroom: Mapping[str, float]) -> None:
        """Headroom by job name, at `at` (Unix seconds)."""
        for job, left in headroom.items():
            history = self._seen.setdefault(job, deque())
            if history and at <= history[-1][0]:
                history.clear()  # the clock was set back
            history.append((at, left))
            while history[0][0] < at - _PACE_OVER_S:
                history.popleft()

    def keep(self, jobs: Collection[str]) -> None:
        """Forget every job that is not among `jobs`."""
        for gone in self._seen.keys() - set(jobs):
            del self._seen[gone]
        self._pinned.intersection_update(jobs)

    def pin(self, job: str) -> None:
        """Look at it as often as at any, whatever its pace."""
        self._pinned.add(job)

    def unpin(self, job: str) -> None:
        """From now on its pace decides."""
        self._pinned.discard(job)

    def seconds_left(self, job: str) -> float:
        """How long its headroom lasts; infinite while it does not shrink or too little is known."""
        history = self._seen.get(job)
        if not history:
            return float("inf")
        (began, most), (at, left) = history[0], history[-1]
        if left <= 0:
            return 0.0
        if at - began < _SHORTEST_SPAN_S or left >= most:
            return float("inf")
        return left * (at - began) / (most - left)

    def chosen(self) -> dict[str, float]:
        """The jobs to look at ahead of the tick, the nearest to their end first, and the seconds between looks."""
        found: dict[str, float] = {}
        for job in self._seen.keys() | self._pinned:
            left = 0.0 if job in self._pinned else self.seconds_left(job)
            if left < self._settings.endangered_within_s:
                found[job] = max(self._settings.fastest_s, left / _LOOKS_LEFT)
        nearest = sorted(found, key=lambda job: (found[job], job))[: self._settings.endangered_jobs]
        return {job: found[job] for job in nearest if found[job] < self._settings.interval_s}
