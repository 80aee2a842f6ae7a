"""The daemon as the API sees it: one object that joins what the rooms can do."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sentinel.actions.dispatcher import Dispatcher
from sentinel.checkpoints.watch import Survey, survey
from sentinel.clock import Clock
from sentinel.collectors.joblogs import JobLogs
from sentinel.daemon import overview
from sentinel.daemon.accounts import Accounts
from sentinel.daemon.adoption import led_group
from sentinel.daemon.bookkeeping import Books
from sentinel.daemon.handwire import Report
from sentinel.daemon.hub import Hub
from sentinel.daemon.lookout import Lookout
from sentinel.daemon.remotehand import RemoteHands
from sentinel.daemon.replaying import backtest
from sentinel.daemon.rulebook import sees
from sentinel.daemon.silences import SilenceBook
from sentinel.daemon.witness import Witness
from sentinel.errors import SentinelError, UsageError
from sentinel.jobs import report
from sentinel.jobs.link import YOURS
from sentinel.jobs.monitor import Monitor
from sentinel.jobs.register import Register
from sentinel.jobs.report import Row
from sentinel.logs.masking import clean
from sentinel.model.alerts import Alert, RuleSpec
from sentinel.model.checkpoints import Checkpoint
from sentinel.model.events import Event, Severity, event
from sentinel.model.jobs import Job, JobSpec, JobState, ProcessId
from sentinel.model.requests import Request, RequestKind
from sentinel.model.silences import Silence
from sentinel.model.wire import WireError, decode, encode
from sentinel.notify.notifier import Notifier
from sentinel.promql.series import SeriesReader
from sentinel.rules.engine import Engine
from sentinel.rules.rounds import RuleStatus as EngineStatus
from sentinel.rules.ruleset import RuleSet
from sentinel.server.core import GroupStatus, Owner, Registration, RuleStatus, Table
from sentinel.store.layered import layered
from sentinel.store.store import Store
from sentinel.store.window import Window
from sentinel.system import processes

_LOOK_AT_ADDRESSES_S = 3.0
"""How long a job's beginning waits to hear whether the addresses it gave can be used at all."""

_PASSED_OVER = 1000
"""So many checkpoints that could not be resumed from are remembered, so that each is told once."""


@dataclass(frozen=True, slots=True)
class About:
    """How the daemon began.

    Attributes:
        mode: `act` or `observe`; a reload may change it.
        system: Whether it serves every user of the machine.
        started: Unix seconds.
        handover: The socket that takes a pty's master.
    """

    mode: str
    system: bool
    started: float
    handover: str


@dataclass(frozen=True, slots=True)
class Rooms:
    """What the core joins."""

    clock: Clock
    hub: Hub
    window: Window
    store: Store
    engine: Engine
    register: Register
    monitor: Monitor
    dispatcher: Dispatcher
    notifier: Notifier
    silences: SilenceBook
    logs: JobLogs
    checkpoints: Lookout
    hands: RemoteHands
    witness: Witness
    accounts: Accounts
    books: Books


