"""The books of attempts: written to the store as they end, and read for the report and for learnt limits."""

from __future__ import annotations

import hashlib
from typing import Any

from sentinel.jobs import limits
from sentinel.model.jobs import Job, JobSpec
from sentinel.model.wire import encode
from sentinel.store.database import StoreUnavailable
from sentinel.store.store import Store


class Accounts:
    """Keeps one row per ended attempt.

    Args:
        store: Where the rows go.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._written: dict[str, int] = {}

    def on_job(self, job: Job) -> None:
        """Write down the attempts of a job that have ended since."""
        done = self._written.get(job.id, 0)
        for one in job.past:
            if one.attempt > done:
                self._store.put_row(
                    "attempts",
                    {
                        "id": f"{job.id}-{one.attempt}",
                        "job_id": job.id,
                        "job": job.name,
                        "uid": job.uid,
                        "owner": job.owner,
                        "command": command(job.spec),
                        "cost_per_hour": job.spec.cost_per_hour,
                        **encode(one),
                    },
                )
                self._written[job.id] = one.attempt
        if not job.alive:
            self._written.pop(job.id, None)

    def learnt(self, name: str, spec: JobSpec) -> tuple[float, int]:
        """The limit of `--timeout auto` for a job (seconds), and how many runs it rests on. For a thread."""
        try:
            p99_s, runs = self._store.run_p99(name, command(spec))
        except StoreUnavailable:
            p99_s, runs = None, 0
        return limits.learnt(p99_s, runs), runs

    def rows(self, since: float) -> list[dict[str, Any]]:
        """The attempts that ended since then (Unix seconds), oldest first. For a thread."""
        self._store.flush()
        try:
            return self._store.attempts(since)
        except StoreUnavailable:
            return []


def command(spec: JobSpec) -> str:
    """Tells one command from another, without telling what it is."""
    return hashlib.sha256("\0".join(spec.argv).encode("utf-8", "replace")).hexdigest()[:16]
