"""What a hand and the daemon say to each other: a report, and what comes back on it. It only grows.

The hand asks, about twice a second, by `POST /v1/jobs/ID/hand`. A report is sent
again, with the same number, until it was answered; an errand is given again until
a report says that it was taken. So what is lost on the way is neither lost nor
done twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sentinel.model.checkpoints import Checkpoint
from sentinel.model.jobs import How, Job
from sentinel.model.logs import LogEvent
from sentinel.model.requests import Delivery
from sentinel.notify.ports import Parcel, Receipt
from sentinel.paths import shipped

MOST_EVENTS = 50
"""Log events in one report; what is more is said by the counts of the last of each kind."""


@dataclass(frozen=True, slots=True)
class Errand:
    """One request to be handed to the job by its owner's hand.

    Attributes:
        id: Of this errand.
        how: file, exec or http; signals need no hand.
        target: The path, the command line or the URL, as the job declared it.
        message: What the job is told.
        timeout_s: How long it may take.
    """

    id: str
    how: How
    target: str
    message: Mapping[str, object]
    timeout_s: float


@dataclass(frozen=True, slots=True)
class Result:
    """What came of one errand."""

    id: str
    delivery: Delivery


@dataclass(frozen=True, slots=True)
class Look:
    """What there is where the job writes its checkpoints.

    Attributes:
        row: The values of the family `checkpoint`, by name, without those that there are not.
        newest: The newest whole one, or None.
        found: Those that became whole or broken since the last report.
    """

    row: Mapping[str, object]
    newest: Checkpoint | None = None
    found: tuple[Checkpoint, ...] = ()


@dataclass(frozen=True, slots=True)
class Left:
    """How an attempt ended, as its supervisor wrote it down beside the logs."""

    attempt: int
    exit_code: int | None
    exit_signal: int | None
    at: float


@dataclass(frozen=True, slots=True)
class Report:
    """What a hand has seen and done since its last report.

    Attributes:
        hand: Names this process.
        seq: Of the report, from 1.
        events: What the logs said, oldest first.
        lines: Lines read.
        size_bytes: Bytes read.
        output_at: When output last grew (Unix seconds).
        recent: What the logs said before; only in the first report to a daemon.
        look: At the checkpoints; None: not looked, or there are no places.
        taken: Ids of the errands and parcels that it has.
        results: Of errands.
        receipts: Of parcels.
        drained: The attempt whose output it has read to its end, or 0.
        left: How the attempt ended, where its supervisor wrote that down.
    """

    hand: str
    seq: int
    events: tuple[LogEvent, ...] = ()
    lines: int = 0
    size_bytes: int = 0
    output_at: float | None = None
    recent: tuple[LogEvent, ...] = ()
    look: Look | None = None
    taken: tuple[str, ...] = ()
    results: tuple[Result, ...] = ()
    receipts: tuple[Receipt, ...] = ()
    drained: int = 0
    left: Left | None = None


@dataclass(frozen=True, slots=True)
class Habits:
    """What the daemon's configuration says about the work of hands.

    Attributes:
        patterns: Files of log patterns beside the shipped ones.
        ack_poll_s: How often to look for the answer beside a request file.
        exec_limit_s: How long a program that carries a request may run, at most.
        mail_timeout_s: For one attempt to reach one address.
        log_limit_bytes: How much of an attempt's output is kept.
    """

    patterns: tuple[str, ...] = ()
    ack_poll_s: float = 0.1
    exec_limit_s: float = 300.0
    mail_timeout_s: float = 30.0
    log_limit_bytes: int = 256 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Orders:
    """The answer to a report.

    Attributes:
        job: As the daemon knows it.
        errands: Requests to hand over, those given before and not yet taken included.
        parcels: Messages to the owner's addresses, likewise.
        drain: Whether the attempt is over, so that its output is to be read to the end.
        over: Whether nothing is left to do.
        habits: How to work; only where the hand is new to this daemon.
    """

    job: Job
    errands: tuple[Errand, ...] = ()
    parcels: tuple[Parcel, ...] = ()
    drain: bool = False
    over: bool = False
    habits: Habits | None = None


def shipped_patterns() -> list[Path]:
    """The packs of log patterns that daemon and hands know alike."""
    return sorted((shipped("rules") / "patterns").glob("*.yaml"))
