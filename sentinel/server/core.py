"""What the API needs of the daemon. The daemon's assembly gives it one object that offers this.

All of it is called on the event loop, except the `SeriesReader` that `reader`
hands out, which is used in threads. What waits or writes is async. Nothing
here knows who asks: the server filters what a peer may see and refuses what a
peer may not do before it calls.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from sentinel.model.alerts import Alert, RuleSpec
from sentinel.model.events import Event
from sentinel.model.jobs import Job, JobSpec, ProcessId
from sentinel.model.requests import Request, RequestKind
from sentinel.model.silences import Silence
from sentinel.promql.series import SeriesReader


@dataclass(frozen=True, slots=True)
class Owner:
    """For whom a job is registered: the peer, as the kernel names it."""

    uid: int
    name: str


@dataclass(frozen=True, slots=True)
class Registration:
    """What a supervisor is told about the job it has just registered.

    Attributes:
        job: With its unique name.
        renamed_from: The name it asked for, where that was taken.
        directory: Where the attempts' log files go.
        resume_from: The newest whole checkpoint, or None.
        handover: The socket that takes the pty's master, or "".
        facts: For the banner: plain JSON.
        hand: `yours` where this daemon is another user's than the job, so that the
            owner's side must send a hand; else "".
    """

    job: Job
    renamed_from: str | None
    directory: str
    resume_from: str | None
    handover: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)
    hand: str = ""


@dataclass(frozen=True, slots=True)
class RuleStatus:
    """One rule and how its last evaluation went.

    Attributes:
        rule: As loaded.
        evaluated: When (Unix seconds); None: never yet.
        seconds: How long it took.
        fault: What went wrong, or "".
    """

    rule: RuleSpec
    evaluated: float | None = None
    seconds: float = 0.0
    fault: str = ""


@dataclass(frozen=True, slots=True)
class GroupStatus:
    """One group of rules, in their order."""

    name: str
    file: str
    interval_s: float
    rules: tuple[RuleStatus, ...]
    evaluated: float | None = None
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Table:
    """The answer to a statement in SQL.

    Attributes:
        columns: Names.
        types: The database's names of their types.
        rows: Of plain JSON values.
        truncated: Whether there were more rows.
    """

    columns: tuple[str, ...]
    types: tuple[str, ...]
    rows: Sequence[Sequence[Any]]
    truncated: bool = False


class Core(Protocol):
    """The daemon, as the API sees it."""

    @property
    def mode(self) -> str:
        """`act` or `observe`."""
        ...

    @property
    def system(self) -> bool:
        """Whether this daemon serves several users, so that peers must be told apart."""
        ...

    @property
    def started(self) -> float:
        """Unix seconds."""
        ...

    @property
    def ready(self) -> bool:
        """Whether it measures and judges by now."""
        ...

    def now(self) -> float:
        """Unix seconds."""
        ...

    def reader(self) -> SeriesReader:
        """Window and store as one. Used in threads other than the loop's, in several at once."""
        ...

    # Looking

    def host(self) -> Mapping[str, Any]:
        """The `host` of the overview."""
        ...

    def gpus(self) -> Sequence[Mapping[str, Any]]:
        """The `gpus` of the overview."""
        ...

    def health(self) -> Mapping[str, Any]:
        """The `health` of the overview."""
        ...

    def jobs(self, *, ended: bool = False) -> Sequence[Job]:
        """Living jobs and, where asked, those that have ended and are still remembered."""
        ...

    def find_job(self, name_or_id: str) -> Job | None:
        """By id; else the living job of that name; else the last that had it."""
        ...

    def job_view(self, job: Job) -> Mapping[str, Any]:
        """What the overview says about a job beside its own fields: memory, checkpoint, alerts, open_requests, …."""
        ...

    def requests(self, job_id: str | None = None) -> Sequence[Request]:
        """The requests remembered, oldest first."""
        ...

    def find_request(self, request_id: str) -> Request | None:
        """By id."""
        ...

    def alerts(self, *, resolved: bool = False) -> Sequence[Alert]:
        """Pending and firing ones and, where asked, those resolved lately."""
        ...

    def rules(self) -> Sequence[GroupStatus]:
        """The rules in force."""
        ...

    def silences(self) -> Sequence[Silence]:
        """Those that have not ended."""
        ...

    def outbox(self) -> Sequence[Mapping[str, Any]]:
        """Messages not yet delivered, oldest first; no secrets in them."""
        ...

    async def events(self, *, since: float, limit: int, keep: Callable[[Event], bool]) -> Sequence[Event]:
        """The newest `limit` events from `since` on (Unix seconds) that `keep` lets through, oldest first."""
        ...

    def follow(self) -> AsyncIterator[Event]:
        """Every event from when the first is awaited; ends when the daemon ends or the listener falls behind."""
        ...

    async def sql(self, statement: str, *, limit: int, deadline_s: float) -> Table:
        """One reading statement. Raises SentinelError for one that is refused or wrong."""
        ...

    async def backtest(
        self,
        files: Sequence[tuple[str, str]],
        *,
        since_s: float,
        step_s: float | None,
        budget_s: float,
        reader: SeriesReader,
        keep: Callable[[RuleSpec], bool],
    ) -> Mapping[str, Any]:
        """Replay the last `since_s` seconds of what `reader` reads through rule files (names and texts).

        Without files through the rules in force that `keep` lets through, which are
        also what files are compared with. Raises SentinelError.
        """
        ...

    # Doing

    async def register(
        self, spec: JobSpec, *, owner: Owner, supervisor: ProcessId | None, adopt: ProcessId | None
    ) -> Registration:
        """Take a job in: one that `supervisor` is about to start, or the running process `adopt`."""
        ...

    async def attempt_started(
        self,
        job: Job,
        *,
        attempt: int,
        root: ProcessId,
        pgid: int,
        output: tuple[str, ...],
        degrade_level: int | None = None,
    ) -> Job:
        """The supervisor has started an attempt."""
        ...

    async def attempt_ended(
        self,
        job: Job,
        *,
        attempt: int,
        exit_code: int | None,
        exit_signal: int | None,
        at: float,
        outcome: str = "",
        reason: str = "",
        more: bool = False,
        last_lines: tuple[str, ...] = (),
    ) -> Job:
        """The supervisor has seen an attempt end; with `more` another may follow a failure."""
        ...

    async def what_follows(self, job: Job) -> Mapping[str, Any] | None:
        """What a supervisor needs to know before the next attempt of a job that waits; None where it does not wait."""
        ...

    def waits(self, job: Job, *, until: float, reason: str) -> Job:
        """The supervisor says when the next attempt begins (Unix seconds)."""
        ...

    def room(self, job: Job) -> str:
        """Why the boards that the job ran on are not free yet; "" where they are, or nobody can see."""
        ...

    def said(self, job: Job, *, kind: str, message: str) -> None:
        """The supervisor has something to tell about its job."""
        ...

    async def report(self, *, since: float, sees: Callable[[int], bool]) -> Mapping[str, Any]:
        """The bill since then (Unix seconds), of the users that `sees` lets through."""
        ...

    async def hand(self, job: Job, report: Mapping[str, Any]) -> Mapping[str, Any]:
        """What the hand of a job's owner has seen and done; what it is to do next."""
        ...

    async def ask(
        self, job: Job, kind: RequestKind, *, by: str, reason: str, timeout_s: float, wait_s: float
    ) -> Request:
        """Ask a job, and wait up to `wait_s` for the request to close; the request as it then stands."""
        ...

    async def answer(self, request: Request, answer: str, detail: str) -> Request:
        """The job says `acknowledged`, `done`, `refused` or `failed`."""
        ...

    async def acknowledge(self, alert: Alert, *, by: str) -> Alert:
        """Somebody has seen an alert."""
        ...

    async def silence(self, silence: Silence) -> None:
        """Put a silence in force."""
        ...

    async def unsilence(self, silence: Silence, *, by: str) -> None:
        """End a silence."""
        ...

    async def reload(self) -> Mapping[str, Any]:
        """Read rules and notification settings again. Raises Problems, and the old ones stay."""
        ...

    async def test_receiver(self, receiver: str) -> Mapping[str, Any]:
        """Send a test message: `{"ok", "receiver", "deliveries"}`. Raises SentinelError for an unknown receiver."""
        ...
