"""Limits, schedulers, the bill, the audit: pure parts. And the whole life of a job, walked at random."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from sentinel.clock import ManualClock
from sentinel.jobs import limits, report, schedulers
from sentinel.jobs.audit import audit
from sentinel.jobs.bill import Kept, worth
from sentinel.jobs.limits import Stage
from sentinel.jobs.machine import Impossible
from sentinel.jobs.register import Register
from sentinel.jobs.report import Row
from sentinel.model.events import Event
from sentinel.model.jobs import Channel, CheckpointDir, Job, JobSpec, JobState, ProcessId
from sentinel.model.journal import Record
from sentinel.model.requests import RequestKind
from sentinel.model.wire import encode

amounts = st.floats(0, 1e6)


@given(amounts, amounts, st.floats(0.1, 1e6), st.floats(0, 1e4))
def test_a_limit_only_ever_gets_nearer(early: float, later: float, limit: float, grace: float) -> None:
    one, other = limits.stage(early, limit, grace), limits.stage(early + later, limit, grace)

    assert one <= other
    assert (one >= Stage.STOP) == (early >= limit)
    assert one < Stage.WARN or early >= limits.WARN_AT * limit


@given(amounts, st.floats(0.1, 1e6), st.floats(0, 1e4))
def test_nothing_is_missed_between_two_looks(elapsed: float, limit: float, grace: float) -> None:
    left = limits.next_change(elapsed, limit, grace)

    assert left > 0
    if left < 1e9:
        assert limits.stage(elapsed + left * 0.999, limit, grace) == limits.stage(elapsed, limit, grace)


def test_learnt_limits() -> None:
    assert limits.learnt(3600.0, 19) == limits.AUTO_DEFAULT_S
    assert limits.learnt(3600.0, 20) == 5400.0
    assert limits.stall_limit([]) == 600.0
    assert limits.stall_limit([1.0] * 50) == 600.0
    assert limits.stall_limit([300.0] * 50) == 1500.0
    assert limits.grace(None) == 30.0
    assert limits.grace(45.0) == 90.0
    assert limits.save_at(1000.0, 20.0) == 900.0


@pytest.mark.parametrize(
    ("environ", "said", "known"),
    [
        ({}, "", False),
        ({"SLURM_JOB_ID": "7", "SLURM_JOB_END_TIME": "1700000000"}, "", True),
        ({"SLURM_JOB_ID": "7"}, "JobId=7 EndTime=2023-11-14T22:13:20 Deadline=N/A", True),
        ({"SLURM_JOB_ID": "7"}, "JobId=7 EndTime=Unknown Deadline=N/A", False),
        ({"SLURM_JOB_ID": "7"}, "", False),
        ({"SLURM_JOB_ID": "x; rm", "SLURM_JOB_END_TIME": "1700000000"}, "", False),
    ],
)
def test_when_the_scheduler_ends_it(environ: Mapping[str, str], said: str, known: bool) -> None:
    assert (schedulers.end_time(environ, lambda _: said) is not None) == known


def test_a_task_of_an_array_goes_back_by_its_own_name() -> None:
    assert schedulers.requeue_command({}) == []
    assert schedulers.requeue_command({"SLURM_JOB_ID": "71"}) == ["scontrol", "requeue", "71"]
    array = {"SLURM_JOB_ID": "71", "SLURM_ARRAY_JOB_ID": "70", "SLURM_ARRAY_TASK_ID": "3"}
    assert schedulers.requeue_command(array) == ["scontrol", "requeue", "70_3"]


moments = st.none() | st.floats(0, 2000)


@given(st.floats(500, 1000), st.floats(0, 1000), moments, moments, st.booleans(), st.booleans())
def test_the_bill_adds_up(
    started: float, ran: float, newest: float | None, before: float | None, asked: bool, succeeded: bool
) -> None:
    if newest is not None and before is not None and before > newest:
        newest, before = before, newest
    found = worth(started, started + ran, Kept(newest, before, asked), succeeded=succeeded)

    assert found.useful_s + found.lost_s == pytest.approx((started + ran) - started)
    assert 0 <= found.saved_s <= found.useful_s + 1e-9
    assert found.lost_s >= 0


def test_what_a_requested_checkpoint_preserved_is_saved() -> None:
    found = worth(100.0, 1000.0, Kept(900.0, 400.0, asked=True), succeeded=False)

    assert (found.useful_s, found.lost_s, found.saved_s) == (800.0, 100.0, 500.0)
    assert worth(100.0, 1000.0, Kept(900.0, 400.0), succeeded=False).saved_s == 0.0


def test_the_report_sums_hours_and_money() -> None:
    rows = [
        Row("llama", "failed", 3600.0, 3000.0, 600.0, 1200.0, 8, 20.0),
        Row("llama", "succeeded", 7200.0, 7200.0, 0.0, 0.0, 8, 20.0),
        Row("toy", "succeeded", 60.0, 60.0, 0.0, 0.0, 0, None),
    ]
    running = Job("j", "toy", 0, "me", JobSpec(("x",), "/"), JobState.RUNNING, attempt_started=900.0)
    found = report.made(rows, [running], 0.0, 1000.0, {"toy": 40.0})

    llama, toy = found["jobs"]
    assert (llama["attempts"], llama["gpu_hours"], llama["cost"], llama["run_p99_seconds"]) == (2, 24.0, 60.0, 7200.0)
    assert llama["lost_cost"] == pytest.approx(600 / 3600 * 20)
    assert llama["saved_cost"] == pytest.approx(1200 / 3600 * 20)
    assert (toy["cost"], toy["run_seconds"], toy["at_risk_seconds"], toy["state"]) == (None, 160.0, 40.0, "running")
    assert (found["total"]["attempts"], found["total"]["cost"]) == (4, 60.0)


def test_an_audit_says_what_is_missing_and_what_to_do() -> None:
    bare: dict[str, Any] = encode(Job("j", "x", 0, "me", JobSpec(("x",), "/")))
    spec = JobSpec(
        ("x", "{checkpoint}"),
        "/",
        checkpoints=(CheckpointDir("/ckpt", 60.0),),
        channels=(Channel.parse(RequestKind.CHECKPOINT, "signal:USR1"), Channel.parse(RequestKind.DEGRADE, "file:/d")),
        retries=3,
        stall_timeout_s=60.0,
        notify=("ntfy://***",),
    )
    full = encode(Job("j", "x", 0, "me", spec, supervisor=ProcessId(1, 2, "b"), timeout_s=60.0))
    full["checkpoint"] = {"finished": 990.0, "size_bytes": 10}

    missing = audit(bare, [], [], 1000.0)
    assert [one.good for one in missing] == [False, False, False, False, False, True, False]
    assert all(one.advice for one in missing if not one.good)
    assert all(one.good for one in audit(full, ["MemoryLow"], [], 1000.0))
    full["checkpoint"]["finished"] = 100.0
    assert not audit(full, ["MemoryLow"], [], 1000.0)[0].good


ME = ProcessId(1, 1, "boot")


class Life(RuleBasedStateMachine):
    """One job with a supervisor: whatever happens in whatever order, also to the daemon and to the clock."""

    @initialize()
    def begin(self) -> None:
        self.clock = ManualClock(1000.0)
        self.records: list[Record] = []
        self.events: list[Event] = []
        self.attempt = 1
        self.ends = 0
        self._start()
        spec = JobSpec(("x",), "/", name="x", retries=3)
        self.id = self.register.register(spec, uid=0, owner="me", supervisor=ME).job.id

    def _start(self) -> None:
        self.register = Register(self, self.events.append, self.clock, directory=Path("/nowhere"))
        for record in self.records:
            self.register.fold(record)

    def append(self, kind: str, data: Mapping[str, object]) -> None:
        """The journal."""
        self.records.append(Record(len(self.records), self.clock.now(), kind, json.loads(json.dumps(data))))

    @property
    def job(self) -> Job:
        found = self.register.find(self.id)
        assert found is not None
        return found

    @rule()
    def the_daemon_dies(self) -> None:
        before = self.job
        self._start()
        assert self.job == before

    @rule(seconds=st.sampled_from([-3600.0, -1.0, 0.5, 60.0, 86400.0]))
    def the_clock_moves(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @rule()
    def an_attempt_starts(self) -> None:
        number = self.attempt + (1 if self.job.state is JobState.WAITING else 0)
        try:
            self.register.attempt_started(self.id, attempt=number, root=ProcessId(number + 10, number, "boot"))
        except Impossible:
            assert not self.job.alive
            return
        self.attempt = number
        assert self.job.attempt == number

    @rule(
        code=st.sampled_from([0, 1, 130, None]), more=st.booleans(), outcome=st.sampled_from(["", "preempted", "stall"])
    )
    def an_attempt_ends(self, code: int | None, more: bool, outcome: str) -> None:
        before = self.job
        after = self.register.attempt_ended(
            self.id, attempt=self.attempt, exit_code=code, exit_signal=None, at=self.clock.now(), more=more,
            outcome=outcome,
        )  # fmt: skip
        if before.alive and not more and not before.restarting:
            assert not after.alive
        if before.state is JobState.STOPPING and outcome != "preempted" and code != 130:
            assert after.state is JobState.STOPPED

    @precondition(lambda self: self.job.alive)
    @rule()
    def somebody_asks_for_its_end(self) -> None:
        waiting = self.job.state is JobState.WAITING
        self.register.stopping(self.id, "user:me")
        assert self.job.state is (JobState.STOPPED if waiting else JobState.STOPPING)

    @precondition(lambda self: self.job.alive and self.job.state is not JobState.STOPPING)
    @rule()
    def somebody_asks_for_a_restart(self) -> None:
        self.register.restarting(self.id, "user:me")
        assert self.job.restarting

    @rule()
    def the_supervisor_says_when(self) -> None:
        self.register.waits(self.id, self.clock.now() + 5.0, "retry 1 of 3")
        assert (self.job.next_attempt is not None) == (self.job.state is JobState.WAITING) or not self.job.alive

    @rule()
    def its_processes_vanish(self) -> None:
        self.register.vanished(self.id)
        assert not self.job.alive

    @invariant()
    def what_has_ended_is_told_once_and_whole(self) -> None:
        if not hasattr(self, "events"):
            return
        final = [one for one in self.events if one.kind.removeprefix("job.") in {s.value for s in JobState if s.ended}]
        assert len(final) == (0 if self.job.alive else 1)
        assert self.job.alive == (self.job.ended is None)
        numbers = [one.attempt for one in self.job.past]
        assert numbers == sorted(set(numbers))
        assert all(one.useful_s >= 0 and one.lost_s >= 0 for one in self.job.past)


Life.TestCase.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
test_whatever_happens_in_a_life = Life.TestCase
