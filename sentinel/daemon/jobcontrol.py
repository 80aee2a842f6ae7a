"""The jobs, as actions ask them: the register, their processes and their checkpoints joined."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sentinel.clock import Clock
from sentinel.jobs.control import Control
from sentinel.jobs.register import Register
from sentinel.model.checkpoints import Checkpoint
from sentinel.model.jobs import Job
from sentinel.model.labels import METRIC_NAME
from sentinel.model.requests import Delivery, Request
from sentinel.promql.series import Match, Matcher, SeriesReader

SEEN_ON_GPU_S = 600.0
START_UP_S = 10.0
"""An attempt of which neither steps nor checkpoints were seen yet counts as starting up for so long.

Longer, and a job that leaks from its first second would be dead before it was
asked anything; a job that reports its steps says itself when it has started.
"""


class Jobs:
    """What `actions` calls JobControl.

    Args:
        register: Which jobs there are.
        control: How to reach them.
        window: Where jobs were seen on GPUs, and their steps.
        newest: The newest whole checkpoint of a job by its id.
        clock: The time.
    """

    def __init__(
        self,
        register: Register,
        control: Control,
        window: SeriesReader,
        newest: Callable[[str], Checkpoint | None],
        clock: Clock,
    ) -> None:
        self._register = register
        self._control = control
        self._window = window
        self._newest = newest
        self._clock = clock

    def find(self, name_or_id: str) -> Job | None:
        """A living job by name, or any known job by id."""
        found = self._register.find(name_or_id)
        return found if found is not None and (found.alive or found.id == name_or_id) else None

    def living(self) -> Sequence[Job]:
        """All jobs that may still have processes."""
        return self._register.living()

    def on_gpu(self, uuid: str) -> Sequence[str]:
        """The names of the jobs seen on that GPU in the last 10 minutes."""
        now = self._clock.now()
        matchers = (
            Matcher(METRIC_NAME, Match.EQUAL, "job_gpu_memory_bytes"),
            Matcher("uuid", Match.EQUAL, uuid),
        )
        names = {
            labels["job"]: None
            for block in self._window.select(matchers, now - SEEN_ON_GPU_S, now)
            for labels, present in zip(block.labels, block.present, strict=True)
            if present.any()
        }
        return list(names)

    async def deliver(self, job: Job, request: Request) -> Delivery:
        """Hand one request to one job."""
        return await self._control.deliver(job, request)

    async def hand_over(self, job: Job, request: Request, leaving: Callable[[], bool]) -> Delivery:
        """As `deliver`, saying when the request really leaves."""
        return await self._control.deliver(job, request, leaving)

    def set_degrade_level(self, job_id: str, level: int) -> None:
        """What the job's level is from now on."""
        self._register.set_degrade_level(job_id, level)

    def newest_checkpoint(self, job_id: str) -> Checkpoint | None:
        """The newest whole checkpoint, or None."""
        return self._newest(job_id)

    def has_progressed(self, job_id: str) -> bool:
        """Whether this attempt was seen to do more than start."""
        job = self._register.find(job_id)
        if job is None or job.attempt_started is None:
            return False
        newest = self._newest(job_id)
        if newest is not None and newest.finished >= job.attempt_started:
            return True
        return self._clock.now() - job.attempt_started >= START_UP_S
