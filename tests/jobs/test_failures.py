"""Why did it end? In words."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from sentinel.jobs.failures import Evidence, explain
from sentinel.model.jobs import Job, JobSpec, JobState
from sentinel.model.logs import LogEvent, LogKind


@dataclass(frozen=True)
class Case:
    name: str
    code: int | None
    signal: int | None
    evidence: Evidence
    words: str
    state: JobState = JobState.FAILED


def said(*events: tuple[LogKind, str]) -> Evidence:
    return Evidence([LogEvent(kind, line) for kind, line in events])


CASES = [
    Case("it finished", 0, None, said((LogKind.RATE_LIMITED, "429")), "finished", JobState.SUCCEEDED),
    Case("nothing is known but the code", 3, None, Evidence(), "exit code 3"),
    Case("the out of memory is the cause, the traceback its messenger", 1, None,
         said((LogKind.GPU_OOM, "CUDA out of memory"), (LogKind.TRACEBACK, "RuntimeError: worker died")),
         "ran out of GPU memory (exit code 1): CUDA out of memory"),
    Case("an exception", 1, None, said((LogKind.TRACEBACK, "ValueError: no such split")),
         "an exception was not caught (exit code 1): ValueError: no such split"),
    Case("a rate limit of hours ago ended nothing", 1, None,
         said((LogKind.RATE_LIMITED, "429"), *[(LogKind.TRACEBACK, f"E{n}") for n in range(20)]),
         "an exception was not caught (exit code 1): E19"),
    Case("the kernel killed it in its cgroup", None, 9, Evidence(cgroup_oom_kills=1),
         "the kernel killed it: the memory limit of its cgroup was reached (ended by SIGKILL, by a person, a scheduler "
         "or the kernel: it leaves no reason)"),
    Case("the kernel killed something on the machine", 137, None, Evidence(host_oom_kills=1),
         "the kernel probably killed it: the machine was out of memory (exit code 137, as after SIGKILL)"),
    Case("killed, and nobody says why", None, 9, Evidence(),
         "ended by SIGKILL, by a person, a scheduler or the kernel: it leaves no reason"),
    Case("a crash", None, 11, Evidence(), "ended by SIGSEGV, a fault in native code"),
    Case("asked to stop", None, 9, Evidence(), "ended by SIGKILL", JobState.STOPPED),
    Case("asked to stop, and nobody saw how", None, None, Evidence(), "ended, as asked", JobState.STOPPED),
    Case("interrupted", None, 2, Evidence(), "ended by SIGINT, interrupted", JobState.STOPPED),
    Case("nobody saw", None, None, Evidence(), "ended; nobody could see how", JobState.LOST),
    Case("no such command", 127, None, Evidence(), "exit code 127, the command was not found"),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_cause(case: Case) -> None:
    job = Job("j", "x", 0, "me", JobSpec(("x",), "/"), state=case.state, exit_code=case.code, exit_signal=case.signal)

    assert explain(job, case.evidence) == case.words
