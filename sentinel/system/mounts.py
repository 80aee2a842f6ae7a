"""Mounted file systems: which there are, which may hang, how full they are.

A call on a dead NFS or FUSE mount never returns, so nothing here touches such
a mount except in a thread that may be left behind.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from sentinel.system.processes import PROC

_NETWORK = re.compile(
    "9p|afs|beegfs|ceph|cifs|coda|davfs|fhgfs|fuse.*|gfs2?|glusterfs|gpfs|lustre|ncpfs|nfs4?|ocfs2|orangefs|panfs|"
    "pvfs2|quobyte|smb3|smbfs|virtiofs|wekafs"
)
_PSEUDO = re.compile(
    "anon_inodefs|autofs|bdev|binder|binfmt_misc|bpf|cgroup2?|configfs|cpuset|debugfs|devfs|devpts|devtmpfs|efivarfs|"
    "fusectl|hugetlbfs|iso9660|mqueue|nsfs|pipefs|proc|pstore|ramfs|resctrl|rpc_pipefs|securityfs|selinuxfs|sockfs|"
    "squashfs|sysfs|tracefs|udf"
)


@dataclass(frozen=True, slots=True)
class Mount:
    """One line of /proc/PID/mountinfo.

    Attributes:
        point: Where it is mounted.
        root: Which directory of the file system is mounted there; not "/" for bind mounts.
        device: "major:minor"; the same for every mount of one file system.
        kind: The type of the file system.
        source: What is mounted, in words of the file system.
        options: Of this mount and of the file system; "ro" of either one wins.
    """

    point: str
    root: str
    device: str
    kind: str
    source: str
    options: frozenset[str]

    @property
    def may_hang(self) -> bool:
        """Whether a call on it may wait for another machine or program.

        Overlay is local: every container root is one.
        """
        return not self.pseudo and _NETWORK.fullmatch(self.kind) is not None

    @property
    def pseudo(self) -> bool:
        """Whether it stores nothing of anybody's: machinery, and what containers lay over things to hide them."""
        hides = self.kind == "tmpfs" and self.read_only
        return hides or self.point.startswith(("/sys/", "/proc/")) or _PSEUDO.fullmatch(self.kind) is not None

    @property
    def read_only(self) -> bool:
        """Whether this mount, or the file system under it, refuses writing."""
        return "ro" in self.options


def mounts(proc: str = PROC) -> list[Mount]:
    """All mounts of sentinel's own namespace, in the order in which they were made."""
    try:
        with open(f"{proc}/self/mountinfo", "rb") as file:
            return [mount for line in file if (mount := parse_mount(line))]
    except OSError:
        return []


def parse_mount(line: bytes) -> Mount | None:
    """A line of mountinfo, or None where it has another shape."""
    before, dash, after = line.partition(b" - ")
    left, right = before.split(), after.split()
    if not dash or len(left) < 6 or len(right) < 3:
        return None
    options = frozenset(os.fsdecode(left[5] + b"," + right[2]).split(","))
    return Mount(
        _plain(left[4]), _plain(left[3]), os.fsdecode(left[2]), os.fsdecode(right[0]), _plain(right[1]), options
    )


def in_use(found: Iterable[Mount], is_directory: Callable[[str], bool] = os.path.isdir) -> list[Mount]:
    """The mounts worth watching: each real file system once, by its shortest whole mount.

    Files bound into a container (/etc/hosts and its like) and mounts hidden by a
    later one on the same point are left out.
    """
    visible = {mount.point: mount for mount in found if not mount.pseudo}
    best: dict[str, Mount] = {}
    for mount in visible.values():
        known = best.get(mount.device)
        rank = (mount.root != "/", len(mount.point))
        if known is None or rank < (known.root != "/", len(known.point)):
            best[mount.device] = mount
    return [m for m in best.values() if m.root == "/" or m.may_hang or is_directory(m.point)]


class Prober:
    """Asks how full file systems are, without ever waiting for one that hangs.

    Each question has a thread of its own. One that is overdue is asked nothing
    more until it has answered, so there is at most one lost thread per mount.

    Args:
        ask: The call that may hang.
    """

    def __init__(self, ask: Callable[[str], os.statvfs_result] = os.statvfs) -> None:
        self._ask = ask
        self._changed = threading.Condition()
        self._open: set[str] = set()
        self._answers: dict[str, os.statvfs_result] = {}

    @property
    def overdue(self) -> frozenset[str]:
        """The mount points that have not answered yet."""
        with self._changed:
            return frozenset(self._open)

    def ask(self, points: Iterable[str], deadline_s: float) -> dict[str, os.statvfs_result]:
        """What those answered that answered within `deadline_s`."""
        wanted = list(points)
        until = time.monotonic() + deadline_s
        with self._changed:
            fresh = [point for point in wanted if point not in self._open]
            self._open.update(fresh)
            for point in fresh:
                self._answers.pop(point, None)
        for point in fresh:
            threading.Thread(target=self._answer, args=(point,), name=f"stat {point}", daemon=True).start()
        with self._changed:
            while self._open.intersection(fresh) and (left := until - time.monotonic()) > 0:
                self._changed.wait(left)
            return {
                point: answer for point in wanted if (answer := self._answers.get(point)) and point not in self._open
            }

    def _answer(self, point: str) -> None:
        try:
            answer = self._ask(point)
        except OSError:
            answer = None
        with self._changed:
            self._open.discard(point)
            if answer is not None:
                self._answers[point] = answer
            self._changed.notify_all()


def _plain(field: bytes) -> str:
    r"""A field of mountinfo with its \040 and the like undone."""
    if b"\\" in field:
        for code, char in ((b"\\040", b" "), (b"\\011", b"\t"), (b"\\012", b"\n"), (b"\\134", b"\\")):
            field = field.replace(code, char)
    return os.fsdecode(field)
