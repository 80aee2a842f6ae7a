"""The table of jobs: columns that fit the terminal, the least needed dropped first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from rich.text import Text

from sentinel.tui import cells
from sentinel.tui.rows import Row, Rows
from sentinel.tui.snapshot import Job, Snapshot
from sentinel.tui.text import BAD, CALM, DIM, FAINT, PLAIN, WARN, bar, cell, of, short_bytes, span

_SHORT = 9
_SHORTER = {"starting": "starts", "stopping": "ending", "succeeded": "done", "preempted": "preempt"}
"""States in the seven letters that a narrow terminal leaves them."""
_NUMBER = 13
"""Cells of `412/600 MiB` and the like."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column.

    Attributes:
        title: Its head.
        least: Cells it needs.
        most: Cells it may grow to.
        rank: The lower, the longer it is kept when the terminal is narrow.
        draw: One cell of it, of a given width.
        right: Whether its head stands to the right, over numbers.
        wanted: Whether any job has something to show in it.
    """

    title: str
    least: int
    most: int
    rank: int
    draw: Callable[[Job, Snapshot, int], Text]
    right: bool = False
    wanted: Callable[[Job], bool] = lambda _job: True


def _name(job: Job, _seen: Snapshot, width: int) -> Text:
    return cell(job.name, width, PLAIN if job.alive else DIM)


def _state(job: Job, _seen: Snapshot, width: int) -> Text:
    sign, style = cells.state(job)
    word = job.state if width > _SHORT else _SHORTER.get(job.state, job.state)
    return cell(f"{sign} {word}", width, style)


def _memory(job: Job, seen: Snapshot, width: int) -> Text:
    if job.memory.used is None or not job.alive:
        return cell(cells.ending(job) or "—", width, DIM if job.alive else cells.state(job)[1])
    number = of(job.memory.used, job.memory.limit)
    length = max(0, width - _NUMBER - 1)
    _, style = cells.forecast(job.memory, machine=cells.of_machine(job.memory, seen))
    style = style if style in {BAD, WARN} else CALM
    return Text.assemble(
        bar(job.memory.ratio, length, style), " ", cell(number, width - length - 1, PLAIN, right=True), end=""
    )


def _forecast(job: Job, seen: Snapshot, width: int) -> Text:
    said, style = cells.forecast(job.memory, machine=cells.of_machine(job.memory, seen))
    gap = " " if width > 14 else ""
    return cell(gap + said if job.alive else "", width, f"bold {style}" if style == BAD else style)


def _checkpoint(job: Job, seen: Snapshot, width: int) -> Text:
    if job.checkpoint is None:
        return cell("none" if job.checkpoint_dirs else "—", width, WARN if job.checkpoint_dirs else FAINT, right=True)
    age = seen.time - job.checkpoint.finished if job.checkpoint.finished is not None else None
    target = next((interval for _, interval in job.checkpoint_dirs if interval), None)
    return cell(span(age), width, cells.age_style(age, target) if job.alive else DIM, right=True)


def _level(job: Job, _seen: Snapshot, width: int) -> Text:
    if "degrade" not in job.channels and not job.level:
        return cell("—", width, FAINT, right=True)
    return cell(f"{job.level}/{job.levels}", width, WARN if job.level else DIM, right=True)


def _gpu(job: Job, _seen: Snapshot, width: int) -> Text:
    return cell(short_bytes(job.gpu_memory), width, PLAIN if job.gpu_memory else FAINT, right=True)


def _alerts(job: Job, seen: Snapshot, width: int) -> Text:
    words, style = cells.alert_mark(seen.alerts_of(job))
    return cell(words, width, f"bold {style}", right=True)


def _cores(job: Job, _seen: Snapshot, width: int) -> Text:
    return cell("—" if job.cpu is None else f"{job.cpu:.1f}", width, DIM if job.cpu is None else PLAIN, right=True)


def _processes(job: Job, _seen: Snapshot, width: int) -> Text:
    return cell("—" if job.processes is None else f"{job.processes:.0f}", width, DIM, right=True)


def _output(job: Job, seen: Snapshot, width: int) -> Text:
    return cell(span(seen.time - job.last_output) if job.last_output else "—", width, DIM, right=True)


def _step(job: Job, _seen: Snapshot, width: int) -> Text:
    return cell("—" if job.step is None else f"{job.step:.0f}", width, DIM, right=True)


def _running(job: Job, seen: Snapshot, width: int) -> Text:
    until = job.ended if job.ended is not None else seen.time
    return cell(span(until - job.started) if job.started else "—", width, DIM, right=True)


COLUMNS: tuple[Column, ...] = (
    Column("JOB", 10, 30, 0, _name),
    Column("STATE", 9, 11, 2, _state),
    Column("MEMORY", 19, 46, 0, _memory),
    Column("FORECAST", 14, 16, 0, _forecast),
    Column("CKPT", 5, 6, 1, _checkpoint, right=True),
    Column("LVL", 3, 4, 3, _level, right=True),
    Column("GPU MEM", 8, 9, 4, _gpu, right=True, wanted=lambda job: job.gpu_memory is not None),
    Column("CPU", 5, 5, 5, _cores, right=True),
    Column("STEP", 7, 8, 8, _step, right=True, wanted=lambda job: job.step is not None),
    Column("PROCS", 5, 5, 7, _processes, right=True),
    Column("OUT", 5, 5, 6, _output, right=True),
    Column("UP", 5, 5, 7, _running, right=True),
    Column("!", 2, 3, 0, _alerts, right=True),
)


def layout(width: int, jobs: Sequence[Job]) -> list[tuple[Column, int]]:
    """Which columns are shown in `width` cells, and how wide each is; two cells stand before the first."""
    shown = [column for column in COLUMNS if column.rank == 0 or any(column.wanted(job) for job in jobs)]

    def needs() -> int:
        return 2 + sum(column.least + 1 for column in shown)

    while needs() > width and any(column.rank for column in shown):
        shown.remove(max((column for column in shown if column.rank), key=lambda column: column.rank))
    widths = [column.least for column in shown]
    left = width - needs()
    longest = max((len(job.name) for job in jobs), default=0)
    for title, share in (
        ("STATE", 2),
        ("JOB", longest - COLUMNS[0].least),
        ("FORECAST", 2),
        ("CKPT", 1),
        ("LVL", 1),
        ("!", 1),
        ("MEMORY", left),
    ):
        for index, column in enumerate(shown):
            if column.title == title:
                more = max(0, min(left, share, column.most - widths[index]))
                widths[index] += more
                left -= more
    return list(zip(shown, widths, strict=True))


class JobsTable(Rows):
    """The jobs, living ones first, then the newest that ended."""

    empty: ClassVar[str] = "  no jobs yet: start one with  sentinel run -- python train.py"

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002 - textual's name
        super().__init__(id=id)
        self._seen = Snapshot(0.0)

    def show(self, seen: Snapshot) -> None:
        """Another moment."""
        self._seen = seen
        self.rebuild()

    def build(self, width: int) -> tuple[Text | None, Sequence[Row]]:
        """One row a job."""
        jobs = self._seen.jobs
        if not jobs:
            return None, ()
        columns = layout(width, jobs)
        head = Text("  ", end="")
        for column, cells_ in columns:
            title = " FORECAST" if column.title == "FORECAST" and cells_ > 14 else column.title
            head.append_text(cell(title, cells_, f"bold {DIM}", right=column.right))
            head.append(" ")
        rows = []
        for job in jobs:
            _, style = cells.alert_mark(self._seen.alerts_of(job))
            line = Text.assemble(("▎ " if self._seen.alerts_of(job) else "  ", style), end="")
            for column, cells_ in columns:
                line.append_text(column.draw(job, self._seen, cells_))
                line.append(" ")
            rows.append(Row(job.id, line))
        return head, rows
