"""Who has ended: jobs without a supervisor, and supervisors without whom a job goes on."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
from collections.abc import Callable, Sequence

from sentinel.clock import Clock
from sentinel.jobs import endfile, housekeeping
from sentinel.jobs.handover import Handover
from sentinel.jobs.logfile import LogFile
from sentinel.jobs.register import Register
from sentinel.jobs.settings import Settings
from sentinel.jobs.trees import Forest
from sentinel.model.jobs import Job, JobState, ProcessId
from sentinel.system import processes

_CAP_EVERY_S = 60.0
_SWEEP_EVERY_S = 3600.0
_AGAIN_S = 60.0
"""How much longer a supervisor that starts its job again may take: it may be looking for us."""


class Monitor:
    """Watches, by pidfd, the leader and the supervisor of every living job.

    A job with a supervisor ends when the supervisor says how; this one only
    steps in when nobody is left who could. `tick` does the same by looking, so
    that a kernel without pidfds, a restart or a missed wake-up is no blind spot.

    Args:
        register: The jobs; learns what happened.
        forest: Their trees.
        clock: For the grace that a supervisor has.
        settings: How long that is.
        handover: Whose ptys are drained once a supervisor is dead.
        left: Exit code, signal and time that a supervisor wrote down for an attempt, or None.
        awaited: Whether somebody has still to say something about an attempt that is over.
    """

    def __init__(
        self,
        register: Register,
        forest: Forest,
        clock: Clock,
        settings: Settings | None = None,
        handover: Handover | None = None,
        left: Callable[[Job], tuple[int | None, int | None, float] | None] | None = None,
        awaited: Callable[[Job], bool] = lambda job: False,  # noqa: ARG005 - nobody has
    ) -> None:
        self._register = register
        self._forest = forest
        self._clock = clock
        self._settings = settings or Settings()
        self._handover = handover
        self._left = left or read_end
        self._awaited = awaited
        self._unheard: dict[str, float] = {}
        self._pidfds: dict[ProcessId, int] = {}
        self._leaderless: dict[str, float] = {}
        self._cap_next = 0.0
        self._sweep_next = clock.monotonic() + _CAP_EVERY_S

    def tick(self) -> None:
        """Look at every living job; call it each tick, and after a job was registered or started."""
        living = self._register.living()
        for job in living:
            self._look(job)
        living = self._register.living()
        wanted = {process for job in living for process in (job.root, job.supervisor) if process is not None}
        for process in wanted - self._pidfds.keys():
            self._watch(process)
        for process in self._pidfds.keys() - wanted:
            self._unwatch(process)
        self._leaderless = {job.id: self._leaderless[job.id] for job in living if job.id in self._leaderless}
        self._unheard = {job.id: self._unheard[job.id] for job in living if job.id in self._unheard}
        self._forest.keep([job.id for job in living])
        self._cap([job for job in living if job.supervisor is None])
        self._sweep([job.id for job in living])
        if self._handover is not None:
            self._handover.tidy({job.id for job in living})

    def close(self) -> None:
        """Stop watching."""
        for process in list(self._pidfds):
            self._unwatch(process)

    def _look(self, job: Job) -> None:
        if job.supervisor is not None:
            if not processes.same(job.supervisor):
                self._supervisor_gone(job)
            elif job.state is JobState.WAITING:
                return  # it has no process, and its supervisor knows when it will
            elif job.root is not None and not processes.same(job.root):
                # It saw the end too; it has a while to say how.
                since = self._leaderless.setdefault(job.id, self._clock.monotonic())
                grace_s = self._settings.report_grace_s + (_AGAIN_S if job.spec.retries else 0.0)
                if self._clock.monotonic() - since > grace_s:
                    self._ended_unseen(job)
            return
        if job.root is None:
            self._register.vanished(job.id)
        elif not processes.same(job.root):
            self._ended_unseen(job)

    def _supervisor_gone(self, job: Job) -> None:
        if job.root is None:
            self._register.vanished(job.id)
            return
        if job.state is JobState.WAITING:
            self._register.attempt_ended(
                job.id, attempt=job.attempt, exit_code=job.exit_code, exit_signal=job.exit_signal,
                at=self._clock.now(), reason="its supervisor died before the next attempt",
            )  # fmt: skip
            return
        if not processes.same(job.root):
            self._ended_unseen(job)
            return
        adopted = self._register.supervisor_lost(job.id)
        if self._handover is not None:
            self._handover.orphaned(adopted)

    def _ended_unseen(self, job: Job) -> None:
        """The leader is gone. What the supervisor left behind says how, or nobody does."""
        since = self._unheard.setdefault(job.id, self._clock.monotonic())
        if self._clock.monotonic() - since <= self._settings.report_grace_s and self._awaited(job):
            return
        left = self._left(job)
        if left is None:
            self._register.vanished(job.id)
        else:
            code, number, at = left
            self._register.attempt_ended(job.id, attempt=job.attempt, exit_code=code, exit_signal=number, at=at)

    def _cap(self, unsupervised: Sequence[Job]) -> None:
        """Without a supervisor the logs of our own user's jobs are kept from growing by us."""
        if self._clock.monotonic() < self._cap_next:
            return
        self._cap_next = self._clock.monotonic() + _CAP_EVERY_S
        for path in [path for job in unsupervised if job.uid == os.getuid() for path in job.output]:
            with contextlib.suppress(OSError), LogFile(path, self._settings.log_limit_bytes) as log:
                log.cap()

    def _sweep(self, living: Sequence[str]) -> None:
        """Now and then, in a thread: the output of jobs that ended long ago goes."""
        if self._clock.monotonic() < self._sweep_next:
            return
        self._sweep_next = self._clock.monotonic() + _SWEEP_EVERY_S
        asyncio.get_running_loop().run_in_executor(
            None,
            functools.partial(
                housekeeping.sweep,
                self._register.outputs,
                {*living, *(job.id for job in self._register.recent())},
                now=self._clock.now(),
                older_s=self._settings.keep_output_s,
                limit_bytes=self._settings.output_limit_bytes,
            ),
        )

    def _watch(self, process: ProcessId) -> None:
        try:
            descriptor = os.pidfd_open(process.pid)
        except OSError:
            return  # gone, or no pidfds here: the next tick sees it
        try:
            asyncio.get_running_loop().add_reader(descriptor, self._on_end, process)
        except BaseException:
            os.close(descriptor)
            raise
        self._pidfds[process] = descriptor

    def _on_end(self, process: ProcessId) -> None:
        self._unwatch(process)
        asyncio.get_running_loop().call_soon(self.tick)

    def _unwatch(self, process: ProcessId) -> None:
        descriptor = self._pidfds.pop(process, None)
        if descriptor is None:
            return
        with contextlib.suppress(RuntimeError):
            asyncio.get_running_loop().remove_reader(descriptor)
        os.close(descriptor)


def read_end(job: Job) -> tuple[int | None, int | None, float] | None:
    """Exit code, signal and time that a supervisor wrote down for this attempt, if it is the daemon's own user's."""
    if job.uid != os.getuid() or not job.output:
        return None
    return endfile.read(os.path.dirname(job.output[0]), job.attempt)
