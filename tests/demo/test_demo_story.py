"""The story is told as it was, and a job that did not end as told is found out."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from sentinel.demo.story import Story

BEGAN = 1_800_000_000.0
MIB = 1024.0**2
_numbers = itertools.count()


def event(at: float, job: str, kind: str, **data: Any) -> dict[str, Any]:
    return {"id": f"e{next(_numbers)}", "time": BEGAN + at, "kind": kind, "job": job, "message": kind, "data": data}


def look(name: str, used: float, *, rss: float = 0.0, processes: float = 1) -> dict[str, Any]:
    memory = {"used_bytes": used * MIB, "limit_bytes": 420 * MIB, "rss_bytes": rss * MIB}
    return {"name": name, "state": "running", "memory": memory, "processes": processes}


def saved(story: Story, *, at_mib: float = 250.0) -> None:
    story.look([look("leaky", at_mib)], None, 0, 14.0)
    story.events(
        [
            event(15, "leaky", "alert.firing"),
            event(15, "leaky", "request.sent", request="checkpoint"),
            event(15.5, "leaky", "checkpoint.complete"),
            event(15.6, "leaky", "request.acknowledged", request="degrade"),
        ],
        BEGAN,
    )


def steady(story: Story, used: float = 260.0, growth: float = 0.0) -> None:
    for second in range(16, 26):
        story.look([look("leaky", used + growth * (second - 16))], None, 0, float(second))


def verdict(story: Story, job: str) -> tuple[bool, str]:
    found = {one.job: one for one in story.close(40.0)}[job]
    return found.ok, found.message


def test_leaky_is_saved_when_it_was_asked_in_time_and_the_leak_has_stopped() -> None:
    story = Story()
    saved(story)
    steady(story)

    ok, words = verdict(story, "leaky")
    assert ok
    assert "asked at 60%" in words


def test_leaky_that_leaks_on_is_not_saved() -> None:
    story = Story()
    saved(story)
    steady(story, growth=20.0)

    assert verdict(story, "leaky") == (False, "never seen: steady")


def test_asked_above_three_quarters_is_too_late() -> None:
    story = Story()
    saved(story, at_mib=330.0)
    steady(story, used=340.0)

    ok, words = verdict(story, "leaky")
    assert not ok
    assert "too late" in words


def test_a_checkpoint_from_before_the_request_does_not_count() -> None:
    story = Story()
    story.events(
        [
            event(2, "leaky", "checkpoint.complete"),
            event(15, "leaky", "alert.firing"),
            event(15, "leaky", "request.sent", request="checkpoint"),
        ],
        BEGAN,
    )

    assert verdict(story, "leaky") == (False, "never seen: saved, degraded, steady")


@pytest.mark.parametrize("job", ["leaky", "agent", "forgetful", "happy"])
def test_a_job_that_dies_has_not_ended_as_told(job: str) -> None:
    story = Story()
    story.events([event(9, job, "job.failed")], BEGAN)

    ok, words = verdict(story, job)
    assert not ok
    assert "failed" in words


def refused_and_asked(story: Story) -> None:
    story.events(
        [
            event(9, "agent", "log.rate_limited"),
            event(10, "agent", "request.sent", request="degrade"),
            event(10.2, "agent", "request.acknowledged", request="degrade"),
        ],
        BEGAN,
    )


def test_the_agent_has_slowed_down_when_the_api_itself_has_seen_no_more_of_it() -> None:
    story = Story()
    refused_and_asked(story)
    story.look([], 0.2, 100, 10.4)
    story.look([], 5.5, 110, 16.0)

    assert verdict(story, "agent")[0]


@pytest.mark.parametrize(
    ("refused_ago", "served"), [(2.0, 110), (5.5, 100)], ids=["refused again", "it does not work any more"]
)
def test_an_agent_that_is_refused_on_or_stopped_altogether_has_not(refused_ago: float, served: int) -> None:
    story = Story()
    refused_and_asked(story)
    story.look([], 0.2, 100, 10.4)
    story.look([], refused_ago, served, 16.0)

    assert verdict(story, "agent") == (False, "never seen: quiet")


def test_forgetful_is_reminded() -> None:
    story = Story()
    story.events(
        [
            event(18, "forgetful", "alert.firing"),
            event(18, "forgetful", "request.sent", request="checkpoint"),
            event(19, "forgetful", "checkpoint.complete"),
        ],
        BEGAN,
    )

    assert verdict(story, "forgetful")[0]


def test_one_alert_is_one_too_many_for_happy() -> None:
    story = Story()
    story.look([look("happy", 170, rss=850, processes=5)], None, 0, 3.0)
    story.events([event(12, "happy", "alert.firing")], BEGAN)

    ok, words = verdict(story, "happy")
    assert not ok
    assert "disturbed" in words


def undecided(story: Story) -> list[str]:
    return [part.job for part in story.parts.values() if part.verdict is None]


def test_happy_is_decided_last_and_only_after_it_was_left_alone_for_a_while() -> None:
    story = Story()
    story.look([look("happy", 170, rss=850, processes=5)], None, 0, 3.0)
    for part in story.parts.values():
        if part.job != "happy":
            part.ended("failed", "for this test", 5.0)
    story.look([look("happy", 170, rss=850, processes=5)], None, 0, 10.0)
    assert undecided(story) == ["happy"]
    story.look([look("happy", 170, rss=850, processes=5)], None, 0, 23.5)

    assert undecided(story) == []
    assert verdict(story, "happy")[0]


def test_it_is_told_in_order_of_time_though_events_come_late() -> None:
    story = Story()
    story.events([event(15, "leaky", "alert.firing")], BEGAN)
    first = list(story.news(until=14.5))
    story.events([event(14, "agent", "log.rate_limited")], BEGAN)
    story.close(40)

    assert first == []
    told = list(story.news())
    assert [one.at for one in told] == sorted(one.at for one in told)
    assert [(one.job, one.what) for one in told][:2] == [("agent", "refused"), ("leaky", "warned")]
    assert [one.what for one in told][2:] == ["verdict"] * 4


def test_each_moment_is_told_once_though_events_come_twice() -> None:
    story = Story()
    events = [event(15, "leaky", "alert.firing"), event(14, "agent", "log.rate_limited")]
    story.events(events, BEGAN)
    first = list(story.news())
    story.events(events, BEGAN)

    assert [(moment.job, moment.what) for moment in first] == [("agent", "refused"), ("leaky", "warned")]
    assert list(story.news()) == []
