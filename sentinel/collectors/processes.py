"""Jobs: what their process trees use, and how far they are from the limit that kills."""

from __future__ import annotations

from collections.abc import Sequence

from sentinel.collectors.coverage import Coverage, row
from sentinel.collectors.memory import Budget, Constraint, GroupLimits, HostMemory, OomKills, SharedMemory, tightest
from sentinel.collectors.monotone import TreeCounter
from sentinel.collectors.ports import Facts, Targets, no_facts
from sentinel.collectors.trees import Trees
from sentinel.model.families import JOB, JOB_STATE
from sentinel.model.jobs import Job, JobState
from sentinel.model.series import Batch, Entity, Support
from sentinel.system.cgroups import Cgroups
from sentinel.system.processes import (
    PAGE_BYTES,
    PROC,
    TICKS_PER_SECOND,
    UNINTERRUPTIBLE,
    ZOMBIE,
    Stat,
    open_files,
    open_files_limit,
    proportional_bytes,
    storage_bytes,
)

_LIMITS_EVERY_S = 60.0
_STATES = tuple(JobState)


class JobCollector:
    """One row per job, from its processes, its control groups and what the daemon knows of it.

    Of the memory metrics, use, limit and headroom are always those of one and the
    same constraint: the one with the least headroom. A job that has ended keeps
    `job_up` 0 and its state for as long as the targets name it; all else ends at once.

    Args:
        targets: The jobs.
        trees: Who belongs to which.
        facts: Joins each job's row: last output, progress, step, degrade level…
        cgroups: The memory controller.
        proc: Where /proc is.
    """

    name = "processes"
    families = (JOB, JOB_STATE)
    interval_s: float | None = None

    def __init__(
        self,
        targets: Targets,
        trees: Trees,
        facts: Facts = no_facts,
        cgroups: Cgroups | None = None,
        proc: str = PROC,
    ) -> None:
        self._targets = targets
        self._trees = trees
        self._facts = facts
        self._proc = proc
        self._cgroups = Cgroups(proc) if cgroups is None else cgroups
        self._groups = GroupLimits(self._cgroups)
        self._host = HostMemory(proc)
        self._budget = Budget()
        self._accounts: dict[str, Accounts] = {}
        self._bases: dict[str, dict[str, float]] = {}
        self._coverage = Coverage()

    def supported(self) -> Support:
        """Needs only /proc."""
        return Support()

    def restore(self, job_id: str, metric: str, value: float) -> None:
        """Let a counter of a job go on from `value`, where the store left it."""
        self._bases.setdefault(job_id, {})[metric] = value

    def oom_kills(self, job_id: str) -> float | None:
        """Processes that the kernel killed in the groups of a living job during its present attempt.

        Asked now, and from any thread: at a job's end the last pass is older than
        what killed it. None where it cannot be known.
        """
        accounts = self._accounts.get(job_id)
        return accounts.kills.of_attempt() if accounts else None

    def collect(self, at: float) -> Sequence[Batch]:
        """All jobs."""
        jobs = _one_per_name(self._targets())
        living = [job for job in jobs if job.alive]
        members = self._trees.update(at, living)
        self._begin(at, {job.id for job in living})
        host = self._host.read()
        rows: dict[Entity, list[float | None]] = {
            (job.name,): self._row(job, at, members.get(job.id, []), host) for job in jobs
        }
        states: dict[Entity, list[float | None]] = {
            (job.name, state.value): [float(job.state is state)] for job in jobs for state in _STATES
        }
        return (self._coverage.batch(JOB, at, rows), self._coverage.batch(JOB_STATE, at, states))

    def collect_only(self, at: float, jobs: frozenset[str]) -> Sequence[Batch]:
        """The rows of some living jobs, ahead of the tick."""
        chosen = [job for job in _one_per_name(self._targets()) if job.name in jobs and job.alive and job.root]
        if not chosen:
            return ()
        self._groups.begin(at)
        host = self._host.read()
        return (JOB.batch(at, {(job.name,): self._row(job, at, self._trees.again(job), host) for job in chosen}),)

    def _begin(self, at: float, living: set[str]) -> None:
        self._groups.begin(at)
        for gone in self._accounts.keys() - living:
            self._accounts.pop(gone).shared.close()
            self._bases.pop(gone, None)

    def _row(self, job: Job, at: float, members: list[Stat], host: Constraint | None) -> list[float | None]:
        if not job.alive:
            return row(JOB, {"job_up": 0.0})
        values: dict[str, float | None] = {
            "job_attempts_total": float(job.attempt),
            "job_degrade_level": float(job.degrade_level),
            **self._facts(JOB, (job.name,)),
        }
        if job.attempt_started is not None:
            values["job_runtime_seconds"] = max(0.0, at - job.attempt_started)
        if job.root is not None:
            if job.id not in self._accounts:
                self._accounts[job.id] = Accounts(self._bases.get(job.id, {}), self._budget, self._cgroups, self._proc)
            values |= self._accounts[job.id].read(at, members)
            living = [stat for stat in members if stat.alive]
            kills = self._accounts[job.id].kills.update(job.root, self._groups.groups(living))
            values["job_cgroup_oom_kills_total"] = kills
            values |= self._memory(job, at, living, host)
        return row(JOB, values)

    def _memory(self, job: Job, at: float, living: list[Stat], host: Constraint | None) -> dict[str, float | None]:
        if not living:
            return {}
        constraints = self._groups.constraints(living)
        if job.spec.memory_limit_bytes is not None:
            held = self._accounts[job.id].shared.update(at, living)
            if held is not None:
                constraints.insert(0, Constraint("declared", float(held), float(job.spec.memory_limit_bytes)))
        if host is not None:
            constraints.append(host)
        if (least := tightest(constraints)) is None:
            return {}
        return {
            "job_memory_used_bytes": least.used_bytes,
            "job_memory_limit_bytes": least.limit_bytes,
            "job_memory_headroom_bytes": least.headroom_bytes,
        }


