"""The desk where requests are made, handed over and followed until nothing more can come of them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from dataclasses import replace

from sentinel.actions import gates, machine, restore, telling
from sentinel.actions.book import Book
from sentinel.actions.chain import Chain
from sentinel.actions.gates import Facts, Gate, Verdict
from sentinel.actions.ledger import Ledger
from sentinel.actions.ports import JobControl, Journal, Publish, SaysWhen, Silences
from sentinel.actions.settings import Settings
from sentinel.clock import Clock
from sentinel.errors import SentinelError
from sentinel.model.alerts import ActionSpec, Alert
from sentinel.model.events import Severity, event, new_id
from sentinel.model.jobs import Job, JobState
from sentinel.model.requests import Answer, Delivery, Outcome, Request, RequestKind, RequestState

_REFUSALS = frozenset({Gate.NO_CHANNEL, Gate.JOB_NOT_ALIVE, Gate.LOWEST, Gate.NOT_DEGRADED, Gate.NOT_YOURS})
_ENDS = frozenset({RequestKind.STOP, RequestKind.RESTART})
_HAND_OVER_GRACE_S = 15.0


class Desk:
    """Makes requests, hands them over, follows them.

    Args:
        control: The jobs.
        journal: Everything is written there before it is done.
        publish: Where each step goes as an event.
        clock: The time.
        settings: Limits.
        silences: What people do not want to hear of.
        clean: Makes text safe to store and show.
    """

    def __init__(
        self,
        control: JobControl,
        journal: Journal,
        publish: Publish,
        *,
        clock: Clock,
        settings: Settings,
        silences: Silences,
        clean: Callable[[str], str],
    ) -> None:
        self.control = control
        self.book = Book()
        self.ledger = Ledger(self.book, journal)
        self.publish = publish
        self.clock = clock
        self.settings = settings
        self.silences = silences
        self.clean = clean
        self.changed: Callable[[float], None] = lambda _at: None
        self.tasks: set[asyncio.Task[None]] = set()
        self._waiting: dict[str, list[asyncio.Future[Request]]] = {}

    def wish(self, job: Job, kind: RequestKind, *, by: str, reason: str, timeout_s: float) -> str:
        """Ask in the name of a person; the id of the request, which may be one that is open already."""
        open_one = self.book.open_like(job.id, kind)
        if open_one is not None:
            return open_one.id
        at = self.clock.now()
        draft = self.draft(job, kind, reason, by=by, alert=None, timeout_s=timeout_s, at=at)
        self.plan(draft, self.judge(job, kind, at, person=True))
        return draft.id

    async def closed(self, request_id: str, within_s: float) -> Request:
        """The request once it is closed, or as it stands after `within_s`."""
        request = self.request(request_id)
        if not request.open or within_s <= 0:
            await asyncio.sleep(0)
            return self.request(request_id)
        future: asyncio.Future[Request] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(request_id, []).append(future)
        with contextlib.suppress(TimeoutError):
            return await asyncio.wait_for(future, within_s)
        self.look(self.clock.now())  # its time may be up since the last tick
        return self.request(request_id)

    def request(self, request_id: str) -> Request:
        """One request.

        Raises:
            SentinelError: There is no such request, or it is forgotten.
        """
        found = self.book.requests.get(request_id)
        if found is None:
            raise SentinelError(f"there is no request {request_id}", hint="sentinel events shows the recent ones")
        return found

    def draft(
        self, job: Job, kind: RequestKind, reason: str, *, by: str, alert: str | None, timeout_s: float, at: float
    ) -> Request:
        """A request not yet written down."""
        level = None
        if kind is RequestKind.DEGRADE:
            level = self.book.ladder(job.id).level + 1
        elif kind is RequestKind.RESTORE:
            level = max(0, self.book.ladder(job.id).level - 1)
        channel = job.spec.channel(kind)
        if kind in _ENDS and job.spec.channel(RequestKind.CHECKPOINT) is not None:
            timeout_s += self.settings.stop_timeout_s  # the checkpoint before it comes first
        return Request(
            id=new_id("r"),
            job_id=job.id,
            job=job.name,
            attempt=job.attempt,
            kind=kind,
            level=level,
            reason=self.clean(reason),
            alert=alert,
            by=by,
            created=at,
            deadline=at + timeout_s,
            via=str(channel) if channel else "",
        )

    def judge(
        self,
        job: Job,
        kind: RequestKind,
        at: float,
        *,
        person: bool = False,
        step: ActionSpec | None = None,
        chain: Chain | None = None,
        alert: Alert | None = None,
    ) -> Verdict | None:
        """The reason not to ask this now, or None."""
        last = self.book.last_by(f"rule:{chain.rule}", job.id, kind) if chain else None
        open_one = self.book.open_like(job.id, kind)
        fresh = self.fresh(job, kind, at) if chain else None
        started = job.attempt_started if job.attempt_started is not None else job.created
        # Start-up looks like a leak and is none, so a forecast alone asks nothing of it. A 429 is one at any age.
        foresees = chain is not None and alert is not None and "forecast" in alert.labels
        warns_only = foresees and not self.control.has_progressed(job.id)
        return gates.judge(
            Facts(
                job=job,
                kind=kind,
                at=at,
                person=person,
                level=self.book.ladder(job.id).level,
                observe=self.settings.observe,
                rule_uid=chain.rule_uid if chain else None,
                silence=self.silences.covering(alert) if alert else None,
                open_request=open_one.id if open_one else None,
                fresh=fresh.id if fresh else None,
                cooling_until=last.created + step.cooldown_s if last and step else 0.0,
                job_count=self.book.last_hour(at, job.id),
                host_count=self.book.last_hour(at),
                job_limit=self.settings.requests_per_job_per_hour,
                host_limit=self.settings.requests_per_host_per_hour,
                started_up=not warns_only or at - started >= self.settings.start_up_s,
                journal_up=not self.ledger.owes,
            )
        )

    def fresh(self, job: Job, kind: RequestKind, at: float) -> Request | None:
        """The request by which this job has just done the same, or None."""
        return self.book.done_since(at - gates.FRESH_S.get(kind, 0.0), job.id, kind) if kind in gates.FRESH_S else None

    def plan(
        self,
        draft: Request,
        verdict: Verdict | None,
        *,
        chain: Chain | None = None,
        restore_after_s: float | None = None,
    ) -> None:
        """Write a request down, as planned or as barred, and hand it over if nothing bars it."""
        at = draft.created
        if verdict is not None:
            answer = Answer.REFUSED if verdict.gate in _REFUSALS else Answer.SUPPRESSED
            barred = machine.step(draft, machine.Suppressed(str(verdict), answer), at)
            self.ledger.write("request", self.book.record(barred, chain=chain))
            self._tell(None, barred, at)
            return
        data = self.book.record(draft, chain=chain, restore_after_s=restore_after_s)
        durable = self.ledger.write("request", data)
        if not durable and draft.kind is not RequestKind.CHECKPOINT:
            verdict = Verdict(Gate.UNJOURNALLED, "the journal cannot be written; only checkpoints are asked for")
            barred = machine.step(draft, machine.Suppressed(str(verdict)), at)
            self.ledger.write("request", self.book.record(barred))
            self._tell(None, barred, at)
            return
        if not durable:
            self.ledger.write("request", self.book.record(replace(draft, unjournalled=True)))
        self.task(self.send(draft.id))

    async def send(self, request_id: str) -> None:
        """Hand one planned request over to its job, and take in what comes of it at once."""
        request = self.book.requests[request_id]
        job = self.control.find(request.job_id)
        if request.kind in _ENDS and job is not None:
            await self._save_first(job, request)
        request = self.book.requests[request_id]
        if request.state is not RequestState.PLANNED:
            return
        at = self.clock.now()
        job = self.control.find(request.job_id)
        if job is None or not job.alive:
            self.change(request, machine.Ended(f"{request.job} has ended"), at)
            self.changed(at)
            return
        delivery = await self._deliver(job, request)
        if delivery is None:
            return
        at = self.clock.now()
        seen = machine.observable(job, request)
        self.change(
            self.book.requests[request_id],
            machine.Delivered(
                replace(delivery, detail=self.clean(delivery.detail)), machine.one_way(job, request), seen
            ),
            at,
        )
        self.look(at)
        self.changed(at)

    async def _deliver(self, job: Job, request: Request) -> Delivery | None:
        """What came of handing it over; None where it did not leave because it was closed before."""
        limit = max(1.0, request.deadline - self.clock.now()) + _HAND_OVER_GRACE_S
        try:
            async with asyncio.timeout(limit):
                if isinstance(self.control, SaysWhen):
                    return await self.control.hand_over(job, request, lambda: self._leave(request.id))
                if not self._leave(request.id):
                    return None
                return await self.control.deliver(job, self.book.requests[request.id])
        except TimeoutError:
            return Delivery(Outcome.FAILED, "handing it over took too long")
        except Exception as fault:
            return Delivery(Outcome.FAILED, f"{type(fault).__name__}: {fault}")

    def _leave(self, request_id: str) -> bool:
        """It leaves now: write that down first. Whether it may."""
        request = self.book.requests[request_id]
        if request.state is RequestState.PLANNED:
            durable = self.change(request, machine.HandedOver(), self.clock.now())
            return durable or request.kind is RequestKind.CHECKPOINT
        return request.open

    async def _save_first(self, job: Job, stop: Request) -> None:
        """Before an end: a checkpoint where one can be asked for, and its effect."""
        if job.spec.channel(RequestKind.CHECKPOINT) is None or self.settings.observe or job.spec.dry_run:
            return
        within = max(0.0, min(self.settings.stop_timeout_s, stop.deadline - self.clock.now()))
        saved = self.wish(
            job, RequestKind.CHECKPOINT, by=stop.by, reason=f"before it ends: {stop.reason}", timeout_s=within
        )
        await self.closed(saved, within + 1.0)

    def change(self, request: Request, seen: machine.Seen, at: float) -> bool:
        """Let a request hear something: journal, book, level, events, waiters; whether it is durable."""
        request = self.book.requests.get(request.id, request)  # telling others may have moved it on meanwhile
        after = machine.step(request, seen, at)
        if after is request:
            return True
        ladder = self._climbed(request, after, at)
        durable = self.ledger.write("request", self.book.record(after, ladder=ladder))
        if not durable and after.state is RequestState.SENT and request.state is RequestState.PLANNED:
            if after.kind is not RequestKind.CHECKPOINT:
                barred = machine.Suppressed(f"{Gate.UNJOURNALLED.value}: the journal cannot be written")
                after = machine.step(request, barred, at)
            else:
                after = replace(after, unjournalled=True)
            self.ledger.write("request", self.book.record(after))
        if ladder is not None:
            self.control.set_degrade_level(after.job_id, ladder.level)
        self._tell(request, after, at)
        return durable

    def _climbed(self, before: Request, after: Request, at: float) -> restore.Ladder | None:
        """The job's ladder if this change moves it, else None."""
        reached_now = after.acknowledged is not None and before.acknowledged is None
        ladder = self.book.ladder(after.job_id)
        if after.kind is RequestKind.DEGRADE and reached_now and after.level is not None:
            return restore.degraded(ladder, after.level, self.book.restore_after_s(after.id), at)
        if after.kind is RequestKind.RESTORE and reached_now and after.level is not None:
            return restore.restored(ladder, after.level, at)
        if after.kind is RequestKind.RESTORE and before.open and not after.open and after.acknowledged is None:
            return restore.put_off(ladder, at)
        return None

    def _tell(self, before: Request | None, after: Request, at: float) -> None:
        job = self.control.find(after.job_id)
        for happened in telling.events(before, after, at=at, uid=job.uid if job else None):
            self.publish(happened)
        if not after.open:
            for future in self._waiting.pop(after.id, []):
                if not future.done():
                    future.set_result(after)

    def look(self, at: float) -> None:
        """Let every unsettled request hear what can be seen of its job, and the time."""
        for request in (*self.book.unsettled(), *self._late_checkpoints(at)):
            current = self.book.requests.get(request.id, request)
            self.change(current, self._sight(current), at)

    def _sight(self, request: Request) -> machine.Seen:
        job = self.control.find(request.job_id)
        if request.open:
            if job is None:
                return machine.Ended(f"{request.job} is gone")
            if not job.alive:
                return machine.Ended(f"{request.job} has ended ({job.state.value})")
            if job.attempt != request.attempt:
                return machine.Ended(f"attempt {request.attempt} is over")
        if job is None or request.sent is None:
            return machine.TimePassed()
        if request.kind is RequestKind.CHECKPOINT:
            newest = self.control.newest_checkpoint(request.job_id)
            if newest is not None and newest.finished >= request.sent - machine.CHECKPOINT_SLACK_S:
                return machine.Happened(self.clean(telling.appeared(newest, request.sent)))
        wanted = {RequestKind.PAUSE: JobState.PAUSED, RequestKind.RESUME: JobState.RUNNING}.get(request.kind)
        if wanted is not None and job.state is wanted and request.acknowledged is not None:
            return machine.Happened(f"{request.job} is {wanted.value}")
        if request.kind in {RequestKind.STOP, RequestKind.RESTART} and (
            not job.alive or job.attempt != request.attempt
        ):
            return machine.Happened(f"{request.job} is {job.state.value}")
        return machine.TimePassed()

    def _late_checkpoints(self, at: float) -> list[Request]:
        """Checkpoints given up a moment ago: one that still comes is told."""
        return [
            r
            for r in self.book.requests.values()
            if r.kind is RequestKind.CHECKPOINT
            and r.answer in {Answer.UNKNOWN, Answer.EXPIRED}
            and r.sent is not None
            and at <= r.deadline + machine.EFFECT_GRACE_S
            and self.book.last_by(r.by, r.job_id, r.kind) is r
        ]

    def task(self, work: Coroutine[None, None, None]) -> None:
        """Do something beside the loop's other work."""
        task: asyncio.Task[None] = asyncio.get_running_loop().create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self.tasks.discard(task)
        if not task.cancelled() and (fault := task.exception()) is not None:
            text = f"a request could not be handled: {type(fault).__name__}: {fault}"
            self.publish(event("sentinel.fault", text, at=self.clock.now(), severity=Severity.CRITICAL))
