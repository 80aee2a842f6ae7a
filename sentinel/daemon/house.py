"""A daemon, made: how it begins, what it does each moment, how it ends."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

from sentinel.collectors.counters import Counters
from sentinel.collectors.gpu_sources import GpuSource
from sentinel.collectors.processes import JobCollector
from sentinel.collectors.schedule import Schedule
from sentinel.daemon.adoption import Adopter
from sentinel.daemon.bookkeeping import COUNTED, Books
from sentinel.daemon.core import DaemonCore, Rooms
from sentinel.daemon.deep import DeepReader
from sentinel.daemon.mail import Mail
from sentinel.daemon.pipeline import Pipeline
from sentinel.daemon.reloading import taken, waiting
from sentinel.daemon.rulebook import Rulebook
from sentinel.daemon.storms import LogStorms
from sentinel.errors import SentinelError
from sentinel.exporters.prometheus import exposition
from sentinel.jobs.handover import Handover
from sentinel.model.alerts import Alert, AlertState, Reason, Transition
from sentinel.model.checkpoints import Checkpoint, CheckpointState
from sentinel.model.events import Event, Severity, event
from sentinel.model.families import HOST, JOB, LOG
from sentinel.model.jobs import Job, JobState
from sentinel.model.logs import LogEvent
from sentinel.model.series import COUNTER, Batch
from sentinel.model.wire import WireError, decode, encode
from sentinel.rules.ruleset import RuleSet
from sentinel.server.app import Server, serve
from sentinel.server.listen import Listener
from sentinel.store.journal import JournalFile

if TYPE_CHECKING:
    from sentinel.config import Settings
    from sentinel.daemon.assembly import Place

_log = logging.getLogger(__name__)

LOOK_AT_LOGS_S = 0.5
RESTORE_WITHIN_S = 7 * 86400.0
_MEMORY = tuple(metric.name for metric in JOB.metrics if metric.name.startswith("job_memory"))
_BOOKS_EVERY_S = 2.0
EVENT = "event"
_EVENTS_KEPT_S = 600.0


class House:
    """Everything that a daemon is, joined. Belongs to the event loop.

    Attributes:
        core: The daemon as the API sees it; set by the assembly.
        wake: Set when something happened that should be judged before the next turn.
    """

    core: DaemonCore

    def __init__(
        self,
        *,
        place: Place,
        settings: Settings,
        rooms: Rooms,
        journal: JournalFile,
        mail: Mail,
        pipeline: Pipeline,
        schedule: Schedule,
        sampler: JobCollector,
        counters: Counters,
        books: Books,
        rulebook: Rulebook,
        deep: DeepReader,
        handover: Handover,
        gpus: GpuSource,
        adopter: Adopter,
        listeners: Sequence[Listener],
    ) -> None:
        self.settings = settings
        self.rooms = rooms
        self.clock = rooms.clock
        self.wake = asyncio.Event()
        self._place = place
        self._journal = journal
        self._mail = mail
        self._pipeline = pipeline
        self._schedule = schedule
        self._sampler = sampler
        self._counters = counters
        self._books = books
        self._rulebook = rulebook
        self._deep = deep
        self._handover = handover
        self._gpus = gpus
        self._adopter = adopter
        self._listeners = listeners
        self._storms = LogStorms()
        self._server: Server | None = None
        self._not_taken = ""
        self._stop_logs = threading.Event()
        self._log_thread = threading.Thread(target=self._follow_logs, name="logs", daemon=True)
        self._observed = float("-inf")
        self._booked = float("-inf")

    # From start to end

    async def begin(self) -> None:
        """Remember, look, listen, measure: in this order."""
        rooms, now = self.rooms, self.clock.now()
        written = self._remember()
        rooms.store.refill(rooms.window, now - self.settings.store.window_s)
        rooms.hub.refill(await asyncio.to_thread(self._last_events, now, written))
        self._restore_counters(now)
        rooms.hub.on(self._on_event)
        self._mail.open(
            asyncio.get_running_loop(),
            event=rooms.hub.publish,
            batch=self._on_batch,
            log_events=self._on_log_events,
            checkpoint=self._on_checkpoint,
            answered=self.wake.set,
        )
        self._load_rules_of_jobs()
        self._pipeline.on_changes(rooms.engine.settle(now))
        for job in rooms.register.recent():
            if not any(living.name == job.name for living in rooms.register.living()):
                rooms.engine.job_ended(job.name, job.ended or now)
        self._retarget()
        rooms.dispatcher.recover(self._open_alerts(resolved=True))
        rooms.hands.recover(rooms.register.living())
        rooms.monitor.tick()
        rooms.notifier.recover(self._open_alerts(resolved=True), rooms.register.recent())
        self._handover.open()
        self._server = await serve(self.core, self._listeners, settings=self.settings.api, expose=exposition)
        self._schedule.start()
        self._log_thread.start()
        rooms.hub.publish(event("sentinel.started", "sentinel watches", at=now, pid=os.getpid()))
        for problem in await rooms.notifier.check() if self.settings.notify.receivers else ():
            _log.warning("%s", problem)

    async def end(self) -> None:
        """Stop measuring, let what is under way end, write everything down."""
        rooms = self.rooms
        self._stop_logs.set()
        await asyncio.to_thread(self._schedule.stop)
        if self._log_thread.ident is not None:
            await asyncio.to_thread(self._log_thread.join, 2.0)
        rooms.logs.close()
        if self._server is not None:
            rooms.hub.close()
            await self._server.close()
            self._handover.close()
        await rooms.dispatcher.close()
        await rooms.notifier.close()
        rooms.monitor.close()
        self._deep.close()
        self._mail.close()
        self._gpus.close()
        await asyncio.to_thread(rooms.store.close)
        self._journal.close()

    def judge(self) -> None:
        """Evaluate what is due."""
        self._pipeline.judge()

    async def tick(self) -> None:
        """What the clock asks for, about twice a second."""
        rooms, now = self.rooms, self.clock.now()
        rooms.monitor.tick()
        self._adopter.tick(self.clock.monotonic())
        for gathered in self._storms.due(now):
            rooms.hub.publish(gathered)
        if now - self._booked >= _BOOKS_EVERY_S or now < self._booked:
            self._booked = now
            living = rooms.register.living()
            self._books.tick(living, now, rooms.store.lag_s(), self.clock.monotonic())
            self._books.idle(living, rooms.register.last_paid(), rooms.window.latest("host_boot_time_seconds"), now)
        await rooms.dispatcher.tick(now)
        await rooms.notifier.tick(now)
        self._retarget()
        self._flush_counters()
        if self._journal.wants_compaction:
            self._compact()

    async def reload(self) -> Mapping[str, Any]:
        """Read rules, mode and notification settings again; on any problem the old ones stay, and that is said.

        Raises:
            SentinelError: What is wrong.
        """
        try:
            return self._take()
        except SentinelError as fault:
            self._not_taken = str(fault).splitlines()[0]
            words = f"the old rules and settings stay in force: {self._not_taken}"
            self.rooms.hub.publish(
                event("sentinel.reload_failed", words, at=self.clock.now(), severity=Severity.WARNING)
            )
            raise

    def _take(self) -> Mapping[str, Any]:
        from sentinel import config

        fresh = config.load(self._place.config, system=self._place.system)
        changed = Rulebook(fresh.rules, use_shipped=fresh.shipped_rules, trusted_only=self._place.system)
        changed.read()
        self._rulebook.take(changed)
        self._put_in_force(self._rulebook.all())
        self.rooms.notifier.replace_settings(fresh.notify)
        self.rooms.dispatcher.replace_settings(fresh.actions)
        before, late = self.settings, waiting(self.settings, fresh)
        self.settings, self._not_taken = taken(before, fresh), ""
        self.core.mode = fresh.mode
        words = "rules and notification settings were read again"
        if fresh.mode != before.mode:
            words += f"; mode is {fresh.mode} from now on"
        if late:
            words += f"; changed, and in force after a restart: {', '.join(late)}"
        self.rooms.hub.publish(
            event(
                "sentinel.reloaded",
                words,
                at=self.clock.now(),
                severity=Severity.WARNING if late else Severity.INFO,
                mode=fresh.mode,
                needs_restart=late,
            )
        )
        return {
            "rules": len(self._rulebook.all()),
            "receivers": self.rooms.notifier.receivers(),
            "mode": fresh.mode,
            "needs_restart": late,
        }

    def add_rules(self, job: Job) -> None:
        """Put the rules in force that a job brings along."""
        self._put_in_force(self._rulebook.add(job))

    # What is asked about it

    def observed_within(self, ticks: int) -> bool:
        """Whether the host was really measured within so many ticks."""
        return self.clock.monotonic() - self._observed <= ticks * self.settings.sampling.interval_s

    def busy(self) -> bool:
        """Whether there is anything to stay for."""
        rooms, server = self.rooms, self._server
        idle_clients = server is not None and (
            server.listening.clients > 0 or self.clock.monotonic() - server.listening.last_request < 1.0
        )
        return bool(
            rooms.register.living()
            or rooms.engine.alerts(resolved=False)
            or rooms.notifier.undelivered()
            or rooms.hub.listeners
            or idle_clients
        )

    def health(self) -> dict[str, Any]:
        """The `health` of the overview."""
        rooms = self.rooms
        rules = rooms.engine.rules()
        return {
            "collectors": [
                {
                    "name": each.name,
                    "up": each.up,
                    "seconds": each.seconds,
                    "reason": each.reason or (each.support.reason if each.support else ""),
                }
                for each in self._schedule.health()
            ],
            "store": {"lag_seconds": rooms.store.lag_s(), "size_bytes": rooms.store.size_bytes()},
            "rules": {
                "count": len(rules),
                "unhealthy": [{"rule": each.rule.name, "fault": each.fault} for each in rules if each.fault],
            },
            "reload_failed": self._not_taken or None,
            "receivers": rooms.notifier.receivers(),
            "undelivered": rooms.notifier.undelivered(),
            "waiting": rooms.notifier.waiting(),
            "state": str(self._place.state),
            "socket": str(self._place.socket),
            "pid": os.getpid(),
        }

    # What comes in

    def _on_batch(self, batch: Batch) -> None:
        if batch.family is HOST:
            self._observed = self.clock.monotonic()
        self._pipeline.on_batch(batch)
        if batch.family is JOB and self._schedule.endangered():
            self.rooms.engine.nudge(_MEMORY)
            self.wake.set()

    def _on_log_events(self, job: Job, events: list[LogEvent]) -> None:
        for said in self._storms.take(job, events, self.clock.now()):
            self.rooms.hub.publish(said)
        self._flush_counters()

    def _on_checkpoint(self, job: Job, found: Checkpoint) -> None:
        whole = found.state is CheckpointState.COMPLETE
        if whole:
            self.rooms.witness.saw(job, found)
        step = f" at step {found.step}" if found.step is not None else ""
        words = f"{job.name} has a whole checkpoint{step}: {found.path}"
        self.rooms.hub.publish(
            event(
                f"checkpoint.{found.state.value}",
                words if whole else f"a checkpoint of {job.name} is broken, {found.reason}: {found.path}",
                at=self.clock.now(),
                job=job.name,
                severity=Severity.INFO if whole else Severity.WARNING,
                uid=job.uid,
                id=job.id,
                checkpoint=encode(found),
            )
        )
        self._flush_counters()

    def _on_event(self, happened: Event) -> None:
        """Whatever was published: count it, and let it be an answer."""
        self._books.on_event(happened)
        if happened.kind.startswith("job."):
            self._on_job(happened)
        self.rooms.dispatcher.on_event(happened)
        if happened.kind.startswith("request."):
            request = self.core.find_request(str(happened.data.get("id", "")))
            if request is not None:
                self.rooms.store.put_row("requests", encode(request))

    def _on_job(self, happened: Event) -> None:
        job = self.rooms.register.find(str(happened.data.get("id", "")))
        if job is None:
            return
        self.rooms.store.put_row("jobs", encode(job))
        self.rooms.accounts.on_job(job)
        if job.alive:
            if job.state in {JobState.STARTING, JobState.RUNNING}:
                self.rooms.engine.job_started(job.name)
        else:
            self._pipeline.on_changes(self.rooms.engine.job_ended(job.name, self.clock.now()))
            self._books.job_ended(job)
            self.rooms.hands.ended(job)
            self.rooms.witness.forget(job)
            if (rules := self._rulebook.drop(job)) is not None:
                self._put_in_force(rules)
            self.rooms.notifier.on_job_end(job)
        self._retarget()

    def _flush_counters(self) -> None:
        """What events have counted goes on at once, and what reads it is judged at once."""
        if not self._counters.dirty:
            return
        for batch in self._counters.collect_changed(self.clock.now()):
            self._pipeline.on_batch(batch, early=batch.family is LOG)
            if batch.family is LOG:
                self.wake.set()

    def _retarget(self) -> None:
        self._mail.set_targets([*self.rooms.register.living(), *self.rooms.register.recent()])

    def _follow_logs(self) -> None:
        while not self._stop_logs.wait(LOOK_AT_LOGS_S):
            try:
                self.rooms.logs.look()
            except Exception:  # the next look may do better; the other collectors go on
                _log.exception("a fault of sentinel itself in reading logs")

    # Rules

    def _put_in_force(self, rules: RuleSet) -> None:
        self._pipeline.on_changes(self.rooms.engine.replace(rules, self.clock.now()))
        self._pace()

    def _pace(self) -> None:
        for family, seconds in self.rooms.engine.paces().items():
            self.rooms.window.set_tick(family, seconds)

    def _load_rules_of_jobs(self) -> None:
        for job in self.rooms.register.living():
            if job.spec.rules and job.uid == os.getuid():
                try:
                    self.add_rules(job)
                except Exception as fault:  # the file may have changed or gone since
                    _log.warning("the rules of %s are not in force: %s", job.name, fault)
        self._pace()

    # Over a restart

    def _remember(self) -> list[Event]:
        """Replay the journal into the rooms; the events in it."""
        rooms, written = self.rooms, list[Event]()
        folding = (
            rooms.register.fold,
            rooms.engine.fold,
            rooms.dispatcher.fold,
            rooms.notifier.fold,
            rooms.silences.fold,
            rooms.hands.fold,
        )
        for record in self._journal.replay():
            if record.kind == EVENT:
                with contextlib.suppress(WireError):
                    written.append(decode(Event, record.data))
                continue
            for fold in folding:
                try:
                    fold(record)
                except Exception:  # one record of an older or newer sentinel costs itself, not the rest
                    _log.exception("record %s of the journal (%s) was not understood", record.seq, record.kind)
        return written

    def _compact(self) -> None:
        rooms = self.rooms
        if self._journal.removed:
            words = f"{self._place.state} was removed while sentinel runs: its journal is begun anew from memory"
            rooms.hub.publish(event("store.removed", words, at=self.clock.now(), severity=Severity.CRITICAL))
        try:
            self._journal.compact(
                chain(
                    rooms.register.snapshot(),
                    rooms.engine.snapshot(),
                    rooms.dispatcher.snapshot(),
                    rooms.notifier.snapshot(),
                    rooms.silences.snapshot(),
                    rooms.hands.snapshot(),
                    (
                        (EVENT, encode(each))
                        for each in rooms.hub.recent(self.clock.now() - _EVENTS_KEPT_S)
                        if journals(each)
                    ),
                )
            )
        except Exception as fault:
            _log.warning("the journal was not compacted: %s", fault)

    def _written_events(self) -> Iterator[tuple[str, dict[str, object]]]:
        for each in self.rooms.hub.recent(self.clock.now() - _EVENTS_KEPT_S):
            if journals(each):
                yield EVENT, encode(each)

    def _open_alerts(self, *, resolved: bool = False) -> list[Transition]:
        engine = self.rooms.engine
        rules = {(status.rule.group, status.rule.name): status.rule for status in engine.rules()}
        return [
            Transition(
                alert,
                _was(alert),
                Reason.ENDED,
                alert.resolved or alert.fired or alert.began,
                rules.get((alert.group, alert.rule)),
            )
            for alert in engine.alerts(resolved=resolved)
        ]

    def _last_events(self, now: float, written: list[Event]) -> list[Event]:
        """What happened before the restart: from the store, and from the journal what had not got there."""
        try:
            stored = self.rooms.store.events(now - 86400.0, limit=500)
        except SentinelError:
            stored = []
        known = {each.id for each in stored}
        since = min((each.time for each in stored), default=0.0)
        missing = [each for each in written if each.id not in known and each.time >= since]
        for each in missing:
            self.rooms.store.put_event(each)
        return sorted([*stored, *missing], key=lambda each: each.time)

    def _restore_counters(self, now: float) -> None:
        since = now - RESTORE_WITHIN_S
        living = {job.name: job for job in self.rooms.register.living()}
        if not living:
            return
        for family in COUNTED:
            for entity, values in self.rooms.store.last_values(family.name, since).items():
                labels = dict(zip(family.labels, entity, strict=True))
                if "job" in labels and labels["job"] not in living:
                    continue
                for name, value in values.items():
                    self._counters.restore(family, entity, name, value)
        for (job, *_), values in self.rooms.store.last_values(JOB.name, since).items():
            for metric in JOB.metrics:
                if metric.kind is COUNTER and metric.name in values and job in living:
                    self._sampler.restore(living[job].id, metric.name, values[metric.name])


def journals(happened: Event) -> bool:
    """Whether an event must survive a SIGKILL; the others reach the store within seconds."""
    return happened.kind.startswith(("alert.", "request.", "job.", "notification.", "sentinel."))


def _was(alert: Alert) -> AlertState:
    return AlertState.FIRING if alert.fired is not None else AlertState.PENDING
