"""Why did it end? In words."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from sentinel.jobs.failures import Evidence, Verdict, explain, judge
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


def failed(*, code: int | None = 1, number: int | None = None) -> Job:
    return Job(
        "j", "x", 0, "me", JobSpec(("x",), "/"), state=JobState.FAILED, exit_code=None if number else code,
        exit_signal=number,
    )  # fmt: skip


def event(kind: LogKind, line: str = "said", retryable: bool | None = None, **fields: object) -> Evidence:
    return Evidence([LogEvent(kind, line, retryable=retryable, fields=fields)])


R, D, U = Verdict.RETRYABLE, Verdict.DETERMINISTIC, Verdict.UNKNOWN
VERDICTS = [
    ("an out of memory on the GPU", failed(), event(LogKind.GPU_OOM), D, "gpu_oom", "less GPU memory"),
    ("a kill in its cgroup", failed(number=9), Evidence(cgroup_oom_kills=1), D, "host_oom", "less memory"),
    ("a kill by whomever", failed(number=9), Evidence(), U, "sigkill", ""),
    ("a kill seen by a shell", failed(code=137), Evidence(), U, "exit_137", ""),
    ("too long a context", failed(), event(LogKind.CONTEXT_LENGTH), D, "context_length", "a shorter request"),
    ("no more money", failed(), event(LogKind.QUOTA_EXHAUSTED), D, "quota_exhausted", "credit"),
    ("a full disk", failed(), event(LogKind.DISK_FULL), D, "disk_full", "room on the disk"),
    ("a 429", failed(), event(LogKind.RATE_LIMITED, retry_after_seconds=17), R, "rate_limited", ""),
    ("a lost neighbour", failed(), event(LogKind.NCCL_FAILURE), R, "nccl_failure", ""),
    ("a GPU fault that a restart cures", failed(), event(LogKind.GPU_FAULT, xid=31), R, "gpu_fault", ""),
    ("a GPU that must be reset", failed(), event(LogKind.GPU_FAULT, xid="79"), D, "gpu_fault", "another board"),
    ("no such module", failed(), event(LogKind.TRACEBACK, "ModuleNotFoundError: No module named 'flash_attn'"), D,
     "program", "install what is missing"),
    ("an exception that says nothing", failed(), event(LogKind.TRACEBACK, "RuntimeError: it broke"), U, "traceback",
     ""),
    ("one whose pattern knows it passes", failed(), event(LogKind.TRACEBACK, "E: it broke", retryable=True), R,
     "traceback", ""),
    ("bad arguments", failed(code=2),
     Evidence(last_lines=["usage: train.py", "train.py: error: unrecognized arguments: --lr"]), D, "program",
     "correct the arguments"),
    ("no such command", failed(code=127), Evidence(), D, "exit_127", "install it"),
    ("nothing is known", failed(code=3), Evidence(), U, "exit_3", ""),
    ("a crash in native code", failed(number=11), Evidence(), U, "sigsegv", ""),
    ("an end that nobody saw", failed(code=None), Evidence(), U, "unseen", ""),
]  # fmt: skip


@pytest.mark.parametrize(("job", "evidence", "verdict", "error", "change"), [one[1:] for one in VERDICTS],
                         ids=[one[0] for one in VERDICTS])  # fmt: skip
def test_verdict(job: Job, evidence: Evidence, verdict: Verdict, error: str, change: str) -> None:
    found = judge(job, evidence)

    assert (found.verdict, found.error) == (verdict, error)
    assert change in found.change
    assert bool(found.change) == (verdict is Verdict.DETERMINISTIC)
    assert found.evidence


def test_only_a_want_of_memory_is_cured_by_running_smaller() -> None:
    assert judge(failed(), event(LogKind.GPU_OOM)).smaller
    assert judge(failed(number=9), Evidence(cgroup_oom_kills=1)).smaller
    assert not judge(failed(), event(LogKind.DISK_FULL)).smaller


def test_whoever_refused_says_when_to_come_back() -> None:
    assert judge(failed(), event(LogKind.RATE_LIMITED, retry_after_seconds=17)).retry_after_s == 17.0
    assert judge(failed(), event(LogKind.RATE_LIMITED)).retry_after_s is None
