"""Sentinel itself: what it costs."""

from __future__ import annotations

from collections.abc import Sequence

from sentinel.collectors.coverage import Coverage, row
from sentinel.collectors.monotone import TreeCounter
from sentinel.collectors.ports import Facts, no_facts
from sentinel.collectors.trees import Trees
from sentinel.model.families import SENTINEL
from sentinel.model.series import Batch, Support
from sentinel.system.processes import PAGE_BYTES, TICKS_PER_SECOND


class OwnCollector:
    """Processor time and memory of the daemon and its children, as the last look at the trees saw them.

    Args:
        trees: Sees sentinel's own tree too.
        facts: Joins the row (the lag of the store).
    """

    name = "sentinel"
    families = (SENTINEL,)
    interval_s: float | None = None

    def __init__(self, trees: Trees, facts: Facts = no_facts) -> None:
        self._trees = trees
        self._facts = facts
        self._cpu = TreeCounter()
        self._coverage = Coverage()

    def supported(self) -> Support:
        """Always."""
        return Support()

    def collect(self, at: float) -> Sequence[Batch]:
        """One pass."""
        own = self._trees.own
        values: dict[str, float | None] = dict(self._facts(SENTINEL, ()))
        if own:
            used = {(stat.pid, stat.start_ticks): float(stat.utime_ticks + stat.stime_ticks) for stat in own}
            inherited = {(stat.pid, stat.start_ticks): float(stat.children_ticks) for stat in own}
            values["sentinel_cpu_seconds_total"] = self._cpu.update(used, inherited) / TICKS_PER_SECOND
            values["sentinel_memory_bytes"] = float(sum(stat.rss_pages for stat in own) * PAGE_BYTES)
        return (self._coverage.batch(SENTINEL, at, {(): row(SENTINEL, values)}),)
