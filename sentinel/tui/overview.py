"""The first page: GPUs, jobs, alerts, events, and the memory of the selected job where there is room."""

from __future__ import annotations

from typing import ClassVar

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical

from sentinel.tui import cells
from sentinel.tui.job import JobPage
from sentinel.tui.jobs_table import JobsTable
from sentinel.tui.page import Page
from sentinel.tui.panels import Alerts, Events, Gpus, MemoryChart
from sentinel.tui.rows import Rows
from sentinel.tui.snapshot import Alert, Job
from sentinel.tui.text import DIM, literal


class OverviewPage(Page):
    """Everything at one look."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter", "open", "job page", key_display="enter")]

    def panels(self) -> ComposeResult:
        """GPUs, jobs, then alerts and events beside a chart."""
        gpus, table, alerts, events = Gpus(id="gpus"), JobsTable(id="jobs"), Alerts(id="alerts"), Events(id="events")
        for panel in (gpus, table, alerts, events):
            panel.add_class("panel")
        gpus.display = False
        yield gpus
        yield table
        with Horizontal(id="below"):
            with Vertical(id="left"):
                yield alerts
                yield events
            yield Vertical(MemoryChart(), id="preview", classes="panel")

    def on_mount(self) -> None:
        """The keys go to the jobs."""
        super().on_mount()
        self.query_one(JobsTable).focus()

    def job(self) -> Job | None:
        """The one under the cursor."""
        return self.home.seen.job(self.query_one(JobsTable).key) if self.home.seen else None

    def show(self) -> None:
        """Everything anew."""
        super().show()
        self.head("#gpus", "GPUs")
        self.head("#events", "Events")
        if (seen := self.home.seen) is None:
            self.head("#jobs", "Jobs")
            self.head("#alerts", "Alerts")
            return
        self.query_one(Gpus).show(seen.gpus)
        self.query_one(JobsTable).show(seen)
        self.query_one(Alerts).show(seen)
        firing = len(seen.firing)
        self.head("#alerts", f"Alerts  {firing} firing" if firing else "Alerts")
        self.query_one(Events).show(self.home.events)
        over = sum(not job.alive for job in seen.jobs)
        self.head("#jobs", "Jobs", f"{over} ended" if over else "")
        self._preview()

    def picked_alerts(self) -> list[Alert]:
        """The one under the cursor where the alerts have the keys, else those of the job."""
        alerts = self.query_one(Alerts)
        if alerts.has_focus and self.home.seen is not None:
            return [alert for alert in self.home.seen.alerts if alert.id == alerts.key]
        return super().picked_alerts()

    def action_open(self) -> None:
        """The page of the job under the cursor, or of the alert's job."""
        job = self.job()
        if self.query_one(Alerts).has_focus and self.home.seen is not None:
            names = {alert.job for alert in self.picked_alerts() if alert.job}
            job = next((one for one in self.home.seen.jobs if one.name in names), job)
        if job is not None:
            self.app.push_screen(JobPage(job.id, self._measured))

    def measure(self) -> None:
        """Only where the chart is in sight."""
        if self.query_one("#preview").display:
            super().measure()

    @on(Rows.Moved, "#jobs")
    def moved(self) -> None:
        """Another job is in view."""
        self.news()
        self.measure()

    @on(Rows.Opened)
    def opened(self) -> None:
        """Clicked twice."""
        self.action_open()

    def _preview(self) -> None:
        job = self.job()
        chart = self.query_one(MemoryChart)
        chart.show(self.curve(job) if job else None, "loading …" if job else "")
        title = Text("Memory")
        if job is not None and self.home.seen is not None:
            title.append(f"  {literal(job.name, 40)}  ", DIM)
            if job.alive:
                title.append(*cells.forecast(job.memory, machine=cells.of_machine(job.memory, self.home.seen)))
        self.head("#preview", title)
