"""The process trees of the jobs, with their memory of who was reparented."""

from __future__ import annotations

from collections.abc import Collection

from sentinel.model.jobs import Job, ProcessId
from sentinel.system import processes
from sentinel.system.processes import Scan, Stat, Tree


class Forest:
    """One tree per job. A look remembers its members, so that one who leaves group and session stays a member."""

    def __init__(self, proc: str = processes.PROC) -> None:
        self._proc = proc
        self._trees: dict[str, Tree] = {}

    def members(self, job: Job, seen: Scan | None = None) -> list[Stat]:
        """The job's processes now, zombies included; none before it has started."""
        if job.root is None:
            return []
        tree = self._trees.get(job.id)
        if tree is None or tree.root != job.root:
            tree = self._trees[job.id] = Tree(job.root, job.pgid)
        return tree.update(processes.scan(self._proc) if seen is None else seen)

    def identity(self, stat: Stat) -> ProcessId:
        """Who a member is, for ever."""
        return ProcessId(stat.pid, stat.start_ticks, processes.boot_id(self._proc))

    def keep(self, job_ids: Collection[str]) -> None:
        """Forget the trees of all other jobs."""
        for gone in self._trees.keys() - set(job_ids):
            del self._trees[gone]
