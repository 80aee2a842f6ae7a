"""Everybody's checkpoints: those of our own jobs looked at here, those of other users' jobs told by their hands."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from sentinel.collectors.jobcheckpoints import JobCheckpoints
from sentinel.collectors.joblogs import Count
from sentinel.model.checkpoints import Checkpoint, CheckpointState
from sentinel.model.families import CHECKPOINT, CHECKPOINTS
from sentinel.model.jobs import Job
from sentinel.model.series import Batch, Entity, Support

TOLD_FOR_S = 10.0
"""What a hand has told goes dark when it is not told again for so long."""
_MOST_TOLD = 200


class Lookout:
    """A collector like the one it joins.

    Args:
        own: Looks at the places of our own jobs.
        count: Moves checkpoints_total.
        tell: Called with each checkpoint that became whole or broken.
        clock: Unix seconds.
    """

    name = JobCheckpoints.name
    families = JobCheckpoints.families
    interval_s: float | None = JobCheckpoints.interval_s

    def __init__(
        self,
        own: JobCheckpoints,
        count: Count,
        tell: Callable[[Job, Checkpoint], None],
        clock: Callable[[], float],
    ) -> None:
        self._own = own
        self._count = count
        self._tell = tell
        self._clock = clock
        self._rows: dict[str, tuple[str, float, tuple[float | None, ...]]] = {}
        self._newest: dict[str, Checkpoint | None] = {}
        self._covered: set[Entity] = set()

    def supported(self) -> Support:
        """Needs only a file system."""
        return self._own.supported()

    def newest(self, job_id: str) -> Checkpoint | None:
        """The newest whole checkpoint of a job, as of the last look. Safe from any thread."""
        return self._newest[job_id] if job_id in self._newest else self._own.newest(job_id)

    def take(
        self, job: Job, row: Mapping[str, float], newest: Checkpoint | None, found: Sequence[Checkpoint] = ()
    ) -> None:
        """What its owner's hand has seen of a job whose places are not ours to look at."""
        if job.id not in self._newest:
            for state in (CheckpointState.COMPLETE, CheckpointState.BROKEN):
                self._count.declare(CHECKPOINTS, (job.name, state.value))
        values = tuple(row.get(metric.name) for metric in CHECKPOINT.metrics)
        self._rows[job.id] = (job.name, self._clock(), values)
        self._newest[job.id] = newest
        while len(self._newest) > _MOST_TOLD:
            del self._newest[next(iter(self._newest))]
        for checkpoint in found:
            self._count.inc(CHECKPOINTS, (job.name, checkpoint.state.value), "checkpoints_total")
            self._tell(job, checkpoint)

    def forget(self, job_id: str) -> None:
        """A job that a hand told of has ended; its newest checkpoint stays known."""
        self._rows.pop(job_id, None)

    def collect(self, at: float) -> Sequence[Batch]:
        """Look at every job's places once, and repeat what was told."""
        batches = list(self._own.collect(at))
        told, now = list(self._rows.values()), self._clock()
        values: dict[Entity, tuple[float | None, ...]] = {
            (name,): row for name, when, row in told if now - when < TOLD_FOR_S
        }
        present: set[Entity] = {(name,) for name, _, _ in told}
        if covers := self._covered | present:
            batches.append(CHECKPOINT.batch(at, values, covers))
        self._covered = present
        return batches
