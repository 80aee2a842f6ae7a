"""What the daemon says, fetched in threads: the dashboard itself never waits.

Two threads: one looks at everything once a second and at once after an event,
one follows the events. Both go on for ever: a daemon that is gone is tried
again until it answers.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, Protocol

from sentinel.api.client import ApiError, Client, Stream, path_with
from sentinel.tui.settings import Settings
from sentinel.tui.snapshot import Event, Snapshot, event, snapshot

_ENDED_EVERY_S = 10.0
"""How often jobs that have ended are asked for, when no event says that one has."""
_SHOW_ENDED_S = 15 * 60.0
_AT_MOST_EVERY_S = 0.2
"""However many events come."""


class Listener(Protocol):
    """Who wants to know. Called from the feed's threads."""

    def fresh(self, seen: Snapshot) -> None:
        """Everything, as it is now."""
        ...

    def happened(self, events: list[Event]) -> None:
        """New events, oldest first."""
        ...

    def lost(self, why: str) -> None:
        """The daemon does not answer."""
        ...


class Feed:
    """Keeps a listener informed until it is closed.

    Args:
        connect: Finds the daemon; raises ApiError where there is none. Called again after each loss.
        listener: Who wants to know.
        settings: How often.
    """

    def __init__(self, connect: Callable[[], Client], listener: Listener, settings: Settings) -> None:
        self._connect = connect
        self._listener = listener
        self._settings = settings
        self._poke = threading.Event()
        self._closed = threading.Event()
        self._stream: Stream | None = None
        self._ended: list[dict[str, Any]] = []
        self._ended_at: float | None = None
        self._threads = [
            threading.Thread(target=self._look, name="tui-look", daemon=True),
            threading.Thread(target=self._follow, name="tui-follow", daemon=True),
        ]

    def start(self) -> None:
        """Begin."""
        for thread in self._threads:
            thread.start()

    def poke(self) -> None:
        """Look again now."""
        self._poke.set()

    def close(self) -> None:
        """End both threads."""
        self._closed.set()
        self._poke.set()
        if self._stream is not None:
            self._stream.close()
        for thread in self._threads:
            if thread.is_alive():
                thread.join(timeout=2)

    def _look(self) -> None:
        client: Client | None = None
        while not self._closed.is_set():
            try:
                client = client or self._connect()
                self._listener.fresh(self._everything(client))
            except ApiError as fault:
                self._say_lost(fault)
                if client is not None:
                    client.close()
                client = None
            self._closed.wait(_AT_MOST_EVERY_S)
            self._poke.wait(self._settings.refresh_s if client else self._settings.retry_s)
            self._poke.clear()
        if client is not None:
            client.close()

    def _everything(self, client: Client) -> Snapshot:
        data = client.get("/v1/overview")
        if not isinstance(data, dict):
            raise ApiError("what answers there is not sentinel")
        now = time.monotonic()
        if self._ended_at is None or now - self._ended_at > _ENDED_EVERY_S:
            self._ended_at = now
            self._ended = [
                item
                for item in _list(client.get("/v1/jobs?all=1"))
                if (item.get("ended") or 0.0) > float(data.get("time") or 0.0) - _SHOW_ENDED_S
            ]
        return snapshot(data, list(self._ended))

    def _follow(self) -> None:
        since = 0.0
        known: set[str] = set()
        while not self._closed.is_set():
            try:
                with self._connect() as client:
                    self._stream = client.stream(
                        path_with("/v1/events", follow=1, limit=self._settings.events, since=since or None)
                    )
                with self._stream:
                    if self._closed.is_set():
                        return
                    for line in self._stream:
                        if (one := event(line)).id in known:
                            continue
                        known.add(one.id)
                        since = max(since, one.time)
                        if one.kind.startswith("job."):
                            self._ended_at = None
                        self._listener.happened([one])
                        self._poke.set()
            except ApiError:
                pass  # the other thread says it
            except ValueError:
                pass  # half a line of a daemon that was killed
            if len(known) > 50_000:
                known.clear()
            self._closed.wait(self._settings.retry_s)

    def _say_lost(self, fault: ApiError) -> None:
        if not self._closed.is_set():
            self._listener.lost(fault.message)


def _list(data: object) -> list[dict[str, Any]]:
    items = data.get("jobs") if isinstance(data, dict) else data
    return [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []
