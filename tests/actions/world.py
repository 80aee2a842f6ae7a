"""A small world for the actions room: jobs that answer as told, a journal that survives crashes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from sentinel.actions.dispatcher import Dispatcher
from sentinel.actions.hooks import Ended
from sentinel.actions.settings import Settings
from sentinel.clock import ManualClock
from sentinel.model.alerts import ActionSpec, Alert, AlertState, Reason, RuleSpec, Transition, fingerprint
from sentinel.model.checkpoints import Checkpoint, CheckpointState
from sentinel.model.events import Event
from sentinel.model.jobs import Channel, CheckpointDir, Job, JobSpec, JobState
from sentinel.model.journal import JournalUnavailable, Record
from sentinel.model.labels import Labels
from sentinel.model.requests import Delivery, Outcome, Request, RequestKind

T = TypeVar("T")
K = RequestKind
NOW = 1_800_000_000.0


class Crash(BaseException):
    """The daemon is dead from here on."""


class FileJournal:
    """What was appended stays; after a crash nothing more is."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.full = False
        self.dead = False
        self.crash_after: int | None = None

    def append(self, kind: str, data: Mapping[str, object]) -> None:
        if self.dead:
            raise Crash
        if self.full:
            raise JournalUnavailable("no space left on device")
        if self.crash_after == 0:
            self.dead = True
            raise Crash
        self.lines.append(json.dumps([kind, data]))
        if self.crash_after is not None:
            self.crash_after -= 1
            if self.crash_after == 0:
                self.dead = True
                raise Crash

    def replay(self) -> list[Record]:
        return [Record(seq, NOW, *json.loads(line)) for seq, line in enumerate(self.lines)]


class Jobs:
    """Jobs that answer as told, and remember what they were asked."""

    def __init__(self, journal: FileJournal) -> None:
        self.jobs: dict[str, Job] = {}
        self.asked: list[Request] = []
        self.answers: dict[RequestKind, Delivery | Exception] = {}
        self.levels: dict[str, int] = {}
        self.checkpoints: dict[str, Checkpoint] = {}
        self.gpus: dict[str, list[str]] = {}
        self.progressed = True
        self.gate: asyncio.Event | None = None
        self._journal = journal

    def add(self, job: Job) -> Job:
        self.jobs[job.id] = job
        return job

    def find(self, name_or_id: str) -> Job | None:
        if name_or_id in self.jobs:
            return self.jobs[name_or_id]
        return next((job for job in self.jobs.values() if job.name == name_or_id), None)

    def living(self) -> Sequence[Job]:
        return [job for job in self.jobs.values() if job.alive]

    def on_gpu(self, uuid: str) -> Sequence[str]:
        return self.gpus.get(uuid, [])

    async def deliver(self, job: Job, request: Request) -> Delivery:
        if self._journal.dead:
            raise Crash
        self.asked.append(request)
        if self.gate is not None:
            await self.gate.wait()
        answer = self.answers.get(request.kind, Delivery(Outcome.ACKNOWLEDGED, "delivered to pid 7"))
        if isinstance(answer, Exception):
            raise answer
        return answer

    def set_degrade_level(self, job_id: str, level: int) -> None:
        self.levels[job_id] = level

    def newest_checkpoint(self, job_id: str) -> Checkpoint | None:
        return self.checkpoints.get(job_id)

    def has_progressed(self, job_id: str) -> bool:
        return self.progressed

    def save(self, job_id: str, at: float) -> None:
        self.checkpoints[job_id] = Checkpoint(f"/c/step-{at:.0f}", CheckpointState.COMPLETE, at, 10)


