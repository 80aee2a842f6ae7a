"""Why did it end? What is known, weighed, in words. Pure."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from dataclasses import dataclass

from sentinel.model.jobs import Job, JobState
from sentinel.model.logs import LogEvent, LogKind


@dataclass(frozen=True, slots=True)
class Evidence:
    """What others saw of an attempt that ended.

    Attributes:
        events: The log events of the attempt, oldest first.
        cgroup_oom_kills: How many processes the kernel killed in the job's cgroup during the attempt; None: unknown.
        host_oom_kills: The same on the whole host.
    """

    events: Sequence[LogEvent] = ()
    cgroup_oom_kills: float | None = None
    host_oom_kills: float | None = None


_DECISIVE: dict[LogKind, str] = {
    LogKind.GPU_OOM: "ran out of GPU memory",
    LogKind.HOST_OOM: "ran out of memory",
    LogKind.GPU_FAULT: "a GPU failed",
    LogKind.DISK_FULL: "the disk was full",
    LogKind.QUOTA_EXHAUSTED: "the quota of an API is used up",
    LogKind.CONTEXT_LENGTH: "a request was longer than the model's context",
    LogKind.CHECKPOINT_FAILED: "a checkpoint could not be written",
    LogKind.NCCL_FAILURE: "the processes lost each other",
    LogKind.RATE_LIMITED: "an API refused for too many requests",
    LogKind.OVERLOADED: "an API was overloaded",
    LogKind.TIMEOUT: "something took too long",
    LogKind.CONNECTION_LOST: "a connection was lost",
    LogKind.PREEMPTED: "a scheduler took the machine back",
    LogKind.TRACEBACK: "an exception was not caught",
}
"""The kinds that end jobs, the surest first: an out-of-memory is the cause, the traceback below it the messenger."""

_RECENT = 20
"""How many of the last log events are weighed. A rate limit of hours ago ended nothing."""


def explain(job: Job, evidence: Evidence) -> str:
    """One or two lines: how it ended, and the last decisive line.

    Args:
        job: As it ended: state, exit code and signal are set.
        evidence: What else was seen.
    """
    how = _how(job)
    if job.state in {JobState.SUCCEEDED, JobState.STOPPED}:
        return how
    killed = _killed_for_memory(job, evidence)
    decisive = _decisive(evidence.events)
    if killed:
        return f"{killed} ({how})" + (f": {decisive.line}" if decisive and decisive.kind in _MEMORY else "")
    if decisive is None:
        return how
    return f"{_DECISIVE[decisive.kind]} ({how}): {decisive.line}"


_MEMORY = {LogKind.GPU_OOM, LogKind.HOST_OOM}


def _how(job: Job) -> str:
    if job.exit_signal is not None:
        return f"ended by {_signal(job.exit_signal)}{_guess(job.exit_signal, job)}"
    if job.exit_code is None:
        return "ended, as asked" if job.state is JobState.STOPPED else "ended; nobody could see how"
    if job.exit_code == 0:
        return "finished"
    if 128 < job.exit_code < 128 + 65:
        return f"exit code {job.exit_code}, as after {_signal(job.exit_code - 128)}"
    return f"exit code {job.exit_code}" + _MEANINGS.get(job.exit_code, "")


_MEANINGS = {126: ", the command could not be run", 127: ", the command was not found"}


def _guess(number: int, job: Job) -> str:
    if number == signal.SIGINT:
        return ", interrupted"
    if job.state is JobState.STOPPED:
        return ""
    if number == signal.SIGKILL:
        return ", by a person, a scheduler or the kernel: it leaves no reason"
    if number in {signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE, signal.SIGABRT}:
        return ", a fault in native code"
    return ""


def _killed_for_memory(job: Job, evidence: Evidence) -> str:
    if job.exit_signal != signal.SIGKILL and job.exit_code != 128 + signal.SIGKILL:
        return ""
    if evidence.cgroup_oom_kills:
        return "the kernel killed it: the memory limit of its cgroup was reached"
    if evidence.host_oom_kills:
        return "the kernel probably killed it: the machine was out of memory"
    return ""


def _decisive(events: Sequence[LogEvent]) -> LogEvent | None:
    recent = list(events)[-_RECENT:]
    for kind in _DECISIVE:
        for event in reversed(recent):
            if event.kind is kind:
                return event
    return None


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
