"""Why did it end? What is known, weighed, in words. Pure."""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from sentinel.jobs.bill import Kept
from sentinel.model.jobs import Job, JobState
from sentinel.model.logs import LogEvent, LogKind


@dataclass(frozen=True, slots=True)
class Evidence:
    """What others saw of an attempt that ended.

    Attributes:
        events: The log events of the attempt, oldest first.
        cgroup_oom_kills: How many processes the kernel killed in the job's cgroup during the attempt; None: unknown.
        host_oom_kills: The same on the whole host.
        last_lines: The last lines of its output, cleaned and masked, oldest first.
        kept: Its whole checkpoints; None: nobody looked.
        gpus: On how many boards it was seen.
    """

    events: Sequence[LogEvent] = ()
    cgroup_oom_kills: float | None = None
    host_oom_kills: float | None = None
    last_lines: Sequence[str] = ()
    kept: Kept | None = None
    gpus: int = 0


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


# Whether the same again would do


class Verdict(StrEnum):
    """Would the same again plausibly succeed?"""

    RETRYABLE = "retryable"
    DETERMINISTIC = "deterministic"  # unchanged it fails again
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Judgement:
    """What an ended attempt says about the next one.

    Attributes:
        verdict: Would the same again plausibly succeed?
        error: The class of the error, one word: a kind of log event, `exit_3`, `sigkill`.
        evidence: What the verdict rests on, in words.
        change: What must change before it can succeed; empty where nothing must.
        smaller: Whether one degrade level down is such a change.
        retry_after_s: How long whoever refused wants to be left alone; None: nobody said.
    """

    verdict: Verdict
    error: str
    evidence: str
    change: str = ""
    smaller: bool = False
    retry_after_s: float | None = None


def judge(job: Job, evidence: Evidence) -> Judgement:
    """Weigh what is known about an attempt that failed. Pure.

    Args:
        job: Its `exit_code` and `exit_signal` are those of the attempt.
        evidence: What else was seen.
    """
    how = _how(job)
    if killed := _killed_for_memory(job, evidence):
        return Judgement(Verdict.DETERMINISTIC, LogKind.HOST_OOM.value, f"{killed} ({how})", _LESS_MEMORY, smaller=True)
    if job.exit_code in _MEANINGS:
        change = "install it, or correct the command or PATH" if job.exit_code == 127 else "chmod +x, or name a program"
        return Judgement(Verdict.DETERMINISTIC, f"exit_{job.exit_code}", how, change)
    if job.exit_signal == signal.SIGXCPU:
        return Judgement(Verdict.DETERMINISTIC, "sigxcpu", f"{how}, its limit of processor time", "raise `ulimit -t`")
    decisive = _decisive(evidence.events)
    if decisive is not None and decisive.kind is not LogKind.TRACEBACK:
        return _by_kind(decisive, how)
    if found := _by_words([decisive.line] if decisive else [], evidence.last_lines):
        line, change = found
        return Judgement(Verdict.DETERMINISTIC, "program", f"{line} ({how})", change)
    if decisive is not None:
        verdict = _by_hint(decisive.retryable)
        return Judgement(verdict, LogKind.TRACEBACK.value, f"{decisive.line} ({how})")
    if job.exit_signal is not None:
        return Judgement(Verdict.UNKNOWN, _signal(job.exit_signal).lower().replace(" ", "_"), how)
    if job.exit_code is None:
        return Judgement(Verdict.UNKNOWN, "unseen", how)
    return Judgement(Verdict.UNKNOWN, f"exit_{job.exit_code}", f"{how}, and its output does not say why")


_LESS_MEMORY = "less memory: a smaller batch, fewer workers, or a higher limit"
_CHANGES: dict[LogKind, str] = {
    LogKind.GPU_OOM: "less GPU memory: a smaller batch, shorter sequences, or another board",
    LogKind.HOST_OOM: _LESS_MEMORY,
    LogKind.CONTEXT_LENGTH: "a shorter request, or a model with a longer context",
    LogKind.QUOTA_EXHAUSTED: "credit or a higher quota with the provider",
    LogKind.DISK_FULL: "room on the disk: old checkpoints, caches, logs",
}
_PASSING = frozenset({
    LogKind.NCCL_FAILURE, LogKind.RATE_LIMITED, LogKind.OVERLOADED, LogKind.TIMEOUT,
    LogKind.CONNECTION_LOST, LogKind.PREEMPTED,
})  # fmt: skip
_RESTART_XIDS = frozenset({13, 31, 32, 39, 40, 41, 43, 45, 63, 68, 69, 92, 94})
"""GPU errors after which starting the program anew is enough; after the others the board must be reset first."""
_PROGRAM: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"\b(?:ModuleNotFoundError|ImportError)\b"), "install what is missing, or fix the environment"),
    (re.compile(r"\b(?:SyntaxError|IndentationError|NameError)\b: "), "correct the program"),
    (re.compile(r": error: (?:unrecognized arguments|the following arguments are required|argument |invalid )"),
     "correct the arguments"),
    (re.compile(r"error while loading shared libraries: "), "install the library, or set LD_LIBRARY_PATH"),
    (re.compile(r"can't open file '.*': \[Errno 2\]"), "correct the name of the script"),
)  # fmt: skip


def _by_kind(found: LogEvent, how: str) -> Judgement:
    evidence = f"{_DECISIVE[found.kind]} ({how}): {found.line}"
    if found.kind in _CHANGES:
        smaller = found.kind in _MEMORY
        return Judgement(Verdict.DETERMINISTIC, found.kind.value, evidence, _CHANGES[found.kind], smaller=smaller)
    if found.kind is LogKind.GPU_FAULT:
        xid = found.fields.get("xid")
        if isinstance(xid, int | float | str) and str(xid).isdecimal() and int(xid) not in _RESTART_XIDS:
            change = f"another board, or a reset of this one: Xid {xid} does not pass by itself"
            return Judgement(Verdict.DETERMINISTIC, found.kind.value, evidence, change)
        return Judgement(Verdict.RETRYABLE, found.kind.value, evidence)
    if found.kind in _PASSING:
        after = found.fields.get("retry_after_seconds")
        wait = float(after) if isinstance(after, int | float) and after > 0 else None
        return Judgement(Verdict.RETRYABLE, found.kind.value, evidence, retry_after_s=wait)
    return Judgement(_by_hint(found.retryable), found.kind.value, evidence)


def _by_hint(retryable: bool | None) -> Verdict:
    """What the pattern that matched knows about it."""
    if retryable is None:
        return Verdict.UNKNOWN
    return Verdict.RETRYABLE if retryable else Verdict.DETERMINISTIC


def _by_words(decisive: Sequence[str], last: Sequence[str]) -> tuple[str, str] | None:
    """A line that names a mistake in the program or its call, and what to do about it."""
    for line in (*decisive, *reversed(last)):
        for pattern, change in _PROGRAM:
            if pattern.search(line):
                return line.strip()[:400], change
    return None
