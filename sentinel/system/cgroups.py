"""Control groups: the memory limit that kills, long before the host is full.

Version 2 and version 1 are read alike. Where both are mounted, the memory
controller belongs to version 1 if that has a mount with it. Nothing is cached
here except where the hierarchy is mounted.
"""

from __future__ import annotations

from dataclasses import dataclass

from sentinel.system import mounts
from sentinel.system.processes import PROC, read_small

_NO_LIMIT = 1 << 60
"""Version 1 writes "no limit" as the largest multiple of a page."""


@dataclass(frozen=True, slots=True)
class Limited:
    """A control group with a memory limit, at one moment.

    Attributes:
        directory: The group.
        used_bytes: What cannot be dropped at once: charged memory less inactive file
            pages. Tmpfs and shared memory count.
        limit_bytes: Above it the kernel kills.
    """

    directory: str
    used_bytes: int
    limit_bytes: int

    @property
    def headroom_bytes(self) -> int:
        """What is left under the limit."""
        return self.limit_bytes - self.used_bytes


@dataclass(frozen=True, slots=True)
class _Hierarchy:
    version: int
    point: str
    root: str

    def name(self, v1: str, v2: str) -> str:
        return v1 if self.version == 1 else v2


class Cgroups:
    """The memory controller of this machine.

    Args:
        proc: Where /proc is.
        prefix: Put before every mount point, for a tree of files made by a test.
    """

    def __init__(self, proc: str = PROC, prefix: str = "") -> None:
        self._proc = proc
        self._hierarchy = _find(mounts.mounts(proc), prefix)

    @property
    def version(self) -> int | None:
        """1 or 2; None on a machine without a memory controller."""
        return self._hierarchy.version if self._hierarchy else None

    def directory(self, pid: int) -> str | None:
        """The directory of the group that `pid` is charged to, or None where it cannot be seen.

        Inside a container the path of a process may be told from the host's root
        while only the container's part is mounted, so the mount's own root is cut off.
        """
        if self._hierarchy is None:
            return None
        for line in (read_small(f"{self._proc}/{pid}/cgroup") or b"").decode("utf-8", "surrogateescape").splitlines():
            number, _, rest = line.partition(":")
            controllers, _, path = rest.partition(":")
            mine = (
                number == "0" and not controllers
                if self._hierarchy.version == 2
                else "memory" in controllers.split(",")
            )
            if mine:
                return _below(self._hierarchy, path)
        return None

    def limits(self, directory: str) -> list[Limited]:
        """Every limit that holds in `directory`: its own first, then its ancestors' up to what is mounted."""
        found = []
        for ancestor in self.ancestors(directory):
            limit = self.limit(ancestor)
            if limit is not None and (used := self.used(ancestor)) is not None:
                found.append(Limited(ancestor, used, limit))
        return found

    def ancestors(self, directory: str) -> list[str]:
        """`directory` and those above it that are charged for it, up to what is mounted."""
        if self._hierarchy is None:
            return []
        found = [directory]
        while directory != self._hierarchy.point and directory.startswith(self._hierarchy.point + "/"):
            directory = directory.rpartition("/")[0]
            if self._hierarchy.version == 1 and read_small(f"{directory}/memory.use_hierarchy") == b"0\n":
                break
            found.append(directory)
        return found

    def limit(self, directory: str) -> int | None:
        """The limit of this one group, or None."""
        if self._hierarchy is None:
            return None
        value = _number(read_small(f"{directory}/{self._hierarchy.name('memory.limit_in_bytes', 'memory.max')}"))
        return None if value is None or value >= _NO_LIMIT else value

    def used(self, directory: str) -> int | None:
        """Charged memory less inactive file pages, or None where the group is gone."""
        if self._hierarchy is None:
            return None
        charged = _number(read_small(f"{directory}/{self._hierarchy.name('memory.usage_in_bytes', 'memory.current')}"))
        if charged is None:
            return None
        statistics = read_small(f"{directory}/memory.stat", 16384)
        idle = _entry(statistics, self._hierarchy.name("total_inactive_file", "inactive_file")) or 0
        return max(0, charged - idle)

    def oom_kills(self, directory: str) -> int | None:
        """Processes of this group that the kernel killed for want of memory, or None where it does not say."""
        if self._hierarchy is None:
            return None
        return _entry(
            read_small(f"{directory}/{self._hierarchy.name('memory.oom_control', 'memory.events')}"), "oom_kill"
        )


def _find(found: list[mounts.Mount], prefix: str) -> _Hierarchy | None:
    second = None
    for mount in found:
        if mount.kind == "cgroup" and "memory" in mount.options:
            return _Hierarchy(1, prefix + mount.point, mount.root)
        if mount.kind == "cgroup2" and second is None:
            second = _Hierarchy(2, prefix + mount.point, mount.root)
    return second


def _below(hierarchy: _Hierarchy, path: str) -> str | None:
    root = hierarchy.root.rstrip("/")
    if path.startswith("/..") or (path != root and not path.startswith(root + "/")):
        return None  # outside of our own namespace, or of what is mounted
    return hierarchy.point + path[len(root) :].rstrip("/")


def _number(data: bytes | None) -> int | None:
    return int(data) if data and data.strip().isdigit() else None


def _entry(data: bytes | None, name: str) -> int | None:
    """The number behind `name` in lines of `name number`."""
    text = b"\n" + (data or b"")
    at = text.find(f"\n{name} ".encode())
    return None if at < 0 else int(text[at + len(name) + 2 :].split(None, 1)[0])
