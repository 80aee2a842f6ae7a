"""The page of one job: its memory as it goes, what was asked of it, and the three questions."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import ClassVar

from rich.console import Group
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.widgets import Static

from sentinel.tui import cells
from sentinel.tui.page import Page
from sentinel.tui.panels import Events, Lines, MemoryChart, facts
from sentinel.tui.questions import Answered, questions
from sentinel.tui.rows import Row, Rows
from sentinel.tui.snapshot import Event, Job, Request
from sentinel.tui.text import DIM, FAINT, GOOD, NOTE, PLAIN, WARN, cell, count, literal, of, short_bytes, span, words

_CHECKPOINTS = 5
"""How many of the last checkpoints are listed."""


class Requests(Rows):
    """What was asked of the job, newest first: state, answer, effect."""

    empty: ClassVar[str] = "  nothing was asked of it: c checkpoint, d degrade"

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002 - textual's name
        super().__init__(id=id)
        self._requests: Sequence[Request] = ()
        self._now = 0.0

    def show(self, requests: Sequence[Request], now: float) -> None:
        """Another list, oldest first."""
        self._requests, self._now = requests, now
        self.rebuild()

    def build(self, width: int) -> tuple[Text | None, Sequence[Row]]:
        """One row a request."""
        if not self._requests:
            return None, ()
        head = Text(end="")
        head.append_text(cell("  AGO", 6, f"bold {DIM}", right=True)).append(" ")
        head.append_text(cell("REQUEST", 12, f"bold {DIM}")).append("ANSWER AND WHY", f"bold {DIM}")
        return head, [Row(request.id, self._line(request, width)) for request in reversed(self._requests)]

    def _line(self, request: Request, width: int) -> Text:
        age = span(self._now - request.created) if request.created is not None else "—"
        level = f" {request.level:.0f}" if request.level is not None else ""
        text = Text(end="")
        text.append_text(cell(age, 6, DIM, right=True)).append(" ")
        text.append_text(cell(f"{request.kind}{level}", 12, PLAIN))
        text.append_text(cells.request_words(request))
        for part, style in ((request.detail, PLAIN), (cells.asked_by(request.by), DIM), (request.reason, FAINT)):
            if part:
                text.append("  ").append(literal(part), style)
        text.truncate(width, overflow="ellipsis")
        return text


class JobTitle(Lines):
    """One line: who the job is and how it is."""

    def __init__(self, job: Job | None, now: float) -> None:
        super().__init__(id="title")
        self._job, self._now = job, now

    def show(self, job: Job | None, now: float) -> None:
        """Another moment."""
        self._job, self._now = job, now
        self.refresh()

    def lines(self, width: int, height: int) -> Sequence[Text]:
        """Name, state, and as many facts as fit."""
        if (job := self._job) is None:
            return [Text("this job is gone", DIM)]
        sign, style = cells.state(job)
        text = Text.assemble((literal(job.name, 80), f"bold {PLAIN}"), "  ", (f"{sign} {job.state}", style), end="")
        until = job.ended if job.ended is not None else self._now
        parts = [
            cells.ending(job),
            f"up {span(until - job.started)}" if job.started else "",
            f"attempt {job.attempt}" if job.attempt > 1 else "",
            f"pid {job.pid}" if job.pid else "",
            literal(job.owner, 32),
            "adopted" if job.adopted else "",
            "dry run" if job.dry_run else "",
            literal(" ".join(job.argv), 400),
        ]
        for part in filter(None, parts):
            text.append("  ").append(part, DIM)
        text.truncate(width, overflow="ellipsis")
        return [text][:height]


class JobPage(Page):
    """One job."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "back", "back", key_display="esc")]

    def __init__(self, job_id: str, measured: tuple[str, list[tuple[float, float]]] = ("", [])) -> None:
        super().__init__(measured)
        self._job_id = job_id
        self._last: Job | None = None

    def panels(self) -> ComposeResult:
        """Chart and questions above, requests and events below."""
        yield JobTitle(self.job(), self.home.seen.time if self.home.seen else 0.0)
        with Horizontal(id="upper"):
            yield Vertical(MemoryChart(), id="chart-panel", classes="panel")
            with VerticalScroll(id="facts", classes="panel"):
                yield Static(id="answers")
        with Horizontal(id="lower"):
            requests, events = Requests(id="requests"), Events(job=False, id="happened")
            for panel in (requests, events):
                panel.add_class("panel")
                yield panel

    def on_mount(self) -> None:
        """The keys go to the requests."""
        super().on_mount()
        self.query_one("#facts", VerticalScroll).can_focus = False
        self.query_one(Requests).focus()

    def job(self) -> Job | None:
        """The page's own; as it was last seen, once the daemon has forgotten it."""
        if self.home.seen is not None and (found := self.home.seen.job(self._job_id)) is not None:
            self._last = found
        return self._last

    def show(self) -> None:
        """Everything anew."""
        super().show()
        self.head("#facts", "Is it safe?")
        self.head("#requests", "Requests")
        self.head("#happened", "Events")
        job, seen = self.job(), self.home.seen
        if job is None or seen is None:
            return
        self.query_one(JobTitle).show(job, seen.time)
        self.query_one(MemoryChart).show(self.curve(job))
        machine = job.alive and cells.of_machine(job.memory, seen)
        title = Text("Memory of the machine" if machine else "Memory")
        if job.alive:
            said, style = cells.forecast(job.memory, machine=machine)
            title.append(f"  {of(job.memory.used, job.memory.limit)}  ", PLAIN).append(said, style)
        self.head("#chart-panel", title, f"last {words(self.back_s(job))}" if self.has_class("-roomy") else "")
        self.query_one(Requests).show(self.home.requests_of(job), seen.time)
        events = self.home.events_of(job)
        self.query_one(Events).show(events)
        self.query_one("#answers", Static).update(self._answers(job))

    def measure(self) -> None:
        """The curve, and what was asked."""
        super().measure()
        if (job := self.job()) is not None and not self.home.lost:
            self.home.fetch_requests(job)

    def action_back(self) -> None:
        """To the overview."""
        self.app.pop_screen()

    def _answers(self, job: Job) -> Group:
        """The three questions, then facts."""
        seen = self.home.seen
        assert seen is not None
        gap = "\n" if self.has_class("-roomy") else " "
        asked = [_answer(one, gap) for one in questions(job, seen, self.home.events_of(job))]
        found = _facts(job, checkpoints(self.home.events_of(job), seen.time), seen.time)
        return Group(*asked, Text(""), facts([(Text(name, DIM), said) for name, said in found]))


