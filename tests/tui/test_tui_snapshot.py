"""The overview as the dashboard reads it, and what it says about a job."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sentinel.tui import snapshot as reading
from sentinel.tui.cells import event_message
from sentinel.tui.job import checkpoints
from sentinel.tui.jobs_table import layout
from sentinel.tui.questions import Answered, questions
from sentinel.tui.snapshot import Event, Snapshot, snapshot
from sentinel.tui.text import WARN
from tests.tui.daemon_double import MIB, alert, event, job, overview

LEAF = st.none() | st.booleans() | st.floats(allow_nan=False) | st.text(max_size=4)
KEYS = [
    "jobs",
    "alerts",
    "gpus",
    "health",
    "host",
    "time",
    "spec",
    "memory",
    "checkpoint",
    "root",
    "labels",
    "collectors",
]
ITEM = st.dictionaries(
    st.sampled_from(KEYS), LEAF | st.dictionaries(st.sampled_from(KEYS), LEAF, max_size=3), max_size=4
)


@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(st.sampled_from(KEYS), LEAF | ITEM | st.lists(LEAF | ITEM, max_size=2), max_size=5))
def test_whatever_a_daemon_says_it_can_be_read(data: dict[str, Any]) -> None:
    snapshot(data)


def test_absent_stays_absent() -> None:
    bare = reading.job({"id": "j", "name": "j", "state": "running"})

    assert bare.memory.used is None
    assert bare.memory.ratio is None
    assert bare.checkpoint is None
    assert bare.gpu_memory is None


def test_the_gravest_alert_comes_first() -> None:
    seen = snapshot(
        overview(
            alerts=[
                alert("Slow", job="a", severity="warning"),
                alert("Soon", job="a", severity="critical", state="pending", fired=None),
                alert("Now", job="a", severity="critical"),
            ]
        )
    )

    assert [one.rule for one in seen.alerts] == ["Now", "Slow", "Soon"]


def test_a_collector_that_this_machine_cannot_have_is_no_fault() -> None:
    health = {"collectors": [{"name": "gpu", "up": None, "reason": "no driver"}, {"name": "disks", "up": False}]}

    assert snapshot(overview(health=health)).faults == ("collector disks is down",)


def test_a_receiver_that_is_down_is_no_fault_of_sentinel() -> None:
    health = {"undelivered": 2, "waiting": [{"receiver": "down", "messages": 2, "error": "HTTP 503"}]}
    seen = snapshot(overview(health=health))

    assert seen.faults == ()
    assert seen.unheard == ("2 messages wait for receiver down: HTTP 503",)


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("leaky: attempt 1 runs", "attempt 1 runs"),
        ("leaky (5 times): ERROR 429", "(5 times): ERROR 429"),
        ("leaky runs out of memory in 9 s", "leaky runs out of memory in 9 s"),
    ],
)
def test_the_name_that_stands_beside_the_words_is_not_said_before_them(message: str, shown: str) -> None:
    assert event_message(reading.event(event("log.note", message, job="leaky"))) == shown


def test_a_job_that_has_ended_is_shown_beside_the_living() -> None:
    gone = job("gone", state="failed", cause="signal 9", ended=time.time())
    seen = snapshot(overview(jobs=[job("here")]), [gone, job("here")])

    assert [(one.name, one.alive) for one in seen.jobs] == [("here", True), ("gone", False)]


def asked(one: dict[str, Any], events: list[Event] | None = None, **more: Any) -> list[Answered]:
    seen: Snapshot = snapshot(overview(jobs=[one], **more))
    return list(questions(seen.jobs[0], seen, events or []))


def test_each_job_is_told_what_it_has_and_what_gives_it_the_rest() -> None:
    answers = asked(job("fine"))

    assert [(one.question, one.yes) for one in answers] == [
        ("checkpoints?", True),
        ("timeouts?", False),
        ("resource alerts?", True),
    ]
    assert "step 120" in answers[0].says
    assert "--timeout" in answers[1].do
    assert "rules watch it, none fires" in answers[2].says


def test_a_job_with_a_limit_on_time_has_timeouts() -> None:
    limited = job("limited")
    limited["spec"] = {**limited["spec"], "timeout_s": 7200.0}

    answer = asked(limited)[1]
    assert answer.yes
    assert "may run 2 h" in answer.says


def test_without_rules_nothing_watches() -> None:
    health = {"rules": {"count": 0, "unhealthy": []}}

    assert not asked(job("alone"), health=health)[2].yes


def test_a_job_without_checkpoints_is_told_how_to_have_some() -> None:
    bare = job("bare", checkpoint=None)
    bare["spec"] = {**bare["spec"], "checkpoints": [], "channels": []}

    first, *_ = asked(bare)
    assert not first.yes
    assert "--checkpoints" in first.do


def test_an_overdue_checkpoint_names_the_key() -> None:
    late = job("late")
    late["spec"] = {**late["spec"], "checkpoints": [{"path": "/c", "interval_s": 20.0}]}

    first, *_ = asked(late)
    assert "press c" in first.do


@pytest.mark.parametrize(("level", "do"), [(0, "press d"), (1, "has been asked")])
def test_refusals_of_an_api_are_said_where_it_is_about_time(level: int, do: str) -> None:
    refused = reading.event(event("log.rate_limited", "429", job="agent", severity="warning"))

    answer = asked(job("agent", degrade_level=level), [refused])[1]
    assert answer.style == WARN
    assert do in answer.do


def test_an_alert_that_fires_is_named() -> None:
    answer = asked(job("leaky"), alerts=[alert("MemoryExhaustionImminent", job="leaky")])[2]

    assert answer.yes
    assert answer.says == "MemoryExhaustionImminent"


@settings(max_examples=40)
@given(st.integers(40, 250), st.text(min_size=1, max_size=60), st.booleans())
def test_the_table_of_jobs_fits_any_terminal(width: int, name: str, gpu: bool) -> None:
    jobs = snapshot(overview(jobs=[job(name, gpu_memory_bytes=MIB if gpu else None)])).jobs
    columns = layout(width, jobs)

    room = 2 + sum(cells + 1 for _, cells in columns)
    assert room <= max(width, 2 + sum(column.least + 1 for column, _ in columns if not column.rank))
    assert all(cells >= column.least for column, cells in columns)


def test_all_that_matters_fits_eighty_columns() -> None:
    jobs = snapshot(overview(jobs=[job("leaky", gpu_memory_bytes=MIB)])).jobs

    titles = [column.title for column, _ in layout(80, jobs)]
    assert titles == ["JOB", "STATE", "MEMORY", "FORECAST", "CKPT", "LVL", "GPU MEM", "!"]


def test_the_last_checkpoints_are_listed_newest_first() -> None:
    written = [
        reading.event({"kind": kind, "time": 1000.0 + at, "job": "j", "data": {"checkpoint": data}})
        for at, kind, data in [
            (0, "checkpoint.complete", {"step": 10, "path": "/c/step-10"}),
            (20, "log.traceback", {}),
            (30, "checkpoint.complete", {"step": None, "path": "/c/[red]last.pt"}),
            (40, "checkpoint.broken", {"step": 30, "path": "/c/step-30"}),
        ]
    ]

    assert checkpoints(written, 1045.0) == "step 30 (5s ago, broken), [red]last.pt (15s ago), step 10 (45s ago)"
