"""From any thread to the event loop: what collectors, logs and the store have to say."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from sentinel.model.checkpoints import Checkpoint
from sentinel.model.events import Event
from sentinel.model.jobs import Job
from sentinel.model.logs import LogEvent
from sentinel.model.series import Batch


class Mail:
    """A letter box that is there before anybody reads it.

    Every method returns at once and never raises. What is posted on the loop's own thread is
    handled there and then, so that order is kept.
    """

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting: list[tuple[Callable[..., None], tuple[Any, ...]]] = []
        self._handlers: dict[str, Callable[..., None]] = {}
        self._targets: tuple[Job, ...] = ()

    def open(self, loop: asyncio.AbstractEventLoop, **handlers: Callable[..., None]) -> None:
        """From now on letters are handled; those that waited first."""
        self._loop = loop
        self._handlers = handlers
        waiting, self._waiting = self._waiting, []
        for post, arguments in waiting:
            post(*arguments)

    def close(self) -> None:
        """What comes now is dropped."""
        self._loop, self._handlers = None, {}

    def publish(self, happened: Event) -> None:
        """An event."""
        self._post("event", happened)

    def batch(self, batch: Batch) -> None:
        """Something was measured."""
        self._post("batch", batch)

    def recorded(self, batch: Batch) -> None:
        """A rule has recorded something; on the loop's thread, and kept before the next rule is evaluated."""
        self._handlers["batch"](batch)

    def answered(self) -> None:
        """A rule that looked far back has its answer."""
        self._post("answered")

    def log_events(self, job: Job, events: list[LogEvent]) -> None:
        """A job's log said something."""
        self._post("log_events", job, events)

    def checkpoint(self, job: Job, found: Checkpoint) -> None:
        """A checkpoint became whole, or turned out to be broken."""
        self._post("checkpoint", job, found)

    def targets(self) -> Sequence[Job]:
        """The jobs to look at, as of the last `set_targets`."""
        return self._targets

    def set_targets(self, jobs: Sequence[Job]) -> None:
        """Which jobs to look at from now on."""
        self._targets = tuple(jobs)

    def _post(self, name: str, *arguments: Any) -> None:
        loop = self._loop
        if loop is None:
            if not self._handlers:
                self._waiting.append((self._post, (name, *arguments)))
            return
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:
            running = None
        if running is loop:
            self._handlers[name](*arguments)
            return
        try:
            loop.call_soon_threadsafe(self._handlers[name], *arguments)
        except RuntimeError:  # the loop has ended
            return
