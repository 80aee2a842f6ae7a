"""What a hand does: reading in a thread of its own, errands and messages under way."""

from __future__ import annotations

import asyncio
import logging
import os
import shlex
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

from sentinel.collectors.jobcheckpoints import JobCheckpoints
from sentinel.collectors.joblogs import JobLogs
from sentinel.daemon.handwire import MOST_EVENTS, Errand, Habits, Left, Look, Report, Result
from sentinel.jobs import endfile
from sentinel.jobs.hand import LocalHand
from sentinel.jobs.settings import Settings
from sentinel.logs.classify import Classifier
from sentinel.model.checkpoints import Checkpoint
from sentinel.model.jobs import How, Job
from sentinel.model.logs import LogEvent, LogKind
from sentinel.model.requests import Delivery, Outcome
from sentinel.model.series import Entity, Family
from sentinel.notify.courier import AppriseCourier
from sentinel.notify.ports import Parcel, Receipt
from sentinel.system import processes

_log = logging.getLogger(__name__)

_LOOK_S = 0.2
_CHECKPOINTS_S = 1.0
_RECENT = 20
_EACH_KIND = 5
_POLL_S = 1.0


class _Tally:
    """Counts lines and bytes since the last report; the rest is told by the events themselves."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.lines = self.size_bytes = 0

    def declare(self, family: Family, entity: Entity) -> None:
        """The daemon does."""

    def inc(self, family: Family, entity: Entity, metric: str, by: float = 1) -> None:
        """It moves."""
        del family, entity
        with self.lock:
            if metric == "log_lines_total":
                self.lines += int(by)
            elif metric == "log_bytes_total":
                self.size_bytes += int(by)

    def take(self) -> tuple[int, int]:
        """What was counted since the last time."""
        with self.lock:
            found = self.lines, self.size_bytes
            self.lines = self.size_bytes = 0
        return found


class Reading:
    """Follows one job's logs and checkpoint directories, in a thread that may hang where file systems do.

    Args:
        classifier: What lines mean.
        state: Where it remembers how far it has read.

    Attributes:
        job: What to look at.
    """

    job: Job

    def __init__(self, classifier: Classifier, state: Path) -> None:
        self._tally = _Tally()
        self._lock = threading.Lock()
        self._events: list[LogEvent] = []
        self._found: list[Checkpoint] = []
        self._row: dict[str, float] | None = None
        self._drained = 0
        self._left: Left | None = None
        self._logs = JobLogs(self._targets, classifier, self._tally, self._heard, state)
        self._checkpoints = JobCheckpoints(self._targets, self._tally, self._saw)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="reading", daemon=True)

    def start(self) -> None:
        """From now on, until `stop`."""
        self._thread.start()

    def stop(self) -> None:
        """Remember how far it got; not for long, where the file system hangs."""
        self._stop.set()
        self._thread.join(2.0)
        if not self._thread.is_alive():
            self._logs.close()

    def drain(self, job: Job) -> None:
        """Read the output to its end. Called in a thread."""
        self._logs.drain(job)
        if job.spec.checkpoints:
            self._look()
        self._look_for_end(job)
        with self._lock:
            self._drained = job.attempt

    def recent(self) -> tuple[LogEvent, ...]:
        """The last events that were told."""
        with self._lock:
            untold = len(self._events)
        known = self._logs.last_events(self.job.id)
        return tuple(known[: len(known) - untold][-_RECENT:])

    def tell(self, report: Report) -> Report:
        """With what has come since the last report."""
        job = self.job
        lines, size_bytes = self._tally.take()
        with self._lock:
            events, self._events = condensed(self._events), []
            found, self._found = tuple(self._found), []
            row, drained, left = self._row, self._drained, self._left
        look = Look(row, self._checkpoints.newest(job.id), found) if row is not None else None
        return replace(
            report,
            events=events,
            lines=lines,
            size_bytes=size_bytes,
            output_at=self._logs.last_output(job.id),
            look=look,
            drained=drained,
            left=left,
        )

    def _look_for_end(self, job: Job) -> None:
        """Once the leader is gone: what its supervisor wrote down, for a daemon that was away when it said so."""
        known = self._left is not None and self._left.attempt == job.attempt
        if known or not job.output or job.root is None or processes.same(job.root):
            return
        found = endfile.read(os.path.dirname(job.output[0]), job.attempt)
        if found is not None:
            self._left = Left(job.attempt, *found)

    def _targets(self) -> list[Job]:
        return [self.job] if self.job.alive else []

    def _heard(self, job: Job, events: list[LogEvent]) -> None:
        del job
        with self._lock:
            self._events = [*self._events, *events]
            if len(self._events) > 4 * MOST_EVENTS:
                self._events = list(condensed(self._events))

    def _saw(self, job: Job, found: Checkpoint) -> None:
        del job
        with self._lock:
            self._found.append(found)

    def _look(self) -> None:
        for batch in self._checkpoints.collect(time.time()):
            row = batch.rows().get((self.job.name,))
            with self._lock:
                self._row = row if row is not None else self._row

    def _follow(self) -> None:
        looked = float("-inf")
        while not self._stop.is_set():
            try:
                self._logs.look()
                if time.monotonic() - looked >= _CHECKPOINTS_S:
                    looked = time.monotonic()
                    self._look()
                    self._look_for_end(self.job)
            except Exception:  # the next look may do better
                _log.exception("a fault of sentinel itself in reading")
            self._stop.wait(_LOOK_S)


def condensed(events: Iterable[LogEvent]) -> tuple[LogEvent, ...]:
    """At most a few of each kind, in order; the last one stands for those left out, so that counts stay exact."""
    kept: list[LogEvent] = []
    seen: dict[LogKind, list[int]] = {}
    for found in events:
        places = seen.setdefault(found.kind, [])
        if len(places) < _EACH_KIND:
            places.append(len(kept))
            kept.append(found)
        else:
            last = kept[places[-1]]
            kept[places[-1]] = replace(found, count=last.count + found.count)
    return tuple(kept)


class Work:
    """Errands and messages under way. Belongs to the event loop.

    Args:
        habits: How to work.
        wake: Called when there is something to tell.
    """

    def __init__(self, habits: Habits, wake: Callable[[], None]) -> None:
        self._hand = LocalHand(Settings(ack_poll_s=habits.ack_poll_s, exec_limit_s=habits.exec_limit_s))
        self._courier = AppriseCourier(timeout_s=habits.mail_timeout_s, idle_s=20.0)
        self._wake = wake
        self._taken: dict[str, None] = {}
        self._untold: list[str] = []
        self._results: list[Result] = []
        self._receipts: list[Receipt] = []
        self._running: set[asyncio.Task[None]] = set()
        self._parcels: list[Parcel] = []
        self._away: set[str] = set()
        self._post: asyncio.Task[None] | None = None

    @property
    def busy(self) -> bool:
        """Whether something is under way, or not yet told."""
        return bool(self._running or self._results or self._receipts or self._parcels or self._away)

    def tell(self, report: Report) -> Report:
        """With what was taken and done since the last report."""
        taken, self._untold = tuple(self._untold), []
        results, self._results = tuple(self._results), []
        receipts, self._receipts = tuple(self._receipts), []
        return replace(report, taken=taken, results=results, receipts=receipts)

    def take(self, errand: Errand, job: Job) -> None:
        """Set one errand going, once however often it is given."""
        if self._new(errand.id):
            task = asyncio.create_task(self._run(errand, job))
            self._running.add(task)
            task.add_done_callback(self._running.discard)

    def refuse(self, errand: Errand, why: str) -> None:
        """Say that it is not done."""
        if self._new(errand.id):
            _log.warning("refused: %s", why)
            self._results.append(Result(errand.id, Delivery(Outcome.REFUSED, why)))
            self._wake()

    def carry(self, parcels: Iterable[Parcel]) -> None:
        """Take messages on, each once at a time."""
        for parcel in parcels:
            if parcel.id not in self._away:
                self._away.add(parcel.id)
                self._parcels.append(parcel)
                self._untold.append(parcel.id)
        if self._parcels and self._post is None:
            self._post = asyncio.create_task(self._deliver())
            self._post.add_done_callback(self._delivered)

    async def close(self) -> None:
        """Let what runs end; nothing is begun any more."""
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
        if self._post is not None:
            self._post.cancel()
        await asyncio.to_thread(self._courier.close)

    def _new(self, name: str) -> bool:
        if name in self._taken:
            return False
        self._taken[name] = None
        self._untold.append(name)
        return True

    async def _run(self, errand: Errand, job: Job) -> None:
        match errand.how:
            case How.FILE:
                came = await self._hand.file(errand.target, errand.message, timeout_s=errand.timeout_s)
            case How.HTTP:
                came = await self._hand.http(errand.target, errand.message, timeout_s=errand.timeout_s)
            case How.EXEC:
                argv = shlex.split(errand.target)
                cwd = job.spec.cwd
                came = await self._hand.execute(argv, errand.message, cwd=cwd, timeout_s=errand.timeout_s)
            case How.SIGNAL:
                came = Delivery(Outcome.REFUSED, "signals need no hand")
        self._results.append(Result(errand.id, came))
        self._wake()

    async def _deliver(self) -> None:
        while self._parcels or self._away:
            parcels, self._parcels = self._parcels, []
            receipts = await asyncio.to_thread(self._courier.exchange, parcels, _POLL_S)
            for receipt in receipts:
                self._away.discard(receipt.id)
                self._receipts.append(receipt)
            if receipts:
                self._wake()

    def _delivered(self, post: asyncio.Task[None]) -> None:
        self._post = None
        if not post.cancelled() and (fault := post.exception()) is not None:
            _log.error("a fault of sentinel itself in carrying messages", exc_info=fault)
            self._receipts += [Receipt(name, delivered=False, error="the hand had a fault") for name in self._away]
            self._away.clear()
