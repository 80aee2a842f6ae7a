"""Looking at the places where jobs write their checkpoints."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from sentinel.checkpoints.watch import Watcher, free_space
from sentinel.collectors.joblogs import Count
from sentinel.model.checkpoints import Checkpoint, CheckpointState
from sentinel.model.families import CHECKPOINT, CHECKPOINTS
from sentinel.model.jobs import Job
from sentinel.model.series import Batch, Entity, Support


class JobCheckpoints:
    """One row per job that declares a checkpoint directory.

    Only whole checkpoints count: one that is still being written is neither
    fresh nor broken. A job without any is covered but has no value for the
    last one, so a rule sees it with ``absent()``.

    Args:
        targets: The living jobs.
        count: Moves checkpoints_total.
        tell: Called in this thread with each checkpoint that became whole or broken
            since the job was first looked at.
        clock: Unix seconds, on the clock that stamps files.
    """

    name = "checkpoints"
    families = (CHECKPOINT,)
    interval_s: float | None = 1.0

    def __init__(
        self,
        targets: Callable[[], Sequence[Job]],
        count: Count,
        tell: Callable[[Job, Checkpoint], None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._targets = targets
        self._count = count
        self._tell = tell
        self._clock = clock
        self._watchers: dict[str, Watcher] = {}
        self._newest: dict[str, Checkpoint | None] = {}
        self._covered: set[Entity] = set()

    def supported(self) -> Support:
        """Needs only a file system."""
        return Support()

    def newest(self, job_id: str) -> Checkpoint | None:
        """The newest whole checkpoint of a job, as of the last look. Safe from any thread."""
        return self._newest.get(job_id)

    def collect(self, at: float) -> Sequence[Batch]:
        """Look at every job's places once."""
        jobs = [job for job in self._targets() if job.spec.checkpoints]
        values: dict[Entity, tuple[float | None, ...]] = {(job.name,): self._row(job) for job in jobs}
        covers = self._covered | set(values)
        self._covered = set(values)
        for gone in self._watchers.keys() - {job.id for job in jobs}:
            del self._watchers[gone]
        return (CHECKPOINT.batch(at, values, covers),) if covers else ()

    def _row(self, job: Job) -> tuple[float | None, ...]:
        places = [place.path for place in job.spec.checkpoints]
        first = job.id not in self._watchers
        watcher = self._watchers.setdefault(job.id, Watcher(places))
        if first:
            for state in (CheckpointState.COMPLETE, CheckpointState.BROKEN):
                self._count.declare(CHECKPOINTS, (job.name, state.value))
        for checkpoint in watcher.poll(self._clock()):
            # What was there at the first look was not made in this job's time.
            if not first:
                self._count.inc(CHECKPOINTS, (job.name, checkpoint.state.value), "checkpoints_total")
                self._tell(job, checkpoint)
        newest = self._newest[job.id] = watcher.newest()
        targets = [place.interval_s for place in job.spec.checkpoints if place.interval_s is not None]
        space = free_space(places)
        return (
            newest.finished if newest else None,
            newest.size_bytes if newest else None,
            newest.step if newest else None,
            newest.write_seconds if newest else None,
            min(targets) if targets else None,
            space[0] if space else None,
            space[1] if space else None,
        )
