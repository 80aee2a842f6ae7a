"""Jobs: a named unit of work of one user, and what it declared about itself."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import StrEnum

from sentinel.errors import UsageError
from sentinel.model.requests import RequestKind


class JobState(StrEnum):
    """Where a job is in its life."""

    STARTING = "starting"
    RUNNING = "running"
    PAUSED = "paused"
    STOPPING = "stopping"
    WAITING = "waiting"  # between two attempts
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    PREEMPTED = "preempted"
    STOPPED = "stopped"  # because somebody asked
    LOST = "lost"  # its processes are gone and nobody saw how

    @property
    def ended(self) -> bool:
        """Whether nothing more will come."""
        return self in _ENDED


_ENDED = frozenset({JobState.SUCCEEDED, JobState.FAILED, JobState.PREEMPTED, JobState.STOPPED, JobState.LOST})


@dataclass(frozen=True, slots=True)
class ProcessId:
    """A process, told apart from every other that had or will have its pid.

    Attributes:
        pid: As seen by sentinel.
        start_ticks: Field 22 of /proc/PID/stat, clock ticks after boot.
        boot_id: /proc/sys/kernel/random/boot_id.
    """

    pid: int
    start_ticks: int
    boot_id: str


class How(StrEnum):
    """The ways in which a job can be asked something."""

    SIGNAL = "signal"
    FILE = "file"
    EXEC = "exec"
    HTTP = "http"


@dataclass(frozen=True, slots=True)
class Channel:
    """One declared way to ask one thing of a job.

    Attributes:
        request: What can be asked this way.
        how: By signal, file, program or HTTP.
        target: A signal name without SIG, an absolute path, a command line (split
            as a shell splits words, never run by one) or a URL.
        pattern: For a signal: only processes whose command line matches. Empty: the
            topmost processes of the tree that catch the signal.
    """

    request: RequestKind
    how: How
    target: str
    pattern: str = ""

    @classmethod
    def parse(cls, request: RequestKind, text: str) -> Channel:
        """Read `signal:USR1`, `signal:USR1@REGEX`, `file:PATH`, `exec:CMD` or `http:URL`.

        Raises:
            UsageError: Not one of these, an unknown signal, or a bad regular expression.
        """
        import signal  # only where a channel is declared

        scheme, colon, rest = text.partition(":")
        if scheme == "https" or (scheme == "http" and rest.startswith("//")):
            return cls(request, How.HTTP, text)
        if not colon or scheme not in {how.value for how in How} or not rest:
            raise UsageError(
                f"{text!r} does not say how to ask for {request.value}",
                hint="signal:USR1, signal:USR1@REGEX, file:/path, exec:COMMAND or http://host/path",
            )
        if scheme == "signal":
            name, at, pattern = rest.partition("@")
            name = name.upper().removeprefix("SIG")
            if name.isdigit():
                try:
                    name = signal.Signals(int(name)).name.removeprefix("SIG")
                except ValueError:
                    name = ""
            if not hasattr(signal, f"SIG{name}"):
                raise UsageError(f"unknown signal in {text!r}", hint="signal:USR1 or signal:USR2")
            if name in {"KILL", "STOP"}:
                raise UsageError(f"no process can catch {name}, so it cannot carry a request", hint="signal:USR1")
            try:
                re.compile(pattern)
            except re.error as fault:
                raise UsageError(f"bad regular expression in {text!r}: {fault}") from None
            if at and not pattern:
                raise UsageError(f"{text!r} names no process after the @", hint=f"signal:{name}@train\\.py")
            return cls(request, How.SIGNAL, name, pattern)
        return cls(request, How(scheme), rest)

    def __str__(self) -> str:
        if self.how is How.HTTP and "://" in self.target:
            return self.target
        return f"{self.how.value}:{self.target}" + (f"@{self.pattern}" if self.pattern else "")


@dataclass(frozen=True, slots=True)
class CheckpointDir:
    """A place a job writes checkpoints to.

    Attributes:
        path: Absolute directory, or a glob of files or directories.
        interval_s: How often one is wanted; None when nobody said.
        complete_when: How one is known to be whole, where its form does not say: "rename"
            (it gets its final name when it is), "stable" (it has stopped changing),
            "marker:NAME" (a file of that name is in it or beside it; {name} in NAME is
            its own). Empty: by the usual habits.
    """

    path: str
    interval_s: float | None = None
    complete_when: str = ""


@dataclass(frozen=True, slots=True)
class ExitHook:
    """A command to run once the job is over.

    Attributes:
        when: `finished`, `failed` or `gave-up`; empty: however it ended.
        command: Split as a shell splits words, never run by one.
    """

    when: str
    command: str


@dataclass(frozen=True, slots=True)
class JobSpec:
    """What the owner said about a job: everything that `run`, `watch` and the configuration can give.

    Attributes:
        degrades: Whether the owner said that it can run at lower levels.
        retries: How many attempts may follow the first, since it was last seen to get on.
        budget_s: How long after the first start an attempt may begin; None: for ever.
        timeout_s: How long an attempt may run; None: no limit, or a learnt one.
        timeout_auto: Whether that limit is learnt from past runs.
        stall_timeout_s: How long an attempt may make no progress before it is ended; None: it is only told.
        preempt_signal: By which signal beside TERM a scheduler announces the end (a name without SIG).
        requeue: Whether to put a preempted Slurm job back into its queue.
        on_exit: What to run once it is over.
        exit_grace_s: How long that waits.
        gpus: On how many boards it runs, for the bill; None: as many as it is seen on.
    """

    argv: tuple[str, ...]
    cwd: str
    name: str = ""
    logs: tuple[str, ...] = ()
    checkpoints: tuple[CheckpointDir, ...] = ()
    checkpoint_size_bytes: int | None = None
    channels: tuple[Channel, ...] = ()
    degrade_levels: int = 1
    notify: tuple[str, ...] = ()
    memory_limit_bytes: int | None = None
    cost_per_hour: float | None = None
    rules: tuple[str, ...] = ()
    dry_run: bool = False
    quiet: bool = False
    degrades: bool = False
    retries: int = 0
    budget_s: float | None = None
    timeout_s: float | None = None
    timeout_auto: bool = False
    stall_timeout_s: float | None = None
    preempt_signal: str = ""
    requeue: bool = False
    on_exit: tuple[ExitHook, ...] = ()
    exit_grace_s: float = 300.0
    gpus: int | None = None

    @property
    def levels(self) -> int:
        """How many levels down it can run; 0: it did not say that it can."""
        return self.degrade_levels if self.degrades or self.channel(RequestKind.DEGRADE) is not None else 0

    def channel(self, request: RequestKind) -> Channel | None:
        """The first declared way to ask for `request`, or None."""
        return next((channel for channel in self.channels if channel.request is request), None)


@dataclass(frozen=True, slots=True)
class Past:
    """An attempt that is over, and what it was good for.

    Attributes:
        attempt: From 1.
        started: Unix seconds.
        ended: Unix seconds.
        outcome: succeeded, failed, preempted, stopped, lost or restarted.
        exit_code: None for a signal or where nobody saw it.
        exit_signal: The number of the signal that ended it, or None.
        cause: Why it ended, in words.
        verdict: retryable, deterministic or unknown; empty where it did not fail.
        error: The class of the error; empty where it did not fail.
        level: The degrade level it ran at.
        gpus: On how many boards it was seen, or as many as its owner said.
        useful_s: Work that is kept: finished, or in a whole checkpoint.
        lost_s: Work since the last whole checkpoint at the time of its end.
        saved_s: The part of `useful_s` that a checkpoint preserved which sentinel asked for.
    """

    attempt: int
    started: float
    ended: float
    outcome: str
    exit_code: int | None = None
    exit_signal: int | None = None
    cause: str = ""
    verdict: str = ""
    error: str = ""
    level: int = 0
    gpus: int = 0
    useful_s: float = 0.0
    lost_s: float = 0.0
    saved_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Job:
    """One job as the daemon knows it.

    Attributes:
        id: Unique for ever: never a label, never reused.
        name: The label `job`; unique among the living jobs of a daemon.
        uid: The owner's user id.
        owner: The owner's name.
        spec: What the owner declared.
        state: Where it is in its life.
        since: When it entered that state (Unix seconds).
        created: When it was registered (Unix seconds).
        attempt: From 1.
        attempt_started: Unix seconds; None before the first process.
        root: The leader of the current attempt's tree, None before it started.
        supervisor: The process that started it, None where it was adopted or its
            supervisor died.
        adopted: Whether it runs without a supervisor, so its exit code cannot be had.
        pgid: The process group of the attempt, 0 where unknown.
        output: The attempt's log files (stdout, then stderr where separate).
        degrade_level: Acknowledged degrades not yet restored.
        exit_code: Of the last attempt; None for a signal or where nobody saw it.
        exit_signal: The number of the signal that ended it, or None.
        cause: Why it ended, in words, with the last decisive line.
        ended: Unix seconds, or None.
        past: Its attempts that are over, the oldest first.
        restarting: Whether its attempt was told to end so that the next can begin.
        next_attempt: While it waits: when the next attempt begins (Unix seconds), as far as is known.
        timeout_s: The time limit in force for an attempt, None without one.
    """

    id: str
    name: str
    uid: int
    owner: str
    spec: JobSpec
    state: JobState = JobState.STARTING
    since: float = 0.0
    created: float = 0.0
    attempt: int = 1
    attempt_started: float | None = None
    root: ProcessId | None = None
    supervisor: ProcessId | None = None
    adopted: bool = False
    pgid: int = 0
    output: tuple[str, ...] = ()
    degrade_level: int = 0
    exit_code: int | None = None
    exit_signal: int | None = None
    cause: str = ""
    ended: float | None = None
    labels: dict[str, str] = field(default_factory=dict)
    past: tuple[Past, ...] = ()
    restarting: bool = False
    next_attempt: float | None = None
    timeout_s: float | None = None

    @property
    def alive(self) -> bool:
        """Whether it may still have processes."""
        return not self.state.ended
