"""Events: things that happened. One envelope for all of them."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Severity(StrEnum):
    """How loudly to say it."""

    INFO = "info"
    WARNING = "warning"
    CRITICAL = "critical"


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened.

    Attributes:
        id: Unique; sorts by time of creation.
        time: Unix seconds.
        kind: log.KIND, checkpoint.complete|broken, job.STATE, alert.pending|firing|resolved,
            request.sent|acknowledged|closed, notification.sent|failed, gpu.xid,
            collector.down|up, store.*, sentinel.*.
        job: The name of the job it is about, or None.
        severity: How loudly to say it.
        message: One line for people; text from jobs in it is already cleaned and masked.
        data: The particulars, plain JSON.
        uid: Whose it is; None for the host's, which everybody may see.
    """

    id: str
    time: float
    kind: str
    job: str | None
    severity: Severity
    message: str
    data: Mapping[str, object] = field(default_factory=dict)
    uid: int | None = None


def new_id(prefix: str = "") -> str:
    """A fresh id: 40 bits of milliseconds, then 40 random bits, in hex, so ids sort by time."""
    return f"{prefix}{(time.time_ns() // 1_000_000) & 0xFFFFFFFFFF:010x}{os.urandom(5).hex()}"


def event(
    kind: str,
    message: str,
    *,
    at: float,
    job: str | None = None,
    severity: Severity = Severity.INFO,
    uid: int | None = None,
    **data: object,
) -> Event:
    """A new event with an id of its own."""
    return Event(new_id("e"), at, kind, job, severity, message, data, uid)
