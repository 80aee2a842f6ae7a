"""The register, explored: any sequence of jobs, ends and daemon deaths."""

from __future__ import annotations

import contextlib
import os
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from sentinel.jobs.machine import Impossible
from sentinel.model.jobs import JobSpec, JobState, ProcessId
from sentinel.model.journal import Record
from tests.jobs.test_register import Paper, a_register


class LifeOfTheRegister(RuleBasedStateMachine):
    """What a daemon may live through."""

    def __init__(self) -> None:
        super().__init__()
        self.paper = Paper()
        self.register = a_register(self.paper)
        self.next_pid = 100
        self.over: dict[str, JobState] = {}

    jobs = Bundle("jobs")

    @rule(target=jobs, name=st.sampled_from(["", "llama", "llama-2"]), adopted=st.booleans())
    def enter(self, name: str, adopted: bool) -> str:
        self.next_pid += 1
        process = ProcessId(self.next_pid, 1, "b")
        spec = JobSpec(("python", "train.py"), "/", name=name)
        given: dict[str, Any] = {"adopt": process} if adopted else {"supervisor": process}
        return self.register.register(spec, uid=os.getuid(), owner="me", **given).job.id

    @rule(job_id=jobs)
    def start(self, job_id: str) -> None:
        self._try(lambda: self.register.attempt_started(job_id, attempt=1, root=ProcessId(7, 7, "b"), pgid=7))

    @rule(job_id=jobs)
    def pause(self, job_id: str) -> None:
        self._try(lambda: self.register.paused(job_id, "user:me"))

    @rule(job_id=jobs)
    def resume(self, job_id: str) -> None:
        self._try(lambda: self.register.resumed(job_id, "user:me"))

    @rule(job_id=jobs)
    def stop(self, job_id: str) -> None:
        self._try(lambda: self.register.stopping(job_id, "user:me"))

    @rule(job_id=jobs)
    def lose_the_supervisor(self, job_id: str) -> None:
        self.register.supervisor_lost(job_id)

    @rule(job_id=jobs, code=st.sampled_from([0, 1, 130, None]))
    def end(self, job_id: str, code: int | None) -> None:
        self.register.attempt_ended(job_id, attempt=1, exit_code=code, exit_signal=None, at=1.0)

    @rule(job_id=consumes(jobs))
    def vanish(self, job_id: str) -> None:
        self.register.vanished(job_id)

    @rule()
    def kill_the_daemon(self) -> None:
        before = self.register.living()
        self.register = a_register(self.paper)
        for seq, (kind, data) in enumerate(list(self.paper.records)):
            self.register.fold(Record(seq, 0.0, kind, data))
        assert self.register.living() == before

    @invariant()
    def names_of_the_living_are_unique(self) -> None:
        names = [job.name for job in self.register.living()]
        assert len(names) == len(set(names))

    @invariant()
    def what_has_ended_stays_as_it_ended(self) -> None:
        for job_id, state in self.over.items():
            found = self.register.find(job_id)
            assert found is not None
            assert found.state is state
        for job in self.register.recent():
            self.over[job.id] = job.state

    @invariant()
    def every_end_is_told_once_with_a_cause(self) -> None:
        for job_id, state in self.over.items():
            told = [event for event in self.paper.events if event.data.get("id") == job_id]
            ends = [event for event in told if JobState.__members__.get(_last(event.kind), JobState.RUNNING).ended]
            assert [event.kind for event in ends] == [f"job.{state.value}"]
            assert ends[0].data["cause"]

    def _try(self, act: Any) -> None:
        with contextlib.suppress(Impossible):
            act()


def _last(kind: str) -> str:
    return kind.rpartition(".")[2].upper()


LifeOfTheRegister.TestCase.settings = settings(
    max_examples=60, stateful_step_count=30, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
TestLifeOfTheRegister = LifeOfTheRegister.TestCase
