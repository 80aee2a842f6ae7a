"""The memory limit that kills: of all that hold for a job, the one with the least headroom."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sentinel.system.cgroups import Cgroups
from sentinel.system.processes import PAGE_BYTES, PROC, Stat, proportional_bytes, read_small

PSS_EVERY_S = 10.0
GROUPS_EVERY_S = 10.0
_QUIET_SHARE, _GROWING_SHARE = 0.002, 0.01
"""How much of a core reading Pss may cost: it takes about a millisecond per GiB."""


@dataclass(frozen=True, slots=True)
class Constraint:
    """One limit on a job's memory, at one moment.

    Attributes:
        kind: "cgroup", "declared" (`--memory-limit`) or "host".
        used_bytes: As this constraint measures it.
        limit_bytes: Above it something is killed.
    """

    kind: str
    used_bytes: float
    limit_bytes: float

    @property
    def headroom_bytes(self) -> float:
        """What is left under the limit; below zero once it is passed."""
        return self.limit_bytes - self.used_bytes


def tightest(constraints: Sequence[Constraint]) -> Constraint | None:
    """The constraint with the least headroom; the first of equals."""
    return min(constraints, key=lambda one: one.headroom_bytes, default=None)


class HostMemory:
    """What the whole machine has left."""

    def __init__(self, proc: str = PROC) -> None:
        self._proc = proc

    def read(self) -> Constraint | None:
        """MemTotal as the limit, MemAvailable as what is left."""
        found = memory_fields(self._proc)
        total, available = found.get(b"MemTotal"), found.get(b"MemAvailable")
        if total is None or available is None:
            return None
        return Constraint("host", float(total - available), float(total))


def memory_fields(proc: str = PROC) -> dict[bytes, int]:
    """/proc/meminfo in bytes, as far as the first kilobyte reaches."""
    found: dict[bytes, int] = {}
    for line in (read_small(f"{proc}/meminfo", 1024) or b"").splitlines()[:-1]:
        words = line.split()
        if len(words) >= 2 and words[1].isdigit():
            found[words[0].rstrip(b":")] = int(words[1]) * 1024
    return found


class GroupLimits:
    """The cgroup limits of process trees, read once per pass however many jobs share a group."""

    def __init__(self, cgroups: Cgroups) -> None:
        self._cgroups = cgroups
        self._groups: dict[tuple[int, int], str | None] = {}
        self._limits: dict[str, list[tuple[str, int]]] = {}
        self._fresh_until = float("-inf")
        self._used: dict[str, int | None] = {}

    def begin(self, at: float) -> None:
        """A new pass: what is used is read anew, and every ten seconds who is where."""
        self._used.clear()
        if not self._fresh_until - GROUPS_EVERY_S <= at < self._fresh_until:
            self._groups.clear()
            self._limits.clear()
            self._fresh_until = at + GROUPS_EVERY_S

    def constraints(self, members: Sequence[Stat]) -> list[Constraint]:
        """Every limited group that some member is charged to."""
        limited = {pair for group in self.groups(members) for pair in self._limited(group)}
        found = []
        for directory, limit in sorted(limited):
            if directory not in self._used:
                self._used[directory] = self._cgroups.used(directory)
            used = self._used[directory]
            if used is not None:
                found.append(Constraint("cgroup", float(used), float(limit)))
        return found

    def groups(self, members: Sequence[Stat]) -> set[str]:
        """The directories of the members' own groups."""
        found = set()
        for stat in members:
            key = (stat.pid, stat.start_ticks)
            if key not in self._groups:
                self._groups[key] = self._cgroups.directory(stat.pid)
            if group := self._groups[key]:
                found.add(group)
        return found

    def oom_kills(self, members: Sequence[Stat]) -> int | None:
        """Processes that the kernel killed in the members' own groups, together."""
        counts = [self._cgroups.oom_kills(group) for group in self.groups(members)]
        known = [count for count in counts if count is not None]
        return sum(known) if known else None

    def _limited(self, group: str) -> list[tuple[str, int]]:
        if group not in self._limits:
            pairs = ((ancestor, self._cgroups.limit(ancestor)) for ancestor in self._cgroups.ancestors(group))
            self._limits[group] = [(ancestor, limit) for ancestor, limit in pairs if limit is not None]
        return self._limits[group]


@dataclass(slots=True)
class _Shared:
    pss_bytes: int
    rss_bytes: int


class SharedMemory:
    """The sum of Pss of one tree, read seldom and moved by changes of RSS in between.

    Eight forked workers of a parent of 300 MiB sum to 2.8 GiB of RSS and to
    0.3 GiB of Pss. Reading Pss walks the page tables, so it is done every ten
    seconds; while the tree grows, as often as one percent of a core allows.

    Args:
        read: Pss of a pid, or None where it may not be read; then RSS stands for it.
        timer: Measures what reading costs.
    """

    def __init__(
        self,
        read: Callable[[int], int | None] = proportional_bytes,
        timer: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._read = read
        self._timer = timer
        self._known: dict[tuple[int, int], _Shared] = {}
        self._read_at = float("-inf")
        self._cost_s = 0.0
        self._sum_bytes = 0

    def update(self, at: float, members: Sequence[Stat]) -> int:
        """Bytes that the living members hold, each shared page counted once within the tree."""
        living = [stat for stat in members if stat.alive]
        if not self._current(at, living):
            began = self._timer()
            self._known = {(stat.pid, stat.start_ticks): self._look(stat) for stat in living}
            self._cost_s = self._timer() - began
            self._read_at = at
            self._sum_bytes = sum(shared.pss_bytes for shared in self._known.values())
            return self._sum_bytes
        return self._estimate(living)

    def _look(self, stat: Stat) -> _Shared:
        rss = stat.rss_pages * PAGE_BYTES
        pss = self._read(stat.pid)
        return _Shared(rss if pss is None else pss, rss)

    def _estimate(self, living: Sequence[Stat]) -> int:
        total = 0
        for stat in living:
            known = self._known.get((stat.pid, stat.start_ticks))
            if known is not None:  # a newcomer is read within a second; till then its pages are its parent's
                total += max(0, known.pss_bytes + stat.rss_pages * PAGE_BYTES - known.rss_bytes)
        return total

    def _current(self, at: float, living: Sequence[Stat]) -> bool:
        age = at - self._read_at
        if not 0 <= age < max(PSS_EVERY_S, self._cost_s / _QUIET_SHARE):
            return False
        changed = {(stat.pid, stat.start_ticks) for stat in living} != self._known.keys()
        moved = abs(self._estimate(living) - self._sum_bytes) > max(16 << 20, self._sum_bytes // 50)
        return not ((changed or moved) and age >= max(1.0, self._cost_s / _GROWING_SHARE))
