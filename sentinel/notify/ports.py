"""What notification needs from others, said in its own words."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from sentinel.model.alerts import Alert
from sentinel.model.checkpoints import Checkpoint
from sentinel.model.events import Event
from sentinel.model.jobs import Job
from sentinel.model.requests import Request

Publish = Callable[[Event], None]
FindJob = Callable[[str], Job | None]
"""A job by id; else the living one of that name; else the last that had it, as long as it is remembered."""
JobsOf = Callable[[Alert], Sequence[Job]]
"""The jobs an alert is about."""
RequestsOf = Callable[[Alert], Sequence[Request]]
"""What was asked because of an alert, oldest first."""
Newest = Callable[[str], Checkpoint | None]
"""The newest whole checkpoint of a job, by its id."""
SpeaksFor = Callable[[Job], bool]
"""Whether messages to the addresses that a job's owner gave can go out in that owner's name."""


class Journal(Protocol):
    """Where everything is written down before it is done."""

    def append(self, kind: str, data: Mapping[str, object]) -> None:
        """Make one record durable.

        Raises:
            JournalUnavailable: It could not be made durable.
        """
        ...


class Silences(Protocol):
    """What people asked not to hear of."""

    def covering(self, alert: Alert) -> str | None:
        """The id of a silence in force that covers this alert, or None."""
        ...


@dataclass(frozen=True, slots=True)
class Parcel:
    """One message for one address, as handed to the courier.

    Attributes:
        id: Of the letter.
        url: Where to, secrets included.
        title: Plain text, one line.
        body: Plain text.
        severity: info, success, warning or failure, as receivers know them.
        job_id: Of the job whose owner gave the address; None: it is the configuration's.
    """

    id: str
    url: str
    title: str
    body: str
    severity: str
    job_id: str | None = None


@dataclass(frozen=True, slots=True)
class Receipt:
    """What came of one parcel.

    Attributes:
        id: Of the letter.
        delivered: Whether the other side took it.
        error: Why not, without secrets.
        retry_after_s: What the other side asked us to wait, where it said so.
        hopeless: Whether trying again is of no use (the address itself is wrong).
    """

    id: str
    delivered: bool
    error: str = ""
    retry_after_s: float | None = None
    hopeless: bool = False


class Courier(Protocol):
    """Carries parcels; used from one worker thread at a time."""

    def exchange(self, parcels: Sequence[Parcel], wait_s: float) -> list[Receipt]:
        """Take parcels on, wait at most `wait_s`, and hand back the receipts that are there by then.

        Never raises: what is lost comes back as a receipt that says so.
        """
        ...

    def check(self, urls: Sequence[str]) -> list[str | None]:
        """For each address what is wrong with it, or None; nothing is sent."""
        ...

    def close(self) -> None:
        """Let go of everything."""
        ...
