"""The panels of both pages: header, banner, GPUs, alerts, events, chart."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import ClassVar

from rich.table import Table
from rich.text import Text
from textual.geometry import Size
from textual.widget import Widget

from sentinel.tui import cells
from sentinel.tui.chart import Curve, draw
from sentinel.tui.rows import Row, Rows
from sentinel.tui.snapshot import Alert, Event, Gpu, Snapshot
from sentinel.tui.text import (
    BAD,
    CALM,
    DIM,
    FAINT,
    GOOD,
    NOTE,
    PLAIN,
    SEVERITY,
    WARN,
    bar,
    cell,
    count,
    literal,
    of,
    percent,
    span,
)

_KIND = 12
"""Cells for the word that says what kind of event it is."""
_HOT = 83.0
"""Degrees from which a GPU's temperature is shown in amber: where boards begin to slow down."""


class Lines(Widget):
    """A widget that draws its lines for the width and height it has."""

    def lines(self, width: int, height: int) -> Sequence[Text]:
        """What it shows."""
        raise NotImplementedError

    def render(self) -> Text:
        """All lines as one text that is never wrapped."""
        size = self.content_size
        joined = Text("\n", no_wrap=True, end="").join(self.lines(size.width, size.height))
        joined.no_wrap = True
        joined.overflow = "crop"
        return joined


class Header(Lines):
    """Two lines: who and how it is, and the host in bars."""

    DEFAULT_CSS = "Header { height: 2; padding: 0 1; background: $panel; }"

    def __init__(self, hostname: str, seen: Snapshot | None = None, lost: str = "") -> None:
        super().__init__()
        self._hostname = literal(hostname, 64)
        self._seen, self._lost = seen, lost

    def show(self, seen: Snapshot | None, lost: str = "") -> None:
        """Another moment, or why there is none."""
        self._seen, self._lost = seen or self._seen, lost
        self.refresh()

    def lines(self, width: int, height: int) -> Sequence[Text]:
        """Who, how; the host."""
        return [_spread(self._who(), self._how(), width), _host(self._seen, width)][:height]

    def _who(self) -> Text:
        text = Text.assemble(("◉ sentinel", f"bold {CALM}"), end="")
        text.append(f"  {self._hostname}", f"bold {PLAIN}")
        if self._seen is not None:
            if self._seen.mode == "observe":
                text.append("  observe only: it asks nothing", f"bold {WARN}")
            else:
                text.append(f"  mode {literal(self._seen.mode, 10)}", DIM)
            text.append(f"  daemon {literal(self._seen.version, 20)}", DIM)
        return text

    def _how(self) -> Text:
        clock = Text(time.strftime("  %H:%M:%S"), DIM)
        if self._lost:
            return Text.assemble(("○ no daemon", BAD), clock)
        if self._seen is None:
            return Text.assemble(("○ connecting …", DIM), clock)
        seen = self._seen
        waiting = [alert for alert in seen.firing if not alert.acknowledged_by]
        if waiting:
            text = Text.assemble(
                (f"▲ {count(len(waiting), 'alert')}", f"bold {SEVERITY.get(waiting[0].severity, WARN)}")
            )
        elif seen.faults:
            text = Text.assemble((f"● {count(len(seen.faults), 'fault')} of sentinel", WARN))
        else:
            text = Text.assemble(("● all is well", GOOD))
        living = sum(job.alive for job in seen.jobs)
        return text.append(f"  {count(living, 'job')}", DIM).append_text(clock)


def _spread(left: Text, right: Text, width: int) -> Text:
    left.truncate(max(0, width - right.cell_len - 1), overflow="ellipsis")
    left.append(" " * max(1, width - left.cell_len - right.cell_len))
    return left.append_text(right)


