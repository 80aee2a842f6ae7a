"""Numbers that follow from events and from the clock rather than from a measurement."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sentinel.collectors.counters import Counters
from sentinel.collectors.gauges import Board
from sentinel.collectors.joblogs import JobLogs
from sentinel.model.checkpoints import Checkpoint
from sentinel.model.events import Event
from sentinel.model.families import (
    CHECKPOINTS,
    JOB,
    JOB_REQUESTS,
    LOG,
    LOG_VOLUME,
    MONEY,
    SENTINEL,
    SENTINEL_NOTIFY,
)
from sentinel.model.jobs import Job

COUNTED = (LOG, LOG_VOLUME, JOB_REQUESTS, CHECKPOINTS, SENTINEL_NOTIFY)
"""The families whose counters events move."""


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

    def tick(self, jobs: Sequence[Job], at: float, lag_s: float) -> None:
        """What the clock moves: money, work at risk, last output."""
        self._board.set(SENTINEL, (), sentinel_store_lag_seconds=lag_s)
        for job in jobs:
            if job.attempt_started is None:
                continue
            newest = self._newest(job.id)
            output, progress = self._logs.last_output(job.id), None
            if newest is not None and newest.finished >= job.attempt_started:
                progress = newest.finished
            self._board.set(
                JOB,
                (job.name,),
                job_last_output_timestamp_seconds=output,
                job_last_progress_timestamp_seconds=progress,
            )
            since = max(job.attempt_started, progress or 0.0)
            at_risk = max(0.0, at - since)
            per_second = (job.spec.cost_per_hour or 0.0) / 3600.0
            priced = job.spec.cost_per_hour is not None
            self._board.set(
                MONEY,
                (job.name,),
                job_at_risk_seconds=at_risk,
                job_at_risk_cost=at_risk * per_second if priced else None,
                job_cost_total=max(0.0, at - job.attempt_started) * per_second if priced else None,
            )
