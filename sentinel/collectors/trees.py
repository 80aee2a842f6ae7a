"""The process trees of all jobs, from one look at /proc that everybody shares."""

from __future__ import annotations

import os
from collections.abc import Sequence

from sentinel.model.jobs import Job, ProcessId
from sentinel.system.processes import PROC, Processes, Stat, Tree, children_of, identify

FULL_SCAN_S = 30.0


class Trees:
    """Who belongs to which job.

    Used by one thread; `owners` and `own` may be read from any.

    Args:
        proc: Where /proc is.
    """

    def __init__(self, proc: str = PROC) -> None:
        self._proc = proc
        self._processes = Processes(proc)
        self._trees: dict[str, Tree] = {}
        self._full_at = float("-inf")
        ourselves = identify(os.getpid(), proc)
        self._ourselves = Tree(ourselves) if ourselves else None
        self.owners: dict[int, str] = {}
        self.own: list[Stat] = []

    def update(self, at: float, jobs: Sequence[Job]) -> dict[str, list[Stat]]:
        """The members of each of `jobs` by job id, zombies included. `at`: Unix seconds."""
        trees = {job.id: self._tree(job.id, job.root, job.pgid) for job in jobs if job.root is not None}
        watched = {pid for tree in trees.values() for pid in tree.pids}
        watched |= {tree.root.pid for tree in trees.values()} | {stat.pid for stat in self.own}
        full = not 0 <= at - self._full_at < FULL_SCAN_S
        seen = self._processes.look(watched, full=full)
        if full:
            self._full_at = at
        children = children_of(seen)
        members = {id_: tree.update(seen, children) for id_, tree in trees.items()}
        self._trees = trees
        names = {job.id: job.name for job in jobs}
        self.owners = {stat.pid: names[id_] for id_, stats in members.items() for stat in stats}
        if self._ourselves is not None:
            self.own = [stat for stat in self._ourselves.update(seen, children) if stat.pid not in self.owners]
        return members

    def again(self, job: Job) -> list[Stat]:
        """The members of one job now, found among those of the last update and what is new since."""
        if job.root is None:
            return []
        tree = self._tree(job.id, job.root, job.pgid)
        self._trees[job.id] = tree
        seen = self._processes.look({*tree.pids, job.root.pid})
        return tree.update(seen)

    def _tree(self, id_: str, root: ProcessId, pgid: int) -> Tree:
        tree = self._trees.get(id_)
        return tree if tree and tree.root == root and tree.pgid == pgid else Tree(root, pgid)