class World:
    """One daemon's actions, its jobs, its journal and its clock."""

    def __init__(self, settings: Settings | None = None, jobs: Callable[[FileJournal], Jobs] = Jobs) -> None:
        self.clock = ManualClock(NOW)
        self.journal = FileJournal()
        self.jobs = jobs(self.journal)
        self.events: list[Event] = []
        self.settings = settings or Settings()
        self.silenced: set[str] = set()
        self.hooks: list[tuple[str, ...]] = []
        self.dispatcher = self._new()
        self.dispatcher.recover([])

    def _new(self) -> Dispatcher:
        return Dispatcher(
            self.jobs,
            self.journal,
            self.events.append,
            clock=self.clock,
            settings=self.settings,
            silences=self,
            run_hook=self._hook,
            distrust=lambda _argv: None,
        )

    def covering(self, alert: Alert) -> str | None:
        return "s1" if alert.id in self.silenced else None

    async def _hook(self, argv: tuple[str, ...], env: Mapping[str, str], given: bytes, timeout_s: float) -> Ended:
        self.hooks.append(argv)
        return Ended(0, "paged")

    def restart(self, alerts: Sequence[Transition] = ()) -> None:
        """kill -9 and a new daemon over the same journal."""
        self.journal.dead = False
        self.journal.crash_after = None
        self.dispatcher = self._new()
        for record in self.journal.replay():
            self.dispatcher.fold(record)
        self.dispatcher.recover(alerts)

    async def settle(self) -> None:
        await self.dispatcher.idle()

    async def after(self, seconds: float) -> None:
        self.clock.advance(seconds)
        await self.dispatcher.tick(self.clock.now())
        await self.settle()

    async def fire(self, change: Transition) -> None:
        self.dispatcher.submit(change)
        await self.settle()

    def told(self, prefix: str = "request.") -> list[str]:
        return [event.kind for event in self.events if event.kind.startswith(prefix)]

    def asked(self) -> list[str]:
        return [request.kind.value for request in self.jobs.asked]

    def request(self, kind: RequestKind) -> Request:
        return next(r for r in reversed(self.dispatcher.requests()) if r.kind is kind)


def a_job(name: str = "llama", *, job_id: str = "j1", uid: int = 1000, owner: str = "alice", **changes: Any) -> Job:
    spec = JobSpec(
        argv=("python", "train.py"),
        cwd="/",
        name=name,
        checkpoints=(CheckpointDir("/c"),),
        channels=(
            Channel.parse(K.CHECKPOINT, "signal:USR1"),
            Channel.parse(K.DEGRADE, "signal:USR2"),
            Channel.parse(K.RESTORE, "signal:HUP"),
        ),
        degrade_levels=2,
    )
    spec = replace(spec, **changes.pop("spec", {}))
    job = Job(job_id, name, uid, owner, spec, JobState.RUNNING, NOW - 3600, NOW - 3600, 1, NOW - 3600)
    return replace(job, **changes)


CHECKPOINT = ActionSpec(K.CHECKPOINT, timeout_s=60)
DEGRADE = ActionSpec(K.DEGRADE, timeout_s=60, cooldown_s=300, restore_after_s=600)


def a_rule(*actions: ActionSpec, name: str = "MemoryLow", **more: Any) -> RuleSpec:
    return RuleSpec("memory", name, "x < 60", actions=actions or (CHECKPOINT, DEGRADE), **more)


def an_alert(
    rule: RuleSpec, at: float, *, state: AlertState = AlertState.FIRING, value: float = 40.0, **labels: str
) -> Alert:
    full = Labels({"alertname": rule.name, **(labels or {"job": "llama"}), **rule.labels})
    notes = (("summary", "llama runs out of memory"),)
    ended = at if state is AlertState.RESOLVED else None
    return Alert(
        fingerprint("memory", full), rule.name, "memory", full, state, value, at, at, ended, at, annotations=notes
    )


def firing(rule: RuleSpec, at: float, **more: Any) -> Transition:
    return Transition(an_alert(rule, at, **more), AlertState.PENDING, Reason.HELD, at, rule)


def resolving(change: Transition, at: float, reason: Reason = Reason.ENDED) -> Transition:
    over = replace(change.alert, state=AlertState.RESOLVED, resolved=at)
    return Transition(over, AlertState.FIRING, reason, at, change.rule)


def run(story: Callable[[], Coroutine[None, None, T]]) -> T:
    return asyncio.run(story())
