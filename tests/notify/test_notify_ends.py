"""What the end of a job says, and what it makes superfluous."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sentinel.model.alerts import Reason
from sentinel.model.jobs import Job, JobState, Past
from sentinel.model.requests import Answer, Effect, Request, RequestKind
from sentinel.notify.messages import job_end
from sentinel.notify.ports import Receipt
from tests.notify.outside import NOW, Desk, a_job, firing, resolving

OWN = ("json://alice.example/x",)


def asked(number: int, kind: RequestKind, by: str, answer: Answer = Answer.DONE) -> Request:
    return Request(
        f"r{number}", "j1", "llama", 1, kind, 1 if kind is RequestKind.DEGRADE else None, "", None, by, NOW - 60,
        NOW, sent=NOW - 60, answer=answer, effect=Effect.OBSERVED,
    )  # fmt: skip


def ended(**changes: object) -> Job:
    return replace(a_job(state=JobState.FAILED, exit_code=1, ended=NOW), **changes)  # type: ignore[arg-type]


async def test_one_crash_is_one_message() -> None:
    desk = Desk()
    desk.jobs["j1"] = a_job()
    alarm = firing()
    desk.notifier.on_transition(alarm)
    await desk.tick()
    desk.jobs["j1"] = job = ended()
    desk.notifier.on_transition(resolving(alarm, NOW, Reason.JOB_ENDED))
    desk.notifier.on_job_end(job)
    await desk.after(600)

    assert [parcel.title for parcel in desk.carrier.parcels] == [
        "CRITICAL: llama runs out of memory",
        "llama failed after 2h",
    ]
    assert "open at the end: MemoryLow, llama runs out of memory" in desk.carrier.parcels[1].body
    desk.restart(ended=[job])
    await desk.after(600)
    assert len(desk.carrier.parcels) == 2


async def test_an_alert_that_was_not_told_yet_is_told_by_the_end() -> None:
    desk = Desk()
    desk.jobs["j1"] = a_job()
    alarm = firing()
    desk.notifier.on_transition(alarm)
    desk.jobs["j1"] = job = ended()
    desk.notifier.on_transition(resolving(alarm, NOW, Reason.JOB_ENDED))
    desk.notifier.on_job_end(job)
    await desk.after(600)

    (message,) = desk.carrier.parcels
    assert message.title == "llama failed after 2h"
    assert "open at the end: MemoryLow, llama runs out of memory" in message.body


async def test_whoever_does_not_hear_of_the_end_hears_that_the_alert_is_over_and_that_it_is_no_all_clear() -> None:
    desk = Desk()
    desk.jobs["j1"] = a_job(notify=OWN)
    alarm = firing()
    desk.notifier.on_transition(alarm)
    await desk.tick()
    desk.jobs["j1"] = job = ended(spec=a_job(notify=OWN).spec)
    desk.notifier.on_transition(resolving(alarm, NOW, Reason.JOB_ENDED))
    desk.notifier.on_job_end(job)
    await desk.after(600)

    told = [(parcel.url, parcel.title) for parcel in desk.carrier.parcels]
    assert told.count((OWN[0], "llama failed after 2h")) == 1
    over = [parcel for parcel in desk.carrier.parcels if parcel.title == "Over with its job: MemoryLow on llama"]
    assert [(parcel.url, parcel.severity) for parcel in over] == [("json://oncall.example/a", "info")]
    assert len(told) == 4


async def test_an_end_while_nobody_was_there_is_no_all_clear_either() -> None:
    desk = Desk()
    desk.jobs["j1"] = a_job()
    alarm = firing()
    desk.notifier.on_transition(alarm)
    await desk.tick()

    desk.jobs["j1"] = job = ended()
    desk.restart([resolving(alarm, NOW)], [job])
    await desk.after(600)

    assert [parcel.title for parcel in desk.carrier.parcels][1:] == ["llama failed after 2h"]
    assert "open at the end: MemoryLow" in desk.carrier.parcels[1].body


async def test_who_could_not_be_reached_is_known_with_what_was_answered() -> None:
    desk = Desk()
    desk.jobs["j1"] = a_job(notify=OWN)
    desk.carrier.answer = lambda parcel: Receipt(parcel.id, delivered="oncall" not in parcel.url, error="HTTP 503")
    desk.notifier.on_transition(firing())
    assert desk.notifier.waiting() == [], "what was not tried yet waits for nobody"
    await desk.tick()

    assert desk.notifier.waiting() == [{"receiver": "oncall", "messages": 1, "error": "HTTP 503"}]


def test_what_rules_asked_comes_before_what_people_asked() -> None:
    requests = [
        asked(1, RequestKind.CHECKPOINT, "rule:MemoryLow"),
        asked(2, RequestKind.DEGRADE, "rule:MemoryLow"),
        asked(3, RequestKind.CHECKPOINT, "rule:MemoryLow", Answer.SUPPRESSED),
        asked(4, RequestKind.RESUME, "user:alice"),
        asked(5, RequestKind.RESUME, "user:alice"),
        asked(6, RequestKind.DUMP, "user:alice", Answer.FAILED),
    ]

    lines = job_end(ended(), None, requests, NOW).body.splitlines()

    said = [line for line in lines if "asked" in line]
    assert said == [
        "sentinel asked for checkpoint: done, and it was seen to work",
        "sentinel asked for degrade to level 1: done, and it was seen to work",
        "alice asked: resume 2 times, dump (failed)",
    ]


def test_of_many_requests_the_last_are_told_and_the_others_counted() -> None:
    requests = [asked(number, RequestKind.CHECKPOINT, "rule:CheckpointOverdue") for number in range(9)]

    lines = job_end(ended(), None, requests, NOW).body.splitlines()

    assert "sentinel asked 5 times before" in lines
    assert sum(line.startswith("sentinel asked for checkpoint") for line in lines) == 4


@pytest.mark.parametrize(
    ("past", "line"),
    [
        ((), "cost: 39.84 (2h at 19.92 an hour)"),
        (
            (Past(1, NOW - 10800, NOW - 7200, "failed"),),
            "cost: 59.76 (3h in 2 attempts at 19.92 an hour)",
        ),
    ],
)
def test_what_it_cost_is_told_where_a_price_is_known(past: tuple[Past, ...], line: str) -> None:
    job = ended(spec=replace(a_job().spec, cost_per_hour=19.92), past=past, attempt=1 + len(past))

    assert line in job_end(job, None, [], NOW).body
    assert "cost" not in job_end(ended(), None, [], NOW).body
