"""The dashboard in front of a real server on a Unix socket, with real keys."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import pytest
from rich.console import Group
from rich.text import Text
from textual.pilot import Pilot
from textual.widgets import Static

from sentinel.api.client import Client
from sentinel.tui.app import SentinelApp
from sentinel.tui.dialogs import Confirm
from sentinel.tui.job import JobPage
from sentinel.tui.jobs_table import JobsTable
from sentinel.tui.overview import OverviewPage
from sentinel.tui.panels import Events
from sentinel.tui.settings import Settings
from tests.tui.daemon_double import GIB, DaemonDouble, alert, bad_night, gpu, job, overview, request

FAST = Settings(refresh_s=0.1, retry_s=0.05, wait_s=2.0)


@pytest.fixture
def daemon() -> Iterator[DaemonDouble]:
    with tempfile.TemporaryDirectory(prefix="tui-") as directory, DaemonDouble(Path(directory) / "s.sock") as running:
        yield running


def dashboard(daemon: DaemonDouble) -> SentinelApp:
    return SentinelApp(lambda: Client(daemon.path, 2.0), FAST, hostname="gpu-box-7")


def screen(app: SentinelApp) -> str:
    """What stands on the screen, as text."""
    strips = app.screen._compositor.render_strips()
    return "\n".join("".join(segment.text for segment in strip) for strip in strips)


async def until(pilot: Pilot[None], what: Callable[[], object], seconds: float = 8.0) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, f"it never came; the screen says:\n{screen(pilot.app)}"  # type: ignore[arg-type]
        await pilot.pause(0.03)


async def shows(pilot: Pilot[None], *words: str) -> None:
    """Wait until all the words are on the screen."""
    await until(pilot, lambda: all(word in screen(pilot.app) for word in words))  # type: ignore[arg-type]


SIZES = pytest.mark.parametrize("size", [(80, 24), (160, 45)], ids=["80x24", "160x45"])


@SIZES
async def test_a_bad_night_at_one_look(daemon: DaemonDouble, size: tuple[int, int]) -> None:
    daemon.overview = bad_night()
    daemon.happen("request.sent", "asked leaky to checkpoint", job="leaky")

    async with dashboard(daemon).run_test(size=size) as pilot:
        await shows(
            pilot, "gpu-box-7", "mode act", "2 alerts", "H200", "84.2/140 GiB", "leaky", "● running", "412/600 MiB",
            "full in 9 s", "12.4 GiB", "1/1", "▲1", "leaky runs out of memory in 50s", "asked leaky to checkpoint", "degrade",
        )  # fmt: skip


@SIZES
async def test_the_page_of_a_job_answers_the_three_questions(daemon: DaemonDouble, size: tuple[int, int]) -> None:
    daemon.overview = bad_night()
    daemon.requests = [request("checkpoint", answer="done", effect="observed", detail="step-000120.safetensors")]

    async with dashboard(daemon).run_test(size=size) as pilot:
        await shows(pilot, "full in 9 s")
        await pilot.press("enter")
        await shows(
            pilot, "checkpoints? yes", "timeouts? no", "resource alerts? yes", "done, seen to work", "600 MiB", "╌╌╌", "⣿",
        )  # fmt: skip
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(pilot.app.screen, OverviewPage))


@SIZES
async def test_a_job_that_is_opened_is_there_at_once(daemon: DaemonDouble, size: tuple[int, int]) -> None:
    daemon.overview = bad_night()
    seen: list[str] = []

    async with dashboard(daemon).run_test(size=size) as pilot:
        await shows(pilot, "full in 9 s")
        pilot.app.simulate_key("enter")
        while not seen or "⣿" not in seen[-1]:
            await asyncio.sleep(0)
            if isinstance(pilot.app.screen, JobPage):
                seen.append(screen(pilot.app))  # type: ignore[arg-type]

    for wrong in ("no daemon", "connecting", "is gone", "no measurements"):
        assert not any(wrong in one for one in seen)


async def test_all_three_answers_are_in_sight_on_a_small_terminal(daemon: DaemonDouble) -> None:
    daemon.overview = bad_night()
    for one in daemon.overview["jobs"]:
        one["spec"] = {**one["spec"], "timeout_s": 7200.0, "stall_timeout_s": 1800.0}

    async with dashboard(daemon).run_test(size=(80, 24)) as pilot:
        for down in range(3):
            await shows(pilot, "full in 9 s")
            await pilot.press(*["down"] * down, "enter")
            await shows(pilot, "checkpoints?", "timeouts?", "resource alerts?")
            await until(pilot, lambda: "⣿" in screen(pilot.app))  # type: ignore[arg-type]
            facts = pilot.app.screen.query_one("#facts")
            answers = pilot.app.screen.query_one("#answers", Static)
            height = sum(
                len(line.wrap(pilot.app.console, answers.content_size.width))
                for line in cast("Group", answers.content).renderables[:3]
                if isinstance(line, Text)
            )
            assert height <= facts.content_size.height, screen(pilot.app)  # type: ignore[arg-type]
            await pilot.press("escape", *["up"] * down)


@SIZES
async def test_a_toast_never_covers_the_newest_events(daemon: DaemonDouble, size: tuple[int, int]) -> None:
    daemon.overview = bad_night()

    async with dashboard(daemon).run_test(size=size, notifications=True) as pilot:
        for number in range(60):
            daemon.happen("log.note", f"happened {number}, and these are many words to say so", job="leaky")
        await shows(pilot, "happened 59")
        before = newest_events(screen(pilot.app))  # type: ignore[arg-type]
        await pilot.press("c")
        await shows(pilot, "leaky: checkpoint done, seen to work")
        assert newest_events(screen(pilot.app)) == before  # type: ignore[arg-type]


def newest_events(shown: str) -> list[str]:
    """The lower left of the screen: beside it a chart moves on by itself."""
    return [line.split("││")[0] for line in shown.splitlines()[-7:-2]]


async def test_the_events_follow_the_newest_whatever_the_size_of_the_terminal(daemon: DaemonDouble) -> None:
    daemon.overview = bad_night()

    async with dashboard(daemon).run_test(size=(120, 36)) as pilot:
        await shows(pilot, "leaky")
        pilot.app.screen.query_one(Events).focus()
        await pilot.press("home", "up")
        for number in range(60):
            daemon.happen("log.note", f"happened {number}.", job="leaky")
        await shows(pilot, "happened 59.")
        for size in ((80, 24), (160, 45), (80, 24)):
            await pilot.resize_terminal(*size)
            await shows(pilot, "happened 59.")
        daemon.happen("log.note", "happened 60.", job="leaky")
        await shows(pilot, "happened 60.")


async def test_whoever_scrolls_up_stays_there_until_they_go_to_the_end(daemon: DaemonDouble) -> None:
    daemon.overview = bad_night()

    async with dashboard(daemon).run_test(size=(120, 36)) as pilot:
        for number in range(60):
            daemon.happen("log.note", f"happened {number}.", job="leaky")
        await shows(pilot, "happened 59.")
        pilot.app.screen.query_one(Events).focus()
        await pilot.press("home")
        await shows(pilot, "happened 0.")
        daemon.happen("log.note", "happened 60.", job="leaky")
        await until(pilot, lambda: len(pilot.app.events) == 61)  # type: ignore[attr-defined]
        await pilot.pause(0.3)
        await pilot.resize_terminal(80, 24)
        await shows(pilot, "happened 0.")
        await pilot.press("end")
        await shows(pilot, "happened 60.")
        daemon.happen("log.note", "happened 61.", job="leaky")
        await shows(pilot, "happened 61.")


async def test_the_newest_that_ended_comes_first_and_uses_nothing(daemon: DaemonDouble) -> None:
    now = time.time()
    daemon.overview = overview(jobs=[job("here")])
    daemon.ended = [
        job(f"gone-{number}", state="failed", cause=f"cause {number}", ended=now - 100 + number) for number in range(9)
    ]

    async with dashboard(daemon).run_test(size=(120, 40)) as pilot:
        await shows(pilot, "gone-8", "9 ended")
        lines = screen(pilot.app).splitlines()  # type: ignore[arg-type]
        order = [
            next(index for index, line in enumerate(lines) if name in line) for name in ("here", "gone-8", "gone-7")
        ]
        assert order == sorted(order)
        assert all("MiB" not in line and "cause" in line for line in lines if "gone-" in line)


async def test_names_that_look_like_markup_are_shown_as_they_are(daemon: DaemonDouble) -> None:
    daemon.overview = overview(
        jobs=[job("[red]x[/]")],
        alerts=[alert("Odd", job="[red]x[/]", summary="[bold]loud[/] \x1b[31mred\u202e")],
        gpus=[gpu(0, model="[blink]H200[/]")],
    )
    daemon.happen("log.traceback", "[link=http://evil]click[/] [/]", job="[red]x[/]", severity="warning")

    async with dashboard(daemon).run_test(size=(160, 45), notifications=True) as pilot:
        await shows(pilot, "[red]x[/]", "[bold]loud[/] �[31mred�", "[link=http://evil]click[/] [/]", "[blink]H200[/]")
        await pilot.press("c")
        await shows(pilot, "[red]x[/]: checkpoint done, seen to work")
        await pilot.press("enter")
        await shows(pilot, "Is it safe?", "[red]x[/]  ● running")
        await pilot.press("s")
        await shows(pilot, "stop [red]x[/]?")


async def test_c_asks_for_a_checkpoint_and_says_what_came_of_it(daemon: DaemonDouble) -> None:
    daemon.overview = bad_night()

    async with dashboard(daemon).run_test(notifications=True) as pilot:
        await shows(pilot, "forgetful")
        await pilot.press("down", "down", "c")
        await shows(pilot, "forgetful: checkpoint done")

    assert daemon.asked[0][0] == "/v1/jobs/j-forgetful/requests"
    assert daemon.asked[0][1]["request"] == "checkpoint"


async def test_a_refusal_says_why_and_what_to_try(daemon: DaemonDouble) -> None:
    daemon.overview = bad_night()
    daemon.answer = lambda _: (
        409,
        {"error": {"message": "it declares no way to be asked", "hint": "--on-degrade signal:USR2", "kind": "refused"}},
    )

    async with dashboard(daemon).run_test(size=(120, 40), notifications=True) as pilot:
        await shows(pilot, "leaky")
        await pilot.press("d")
        await shows(pilot, "it declares no way", "--on-degrade")


async def test_a_request_that_stays_open_is_not_called_done(daemon: DaemonDouble) -> None:
    daemon.overview = bad_night()
    daemon.answer = lambda body: (200, request(body["request"], state="sent", answer=None, closed=None))

    async with dashboard(daemon).run_test(notifications=True) as pilot:
        await shows(pilot, "leaky")
        await pilot.press("d")
        await shows(pilot, "leaky: degrade sent")


async def test_only_y_stops_a_job(daemon: DaemonDouble) -> None:
    daemon.overview = bad_night()

    async with dashboard(daemon).run_test() as pilot:
        await shows(pilot, "leaky")
        await pilot.press("s")
        await until(pilot, lambda: isinstance(pilot.app.screen, Confirm))
        await pilot.press("enter")
        await until(pilot, lambda: not isinstance(pilot.app.screen, Confirm))
        assert daemon.asked == []
        await pilot.press("s")
        await until(pilot, lambda: isinstance(pilot.app.screen, Confirm))
        await pilot.press("y")
        await until(pilot, lambda: daemon.asked)

    assert [body["request"] for _, body in daemon.asked] == ["stop"]


async def test_a_acknowledges_the_alerts_of_the_job_in_view(daemon: DaemonDouble) -> None:
    daemon.overview = bad_night()

    async with dashboard(daemon).run_test(notifications=True) as pilot:
        await shows(pilot, "leaky")
        await pilot.press("a")
        await shows(pilot, "acknowledged: MemoryExhaustionImminent")

    assert [path for path, _ in daemon.asked] == ["/v1/alerts/a-MemoryExhaustionImminent-leaky/ack"]


async def test_with_the_alerts_in_focus_a_is_about_the_one_under_the_cursor(daemon: DaemonDouble) -> None:
    daemon.overview = bad_night()

    async with dashboard(daemon).run_test(notifications=True) as pilot:
        await shows(pilot, "leaky")
        await pilot.press("tab", "down", "a")
        await until(pilot, lambda: daemon.asked)

    assert [path for path, _ in daemon.asked] == ["/v1/alerts/a-CheckpointOverdue-forgetful/ack"]


async def test_a_daemon_that_goes_and_comes_back(daemon: DaemonDouble) -> None:
    daemon.overview = bad_night()

    async with dashboard(daemon).run_test(size=(120, 40), notifications=True) as pilot:
        await shows(pilot, "full in 9 s")
        await asyncio.to_thread(daemon.stop)
        await shows(pilot, "daemon gone for", "trying again", "full in 9 s", "no daemon")

        daemon.overview = overview(jobs=[job("new-one")])
        await asyncio.to_thread(daemon.start)
        await shows(pilot, "the daemon is back")
        await shows(pilot, "new-one", "all is well")
        assert "trying again" not in screen(pilot.app)  # type: ignore[arg-type]

        daemon.happen("job.running", "seen after the return", job="new-one")
        await shows(pilot, "seen after the return")


async def test_without_a_daemon_it_waits_for_one(daemon: DaemonDouble) -> None:
    daemon.stop()

    async with dashboard(daemon).run_test(size=(120, 40)) as pilot:
        await shows(pilot, "trying again", "no such file")
        await asyncio.to_thread(daemon.start)
        await shows(pilot, "no jobs yet", "nothing to worry about")


async def test_the_cursor_stays_on_its_job_when_others_come_and_go(daemon: DaemonDouble) -> None:
    daemon.overview = overview(jobs=[job("one"), job("two"), job("three")])

    async with dashboard(daemon).run_test() as pilot:
        await shows(pilot, "three")
        await pilot.press("j")
        table = pilot.app.screen.query_one(JobsTable)
        assert table.key == "j-two"
        daemon.overview = overview(jobs=[job("zero"), job("two"), job("four")])
        await shows(pilot, "four")
        assert table.key == "j-two"
        daemon.overview = overview(jobs=[job("zero")])
        await until(pilot, lambda: table.key == "j-zero")


async def test_a_job_that_ended_stays_for_a_while_with_its_cause(daemon: DaemonDouble) -> None:
    daemon.overview = overview(jobs=[job("here")])
    daemon.ended = [job("gone", state="failed", cause="MemoryError: no room", ended=time.time(), memory={})]

    async with dashboard(daemon).run_test(size=(120, 40)) as pilot:
        await shows(pilot, "✗ failed", "MemoryError: no room", "1 ended")


async def test_the_page_of_a_job_survives_the_job(daemon: DaemonDouble) -> None:
    daemon.overview = overview(jobs=[job("here")])

    async with dashboard(daemon).run_test(size=(120, 40)) as pilot:
        await shows(pilot, "here")
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(pilot.app.screen, JobPage))
        daemon.overview = overview()
        await pilot.pause(0.4)
        await shows(pilot, "here  ● running")


async def test_eight_gpus_fit_beside_the_jobs(daemon: DaemonDouble) -> None:
    daemon.overview = overview(gpus=[gpu(index, used=index * 10 * GIB) for index in range(8)], jobs=[job("one")])

    async with dashboard(daemon).run_test() as pilot:
        await shows(pilot, "10.0/140 GiB", "70.0/140 GiB", "one", "Events")


async def test_a_lost_gpu_says_so(daemon: DaemonDouble) -> None:
    daemon.overview = overview(gpus=[gpu(0), gpu(1, up=0.0)])

    async with dashboard(daemon).run_test() as pilot:
        await shows(pilot, "lost   NVIDIA H200")


async def test_observing_only_is_said_in_the_header(daemon: DaemonDouble) -> None:
    daemon.overview = overview(mode="observe")

    async with dashboard(daemon).run_test() as pilot:
        await shows(pilot, "observe only")


async def test_the_chart_asks_for_this_job_alone_whatever_its_name(daemon: DaemonDouble) -> None:
    daemon.overview = overview(jobs=[job('a"} or b{x="\\')])

    async with dashboard(daemon).run_test(size=(160, 45)) as pilot:
        await until(pilot, lambda: daemon.queries)

    assert daemon.queries[0]["query"] == 'job_memory_used_bytes{job="a\\"} or b{x=\\"\\\\"}'
