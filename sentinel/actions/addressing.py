"""Which jobs an action is about."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sentinel.model.alerts import ActionSpec, Alert, RuleSpec
from sentinel.model.jobs import Job

EVERY = "all"


def addressed(
    alert: Alert,
    action: ActionSpec,
    rule: RuleSpec,
    *,
    living: Sequence[Job],
    find: Callable[[str], Job | None],
    on_gpu: Callable[[str], Sequence[str]],
) -> list[Job]:
    """The jobs that `action` asks, in a stable order and each once.

    The alert's own job; for an alert about a GPU every job seen on it; else
    those that the action names. A rule of one user reaches only jobs of that
    user, a rule given to one job only that job.
    """
    found = _named(alert, action, living=living, find=find, on_gpu=on_gpu)
    return [
        job
        for job in found.values()
        if (rule.uid is None or rule.uid == job.uid)
        and (rule.job_id is None or rule.job_id == job.id)
        and (not action.owner or action.owner == job.owner)
    ]


def about(alert: Alert, *, find: Callable[[str], Job | None], on_gpu: Callable[[str], Sequence[str]]) -> dict[str, Job]:
    """By id, the jobs that an alert is about by its labels alone."""
    if alert.job is not None:
        return _by_id([find(alert.job)])
    if uuid := alert.labels.get("uuid"):
        return _by_id([find(name) for name in on_gpu(uuid)])
    return {}


def _named(
    alert: Alert,
    action: ActionSpec,
    *,
    living: Sequence[Job],
    find: Callable[[str], Job | None],
    on_gpu: Callable[[str], Sequence[str]],
) -> dict[str, Job]:
    if EVERY in action.jobs:
        return _by_id(living)
    if action.jobs:
        return _by_id([find(name) for name in action.jobs])
    if own := about(alert, find=find, on_gpu=on_gpu):
        return own
    has_subject = alert.job is not None or "uuid" in alert.labels
    return _by_id(living) if action.owner and not has_subject else {}


def _by_id(jobs: Sequence[Job | None]) -> dict[str, Job]:
    return {job.id: job for job in jobs if job is not None}