class Accounts:
    """What must be remembered of one job from pass to pass."""

    def __init__(self, bases: dict[str, float], budget: Budget, cgroups: Cgroups, proc: str) -> None:
        self.kills = OomKills(cgroups, bases.get("job_cgroup_oom_kills_total", 0.0))
        self.shared = SharedMemory(lambda pid: proportional_bytes(pid, proc), budget)
        self._proc = proc
        self._cpu = TreeCounter(bases.get("job_cpu_seconds_total", 0.0) * TICKS_PER_SECOND)
        self._read = TreeCounter(bases.get("job_read_bytes_total", 0.0))
        self._written = TreeCounter(bases.get("job_written_bytes_total", 0.0))
        self._io: dict[tuple[int, int], tuple[int, int]] = {}
        self._limits: dict[tuple[int, int], int | None] = {}
        self._limits_until = float("-inf")

    def read(self, at: float, members: list[Stat]) -> dict[str, float | None]:
        """The part of the row that needs only the processes. Zombies are no processes here, but count as such."""
        living = [stat for stat in members if stat.alive]
        own = {(stat.pid, stat.start_ticks): float(stat.utime_ticks + stat.stime_ticks) for stat in members}
        inherited = {(stat.pid, stat.start_ticks): float(stat.children_ticks) for stat in members}
        values: dict[str, float | None] = {
            "job_up": 1.0 if living else 0.0,
            "job_processes": float(len(living)),
            "job_cpu_seconds_total": self._cpu.update(own, inherited) / TICKS_PER_SECOND,
            "job_zombies": float(sum(stat.state == ZOMBIE for stat in members)),
            "job_uninterruptible": float(sum(stat.state == UNINTERRUPTIBLE for stat in members)),
        }
        if living:
            values["job_memory_rss_bytes"] = float(sum(stat.rss_pages for stat in living) * PAGE_BYTES)
        values |= self._storage(members)
        values |= self._files(at, living)
        return values

    def _storage(self, members: list[Stat]) -> dict[str, float | None]:
        """Bytes read and written by the members.

        Who cannot be read any more keeps its last reading while it is there: a
        zombie's part moves to its parent when it is reaped.
        """
        before, self._io = self._io, {}
        for stat in members:
            key = (stat.pid, stat.start_ticks)
            if (pair := storage_bytes(stat.pid, self._proc) or before.get(key)) is not None:
                self._io[key] = pair
        if members and not self._io:
            return {}
        return {
            "job_read_bytes_total": self._read.update({key: float(pair[0]) for key, pair in self._io.items()}),
            "job_written_bytes_total": self._written.update({key: float(pair[1]) for key, pair in self._io.items()}),
        }

    def _files(self, at: float, living: list[Stat]) -> dict[str, float | None]:
        if not self._limits_until - _LIMITS_EVERY_S <= at < self._limits_until:
            self._limits.clear()
            self._limits_until = at + _LIMITS_EVERY_S
        nearest: tuple[float, int, int] | None = None
        for stat in living:
            key = (stat.pid, stat.start_ticks)
            if key not in self._limits:
                self._limits[key] = open_files_limit(stat.pid, self._proc)
            limit, count = self._limits[key], open_files(stat.pid, self._proc)
            if limit and count is not None and (nearest is None or count / limit > nearest[0]):
                nearest = (count / limit, count, limit)
        return {} if nearest is None else {"job_open_fds": float(nearest[1]), "job_max_fds": float(nearest[2])}


def _one_per_name(jobs: Sequence[Job]) -> list[Job]:
    """The living job of each name, else the one that was registered last: a name is used again."""
    best: dict[str, Job] = {}
    for job in jobs:
        known = best.get(job.name)
        if known is None or (job.alive, job.created) >= (known.alive, known.created):
            best[job.name] = job
    return list(best.values())
