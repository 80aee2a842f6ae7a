"""What happened, in words that people read."""

from __future__ import annotations

from typing import cast

import pytest

from sentinel.clock import SystemClock
from sentinel.daemon import overview
from sentinel.daemon.hub import Hub
from sentinel.daemon.pipeline import Pipeline
from sentinel.model.alerts import Alert, AlertState, Reason, Transition
from sentinel.model.families import HOST, JOB
from sentinel.model.jobs import Job, JobSpec, JobState
from sentinel.model.labels import Labels
from sentinel.rules.engine import Engine
from sentinel.store.window import Window

NOW = 1_000_000.0
FIRED, PENDING = AlertState.FIRING, AlertState.PENDING


def said(was: AlertState, state: AlertState, reason: Reason) -> str:
    """The message of the event that a transition becomes."""
    hub = Hub(lambda _: None)
    pipeline = Pipeline(
        keep=(), engine=cast("Engine", None), write=lambda _kind, _data: None, hub=hub, act=lambda _: None,
        tell=lambda _: None, owner=lambda _: None, clock=SystemClock(),
    )  # fmt: skip
    labels = Labels({"alertname": "MemoryLow", "job": "leak"})
    alert = Alert("a1", "MemoryLow", "memory", labels, state, 1.0, NOW - 9, fired=NOW - 3 if was is FIRED else None)
    pipeline.on_changes([Transition(alert, was, reason, NOW)])
    return hub.recent()[-1].message


@pytest.mark.parametrize(
    ("was", "state", "reason", "words"),
    [
        (FIRED, AlertState.RESOLVED, Reason.ENDED, "MemoryLow is over after 3s"),
        (FIRED, AlertState.RESOLVED, Reason.JOB_ENDED, "MemoryLow is over after 3s, because the job has ended"),
        (FIRED, AlertState.RESOLVED, Reason.RULE_REMOVED, "MemoryLow is over after 3s, because the rule was removed"),
        (PENDING, AlertState.INACTIVE, Reason.ENDED_EARLY, "MemoryLow did not last: it held for 9s"),
        (
            PENDING,
            AlertState.INACTIVE,
            Reason.JOB_ENDED,
            "MemoryLow did not last: it held for 9s, because the job has ended",
        ),
    ],
)
def test_an_alert_that_is_over_says_how_long_and_why(
    was: AlertState, state: AlertState, reason: Reason, words: str
) -> None:
    assert said(was, state, reason) == words


def test_darkness_is_no_all_clear() -> None:
    assert "no all-clear" in said(FIRED, AlertState.RESOLVED, Reason.WENT_DARK)


@pytest.mark.parametrize(("grows", "full_in_s"), [(0.0, None), (1e6, 4.0)])
def test_against_the_whole_host_a_job_is_forecast_by_its_own_growth(grows: float, full_in_s: float | None) -> None:
    window = Window(span_s=60, columns=60)
    for at in range(10):
        mine = {
            "job_memory_used_bytes": 5e6,
            "job_memory_limit_bytes": 1e7,
            "job_memory_headroom_bytes": 4e6 + 1e5 * (-1) ** at,  # others come and go
            "job_memory_rss_bytes": 1e6 + grows * at,
        }
        host = {"host_memory_total_bytes": 1e7}
        window.append(HOST.batch(NOW + at, {(): tuple(host.get(metric.name) for metric in HOST.metrics)}))
        window.append(JOB.batch(NOW + at, {("train",): tuple(mine.get(metric.name) for metric in JOB.metrics)}))
    job = Job(id="j", name="train", uid=0, owner="", spec=JobSpec(("x",), "/"), state=JobState.RUNNING, since=NOW,
              created=NOW)  # fmt: skip

    found = overview.memory(window, job, NOW + 9)

    assert found["constraint"] == "host"
    assert found["full_in_seconds"] == (None if full_in_s is None else pytest.approx(full_in_s, abs=0.2))


def test_a_job_that_has_ended_uses_nothing_though_another_has_its_name() -> None:
    window = Window(span_s=60, columns=60)
    values = {"job_memory_used_bytes": 5e6, "job_memory_limit_bytes": 1e7, "job_memory_headroom_bytes": -5e6}
    for at in range(10):
        row = {**values, "job_memory_headroom_bytes": 3e6 - at * 1e6}
        window.append(
            JOB.batch(
                NOW + at,
                covers=[("train",)],
                values={("train",): tuple(row.get(metric.name) for metric in JOB.metrics)},
            )
        )
    alive = Job(id="j2", name="train", uid=0, owner="", spec=JobSpec(("x",), "/"), state=JobState.RUNNING, since=NOW,
                created=NOW)  # fmt: skip
    gone = Job(id="j1", name="train", uid=0, owner="", spec=JobSpec(("x",), "/"), state=JobState.FAILED, since=NOW,
               created=NOW, ended=NOW)  # fmt: skip

    assert overview.memory(window, alive, NOW + 9)["used_bytes"] == 5e6
    assert overview.memory(window, alive, NOW + 9)["full_in_seconds"] == 0.0
    assert set(overview.memory(window, gone, NOW + 9).values()) == {None}
    assert set(overview.usage(window, gone, NOW + 9).values()) == {None}
