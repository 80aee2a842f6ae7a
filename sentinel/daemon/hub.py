"""The hub: every event passes here, on its way to whoever watches and to the store."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable

from sentinel.model.events import Event

KEPT = 2000
BACKLOG = 1000
"""Events that a slow listener may lag behind before it is dropped."""


class Hub:
    """Publishes events to listeners. Belongs to the event loop's thread.

    Args:
        keep: Where each event is also written down (the store); never raises.
    """

    def __init__(self, keep: Callable[[Event], None]) -> None:
        self._keep = keep
        self._recent: deque[Event] = deque(maxlen=KEPT)
        self._listeners: set[asyncio.Queue[Event | None]] = set()
        self._hooks: list[Callable[[Event], None]] = []

    def on(self, hook: Callable[[Event], None]) -> None:
        """Call `hook` with every event, in the order in which they are published."""
        self._hooks.append(hook)

    def publish(self, event: Event) -> None:
        """Tell everybody. A listener that cannot keep up is let go; it may come back with `since`."""
        self._recent.append(event)
        self._keep(event)
        for hook in self._hooks:
            hook(event)
        for queue in list(self._listeners):
            if queue.qsize() >= BACKLOG:
                self._listeners.discard(queue)
                queue.put_nowait(None)
            else:
                queue.put_nowait(event)

    def recent(self, since: float = 0.0) -> list[Event]:
        """The newest events in memory, from `since` on (Unix seconds), oldest first."""
        return [event for event in self._recent if event.time >= since]

    def refill(self, events: list[Event]) -> None:
        """Take back what was published before a restart."""
        self._recent.extend(events)

    async def listen(self) -> AsyncIterator[Event]:
        """Every event from now on, until the listener stops, falls behind, or the hub closes."""
        queue: asyncio.Queue[Event | None] = asyncio.Queue()
        self._listeners.add(queue)
        try:
            while (event := await queue.get()) is not None:
                yield event
        finally:
            self._listeners.discard(queue)

    @property
    def listeners(self) -> int:
        """How many follow."""
        return len(self._listeners)

    def close(self) -> None:
        """Let all listeners go."""
        for queue in list(self._listeners):
            queue.put_nowait(None)
