"""Plays the demonstration: starts everything, keeps the boards moving, watches, tells."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from sentinel.api.client import ApiError, Client, path_with
from sentinel.demo import boards
from sentinel.demo.api import LimitedApi
from sentinel.demo.cast import Role, cast
from sentinel.demo.house import House
from sentinel.demo.story import Moment, Story, Verdict

_LOOK_S = 0.4
_LATE_S = 1.0
"""An event may be published so long after the moment it is about."""


class Stage:
    """Everything that runs while the demonstration does.

    Attributes:
        house: The daemon and its jobs.
        story: What has been seen.
        began: Unix seconds.
    """

    def __init__(self, house: House, api: LimitedApi, began: float) -> None:
        self.house = house
        self.story = Story()
        self.began = began
        self.roles: tuple[Role, ...] = cast(house.root, api.url)
        self._api = api
        self._client = house.client()
        self._since = began
        self._ended = threading.Event()

    def elapsed(self) -> float:
        """Seconds since the beginning."""
        return time.time() - self.began

    def start(self) -> None:
        """Start the four jobs."""
        for role in self.roles:
            self.house.run(role.name, role.options, role.module, role.arguments)

    def look(self) -> list[Moment | Verdict]:
        """One look at the daemon; what is new and that nothing from before can still come."""
        began = self.elapsed()
        try:
            overview = self._client.get("/v1/overview")
            events = self._client.get(path_with("/v1/events", since=self._since, limit=2000))
        except ApiError:
            return []  # a daemon that is gone shows as stories that do not end as told
        jobs: list[dict[str, Any]] = overview.get("jobs") or []
        if events:
            self._since = max(self._since, float(events[-1]["time"]) - 5.0)
        boards.write(self.house.gpus, _pids(jobs), self.elapsed())
        refused = None if self._api.last_refused is None else time.monotonic() - self._api.last_refused
        self.story.events(events, self.began)
        self.story.look(jobs, refused, self._api.served, self.elapsed())
        return list(self.story.news(until=began - _LATE_S))

    def play(self, seconds: float, tell: Callable[[Moment | Verdict], None]) -> list[Verdict]:
        """Watch until all four are decided or the time is up; the verdicts. All is told in order of time."""
        while True:
            for one in self.look():
                tell(one)
            if self.story.decided or self.elapsed() >= seconds or self._ended.wait(_LOOK_S):
                verdicts = self.story.close(self.elapsed())
                for one in self.story.news():
                    tell(one)
                return verdicts

    def play_on(self) -> None:
        """Watch for as long as the stage stands; for a thread."""
        while not self._ended.wait(_LOOK_S):
            self.look()

    def connect(self) -> Client:
        """For the dashboard."""
        return self.house.client()

    def end(self) -> None:
        """Watch no more."""
        self._ended.set()


@contextmanager
def stage() -> Iterator[Stage]:
    """A stage with everything on it, all four jobs started; nothing is left of it afterwards."""
    began = time.time()
    with _terminating(), LimitedApi() as api, House() as house:
        made = Stage(house, api, began)
        try:
            made.start()
            yield made
        finally:
            made.end()


def _pids(jobs: list[dict[str, Any]]) -> dict[str, int]:
    return {job["name"]: job["root"]["pid"] for job in jobs if job.get("root")}


@contextmanager
def _terminating() -> Iterator[None]:
    """SIGTERM and SIGHUP end the demonstration as Ctrl-C does: with everything cleaned up."""

    def leave(number: int, _frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, leave) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