def _host(seen: Snapshot | None, width: int) -> Text:
    """cpu, memory, swap, shm as bars as long as there is room."""
    text = Text(end="")
    if seen is None:
        return text
    host = seen.host
    total, available = host.get("memory_total_bytes"), host.get("memory_available_bytes")
    used = total - available if total is not None and available is not None else None
    length = max(6, min(24, (width - 52) // 2))
    cpu = host.get("cpu_utilization_ratio")
    text.append("cpu ", DIM).append_text(bar(cpu, length, NOTE)).append(f" {percent(cpu):>4}", PLAIN)
    text.append("   mem ", DIM).append_text(bar(used / total if used is not None and total else None, length, CALM))
    text.append(f" {of(used, total)}", PLAIN)
    extras = [
        ("load", f"{host['load1']:.1f}" if "load1" in host else "", PLAIN),
        ("shm", percent(host.get("shm_used_ratio")) if "shm_used_ratio" in host else "", PLAIN),
        ("swap", of(host.get("swap_used_bytes"), None) if host.get("swap_used_bytes") else "", WARN),
        ("oom kills", f"{host['oom_kills_total']:.0f}" if host.get("oom_kills_total") else "", WARN),
        ("up", span(seen.time - host["boot_time_seconds"]) if "boot_time_seconds" in host else "", DIM),
    ]
    for name, words, style in extras:
        if words and text.cell_len + len(name) + len(words) + 4 <= width:
            text.append(f"   {name} ", DIM).append(words, style)
    return text


class Banner(Lines):
    """Says that the daemon is gone, and that it is being tried again."""

    DEFAULT_CSS = (
        "Banner { height: 1; background: #5c1f1c; padding: 0 1; display: none; } Banner.-on { display: block; }"
    )

    def __init__(self) -> None:
        super().__init__()
        self._why = ""
        self._since = 0.0

    def show(self, why: str) -> None:
        """Why it is gone; "" when it is back."""
        if why and not self._why:
            self._since = time.monotonic()
        self._why = why
        self.set_class(bool(why), "-on")
        self.refresh()

    def lines(self, width: int, height: int) -> Sequence[Text]:
        """One line."""
        gone = time.monotonic() - self._since
        line = Text.assemble((f"● daemon gone for {span(gone)}, trying again  ", "bold #ffd7d3"), end="")
        line.append(literal(self._why, 400), "#ffd7d3")
        line.truncate(width, overflow="ellipsis")
        return [line][:height]


class Gpus(Lines):
    """One compact bar a board, in as many columns as fit."""

    DEFAULT_CSS = "Gpus { height: auto; }"

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002 - textual's name
        super().__init__(id=id)
        self._gpus: tuple[Gpu, ...] = ()

    def show(self, gpus: tuple[Gpu, ...]) -> None:
        """Another moment. Without a GPU the panel is not there."""
        grown = len(gpus) != len(self._gpus)
        self._gpus = gpus
        self.display = bool(gpus)
        self.refresh(layout=grown)

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:  # noqa: ARG002 - textual's
        """As many lines as the boards need."""
        return -(-len(self._gpus) // self._across(width))

    def _across(self, width: int) -> int:
        return max(1, min(width // 37, -(-len(self._gpus) // 2)))

    def lines(self, width: int, height: int) -> Sequence[Text]:
        """Boards from top to bottom, then the next column."""
        if not self._gpus:
            return []
        across = self._across(width)
        down = -(-len(self._gpus) // across)
        each = (width - 2 * (across - 1)) // across
        lines = []
        for row in range(down):
            parts = [_gpu(gpu, each) for gpu in self._gpus[row::down]]
            lines.append(Text("  ", end="").join(parts))
        return lines[:height]


def _gpu(gpu: Gpu, width: int) -> Text:
    """`0 H200  ▕████▏ 84.2/140 GiB  ▕███▏ 98%  61°  640/700 W`, as much of it as fits."""
    name = f"{gpu.index}{'/' + gpu.mig if gpu.mig else ''}"
    text = Text.assemble(cell(name, max(2, min(8, len(name) + 1)), f"bold {PLAIN}"), end="")
    if not gpu.up:
        return text.append_text(cell(f"lost   {gpu.model}", width - text.cell_len, f"bold {BAD}"))
    if width >= 74:
        text.append_text(
            cell(gpu.model.removeprefix("NVIDIA ").removeprefix("Simulated "), min(20, width // 6), DIM)
        ).append(" ")
    warm = WARN if gpu.celsius is not None and gpu.celsius >= _HOT else DIM
    end = Text(end="")
    if gpu.celsius is not None and width >= 44:
        end.append(f" {gpu.celsius:3.0f}°", warm)
    if gpu.watts is not None and width >= 60:
        limit = f"/{gpu.watts_limit:.0f}" if gpu.watts_limit else ""
        end.append(f" {f'{gpu.watts:.0f}{limit} W':>10}", DIM)
    number = of(gpu.used, gpu.total)
    busy = f"{percent(gpu.busy):>5}"
    left = width - text.cell_len - end.cell_len - 13 - len(busy) - 2
    memory_bar = left if width < 50 else left * 3 // 5
    text.append_text(bar(gpu.used / gpu.total if gpu.used is not None and gpu.total else None, memory_bar, CALM))
    text.append(" ").append_text(cell(number, 13, PLAIN, right=True)).append(" ")
    if width >= 50:
        text.append_text(bar(gpu.busy, left - memory_bar, NOTE))
    text.append(busy, PLAIN if gpu.busy is not None else FAINT).append_text(end)
    return text


class Alerts(Rows):
    """What fires, what is about to, what sentinel itself suffers from, who could not be told."""

    empty: ClassVar[str] = "  nothing to worry about"

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002 - textual's name
        super().__init__(id=id)
        self._alerts: tuple[Alert, ...] = ()
        self._seen = Snapshot(0.0)
        self._now = 0.0

    def show(self, seen: Snapshot) -> None:
        """Another moment."""
        self._alerts, self._seen, self._now = seen.alerts, seen, seen.time
        self.rebuild()

    def build(self, width: int) -> tuple[Text | None, Sequence[Row]]:
        """Firing, pending, resolved, then faults, then messages that wait."""
        rows = [Row(alert.id, _alert(alert, self._now, width)) for alert in self._alerts]
        rows += [
            Row("", Text.assemble((" ⚠ ", WARN), cell(f"sentinel: {fault}", width - 3, WARN), end=""))
            for fault in self._seen.faults
        ]
        rows += [
            Row("", Text.assemble((" ↻ ", DIM), cell(words, width - 3, DIM), end="")) for words in self._seen.unheard
        ]
        return None, rows


def _alert(alert: Alert, now: float, width: int) -> Text:
    colour = SEVERITY.get(alert.severity, WARN)
    if alert.state == "resolved":
        sign, colour = "✓", GOOD
    else:
        sign = "▲" if alert.state == "firing" else "△"
    quiet = bool(alert.acknowledged_by) or alert.state != "firing"
    text = Text.assemble((f" {sign} ", f"bold {colour}"), end="")
    text.append_text(cell(span(now - alert.since) if alert.since else "", 4, DIM, right=True)).append(" ")
    seen = f"  seen by {literal(alert.acknowledged_by, 40).removeprefix('user:')}" if alert.acknowledged_by else ""
    words = literal(alert.summary or (f"{alert.job}: {alert.rule}" if alert.job else alert.rule))
    text.append(words, DIM if quiet else PLAIN)
    if alert.summary and text.cell_len + len(alert.rule) + len(seen) + 3 <= width:
        text.append(f"  {literal(alert.rule)}", FAINT)
    text.append(seen, DIM)
    if alert.state == "pending":
        text.append("  pending", DIM)
    text.truncate(width, overflow="ellipsis")
    return text


class Events(Rows):
    """What happened, newest last."""

    tail: ClassVar[bool] = True
    picks: ClassVar[bool] = False
    empty: ClassVar[str] = "  nothing has happened yet"

    def __init__(self, *, job: bool = True, id: str | None = None) -> None:  # noqa: A002 - textual's name
        super().__init__(id=id)
        self._events: Sequence[Event] = ()
        self._with_job = job

    def show(self, happened: Sequence[Event]) -> None:
        """Another list."""
        self._events = happened
        self.rebuild()

    def build(self, width: int) -> tuple[Text | None, Sequence[Row]]:
        """Time, kind, job, words."""
        job_width = 0
        if self._with_job:
            job_width = min(max((len(event.job) for event in self._events), default=0), 24 if width >= 90 else 10)
        return None, [Row("", _event(event, width, job_width)) for event in self._events]


def _event(event: Event, width: int, job_width: int) -> Text:
    style = cells.event_style(event)
    text = Text.assemble((time.strftime(" %H:%M:%S ", time.localtime(event.time)), FAINT), end="")
    text.append_text(cell(cells.event_word(event), _KIND, style)).append(" ")
    if job_width:
        text.append_text(cell(event.job, job_width, PLAIN)).append(" ")
    text.append(cells.event_message(event), PLAIN if event.severity != "info" else "#b3bdc9")
    text.truncate(width, overflow="ellipsis")
    return text


class MemoryChart(Lines):
    """The memory of one job, its limit, and where it is going."""

    DEFAULT_CSS = "MemoryChart { height: 1fr; }"

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002 - textual's name
        super().__init__(id=id)
        self._curve: Curve | None = None
        self._instead = ""

    def show(self, curve: Curve | None, instead: str = "loading …") -> None:
        """Another moment; what to say as long as there is no curve."""
        self._curve, self._instead = curve, instead
        self.refresh()

    def lines(self, width: int, height: int) -> Sequence[Text]:
        """The chart, or that there is nothing yet."""
        if self._curve is None:
            return [Text(f"  {self._instead}", DIM)]
        if not self._curve.points:
            return [Text("  no measurements yet", DIM)]
        return draw(self._curve, width, height)


def facts(pairs: Sequence[tuple[Text, Text]]) -> Table:
    """Names and what is said of them, wrapped; the text is never markup."""
    table = Table.grid(padding=(0, 1), expand=True)
    table.add_column(no_wrap=True)
    table.add_column(ratio=1, overflow="fold")
    for name, words in pairs:
        table.add_row(name, words)
    return table