class DaemonCore:
    """Implements `server.core.Core`.

    Args:
        about: How it began.
        rooms: What it joins.
        health: The `health` of the overview.
        write: The journal's `append`.
        reload: Reads rules and notification settings again.
        add_rules: Puts the rule files of a job in force; raises Problems.
    """

    def __init__(
        self,
        about: About,
        rooms: Rooms,
        *,
        health: Callable[[], Mapping[str, Any]],
        write: Callable[[str, dict[str, object]], None],
        reload: Callable[[], Awaitable[Mapping[str, Any]]],
        add_rules: Callable[[Job], None],
    ) -> None:
        self._about = about
        self._rooms = rooms
        self._health = health
        self._write = write
        self._reload = reload
        self._add_rules = add_rules
        self._replaying = asyncio.Lock()
        self.ready = False
        self._passed_over: dict[tuple[str, str, float], None] = {}
        self.mode = about.mode

    @property
    def system(self) -> bool:
        """Whether this daemon serves several users."""
        return self._about.system

    @property
    def started(self) -> float:
        """Unix seconds."""
        return self._about.started

    def now(self) -> float:
        """Unix seconds."""
        return self._rooms.clock.now()

    def reader(self) -> SeriesReader:
        """Window and store as one, for other threads than the loop's."""
        window = self._rooms.window
        return layered(window.detached(), self._rooms.store.history(window.lookback_s))

    # Looking

    def host(self) -> Mapping[str, Any]:
        """The `host` of the overview."""
        return overview.host(self._rooms.window)

    def gpus(self) -> Sequence[Mapping[str, Any]]:
        """The `gpus` of the overview."""
        return overview.gpus(self._rooms.window, self.now())

    def health(self) -> Mapping[str, Any]:
        """The `health` of the overview."""
        return self._health()

    def jobs(self, *, ended: bool = False) -> Sequence[Job]:
        """Living jobs and, where asked, those that have ended and are still remembered."""
        living = self._rooms.register.living()
        return sorted([*living, *self._rooms.register.recent()], key=lambda job: job.created) if ended else living

    def find_job(self, name_or_id: str) -> Job | None:
        """By id; else the living job of that name; else the last that had it."""
        return self._rooms.register.find(name_or_id)

    def job_view(self, job: Job) -> Mapping[str, Any]:
        """What the overview says about a job beside its own fields."""
        rooms, now = self._rooms, self.now()
        found = rooms.checkpoints.newest(job.id)
        open_requests = [request for request in rooms.dispatcher.requests(job.id) if request.open]
        return {
            **overview.usage(rooms.window, job, now),
            "memory": overview.memory(rooms.window, job, now),
            "checkpoint": _checkpoint(found, now) if found else None,
            "last_output": rooms.logs.last_output(job.id),
            "last_progress": rooms.window.latest("job_last_progress_timestamp_seconds", job=job.name),
            "alerts": [alert.id for alert in rooms.engine.alerts(resolved=False) if alert.job == job.name],
            "open_requests": [encode(request) for request in open_requests],
            "log_events": [encode(found) for found in rooms.logs.last_events(job.id)[-5:]],
        }

    def requests(self, job_id: str | None = None) -> Sequence[Request]:
        """The requests remembered, oldest first."""
        return self._rooms.dispatcher.requests(job_id)

    def find_request(self, request_id: str) -> Request | None:
        """By id."""
        try:
            return self._rooms.dispatcher.request(request_id)
        except SentinelError:
            return None

    def alerts(self, *, resolved: bool = False) -> Sequence[Alert]:
        """Pending and firing ones and, where asked, those resolved lately."""
        return self._rooms.engine.alerts(resolved=resolved)

    def rules(self) -> Sequence[GroupStatus]:
        """The rules in force."""
        groups: dict[str, list[EngineStatus]] = {}
        for status in self._rooms.engine.rules():
            groups.setdefault(status.rule.group, []).append(status)
        return [
            GroupStatus(
                name,
                members[0].rule.file,
                members[0].interval_s,
                tuple(RuleStatus(each.rule, each.evaluated, each.seconds, each.fault) for each in members),
                max((each.evaluated for each in members if each.evaluated is not None), default=None),
                sum(each.seconds for each in members),
            )
            for name, members in groups.items()
        ]

    def silences(self) -> Sequence[Silence]:
        """Those that have not ended."""
        return self._rooms.silences.all()

    def outbox(self) -> Sequence[Mapping[str, Any]]:
        """Messages not yet delivered, oldest first."""
        return self._rooms.notifier.outbox()

    async def events(self, *, since: float, limit: int, keep: Callable[[Event], bool]) -> Sequence[Event]:
        """The newest events that `keep` lets through, oldest first; from memory, else from the store."""
        recent = self._rooms.hub.recent(since)
        found = [each for each in recent if keep(each)][-limit:]
        oldest = self._rooms.hub.recent()[:1]
        if len(found) < limit and (not oldest or oldest[0].time > since):
            until = oldest[0].time if oldest else self.now() + 1.0
            rows = await asyncio.to_thread(self._older_events, since, until, limit)
            known = {each.id for each in found}
            found = [each for each in rows if each.id not in known and keep(each)] + found
        return found[-limit:]

    def _older_events(self, since: float, until: float, limit: int) -> list[Event]:
        try:
            return self._rooms.store.events(since, until, limit=limit)
        except SentinelError:  # the store is away: what is in memory is the answer
            return []

    def follow(self) -> AsyncIterator[Event]:
        """Every event from the moment of this call."""
        return self._rooms.hub.listen()

    async def sql(self, statement: str, *, limit: int, deadline_s: float) -> Table:
        """One reading statement."""
        found = await asyncio.to_thread(self._rooms.store.sql, statement, row_limit=limit, deadline_s=deadline_s)
        return Table(tuple(found.columns), tuple(found.types), found.rows, found.truncated)

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
        """History through other rules, in a thread; one at a time, for it is much work."""
        if self._replaying.locked():
            raise SentinelError("a backtest is under way already", hint="wait for it to end")
        async with self._replaying:
            in_force, living, now = self._rooms.engine.in_force(), self._rooms.register.living(), self.now()
            groups = (
                replace(group, rules=tuple(rule for rule in group.rules if keep(rule.spec)))
                for group in in_force.groups
            )
            return await asyncio.to_thread(
                backtest,
                files,
                RuleSet(tuple(group for group in groups if group.rules)),
                reader,
                now - since_s,
                now,
                step_s=step_s,
                sees=lambda rule: sees(rule, living),
                budget_s=budget_s,
            )

    # Doing

    async def register(
        self, spec: JobSpec, *, owner: Owner, supervisor: ProcessId | None, adopt: ProcessId | None
    ) -> Registration:
        """Take a job in."""
        rooms = self._rooms
        if adopt is not None and not processes.same(adopt):
            raise UsageError(f"there is no process {adopt.pid} any more", hint="ps")
        if spec.rules and owner.uid != os.getuid():
            raise UsageError(
                "a daemon of another user does not open rule files of yours",
                hint="run a daemon of your own: SENTINEL_SOCKET=… sentinel daemon",
            )
        limit_s, runs = spec.timeout_s, 0
        if spec.timeout_auto:
            limit_s, runs = await asyncio.to_thread(rooms.accounts.learnt, spec.name, spec)
        made = rooms.register.register(
            spec,
            uid=owner.uid,
            owner=owner.name,
            supervisor=supervisor,
            adopt=adopt,
            pgid=led_group(adopt) if adopt else 0,
            timeout_s=limit_s,
        )
        if not made.again:
            rooms.witness.registered(made.job)
        try:
            if spec.rules and not made.again:
                self._add_rules(made.job)
        except SentinelError:
            rooms.register.attempt_ended(made.job.id, attempt=1, exit_code=None, exit_signal=None, at=self.now())
            raise
        if foreign := owner.uid != os.getuid():
            rooms.hands.promise(made.job)
        rooms.monitor.tick()
        surveyed, absent, told = await asyncio.gather(
            self._look_for_checkpoints(made.job),
            self._absent(made.job),
            rooms.notifier.told_at_end(made.job, within_s=_LOOK_AT_ADDRESSES_S, ours=not foreign),
        )
        found = surveyed.newest
        return Registration(
            made.job,
            made.renamed_from,
            made.directory,
            found.path if found else None,
            self._about.handover,
            {
                "checkpoint": _checkpoint(found, self.now()) if found else None,
                "checkpoint_age_seconds": max(0.0, self.now() - found.finished) if found else None,
                "checkpoints_skipped": [{"path": each.path, "reason": each.reason} for each in surveyed.skipped],
                "checkpoints_absent": absent,
                "receivers": rooms.notifier.receivers(),
                "told": told,
                "mode": self.mode,
                "timeout_seconds": limit_s,
                "timeout_runs": runs,
                "checkpoint_write_seconds": found.write_seconds if found else None,
            },
            YOURS if foreign else "",
        )

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
        rooms = self._rooms
        started = rooms.register.attempt_started(
            job.id, attempt=attempt, root=root, pgid=pgid, output=output, degrade_level=degrade_level
        )
        if started.root != job.root:
            rooms.witness.attempt_started(started)
            rooms.dispatcher.starts_at(job.id, started.degrade_level)
        rooms.monitor.tick()
        return started

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
        """The supervisor has seen an attempt end: read its last words first, they say why."""
        rooms = self._rooms
        if job.uid == os.getuid():
            await asyncio.to_thread(rooms.logs.drain, job)
        else:
            await rooms.hands.last_words(job)
        if (found := (await self._look_for_checkpoints(job)).newest) is not None:
            rooms.witness.saw(job, found)
        return rooms.register.attempt_ended(
            job.id,
            attempt=attempt,
            exit_code=exit_code,
            exit_signal=exit_signal,
            at=at,
            outcome=outcome,
            reason=clean(reason, 1000),
            more=more,
            last_lines=[clean(line, 400) for line in last_lines[-20:]],
        )

    async def hand(self, job: Job, report: Mapping[str, Any]) -> Mapping[str, Any]:
        """The hand of a job's owner has something to say, and asks what to do."""
        try:
            said = decode(Report, report)
        except WireError as fault:
            raise UsageError(str(fault)) from None
        orders: Mapping[str, Any] = encode(self._rooms.hands.report(job, said))
        return orders

    async def what_follows(self, job: Job) -> Mapping[str, Any] | None:
        """What a supervisor needs to know before it starts a job that waits once more; None where it does not wait."""
        if job.state is not JobState.WAITING:
            return None
        rooms = self._rooms
        judged = rooms.register.judgement(job.id)
        found = (await self._look_for_checkpoints(job)).newest
        return {
            "restart": job.restarting,
            "progressed": rooms.witness.progressed(job),
            "resume_from": found.path if found else None,
            "degrade_level": job.degrade_level,
            "cause": job.cause,
            **({} if judged is None else encode(judged)),
            "retry_after_seconds": judged.retry_after_s if judged is not None else None,
        }

    def waits(self, job: Job, *, until: float, reason: str) -> Job:
        """The supervisor says when the next attempt begins."""
        return self._rooms.register.waits(job.id, until, clean(reason, 1000))

    def room(self, job: Job) -> str:
        """Why the boards that the job ran on are not free yet; "" where they are."""
        return self._rooms.witness.room(job)

    def said(self, job: Job, *, kind: str, message: str) -> None:
        """The supervisor has something to tell about its job."""
        loud = kind == "hook_failed"
        self._rooms.hub.publish(
            event(
                f"supervisor.{kind}",
                f"{job.name}: {clean(message, 1000)}",
                at=self.now(),
                job=job.name,
                severity=Severity.CRITICAL if loud else Severity.WARNING,
                uid=job.uid,
                id=job.id,
            )
        )

    async def report(self, *, since: float, sees: Callable[[int], bool]) -> Mapping[str, Any]:
        """The bill of what ended since then and of what runs now, for those whose uid may be seen."""
        rows = await asyncio.to_thread(self._rooms.accounts.rows, since)
        living, now = [job for job in self._rooms.register.living() if sees(job.uid)], self.now()
        at_risk = {job.name: self._rooms.books.at_risk_s(job, now) for job in living}
        visible = [Row.read(row) for row in rows if sees(int(row.get("uid", -1)))]
        return report.made(visible, living, since, now, at_risk)

    async def ask(
        self, job: Job, kind: RequestKind, *, by: str, reason: str, timeout_s: float, wait_s: float
    ) -> Request:
        """Ask a job in the name of a person."""
        return await self._rooms.dispatcher.ask(job, kind, by=by, reason=reason, timeout_s=timeout_s, wait_s=wait_s)

    async def answer(self, request: Request, answer: str, detail: str) -> Request:
        """The job says what became of a request."""
        return self._rooms.dispatcher.answered(request.id, answer, detail)

    async def acknowledge(self, alert: Alert, *, by: str) -> Alert:
        """Somebody has seen an alert."""
        self._write("ack", {"alert": alert.id, "by": by})
        seen = self._rooms.engine.acknowledge(alert.id, by)
        if seen is None:
            raise SentinelError(f"alert {alert.id} is over", hint="sentinel alerts")
        self._rooms.hub.publish(
            event(
                "alert.acknowledged", f"{by} has seen {alert.rule}", at=self.now(), job=alert.job, alert=alert.id, by=by
            )
        )
        return seen

    async def silence(self, silence: Silence) -> None:
        """Put a silence in force."""
        self._rooms.silences.add(silence)
        words = ", ".join(str(matcher) for matcher in silence.matchers)
        self._rooms.hub.publish(
            event("silence.begun", f"{silence.by} silenced {words}", at=self.now(), uid=silence.uid, id=silence.id)
        )

    async def unsilence(self, silence: Silence, *, by: str) -> None:
        """End a silence."""
        self._rooms.silences.end(silence)
        self._rooms.hub.publish(
            event("silence.ended", f"{by} ended silence {silence.id}", at=self.now(), uid=silence.uid, id=silence.id)
        )

    async def reload(self) -> Mapping[str, Any]:
        """Read rules and notification settings again."""
        return await self._reload()

    async def test_receiver(self, receiver: str) -> Mapping[str, Any]:
        """Send a test message."""
        return await self._rooms.notifier.test(receiver)

    async def _absent(self, job: Job) -> list[str]:
        """Its checkpoint directories that do not exist, as far as that can be said at once."""
        if job.uid != os.getuid():
            return []
        places = [place.path for place in job.spec.checkpoints]
        try:
            found = await asyncio.wait_for(asyncio.to_thread(lambda: [os.path.isdir(path) for path in places]), 2.0)
        except TimeoutError:
            return []
        return [path for path, there in zip(places, found, strict=True) if not there]

    async def _look_for_checkpoints(self, job: Job) -> Survey:
        """What there is to resume from; a user's own paths only, and never for long."""
        if not job.spec.checkpoints or job.uid != os.getuid():
            return Survey(None)
        try:
            found = await asyncio.wait_for(asyncio.to_thread(survey, job.spec.checkpoints, self.now()), 5.0)
        except (TimeoutError, OSError):
            return Survey(None)
        for each in found.skipped:
            once = (job.id, each.path, each.finished)
            if once in self._passed_over:  # said at the attempt before
                continue
            self._passed_over[once] = None
            while len(self._passed_over) > _PASSED_OVER:
                del self._passed_over[next(iter(self._passed_over))]
            instead = f"; {found.newest.path} is the newest to resume from" if found.newest else ""
            self._rooms.hub.publish(
                event(
                    "checkpoint.skipped",
                    f"{job.name} cannot resume from {each.path}: {each.reason}{instead}",
                    at=self.now(),
                    job=job.name,
                    severity=Severity.WARNING,
                    uid=job.uid,
                    id=job.id,
                    checkpoint=encode(each),
                )
            )
        return found


def _checkpoint(found: Checkpoint, now: float) -> dict[str, Any]:
    return {
        "path": found.path,
        "finished": found.finished,
        "size_bytes": found.size_bytes,
        "step": found.step,
        "age_seconds": max(0.0, now - found.finished),
    }
