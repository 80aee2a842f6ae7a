"""Processes, read from /proc directly: who they are, what they hold, which tree they belong to.

Nothing here sends a signal or changes anything; nothing here raises because a
process went away, which any of them may do between two lines.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from sentinel.model.jobs import ProcessId

PROC = "/proc"
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
ZOMBIE, DEAD, UNINTERRUPTIBLE = "Z", "X", "D"


class Stat(NamedTuple):
    """One line of /proc/PID/stat.

    Attributes:
        pid: As seen by sentinel.
        name: The kernel's short name, at most 15 bytes; text from others.
        state: One letter: R, S, D, T, t, Z, X, I…
        ppid: Its parent.
        pgrp: Its process group.
        session: Its session.
        utime_ticks: Clock ticks spent in user mode, of all its threads.
        stime_ticks: The same in kernel mode.
        children_ticks: Of its children that died and were waited for, user and kernel mode together.
        threads: How many it has.
        start_ticks: Clock ticks after boot.
        rss_pages: Resident pages, shared ones included.
        faults: Page faults that needed no storage: memory cannot grow without one, not
            even where a page that was shared with another process becomes its own.
    """

    pid: int
    name: str
    state: str
    ppid: int
    pgrp: int
    session: int
    utime_ticks: int
    stime_ticks: int
    children_ticks: int
    threads: int
    start_ticks: int
    rss_pages: int
    faults: int = 0

    @property
    def alive(self) -> bool:
        """Whether it is more than an entry that nobody has reaped yet."""
        return self.state not in {ZOMBIE, DEAD}


Scan = Mapping[int, Stat]
"""Processes by pid, as seen in one pass."""


@functools.cache
def boot_id(proc: str = PROC) -> str:
    """The kernel's name of this boot; empty where it has none."""
    return (read_small(f"{proc}/sys/kernel/random/boot_id") or b"").decode("ascii", "replace").strip()


def identify(pid: int, proc: str = PROC) -> ProcessId | None:
    """The identity of the process that has this pid now, zombies included; None without one."""
    stat = read_stat(pid, proc)
    return stat and ProcessId(pid, stat.start_ticks, boot_id(proc))


def same(process: ProcessId, proc: str = PROC) -> bool:
    """Whether exactly this process still runs: same start, same boot, neither zombie nor dead.

    One whose first thread has ended before the others reads as a zombie, and is none yet.
    """
    stat = read_stat(process.pid, proc)
    return (
        stat is not None
        and stat.start_ticks == process.start_ticks
        and (stat.alive or stat.threads > 1)
        and boot_id(proc) == process.boot_id
    )


def read_stat(pid: int, proc: str = PROC) -> Stat | None:
    """What the kernel says of one process, or None when there is none."""
    data = read_small(f"{proc}/{pid}/stat")
    return parse_stat(data) if data else None


def parse_stat(data: bytes) -> Stat | None:
    """A line of /proc/PID/stat. The name may hold anything, brackets and newlines too."""
    before, bracket, after = data.rpartition(b") ")
    number, _, name = before.partition(b" (")
    fields = after.split(None, 22)
    if not bracket or len(fields) < 22:
        return None
    return Stat(
        int(number),
        name.decode("utf-8", "replace"),
        fields[0].decode("ascii"),
        int(fields[1]),
        int(fields[2]),
        int(fields[3]),
        int(fields[11]),
        int(fields[12]),
        int(fields[13]) + int(fields[14]),
        int(fields[17]),
        int(fields[19]),
        int(fields[21]),
        int(fields[7]),
    )


def pids(proc: str = PROC) -> list[int]:
    """Every pid there is now, ascending as the kernel lists them."""
    return [int(name) for name in os.listdir(proc) if name.isdecimal()]


def scan(proc: str = PROC) -> dict[int, Stat]:
    """Every process there is: about 12 microseconds each."""
    return {pid: stat for pid in pids(proc) if (stat := read_stat(pid, proc))}


def children_of(seen: Scan) -> dict[int, list[int]]:
    """The pids of the children of each parent in `seen`; made once, shared by all trees."""
    found: dict[int, list[int]] = {}
    for stat in seen.values():
        found.setdefault(stat.ppid, []).append(stat.pid)
    return found


def command_line(pid: int, proc: str = PROC) -> list[str]:
    """Its argument vector; empty for zombies, kernel threads and what is gone."""
    data = read_small(f"{proc}/{pid}/cmdline", 1 << 20)
    return [word.decode("utf-8", "replace") for word in data.rstrip(b"\0").split(b"\0")] if data else []


def owner(pid: int, proc: str = PROC) -> int | None:
    """The user id it runs under, or None."""
    try:
        return os.stat(f"{proc}/{pid}").st_uid
    except OSError:
        return None


def signals_caught(pid: int, proc: str = PROC) -> int:
    """The mask of signals it has handlers for: bit n-1 for signal n. 0 when it is gone."""
    return _mask(pid, b"SigCgt:", proc)


def signals_ignored(pid: int, proc: str = PROC) -> int:
    """The mask of signals it ignores: bit n-1 for signal n."""
    return _mask(pid, b"SigIgn:", proc)


