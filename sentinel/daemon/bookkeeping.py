"""Numbers that follow from events and from the clock rather than from a measurement."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from sentinel.collectors.counters import Counters
from sentinel.collectors.gauges import Board
from sentinel.collectors.joblogs import JobLogs
from sentinel.jobs import bill, limits
from sentinel.model.checkpoints import Checkpoint
from sentinel.model.events import Event
from sentinel.model.families import (
    CHECKPOINTS,
    HOST,
    JOB,
    JOB_REQUESTS,
    LOG,
    LOG_VOLUME,
    MONEY,
    SENTINEL,
    SENTINEL_NOTIFY,
)
from sentinel.model.jobs import Job, JobState

COUNTED = (LOG, LOG_VOLUME, JOB_REQUESTS, CHECKPOINTS, SENTINEL_NOTIFY)
"""The families whose counters events move."""

_JUMP_S = 1.0
_MOST_JUMPS = 1000


_GAPS_KEPT = 500


class Books:
    """Keeps counters and gauges in step with what happens.

    Args:
        counters: Counted by events.
        board: Told values.
        logs: When output last grew.
        newest: The newest whole checkpoint of a job by its id.
    """

    def __init__(
        self, counters: Counters, board: Board, logs: JobLogs, newest: Callable[[str], Checkpoint | None]
    ) -> None:
        self._counters = counters
        self._board = board
        self._logs = logs
        self._newest = newest
        self._last: tuple[float, float] | None = None
        self._jumps: list[tuple[float, float]] = []
        self._paces: dict[str, _Pace] = {}

    def on_event(self, happened: Event) -> None:
        """Move the counters that an event moves."""
        data = happened.data
        if happened.kind == "request.closed" and happened.job:
            entity = (happened.job, str(data.get("request", "")), str(data.get("answer", "")))
            self._counters.inc(JOB_REQUESTS, entity, "job_requests_total")
        elif happened.kind in {"notification.sent", "notification.failed"}:
            entity2 = (str(data.get("receiver", "")), happened.kind.removeprefix("notification."))
            self._counters.inc(SENTINEL_NOTIFY, entity2, "sentinel_notifications_total")

    def job_ended(self, job: Job) -> None:
        """Its series end."""
        self._counters.end_where("job", job.name)
        self._board.end_where("job", job.name)

    def idle(self, jobs: Sequence[Job], paid: Job | None, boot: float | None, at: float) -> None:
        """What a priced machine has cost since its last job ended; it is priced once a priced job has run on it."""
        if paid is None or paid.ended is None or paid.spec.cost_per_hour is None:
            return
        idle_s = 0.0 if jobs else max(0.0, at - max(paid.ended, boot or 0.0))
        self._board.set(HOST, (), host_idle_cost_total=paid.spec.cost_per_hour * idle_s / 3600.0)

    def at_risk_s(self, job: Job, at: float) -> float:
        """The work of a job that would be lost right now (seconds)."""
        if job.attempt_started is None or job.state is JobState.WAITING:
            return 0.0
        newest = self._newest(job.id)
        since = max(job.attempt_started, newest.finished if newest is not None else 0.0)
        return max(0.0, at - since - self._jumped_since(since))

    def tick(self, jobs: Sequence[Job], at: float, lag_s: float, monotonic: float) -> None:
        """What the clock moves: money, work at risk, last output, and the limits that are in force.

        Args:
            jobs: Those that live.
            at: Unix seconds.
            lag_s: Of the store.
            monotonic: The same moment by the clock that stands still while the machine sleeps.
        """
        self._watch_the_clock(at, monotonic)
        self._board.set(SENTINEL, (), sentinel_store_lag_seconds=lag_s)
        self._paces = {job.id: self._paces.get(job.id, _Pace()) for job in jobs}
        for job in jobs:
            if job.attempt_started is None:
                continue
            newest = self._newest(job.id)
            output = self._logs.last_output(job.id)
            step, progress = self._logs.progress(job.id)
            if newest is not None and newest.finished >= job.attempt_started:
                progress = max(newest.finished, progress or 0.0)
            if step is not None:
                self._board.set(JOB, (job.name,), job_step=float(step))
            self._board.set(
                JOB,
                (job.name,),
                job_last_output_timestamp_seconds=output,
                job_last_progress_timestamp_seconds=progress,
                job_timeout_seconds=job.timeout_s,
                job_stall_limit_seconds=self._paces[job.id].limit(max(output or 0.0, progress or 0.0)),
            )
            at_risk = self.at_risk_s(job, at)
            running = job.state is not JobState.WAITING
            ran = sum(one.ended - one.started for one in job.past) + (at - job.attempt_started if running else 0.0)
            priced = job.spec.cost_per_hour is not None
            self._board.set(
                MONEY,
                (job.name,),
                job_at_risk_seconds=at_risk,
                job_at_risk_cost=bill.money(job, at_risk),
                job_cost_total=bill.money(job, max(0.0, ran)),
                job_wasted_cost_total=bill.money(job, bill.lost_s(job.past)) if priced else None,
            )

    def _watch_the_clock(self, at: float, monotonic: float) -> None:
        """Remember when the wall clock ran ahead: nobody worked while the machine slept."""
        if self._last is not None:
            jumped = (at - self._last[0]) - (monotonic - self._last[1])
            if abs(jumped) >= _JUMP_S:
                self._jumps = [*self._jumps[-_MOST_JUMPS:], (at, jumped)]
        self._last = at, monotonic

    def _jumped_since(self, since: float) -> float:
        return sum(jumped for at, jumped in self._jumps if at > since)


class _Pace:
    """How far apart the signs of life of a job are."""

    def __init__(self) -> None:
        self._last = 0.0
        self._gaps: deque[float] = deque(maxlen=_GAPS_KEPT)

    def limit(self, moment: float) -> float:
        """After how long without one it counts as stalled, having seen that the last was at `moment`."""
        if moment > self._last:
            if self._last:
                self._gaps.append(moment - self._last)
            self._last = moment
        return limits.stall_limit(list(self._gaps))
