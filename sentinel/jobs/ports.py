"""What jobs need from others, said in their own words."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from sentinel.model.events import Event
from sentinel.model.jobs import Job
from sentinel.model.requests import Delivery

Publish = Callable[[Event], None]


class Journal(Protocol):
    """Where everything is written down before it is done."""

    def append(self, kind: str, data: Mapping[str, object]) -> None:
        """Make one record durable.

        Raises:
            JournalUnavailable: It could not be made durable.
        """
        ...


class Caller(Protocol):
    """One connection to the daemon, as the supervisor needs it: `sentinel.api.client.Client` is one."""

    @property
    def socket_path(self) -> str:
        """Where the daemon listens."""
        ...

    def post(self, path: str, body: Any = None, *, timeout_s: float | None = None) -> Any:
        """Send `body` as JSON, return the JSON that comes back.

        Raises:
            SentinelError: The daemon refused, or did not answer.
        """
        ...

    def get(self, path: str, *, timeout_s: float | None = None) -> Any:
        """Return the JSON that comes back.

        Raises:
            SentinelError: The daemon refused, or did not answer.
        """
        ...

    def close(self) -> None:
        """Give the connection back."""
        ...


class Connect(Protocol):
    """Finds the daemon."""

    def __call__(self, *, start: bool, quiet: bool) -> Caller:
        """A connection.

        Args:
            start: Whether a per-user daemon may be started where there is none.
            quiet: Whether to say nothing about that.

        Raises:
            SentinelError: There is none.
        """
        ...


class Hand(Protocol):
    """Whoever runs programs, writes files and calls addresses as the job's owner.

    Nothing here raises for what the job did: the answer is in the Delivery.
    """

    async def file(self, path: str, message: Mapping[str, object], *, timeout_s: float) -> Delivery:
        """Put the message at `path` and wait for `path`.ack with its id."""
        ...

    async def execute(
        self, argv: Sequence[str], message: Mapping[str, object], *, cwd: str, timeout_s: float
    ) -> Delivery:
        """Run a program with the message on its stdin."""
        ...

    async def http(self, url: str, message: Mapping[str, object], *, timeout_s: float) -> Delivery:
        """POST the message."""
        ...


HandOf = Callable[[Job], Hand]
"""The hand that acts for a job's owner."""
