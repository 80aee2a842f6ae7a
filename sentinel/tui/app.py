"""The dashboard: what is known, what is asked, and the pages that show it."""

from __future__ import annotations

import asyncio
import contextlib
import math
import signal
import socket
from collections import deque
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal

from textual.app import App
from textual.message import Message
from textual.theme import Theme

from sentinel.api.client import ApiError, Client, path_with, quote
from sentinel.tui import snapshot as reading
from sentinel.tui.feed import Feed
from sentinel.tui.overview import OverviewPage
from sentinel.tui.page import Page
from sentinel.tui.settings import Settings
from sentinel.tui.snapshot import Alert, Event, Job, Request, Snapshot
from sentinel.tui.text import literal

Loudness = Literal["information", "warning", "error"]

NIGHT = Theme(
    name="sentinel",
    primary="#39c5bb",
    secondary="#58a6ff",
    accent="#39c5bb",
    warning="#e3b341",
    error="#ff6b61",
    success="#3fb950",
    foreground="#d7dde5",
    background="#0d1117",
    surface="#161b22",
    panel="#161b22",
    dark=True,
    variables={"panel-lighten-1": "#30363d", "text-muted": "#7d8793"},
)


class SentinelApp(App[None]):
    """The dashboard of one daemon.

    Args:
        connect: Finds the daemon; raises ApiError where there is none.
        settings: How it behaves.
        hostname: Shown in the header.
    """

    CSS_PATH = Path(__file__).with_name("sentinel.tcss")
    TITLE = "sentinel"
    ENABLE_COMMAND_PALETTE = False
    COMMANDS: ClassVar[set[Any]] = set()

    class Fresh(Message):
        """Everything, as it is now."""

        def __init__(self, seen: Snapshot) -> None:
            super().__init__()
            self.seen = seen

    class Happened(Message):
        """New events."""

        def __init__(self, events: list[Event]) -> None:
            super().__init__()
            self.events = events

    class Lost(Message):
        """The daemon does not answer."""

        def __init__(self, why: str) -> None:
            super().__init__()
            self.why = why

    class Measured(Message):
        """A curve has come."""

        def __init__(self, job_id: str, points: list[tuple[float, float]]) -> None:
            super().__init__()
            self.job_id = job_id
            self.points = points

    class Asked(Message):
        """What was asked of a job so far."""

        def __init__(self, job_id: str, requests: list[Request]) -> None:
            super().__init__()
            self.job_id = job_id
            self.requests = requests

    class Said(Message):
        """Something to show in a corner."""

        def __init__(self, words: str, severity: Loudness) -> None:
            super().__init__()
            self.words = words
            self.severity = severity

    def __init__(
        self, connect: Callable[[], Client], settings: Settings | None = None, hostname: str | None = None
    ) -> None:
        super().__init__()
        self.settings = settings or Settings()
        self.hostname = hostname or socket.gethostname()
        self.seen: Snapshot | None = None
        self.lost = ""
        self.back_s: float | None = None
        """What the user wants the charts to show; None: as long as the job has run, up to the settings' span."""
        self.events: deque[Event] = deque(maxlen=self.settings.events)
        self._requests: tuple[str, list[Request]] = ("", [])
        self._connect = connect
        self._feed = Feed(connect, _Post(self), self.settings)
        self._stale = False
        self._handlers: dict[signal.Signals, Any] = {}

    def on_mount(self) -> None:
        """Begin to listen."""
        self.register_theme(NIGHT)
        self.theme = "sentinel"
        self.push_screen(OverviewPage())
        self.set_interval(0.2, self._catch_up)
        self._leave_when_told()
        self._feed.start()

    def on_unmount(self) -> None:
        """Listen no more."""
        for number, handler in self._handlers.items():
            asyncio.get_running_loop().remove_signal_handler(number)
            signal.signal(number, handler)
        self._feed.close()

    def on_sentinel_app_fresh(self, message: Fresh) -> None:
        """The daemon has said how it is."""
        if self.lost and self.seen is not None:
            self.say("the daemon is back")
        self.seen, self.lost = message.seen, ""
        self._stale = True

    def on_sentinel_app_happened(self, message: Happened) -> None:
        """Something happened."""
        self.events.extend(message.events)
        self._stale = True

    def on_sentinel_app_lost(self, message: Lost) -> None:
        """The daemon is gone."""
        self.lost = message.why
        self._stale = True

    def on_sentinel_app_measured(self, message: Measured) -> None:
        """A curve for the page in front."""
        if (page := self._page()) is not None:
            page.measured(message.job_id, message.points)

    def on_sentinel_app_asked(self, message: Asked) -> None:
        """What was asked of the job in view."""
        self._requests = (message.job_id, message.requests)
        self._stale = True

    def on_sentinel_app_said(self, message: Said) -> None:
        """A toast."""
        self.say(message.words, severity=message.severity)

    def say(self, words: str, severity: Loudness = "information") -> None:
        """A toast; the words are never markup."""
        self.notify(literal(words, 400), severity=severity, timeout=6.0, markup=False)

    def events_of(self, job: Job) -> list[Event]:
        """What is known to have happened to one job."""
        return [event for event in self.events if event.job == job.name]

    def requests_of(self, job: Job) -> list[Request]:
        """What was asked of one job, oldest first."""
        job_id, requests = self._requests
        return requests if job_id == job.id and requests else list(job.requests)

    def ask(self, job: Job, kind: str) -> None:
        """Ask a job something; a toast says what came of it."""
        self.say(f"{job.name}: asking it to {kind} …")
        self.run_worker(partial(self._ask, job, kind), thread=True, group="ask", exit_on_error=False)

    def acknowledge(self, alerts: list[Alert]) -> None:
        """Say that somebody has seen them."""
        self.run_worker(partial(self._acknowledge, alerts), thread=True, group="ask", exit_on_error=False)

    def fetch_curve(self, job: Job, back_s: float, width: int) -> None:
        """Fetch the memory of a job for the page in front."""
        if self.seen is not None:
            self.run_worker(
                partial(self._fetch_curve, job, self.seen.time, back_s, width),
                thread=True, group="curve", exclusive=True, exit_on_error=False,
            )  # fmt: skip

    def fetch_requests(self, job: Job) -> None:
        """Fetch what was asked of a job."""
        self.run_worker(
            partial(self._fetch_requests, job), thread=True, group="requests", exclusive=True, exit_on_error=False
        )

    def _leave_when_told(self) -> None:
        """SIGTERM and SIGHUP end it as q does, so that the terminal is left as it was."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGHUP):
            before = signal.getsignal(number)
            with contextlib.suppress(RuntimeError, ValueError):  # not in the main thread
                loop.add_signal_handler(number, self.exit)
                self._handlers[number] = before

    def _catch_up(self) -> None:
        """At most five times a second, however much happens."""
        if self._stale:
            self._stale = False
            if (page := self._page()) is not None:
                page.news()

    def _page(self) -> Page | None:
        """The page in front; None under a dialog, and while the app begins or ends."""
        front = self.screen_stack[-1] if self.screen_stack else None
        return front if isinstance(front, Page) else None

    def _ask(self, job: Job, kind: str) -> None:
        body = {
            "request": kind,
            "reason": "asked in the dashboard",
            "timeout_seconds": 60.0,
            "wait": self.settings.wait_s,
        }
        try:
            with self._connect() as client:
                answer = client.post(
                    f"/v1/jobs/{quote(job.id)}/requests", body, timeout_s=self.settings.wait_s + client.timeout_s
                )
        except ApiError as fault:
            hint = f" ({fault.hint})" if fault.hint else ""
            self.post_message(self.Said(f"{job.name}: {fault.message}{hint}", "error"))
            return
        self.post_message(self.Said(*_outcome(job, kind, answer)))
        self._feed.poke()

    def _acknowledge(self, alerts: list[Alert]) -> None:
        try:
            with self._connect() as client:
                for alert in alerts:
                    client.post(f"/v1/alerts/{quote(alert.id)}/ack", {})
        except ApiError as fault:
            self.post_message(self.Said(f"not acknowledged: {fault.message}", "error"))
            return
        names = ", ".join(sorted({alert.rule for alert in alerts}))
        self.post_message(self.Said(f"acknowledged: {names}", "information"))
        self._feed.poke()

    def _fetch_curve(self, job: Job, now: float, back_s: float, width: int) -> None:
        step = max(1.0, round(back_s / max(40, width)))
        end = int(now / step) * step
        name = job.name.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        path = path_with(
            "/api/v1/query_range",
            query=f'job_memory_used_bytes{{job="{name}"}}',
            start=end - back_s, end=end, step=step,
        )  # fmt: skip
        try:
            with self._connect() as client:
                answer = client.get(path)
        except ApiError:
            return  # the feed says when the daemon is gone
        self.post_message(self.Measured(job.id, _points(answer, job.started)))

    def _fetch_requests(self, job: Job) -> None:
        try:
            with self._connect() as client:
                answer = client.get(path_with("/v1/requests", job=job.id))
        except ApiError:
            return
        items = answer if isinstance(answer, list) else []
        self.post_message(self.Asked(job.id, [reading.request(item) for item in items if isinstance(item, dict)]))


class _Post:
    """The feed's listener: from its threads into the app's messages."""

    def __init__(self, app: SentinelApp) -> None:
        self._app = app

    def fresh(self, seen: Snapshot) -> None:
        """Everything, as it is now."""
        self._app.post_message(SentinelApp.Fresh(seen))

    def happened(self, events: list[Event]) -> None:
        """New events."""
        self._app.post_message(SentinelApp.Happened(events))

    def lost(self, why: str) -> None:
        """The daemon is gone."""
        self._app.post_message(SentinelApp.Lost(why))


def _outcome(job: Job, kind: str, answer: object) -> tuple[str, Loudness]:
    """What a toast says about an answered request."""
    request = reading.request(answer if isinstance(answer, dict) else {})
    detail = f": {request.detail}" if request.detail else ""
    effect = {"observed": ", seen to work", "not_observed": ", but no effect was seen"}.get(request.effect, "")
    words = f"{job.name}: {kind} {request.outcome or 'asked'}{effect}{detail}"
    if request.answer in {"failed", "expired"}:
        return words, "error"
    return words, "information" if request.answer in {"", "done"} else "warning"


def _points(answer: object, since: float | None) -> list[tuple[float, float]]:
    """The one series of a range query; nothing from before this attempt, which may have been another job's."""
    data = answer.get("data") if isinstance(answer, dict) else None
    result = data.get("result") if isinstance(data, dict) else None
    if not isinstance(result, list) or not result:
        return []
    found: list[tuple[float, float]] = []
    for moment, value in result[0].get("values", ()):
        try:
            number = float(value)
        except (TypeError, ValueError):
            continue
        if math.isfinite(number) and (since is None or moment >= since - 1):
            found.append((float(moment), number))
    return found


def run(connect: Callable[[], Client], settings: Settings | None = None) -> None:
    """Show the dashboard until the user quits."""
    SentinelApp(connect, settings).run()
