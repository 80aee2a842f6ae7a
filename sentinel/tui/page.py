"""What both pages have in common: the header, the banner, the keys that ask a job."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, ClassVar, cast

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.css.query import NoMatches
from textual.screen import Screen
from textual.widgets import Footer

from sentinel.tui.chart import ALERT, ASKED_FOR, CHECKPOINT, Curve, Mark
from sentinel.tui.dialogs import Confirm, Help
from sentinel.tui.panels import Banner, Header
from sentinel.tui.snapshot import Alert, Event, Job
from sentinel.tui.text import literal

if TYPE_CHECKING:
    from sentinel.tui.app import SentinelApp

_SPANS_S = (60.0, 120.0, 300.0, 900.0, 3600.0)


class Page(Screen[None]):
    """A page with a job in view."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("c", "ask('checkpoint')", "checkpoint"),
        Binding("d", "ask('degrade')", "degrade"),
        Binding("a", "acknowledge", "ack"),
        Binding("r", "ask('restore')", "restore", show=False),
        Binding("p", "pause", "pause", show=False),
        Binding("s", "stop", "stop", show=False),
        Binding("plus,equals_sign", "zoom(1)", "more time", show=False),
        Binding("minus", "zoom(-1)", "less time", show=False),
        Binding("question_mark", "help", "help", key_display="?"),
        Binding("q", "app.quit", "quit"),
    ]
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (120, "-wide")]  # noqa: RUF012 - textual's own
    VERTICAL_BREAKPOINTS = [(0, "-flat"), (34, "-roomy")]  # noqa: RUF012 - textual's own

    def __init__(self, measured: tuple[str, list[tuple[float, float]]] = ("", [])) -> None:
        super().__init__()
        self._measured = measured
        self._ready = False

    @property
    def home(self) -> SentinelApp:
        """The app, by its own type."""
        return cast("SentinelApp", self.app)

    def compose(self) -> ComposeResult:
        """Header and banner above, keys below."""
        yield Header(self.home.hostname, self.home.seen, self.home.lost)
        yield Banner()
        yield from self.panels()
        yield Footer(show_command_palette=False)

    def panels(self) -> ComposeResult:
        """What stands between header and keys."""
        raise NotImplementedError

    def job(self) -> Job | None:
        """The job in view."""
        raise NotImplementedError

    def head(self, panel: str, title: str | Text, end: str = "") -> None:
        """Put a title, which is never markup, on a panel."""
        widget = self.query_one(panel)
        gap = " " if self.has_class("-flat") else ""  # a box has one of its own
        widget.border_title = Text.assemble(gap, title, gap)
        widget.border_subtitle = Text(end and f"{gap}{end}{gap}")

    def show(self) -> None:
        """The app has news."""
        self.query_one(Header).show(self.home.seen, self.home.lost)
        self.query_one(Banner).show(self.home.lost)

    def on_mount(self) -> None:
        """Show what is known; keep the clock and the chart going."""
        self.set_interval(1.0, self._tick)
        self._begin()  # before it is painted: what is known is not said to be missing

    def on_screen_resume(self) -> None:
        """Back from another page."""
        self.news()

    def news(self) -> None:
        """There is something new to show, once the page itself is there."""
        if self._ready:
            with contextlib.suppress(NoMatches):  # it is being taken down
                self.show()

    def measure(self) -> None:
        """Fetch the curve of the job in view."""
        job = self.job()
        if job is not None and not self.home.lost:
            self.home.fetch_curve(job, self.back_s(job), self.size.width)

    def measured(self, job_id: str, points: list[tuple[float, float]]) -> None:
        """The curve has come."""
        self._measured = (job_id, points)
        self.news()

    def curve(self, job: Job) -> Curve | None:
        """What the chart shows of a job."""
        job_id, points = self._measured
        seen = self.home.seen
        if job_id != job.id or seen is None:
            return None
        back = self.back_s(job)
        growing = job.alive and job.memory.full_in is not None
        return Curve(
            points=points,
            limit=job.memory.limit,
            growth=job.memory.growth if growing else None,
            now=seen.time,
            back_s=back,
            ahead_s=back / 4 if growing else 0.0,
            marks=marks(self.home.events_of(job)),
        )

    def back_s(self, job: Job) -> float:
        """How far back the chart of a job shows."""
        if self.home.back_s is not None:
            return self.home.back_s
        longest = self.home.settings.chart_s
        age = self.home.seen.time - job.started if self.home.seen and job.started else longest
        return min(longest, next((span for span in _SPANS_S if span >= age), longest))

    def picked_alerts(self) -> list[Alert]:
        """What the key a is about."""
        job, seen = self.job(), self.home.seen
        return list(seen.alerts_of(job)) if job and seen else []

    def action_ask(self, kind: str) -> None:
        """Ask the job in view."""
        if (job := self.job()) is None:
            self.home.say("there is no job to ask", severity="warning")
        else:
            self.home.ask(job, kind)

    def action_pause(self) -> None:
        """Pause, after a question; resume without."""
        if (job := self.job()) is None:
            return
        if job.state == "paused":
            self.home.ask(job, "resume")
            return
        self._confirm(job, "pause", "All its processes stand still until you resume it.")

    def action_stop(self) -> None:
        """Stop, after a question."""
        if (job := self.job()) is not None:
            self._confirm(job, "stop", "It is asked for a checkpoint where it can be, then told to end, then killed.")

    def action_acknowledge(self) -> None:
        """Say that the alerts have been seen."""
        firing = [alert for alert in self.picked_alerts() if alert.state == "firing" and not alert.acknowledged_by]
        if firing:
            self.home.acknowledge(firing)
        else:
            self.home.say("nothing to acknowledge here")

    def action_zoom(self, by: int) -> None:
        """Another span of time in the chart."""
        if (job := self.job()) is None:
            return
        now = self.back_s(job)
        place = min(range(len(_SPANS_S)), key=lambda index: abs(_SPANS_S[index] - now))
        self.home.back_s = _SPANS_S[max(0, min(len(_SPANS_S) - 1, place + by))]
        self.measure()

    def action_help(self) -> None:
        """The keys."""
        self.app.push_screen(Help())

    def _confirm(self, job: Job, kind: str, consequence: str) -> None:
        def answered(yes: bool | None) -> None:
            if yes:
                self.home.ask(job, kind)

        self.app.push_screen(Confirm(f"{kind} {literal(job.name, 60)}?", consequence), answered)

    def _begin(self) -> None:
        try:
            self.show()
        except NoMatches:  # what is nested deepest is mounted last
            self.call_after_refresh(self._begin)
            return
        self._ready = True
        self._tick()

    def _tick(self) -> None:
        if self.is_current and self._ready:
            with contextlib.suppress(NoMatches):
                self.query_one(Header).refresh()
                self.query_one(Banner).refresh()
                self.measure()


def marks(events: list[Event]) -> list[Mark]:
    """Checkpoints, requests and alerts as signs under the chart."""
    signs = {"checkpoint.complete": CHECKPOINT, "request.sent": ASKED_FOR, "alert.firing": ALERT}
    return [Mark(event.time, *signs[event.kind]) for event in events if event.kind in signs]
