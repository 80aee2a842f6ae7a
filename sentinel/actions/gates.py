"""May this be asked, now? A pure question with a named reason for every no."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from sentinel.model.jobs import Job
from sentinel.model.requests import DECLARED, RequestKind
from sentinel.units import format_duration


class Gate(StrEnum):
    """Why a request is not sent."""

    OBSERVE = "observe"  # the daemon only observes
    DRY_RUN = "dry_run"  # this job only wants to see what would be done
    SILENCED = "silenced"
    COOLING_DOWN = "cooling_down"
    FRESH = "fresh"  # another rule has just got the same from this job; it needs time to show
    BREAKER_JOB = "breaker_job"
    BREAKER_HOST = "breaker_host"
    START_UP = "start_up"  # before the first step or checkpoint sentinel only warns
    ALREADY_OPEN = "already_open"
    JOB_NOT_ALIVE = "job_not_alive"
    NO_CHANNEL = "no_channel"
    LOWEST = "lowest"  # degraded as far as the job can
    NOT_DEGRADED = "not_degraded"
    NOT_YOURS = "not_yours"
    UNJOURNALLED = "unjournalled"


FRESH_S = {RequestKind.CHECKPOINT: 60.0, RequestKind.DEGRADE: 30.0}
"""How long what a job has just done for one rule counts for all: a newer checkpoint would save next to nothing,
and a lower level needs time to show."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """A no, and why in words."""

    gate: Gate
    detail: str

    def __str__(self) -> str:
        return f"{self.gate.value}: {self.detail}"


@dataclass(frozen=True, slots=True)
class Facts:
    """All that the answer depends on.

    Attributes:
        job: Whom it would be for.
        kind: What would be asked.
        person: Whether a person asks; people know what they do, so nothing that
            only keeps sentinel from being a nuisance stops them.
        level: The job's degrade level.
        observe: Whether the daemon only observes.
        rule_uid: Whose rule it is; None for the daemon's own.
        silence: The silence that covers the alert, or None.
        open_request: A request of that kind to that job which is still open, or None.
        fresh: The request by which this job has just done the same, or None.
        cooling_until: Until when this rule has asked that often enough (Unix seconds).
        job_count: Requests sent to this job in the last hour.
        host_count: Requests sent to all jobs in the last hour.
        job_limit: Where the job's breaker opens.
        host_limit: Where the host's breaker opens.
        started_up: Whether the job is past its start-up.
        journal_up: Whether it can be written down first.
        at: Now (Unix seconds).
    """

    job: Job
    kind: RequestKind
    at: float
    person: bool = False
    level: int = 0
    observe: bool = False
    rule_uid: int | None = None
    silence: str | None = None
    open_request: str | None = None
    fresh: str | None = None
    cooling_until: float = 0.0
    job_count: int = 0
    host_count: int = 0
    job_limit: int = 20
    host_limit: int = 60
    started_up: bool = True
    journal_up: bool = True


def judge(facts: Facts) -> Verdict | None:
    """The first reason not to ask, or None where nothing stands against it.

    The order tells the user the most lasting reason first: what can never
    work, then what is not wanted, then what is only too soon.
    """
    job, kind = facts.job, facts.kind
    if not job.alive:
        return Verdict(Gate.JOB_NOT_ALIVE, f"{job.name} has ended ({job.state.value})")
    if facts.rule_uid is not None and facts.rule_uid != job.uid:
        return Verdict(Gate.NOT_YOURS, f"the rule belongs to another user than {job.name}")
    if kind in DECLARED and job.spec.channel(kind) is None:
        return Verdict(Gate.NO_CHANNEL, f"{job.name} declares no way to be asked for {kind.value} (--on-{kind.value})")
    if kind is RequestKind.DEGRADE and facts.level >= job.spec.degrade_levels:
        return Verdict(Gate.LOWEST, f"{job.name} is at level {facts.level} of {job.spec.degrade_levels} already")
    if kind is RequestKind.RESTORE and facts.level <= 0:
        return Verdict(Gate.NOT_DEGRADED, f"{job.name} is not degraded")
    if facts.observe:
        return Verdict(Gate.OBSERVE, "the daemon only observes")
    if job.spec.dry_run:
        return Verdict(Gate.DRY_RUN, f"{job.name} runs with --dry-run")
    if not facts.journal_up and kind is not RequestKind.CHECKPOINT:
        return Verdict(Gate.UNJOURNALLED, "the journal cannot be written; only checkpoints are asked for")
    if facts.open_request is not None:
        return Verdict(Gate.ALREADY_OPEN, f"request {facts.open_request} is still open")
    if facts.person:
        return None
    if facts.silence is not None:
        return Verdict(Gate.SILENCED, f"silence {facts.silence} covers the alert")
    if not facts.started_up:
        return Verdict(Gate.START_UP, f"{job.name} has not finished a step or a checkpoint yet; only warning")
    if facts.at < facts.cooling_until:
        left = format_duration(facts.cooling_until - facts.at)
        return Verdict(Gate.COOLING_DOWN, f"the rule asked for this before; again in {left}")
    if facts.fresh is not None:
        return Verdict(Gate.FRESH, f"{job.name} has just done that (request {facts.fresh})")
    if facts.job_count >= facts.job_limit:
        return Verdict(Gate.BREAKER_JOB, f"{facts.job_count} requests to {job.name} within an hour; only alerting")
    if facts.host_count >= facts.host_limit:
        return Verdict(Gate.BREAKER_HOST, f"{facts.host_count} requests on this host within an hour; only alerting")
    return None
