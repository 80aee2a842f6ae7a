"""The memory limit that kills: of all that hold for a job, the one with the least headroom."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sentinel.model.jobs import ProcessId
from sentinel.system.cgroups import Cgroups
from sentinel.system.processes import PAGE_BYTES, PROC, Stat, proportional_bytes, read_small

LONG_S = 0.1
_SLOWEST_S_PER_BYTE = 0.02 / (1 << 30)
PSS_EVERY_S, GROWING_EVERY_S, IDLE_EVERY_S = 10.0, 1.0, 60.0
GROUPS_EVERY_S = 10.0
_ALL_SHARE, _GROWING_SHARE = 0.002, 0.005
"""How much of a core reading Pss may cost: of all trees while they are steady, of one that grows."""


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

    def _limited(self, group: str) -> list[tuple[str, int]]:
        if group not in self._limits:
            pairs = ((ancestor, self._cgroups.limit(ancestor)) for ancestor in self._cgroups.ancestors(group))
            self._limits[group] = [(ancestor, limit) for ancestor, limit in pairs if limit is not None]
        return self._limits[group]


class OomKills:
    """Processes that the kernel killed in the control groups of one tree, since it was first seen.

    A group may be the container's, with kills in its past that were none of this
    job's, and a tree may move to another group; so only what is added counts. The
    groups of a tree that is gone are asked on: its end may be what is to be told.

    Args:
        cgroups: Tells the counts.
        base: Where to go on from, after a restart of sentinel.
    """

    def __init__(self, cgroups: Cgroups, base: float = 0.0) -> None:
        self._cgroups = cgroups
        self._total = base
        self._begun = base
        self._root: ProcessId | None = None
        self._counts: dict[str, int | None] = {}
        self._lock = threading.Lock()

    def update(self, root: ProcessId, groups: set[str]) -> float | None:
        """The count now; None where no group tells."""
        with self._lock:
            if groups and groups != self._counts.keys():
                self._counts = {group: self._counts.get(group, self._cgroups.oom_kills(group)) for group in groups}
            self._look()
            if root != self._root:
                self._root, self._begun = root, self._total
            return self._total if any(count is not None for count in self._counts.values()) else None

    def of_attempt(self) -> float | None:
        """The count of the present attempt, asked now. Safe to call from any thread."""
        with self._lock:
            self._look()
            told = any(count is not None for count in self._counts.values())
            return self._total - self._begun if told else None

    def _look(self) -> None:
        for group, before in self._counts.items():
            now = self._cgroups.oom_kills(group)
            if now is not None:
                self._total += max(0, now - (now if before is None else before))
                self._counts[group] = now


class Budget:
    """What reading Pss costs all trees together, so that they can share an allowance."""

    def __init__(self) -> None:
        self._costs: dict[int, float] = {}

    def spent(self, tree: SharedMemory, seconds: float) -> None:
        """What the last reading of one tree took."""
        self._costs[id(tree)] = seconds

    def forget(self, tree: SharedMemory) -> None:
        """A tree that is read no more."""
        self._costs.pop(id(tree), None)

    @property
    def together_s(self) -> float:
        """Reading every tree once."""
        return sum(self._costs.values())


@dataclass(frozen=True, slots=True)
class _Share:
    pss_bytes: int
    rss_bytes: int
    faults: int


class SharedMemory:
    """The sum of Pss of one tree, read seldom and moved by changes of RSS in between.

    Eight forked workers of a parent of 300 MiB sum to 2.8 GiB of RSS and to
    0.3 GiB of Pss. Reading Pss walks the page tables, so it is done every ten
    seconds, or as often as 0.2 % of a core allows for all trees together; while a
    tree grows, every second, or as often as 0.5 % of a core allows for it. A tree
    in which hardly a page has faulted cannot have grown and waits a minute. What
    takes long is read in a thread of its own, so that no pass waits for it.

    Args:
        read: Pss of a pid, or None where it may not be read; then RSS stands for it.
        budget: Shared by all trees.
        timer: Measures what reading costs.
    """

    def __init__(
        self,
        read: Callable[[int], int | None] = proportional_bytes,
        budget: Budget | None = None,
        timer: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._read = read
        self._budget = budget or Budget()
        self._timer = timer
        self._known: dict[tuple[int, int], _Share] = {}
        self._reading: threading.Thread | None = None
        self._read_at = float("-inf")
        self._cost_s = 0.0
        self._sum_bytes = 0

    def update(self, at: float, members: Sequence[Stat]) -> int | None:
        """Bytes that the living members hold, each shared page counted once within the tree.

        None while the first reading is under way.
        """
        living = [stat for stat in members if stat.alive]
        if self._reading is not None and not self._reading.is_alive():
            self._reading = None
        if self._reading is None and not 0 <= at - self._read_at < self._wait_s(living):
            if self._expected_s(living) < LONG_S:
                self._look(at, living)
            else:
                self._reading = threading.Thread(target=self._look, args=(at, living), name="read Pss", daemon=True)
                self._reading.start()
        return None if self._read_at == float("-inf") else self._estimate(living)

    def close(self) -> None:
        """The tree is gone."""
        self._budget.forget(self)

    def _expected_s(self, living: Sequence[Stat]) -> float:
        return self._cost_s or sum(stat.rss_pages for stat in living) * PAGE_BYTES * _SLOWEST_S_PER_BYTE

    def _look(self, at: float, living: Sequence[Stat]) -> None:
        began = self._timer()
        known = {(stat.pid, stat.start_ticks): self._share(stat) for stat in living}
        self._cost_s = self._timer() - began
        self._budget.spent(self, self._cost_s)
        # One assignment each, the time last: a pass in between sees the old reading or the new one.
        self._sum_bytes = sum(share.pss_bytes for share in known.values())
        self._known = known
        self._read_at = at

    def _share(self, stat: Stat) -> _Share:
        rss = stat.rss_pages * PAGE_BYTES
        pss = self._read(stat.pid)
        return _Share(rss if pss is None else pss, rss, stat.faults)

    def _estimate(self, living: Sequence[Stat]) -> int:
        total, shares = 0, self._known
        for stat in living:
            known = shares.get((stat.pid, stat.start_ticks))
            if known is not None:  # a newcomer is read soon; till then its pages are its parent's
                total += max(0, known.pss_bytes + stat.rss_pages * PAGE_BYTES - known.rss_bytes)
        return total

    def _wait_s(self, living: Sequence[Stat]) -> float:
        """How old a reading may grow."""
        noticeable, shares = max(16 << 20, self._sum_bytes // 50), self._known
        changed = {(stat.pid, stat.start_ticks) for stat in living} != shares.keys()
        if changed or abs(self._estimate(living) - self._sum_bytes) > noticeable:
            return max(GROWING_EVERY_S, self._cost_s / _GROWING_SHARE)
        pairs = ((stat, shares[stat.pid, stat.start_ticks]) for stat in living)
        faulted = sum(stat.faults - share.faults for stat, share in pairs) * PAGE_BYTES
        usual = PSS_EVERY_S if faulted > noticeable else IDLE_EVERY_S
        return max(usual, self._budget.together_s / _ALL_SHARE)
