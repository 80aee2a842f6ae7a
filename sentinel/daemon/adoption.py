"""Processes that the configuration names become jobs when they appear."""

from __future__ import annotations

import os
import pwd
from collections.abc import Callable, Sequence
from dataclasses import replace

from sentinel.config.settings import Adoption
from sentinel.model.jobs import Job, JobSpec, ProcessId
from sentinel.system import processes
from sentinel.system.processes import Stat

LOOK_S = 10.0
Adopt = Callable[[JobSpec, int, str, ProcessId, int], None]
"""Takes in: what is said about it, uid, owner, the process, its process group."""


class Adopter:
    """Looks for processes that fit, now and then.

    Args:
        adoptions: What the configuration says.
        living: The jobs there are; what belongs to one is not adopted again.
        adopt: Takes one in.
    """

    def __init__(self, adoptions: Sequence[Adoption], living: Callable[[], Sequence[Job]], adopt: Adopt) -> None:
        self._adoptions = [(adoption, _compiled(adoption.cmdline)) for adoption in adoptions]
        self._living = living
        self._adopt = adopt
        self._looked: float | None = None

    def tick(self, monotonic: float) -> None:
        """Look, if it is time. What fits and whose parent does not fit becomes a job."""
        if not self._adoptions or (self._looked is not None and monotonic - self._looked < LOOK_S):
            return
        self._looked = monotonic
        seen = processes.scan()
        taken = {job.root.pid for job in self._living() if job.root}
        groups = {job.pgid for job in self._living() if job.pgid}
        for adoption, fits in self._adoptions:
            found = {pid for pid, stat in seen.items() if self._fits(stat, adoption, fits)}
            for pid in sorted(found):
                stat = seen[pid]
                if pid in taken or stat.ppid in found or stat.pgrp in groups or _below(pid, taken, seen):
                    continue
                self._take(adoption, stat)

    def _fits(self, stat: Stat, adoption: Adoption, fits: Callable[[str], bool]) -> bool:
        if stat.pid == os.getpid() or stat.state in "ZX":
            return False
        words = processes.command_line(stat.pid)
        if not words or not fits(" ".join(words)):
            return False
        return not adoption.user or _owner(stat.pid)[1] == adoption.user

    def _take(self, adoption: Adoption, stat: Stat) -> None:
        who = processes.identify(stat.pid)
        uid, owner = _owner(stat.pid)
        if who is None or uid < 0 or (os.getuid() != 0 and uid != os.getuid()):
            return
        spec = replace(adoption.spec, argv=tuple(processes.command_line(stat.pid)))
        self._adopt(spec, uid, owner, who, led_group(who))


def led_group(process: ProcessId) -> int:
    """The process group that an adopted process leads, or 0.

    A group that somebody else leads is that one's: of a script, of a shell without job
    control. Whoever joins it later is no part of the job.
    """
    found = processes.read_stat(process.pid)
    leads = found is not None and found.start_ticks == process.start_ticks and found.pgrp == process.pid
    return process.pid if leads else 0


def _compiled(pattern: str) -> Callable[[str], bool]:
    import re2

    compiled = re2.compile(pattern)
    return lambda text: compiled.search(text) is not None


def _below(pid: int, roots: set[int], seen: dict[int, Stat]) -> bool:
    while (stat := seen.get(pid)) is not None and stat.ppid > 1:
        if stat.ppid in roots:
            return True
        pid = stat.ppid
    return False


def _owner(pid: int) -> tuple[int, str]:
    try:
        uid = os.stat(f"/proc/{pid}").st_uid
        return uid, pwd.getpwuid(uid).pw_name
    except KeyError:
        return uid, str(uid)
    except OSError:
        return -1, ""
