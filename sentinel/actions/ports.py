"""What actions need from others, said in their own words."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, runtime_checkable

from sentinel.model.alerts import Alert
from sentinel.model.checkpoints import Checkpoint
from sentinel.model.events import Event
from sentinel.model.jobs import Job
from sentinel.model.requests import Delivery, Request

Publish = Callable[[Event], None]


class Journal(Protocol):
    """Where everything is written down before it is done."""

    def append(self, kind: str, data: Mapping[str, object]) -> None:
        """Make one record durable.

        Raises:
            JournalUnavailable: It could not be made durable.
        """
        ...


class JobControl(Protocol):
    """The jobs, as far as they can be asked something."""

    def find(self, name_or_id: str) -> Job | None:
        """A living job by name, or any known job by id."""
        ...

    def living(self) -> Sequence[Job]:
        """All jobs that may still have processes."""
        ...

    def on_gpu(self, uuid: str) -> Sequence[str]:
        """The names or ids of jobs seen on that GPU in the last 10 minutes."""
        ...

    async def deliver(self, job: Job, request: Request) -> Delivery:
        """Hand one request to one job; never raises for what the job did."""
        ...

    def set_degrade_level(self, job_id: str, level: int) -> None:
        """What the job's level is from now on."""
        ...

    def newest_checkpoint(self, job_id: str) -> Checkpoint | None:
        """The newest whole checkpoint, or None."""
        ...

    def has_progressed(self, job_id: str) -> bool:
        """Whether this attempt was seen to finish a step or a checkpoint, or that cannot be seen at all."""
        ...


@runtime_checkable
class SaysWhen(Protocol):
    """A JobControl that can also say when a request really leaves.

    Choosing whom to signal takes a while; a crash in between would leave it open
    whether the job was asked. One that says when keeps that moment short.
    """

    async def hand_over(self, job: Job, request: Request, leaving: Callable[[], bool]) -> Delivery:
        """As `deliver`, calling `leaving` on the loop right before the request leaves.

        Where `leaving` answers False the request must not leave (any more). Where it
        is never called, nothing has left.
        """
        ...


class Silences(Protocol):
    """What people asked not to hear of."""

    def covering(self, alert: Alert) -> str | None:
        """The id of a silence in force that covers this alert, or None."""
        ...


class NoSilences:
    """Nothing is silenced."""

    def covering(self, alert: Alert) -> str | None:  # noqa: ARG002 - the port's signature
        """None."""
        return None