def catches(mask: int, signal: int) -> bool:
    """Whether `mask` has the bit of `signal`."""
    return bool(mask >> (signal - 1) & 1)


def open_files(pid: int, proc: str = PROC) -> int | None:
    """How many file descriptors it has open; None where that may not be read.

    Since Linux 6.2 the size of /proc/PID/fd is the count; before that it is listed.
    """
    path = f"{proc}/{pid}/fd"
    try:
        return os.stat(path).st_size or len(os.listdir(path))
    except OSError:
        return None


def open_files_limit(pid: int, proc: str = PROC) -> int | None:
    """Its soft limit on open files; None without one or where it may not be read."""
    for line in (read_small(f"{proc}/{pid}/limits") or b"").splitlines():
        if line.startswith(b"Max open files"):
            soft = line.split()[3]
            return int(soft) if soft.isdigit() else None
    return None


def storage_bytes(pid: int, proc: str = PROC) -> tuple[int, int] | None:
    """Bytes it made storage read and write, its reaped children included; None where that may not be read."""
    data = read_small(f"{proc}/{pid}/io")
    read, written = _number_after(data, b"\nread_bytes:"), _number_after(data, b"\nwrite_bytes:")
    return None if read is None or written is None else (read, written)


def proportional_bytes(pid: int, proc: str = PROC) -> int | None:
    """Its proportional set size: shared pages count by their share. None where it may not be read.

    The kernel walks the page tables for it: up to 20 milliseconds per GiB, far less with huge pages.
    """
    kilobytes = _number_after(read_small(f"{proc}/{pid}/smaps_rollup"), b"\nPss:")
    return None if kilobytes is None else kilobytes * 1024


class Processes:
    """All processes, seen again and again at little cost.

    A pid that is new since the last look is read once; those in `watched` are
    read every time; the others keep what was seen, until the full scan that
    `full` asks for. So a machine with a thousand processes costs one directory
    listing a tick, and a strange process that joins a tree late is found by the
    next full scan.
    """

    def __init__(self, proc: str = PROC) -> None:
        self._proc = proc
        self._seen: dict[int, Stat] = {}

    def look(self, watched: Collection[int] = (), *, full: bool = False) -> dict[int, Stat]:
        """The processes there are now."""
        before = {} if full else self._seen
        seen: dict[int, Stat] = {}
        for pid in pids(self._proc):
            stat = None if pid in watched else before.get(pid)
            if stat is None:
                stat = read_stat(pid, self._proc)
            if stat is not None:
                seen[pid] = stat
        self._seen = seen
        return seen


class Tree:
    """The processes of one job.

    Members are the root and its descendants, the processes of its process group
    or session, and what was once seen as a member and is still the same process,
    however it was reparented. Sentinel itself is never one of them, not even
    when it was started from within the job.

    Args:
        root: The leader.
        pgid: The process group of the job; 0 where it shares one with others.
    """

    def __init__(self, root: ProcessId, pgid: int = 0) -> None:
        self.root = root
        self.pgid = pgid
        self._members: dict[int, int] = {}

    @property
    def pids(self) -> Collection[int]:
        """The members at the last update."""
        return self._members.keys()

    def update(self, seen: Scan, children: Mapping[int, list[int]] | None = None) -> list[Stat]:
        """The members now, zombies included: the root first, then as a walk down the tree finds them."""
        children = children_of(seen) if children is None else children
        leader = seen.get(self.root.pid)
        rooted = leader is not None and leader.start_ticks == self.root.start_ticks
        starts = [self.root.pid] if rooted else []
        starts += [pid for pid, start in self._members.items() if (s := seen.get(pid)) and s.start_ticks == start]
        if rooted or leader is None:
            # A pid is not given away again while a group or session carries its number.
            starts += self._companions(seen.values())
        members: dict[int, Stat] = {}
        ourselves = os.getpid()
        while starts:
            following: list[int] = []
            for pid in starts:
                if pid not in members and (pid != ourselves or pid == self.root.pid) and (stat := seen.get(pid)):
                    members[pid] = stat
                    following += children.get(pid, ())
            starts = following
        self._members = {pid: stat.start_ticks for pid, stat in members.items()}
        return list(members.values())

    def _companions(self, stats: Iterable[Stat]) -> list[int]:
        group, session, start = self.pgid or -1, self.root.pid, self.root.start_ticks
        return [s.pid for s in stats if (s.pgrp == group or s.session == session) and s.start_ticks >= start]


def _mask(pid: int, key: bytes, proc: str) -> int:
    for line in (read_small(f"{proc}/{pid}/status", 8192) or b"").splitlines():
        if line.startswith(key):
            return int(line[len(key) :], 16)
    return 0


def _number_after(data: bytes | None, key: bytes) -> int | None:
    at = -1 if data is None else data.find(key)
    if data is None or at < 0:
        return None
    return int(data[at + len(key) : at + len(key) + 32].split(None, 1)[0])


def read_small(path: str, size: int = 4096) -> bytes | None:
    """The start of a small file in one read, or None: the file or its process is gone, or not ours to read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return os.read(descriptor, size)
    except OSError:
        return None
    finally:
        os.close(descriptor)