def _answer(one: Answered, gap: str) -> Text:
    text = Text.assemble((f"{one.question} ", f"bold {PLAIN}"), ("yes" if one.yes else "no", f"bold {one.style}"))
    text.append(f"  {one.says}", PLAIN)
    if one.do:
        text.append(f"{gap}→ {one.do}", NOTE if one.style != GOOD else DIM)
    return text


def checkpoints(events: Sequence[Event], now: float) -> str:
    """`step 142 (14s ago), step 10 (28s ago)`: the newest few that were seen written, and which are broken."""
    words = []
    for event in reversed(events):
        if event.checkpoint:
            broken = ", broken" if event.kind.endswith("broken") else ""
            words.append(f"{cells.checkpoint_name(event.checkpoint)} ({span(now - event.time)} ago{broken})")
    return ", ".join(words[:_CHECKPOINTS])


def _facts(job: Job, written: str, now: float) -> list[tuple[str, Text]]:
    found: list[tuple[str, Text]] = []

    def add(name: str, said: str, style: str = PLAIN) -> None:
        if said:
            found.append((name, Text(said, style)))

    if job.checkpoint is not None:
        add("newest", literal(os.path.basename(job.checkpoint.path.rstrip("/"))))
    add("written", written)
    asks = ", ".join(f"{kind} ({literal(how, 60)})" for kind, how in job.channels.items())
    add("can be asked", asks or "nothing: --on-checkpoint, --on-degrade", PLAIN if asks else WARN)
    if job.channels.get("degrade") or job.level:
        add("degraded", f"{job.level} of {job.levels}", WARN if job.level else PLAIN)
    add("GPU memory", short_bytes(job.gpu_memory) if job.gpu_memory else "")
    if job.memory.rss is not None and job.memory.used is not None and job.memory.rss > 1.5 * job.memory.used:
        add("shared pages", f"resident sets sum to {short_bytes(job.memory.rss)}; counted once")
    cpu = f"{job.cpu:.1f} cores, " if job.cpu is not None else ""
    add("uses", cpu + count(round(job.processes), "process", "processes") if job.processes is not None else "")
    if job.price is not None:
        ran = max(0.0, (job.ended or now) - job.started) if job.started is not None else 0.0
        add("costs", f"{job.price:g} an hour, {ran / 3600 * job.price:.2f} in this attempt")
    add("is told", f"{job.notify} of its own receivers" if job.notify else "")
    add("log", literal(job.output[0]) if job.output else "", DIM)
    return found
