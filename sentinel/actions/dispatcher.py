"""From a transition to a request: the front of the room.

What may be asked is decided in `gates`, what comes next in `chain`, what a
request becomes in `machine`, when a level is given back in `restore`: all pure.
`desk` hands over and follows, `runner` walks the chains, `lift` gives back.
Everything runs on the daemon's loop; a delivery is a task of its own, so that a
slow job stops no other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from sentinel.actions import hooks, machine, restore
from sentinel.actions.addressing import about
from sentinel.actions.chain import HARMLESS
from sentinel.actions.desk import Desk
from sentinel.actions.hooks import Distrust, RunHook
from sentinel.actions.lift import Lift
from sentinel.actions.ports import JobControl, Journal, NoSilences, Publish, Silences
from sentinel.actions.runner import Alerts, Runner
from sentinel.actions.settings import Settings
from sentinel.clock import Clock
from sentinel.errors import SentinelError, nearest
from sentinel.model.alerts import Alert, AlertState, On, Reason, Transition
from sentinel.model.events import Event
from sentinel.model.jobs import Job
from sentinel.model.journal import Record
from sentinel.model.requests import Outcome, Request, RequestKind, RequestState
from sentinel.model.wire import encode

_ANSWERS = frozenset({Outcome.ACKNOWLEDGED, Outcome.DONE, Outcome.REFUSED, Outcome.FAILED})
_PRUNE_EVERY_S = 60.0


class Dispatcher:
    """Asks jobs, on behalf of rules and of people.

    Args:
        control: The jobs.
        journal: Everything is written there before it is done.
        publish: Where each step goes as an event.
        clock: The time.
        settings: Limits.
        silences: What people do not want to hear of.
        clean: Makes text from rules, jobs and hooks safe to store and show.
        run_hook: Starts a hook.
        distrust: Why a hook must not be started, or None.
    """

    def __init__(
        self,
        control: JobControl,
        journal: Journal,
        publish: Publish,
        *,
        clock: Clock,
        settings: Settings | None = None,
        silences: Silences | None = None,
        clean: Callable[[str], str] = str,
        run_hook: RunHook = hooks.run,
        distrust: Distrust = hooks.distrusted,
    ) -> None:
        self._desk = Desk(
            control,
            journal,
            publish,
            clock=clock,
            settings=settings or Settings(),
            silences=silences or NoSilences(),
            clean=clean,
        )
        self._desk.changed = self._settle
        self._alerts: Alerts = {}
        self._runner = Runner(self._desk, self._alerts, run_hook, distrust)
        self._lift = Lift(self._desk, self._runner, self._alerts)
        self._recovered = False
        self._pruned = 0.0

    # What the daemon does with it

    def fold(self, record: Record) -> None:
        """Take in one record of the replay; kinds of other rooms are ignored."""
        self._desk.book.fold(record)

    def snapshot(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """The records (kind, data) that describe the present state, for compaction."""
        return self._desk.book.snapshot()

    def recover(self, alerts: Iterable[Transition]) -> None:
        """Once, after the replay: say what became of open requests, and go on where that is safe.

        Args:
            alerts: All alerts as the rules know them after the replay, the lately
                resolved ones too, each with its rule. What began or ended while
                nobody was there to dispatch it is dispatched now.
        """
        at = self._desk.clock.now()
        changes = list(alerts)
        for change in changes:
            if change.alert.state in {AlertState.PENDING, AlertState.FIRING}:
                self._alerts[change.alert.id] = (change.alert, change.rule)
        for job_id, ladder in self._desk.book.ladders.items():
            if self._desk.control.find(job_id) is not None:
                self._desk.control.set_degrade_level(job_id, ladder.level)
        for request in self._desk.book.open_requests():
            if self._never_sent(request, at):
                self._desk.task(self._desk.send(request.id))
            else:
                self._desk.change(request, machine.Restarted(), at)
        for hook in [hook for hook in self._desk.book.hooks.values() if hook.closed is None]:
            self._runner.close_hook(hook, None, "sentinel was restarted before it ended; not started again", at)
        self._recovered = True
        for change in changes:
            self._dispatch(change, at)
        self._settle(at)

    def submit(self, change: Transition) -> None:
        """A rule has spoken, and it is written down."""
        at = self._desk.clock.now()
        alert = change.alert
        if alert.state in {AlertState.PENDING, AlertState.FIRING}:
            self._alerts[alert.id] = (alert, change.rule)
        else:
            self._alerts.pop(alert.id, None)
        if change.firing or change.resolving:
            self._dispatch(change, at)
        self._settle(at)

    def on_event(self, happened: Event) -> None:
        """Something happened that may be the answer: a checkpoint, a change of a job's state."""
        if happened.kind == "checkpoint.complete" or happened.kind.startswith("job."):
            at = self._desk.clock.now()
            self._desk.look(at)
            self._settle(at)

    async def tick(self, at: float) -> None:
        """Deadlines, effects, forecasts and restores; about once a second."""
        if self._desk.ledger.owes:
            self._desk.ledger.repay()
        self._desk.look(at)
        self._settle(at)
        if self._recovered:
            self._lift.restore(at)
        if at - self._pruned >= _PRUNE_EVERY_S:
            self._pruned = at
            self._desk.book.prune(at - self._desk.settings.remembered_s, self._alerts)

    async def close(self) -> None:
        """Stop handing over. What was sent without an answer is said to be unknown at the next start."""
        for task in list(self._desk.tasks):
            task.cancel()
        await asyncio.gather(*self._desk.tasks, return_exceptions=True)

    async def idle(self) -> None:
        """Wait until nothing is being handed over and no hook runs."""
        while self._desk.tasks:
            await asyncio.gather(*list(self._desk.tasks), return_exceptions=True)

    def replace_settings(self, settings: Settings) -> None:
        """Other limits from now on."""
        self._desk.settings = settings

    # What people and jobs do with it

    async def ask(
        self,
        job: Job | str,
        kind: RequestKind,
        *,
        by: str,
        reason: str = "",
        timeout_s: float = 60.0,
        wait_s: float = 0.0,
    ) -> Request:
        """Ask for something in the name of a person, and wait for its end at most `wait_s`.

        What cannot be asked comes back closed, with the reason as `detail`. A
        request of that kind that is still open is not asked again: it comes back.

        Raises:
            SentinelError: There is no such job.
        """
        found = self._desk.control.find(job) if isinstance(job, str) else job
        if found is None:
            raise self._no_job(str(job))
        text = reason or f"{by.removeprefix('user:')} asked for it"
        request_id = self._desk.wish(found, kind, by=by, reason=text, timeout_s=timeout_s)
        return await self.closed(request_id, wait_s)

    async def closed(self, request_id: str, within_s: float) -> Request:
        """The request once it is closed, or as it stands after `within_s`."""
        return await self._desk.closed(request_id, within_s)

    def starts_at(self, job_id: str, level: int) -> None:
        """A new attempt of a job runs at `level`: the way back up begins from there."""
        ladder = self._desk.book.ladder(job_id)
        if ladder.level != level:
            at = self._desk.clock.now()
            moved = (
                restore.degraded(ladder, level, ladder.base_s, at)
                if level > ladder.level
                else restore.restored(ladder, level, at)
            )
            self._desk.ledger.write("degrade", encode(moved))

    def answered(self, request_id: str, answer: str, detail: str = "") -> Request:
        """The job says by itself what became of a request.

        Args:
            request_id: Which one.
            answer: acknowledged, done, refused or failed.
            detail: In the job's words.

        Raises:
            SentinelError: No such request, or no such answer.
        """
        request = self.request(request_id)
        known = sorted(outcome.value for outcome in _ANSWERS)
        if answer not in known:
            raise SentinelError(f"{answer!r} is no answer to a request", hint=", ".join(known))
        at = self._desk.clock.now()
        job = self._desk.control.find(request.job_id)
        seen = job is not None and machine.observable(job, request)
        self._desk.change(request, machine.Answered(Outcome(answer), self._desk.clean(detail), seen), at)
        self._desk.look(at)
        self._settle(at)
        return self.request(request_id)

    def request(self, request_id: str) -> Request:
        """One request.

        Raises:
            SentinelError: There is no such request, or it is forgotten.
        """
        return self._desk.request(request_id)

    def requests(self, job_id: str | None = None) -> list[Request]:
        """The requests still remembered, oldest first, of one job or of all."""
        return [r for r in self._desk.book.requests.values() if job_id is None or r.job_id == job_id]

    def requests_of(self, alert: Alert) -> list[Request]:
        """What was asked because of this alert since it began, oldest first."""
        return self._desk.book.of_alert(alert.id, since=alert.began)

    def jobs_of(self, alert: Alert) -> list[Job]:
        """The jobs that an alert is about: its own, or those on its GPU."""
        return list(about(alert, find=self._desk.control.find, on_gpu=self._desk.control.on_gpu).values())

    def _dispatch(self, change: Transition, at: float) -> None:
        """Begin what belongs to an alert that fires or has ended; what has begun already stays as it is."""
        match change.alert.state:
            case AlertState.FIRING:
                self._runner.begin(change.alert, change.rule, On.FIRING, at)
            case AlertState.RESOLVED:
                if change.reason is Reason.ENDED:
                    self._credit(change.alert, at)
                self._runner.begin(change.alert, change.rule, On.RESOLVED, at)
            case _:
                return

    def _settle(self, at: float) -> None:
        """Let every chain take the steps that are due, and see who still holds a degrade."""
        self._runner.advance(at)
        if self._recovered:
            self._lift.hold(at)

    def _never_sent(self, request: Request, at: float) -> bool:
        """Whether a request was only planned before the restart, and may still be sent, for the first time.

        Nothing leaves without being written down as sent, but a checkpoint while
        the journal fails; and that one does no harm.
        """
        alert, _ = self._alerts.get(request.alert or "", (None, None))
        firing = alert is not None and alert.state is AlertState.FIRING and (alert.fired or 0.0) <= request.created
        return request.state is RequestState.PLANNED and request.kind in HARMLESS and firing and at < request.deadline

    def _credit(self, alert: Alert, at: float) -> None:
        """The alert ended: the degrades it asked for have worked."""
        for request in self._desk.book.of_alert(alert.id, since=alert.began):
            if request.kind is RequestKind.DEGRADE and request.acknowledged is not None:
                after_s = at - request.acknowledged
                self._desk.change(request, machine.Happened(f"the alert ended {after_s:.0f} s later"), at)

    def _no_job(self, name: str) -> SentinelError:
        close = nearest(name, [job.name for job in self._desk.control.living()])
        return SentinelError(f"there is no job called {name!r}", hint=close or "sentinel jobs lists them")
