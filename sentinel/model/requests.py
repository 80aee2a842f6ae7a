"""Requests: what sentinel asks of a job, and what came of it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

_GATE = re.compile(r"[a-z]+(_[a-z]+)*: ")


class RequestKind(StrEnum):
    """What can be asked of a job."""

    CHECKPOINT = "checkpoint"
    DEGRADE = "degrade"
    RESTORE = "restore"
    PAUSE = "pause"
    RESUME = "resume"
    STOP = "stop"
    RESTART = "restart"
    DUMP = "dump"


DECLARED = frozenset({RequestKind.CHECKPOINT, RequestKind.DEGRADE, RequestKind.RESTORE})
"""The kinds that need a channel which the job declared."""


class RequestState(StrEnum):
    """planned → sent → acknowledged → closed; any of them may close."""

    PLANNED = "planned"
    SENT = "sent"
    ACKNOWLEDGED = "acknowledged"
    CLOSED = "closed"


class Answer(StrEnum):
    """How a request was closed."""

    DONE = "done"
    REFUSED = "refused"  # by the job, or by a safety rule: `detail` says which
    FAILED = "failed"
    EXPIRED = "expired"  # no answer by the deadline
    UNKNOWN = "unknown"  # sentinel was restarted between sending and the answer
    SUPPRESSED = "suppressed"  # never sent: dry run, silence, cooldown, breaker


class Effect(StrEnum):
    """Whether what was asked for could be seen to happen."""

    OBSERVED = "observed"
    NOT_OBSERVED = "not_observed"
    NOT_OBSERVABLE = "not_observable"


@dataclass(frozen=True, slots=True)
class Request:
    """One request and its history so far.

    Attributes:
        id: Unique for ever.
        job_id: Whom it was for, for ever.
        job: The job's name at the time.
        attempt: The attempt it was for.
        kind: What was asked.
        level: For degrade and restore, the level the job should go to; else None.
        reason: Why, in words for people and the job.
        alert: The fingerprint of the alert that asked, or None when a person did.
        by: "rule:NAME", "user:NAME" or "sentinel".
        created: When it was planned; `sent`, `acknowledged`, `closed` follow (Unix seconds or None).
        deadline: When it expires (Unix seconds).
        state: How far it has come.
        answer: Set once closed.
        effect: Whether it was seen to happen.
        detail: Which way it went and why, in words.
        via: The channel used, as declared.
        unjournalled: Whether it went out although the journal could not be written.
    """

    id: str
    job_id: str
    job: str
    attempt: int
    kind: RequestKind
    level: int | None
    reason: str
    alert: str | None
    by: str
    created: float
    deadline: float
    state: RequestState = RequestState.PLANNED
    sent: float | None = None
    acknowledged: float | None = None
    closed: float | None = None
    answer: Answer | None = None
    effect: Effect | None = None
    detail: str = ""
    via: str = ""
    unjournalled: bool = False

    @property
    def open(self) -> bool:
        """Whether an answer may still come."""
        return self.state is not RequestState.CLOSED

    @property
    def words(self) -> str:
        """`detail` for people."""
        return in_words(self.detail, sent=self.sent is not None)

    def wire(self) -> dict[str, object]:
        """What the job is told: the body of http, the content of file, the stdin of exec."""
        return {
            "id": self.id,
            "job": self.job,
            "attempt": self.attempt,
            "request": self.kind.value,
            "level": self.level,
            "reason": self.reason,
            "alert": self.alert,
            "deadline": self.deadline,
        }


def in_words(detail: str, *, sent: bool) -> str:
    """The `detail` of a request for people: without the name of the gate that it was stopped at."""
    found = None if sent else _GATE.match(detail)
    return detail[found.end() :] if found else detail


class Outcome(StrEnum):
    """What a channel can say right after a delivery."""

    SENT = "sent"  # on its way; an acknowledgement may follow
    ACKNOWLEDGED = "acknowledged"
    DONE = "done"
    REFUSED = "refused"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Delivery:
    """What came of handing one request to one job.

    Attributes:
        outcome: How far it got.
        detail: In words; for a signal the pids that got it, for a refusal the reason.
        pids: The processes signalled.
    """

    outcome: Outcome
    detail: str = ""
    pids: tuple[int, ...] = ()
