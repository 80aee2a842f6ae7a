"""When to measure: a thread per collector, and a timekeeper that waits for none of them."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial

from sentinel.clock import Clock
from sentinel.collectors.coverage import Coverage
from sentinel.collectors.endangered import Watchlist
from sentinel.collectors.ports import Collector, Deliver, Emit, JobSampler, Unavailable
from sentinel.collectors.settings import Settings
from sentinel.errors import SentinelError
from sentinel.model.events import Severity, event
from sentinel.model.families import JOB, SENTINEL_COLLECTOR
from sentinel.model.series import Batch, Entity, Support

DOWN_AFTER_TICKS = 3
"""A collector is said to be down after so many bad ticks in a row; its series tell each of them."""


_ROOM_S = 0.1
"""A look ahead of the tick must be over by the tick."""


@dataclass(frozen=True, slots=True)
class Health:
    """How one collector does.

    Attributes:
        name: The collector.
        support: Whether it can measure here, and what not; None until it has said so.
        up: Whether its last pass came back in time and without a fault; None before
            the first and where it cannot measure.
        seconds: How long its last pass took, or the one under way takes already.
        reason: Why it is not up, in words.
    """

    name: str
    support: Support | None
    up: bool | None
    seconds: float
    reason: str = ""


class Schedule:
    """Runs collectors side by side.

    Each has a thread and a place on one grid of ticks. A pass that has not come
    back by its next tick is not awaited: the ticks it covers are skipped, and
    `sentinel_collector_up` is 0 for them. A fault of one is nobody else's.

    Args:
        collectors: What to run.
        deliver: Takes every batch, from many threads.
        emit: Takes `collector.down`, `.up`, `.unavailable` and `.partial`.
        clock: Gives the times of batches and paces the ticks.
        settings: How often.
        jobs: The one among `collectors` that looks at endangered jobs ahead of the tick.
    """

    def __init__(
        self,
        collectors: Sequence[Collector],
        deliver: Deliver,
        emit: Emit,
        clock: Clock,
        settings: Settings | None = None,
        jobs: JobSampler | None = None,
    ) -> None:
        self._settings = settings or Settings()
        self._deliver = deliver
        self._emit = emit
        self._clock = clock
        self._watchlist = Watchlist(self._settings)
        self._watching = threading.Lock()
        self._lanes = [
            _Lane(one, jobs if one is jobs else None, self._handle, clock, self._settings, self._chosen)
            for one in collectors
        ]
        self._coverage = Coverage()
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self._bad_ticks: dict[str, int] = {}
        self._said: dict[str, Support] = {}

    def start(self) -> None:
        """Begin; returns at once."""
        began = time.monotonic()
        for lane in self._lanes:
            self._run(f"collect {lane.name}", partial(lane.run, began))
        self._run("timekeeper", partial(self._keep_time, began))

    def stop(self, timeout_s: float = 2.0) -> bool:
        """End; whether every thread ended in time. One that hangs is left behind and dies with the process."""
        self._stop.set()
        for lane in self._lanes:
            lane.stop()
        until = time.monotonic() + timeout_s
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    def poke(self, name: str) -> None:
        """Let a collector make a pass now, because something happened."""
        for lane in self._lanes:
            if lane.name == name:
                lane.poke()

    def endanger(self, job: str) -> None:
        """Look at a job as often as at any until `calm`."""
        with self._watching:
            self._watchlist.pin(job)
        self._wake_jobs()

    def calm(self, job: str) -> None:
        """From now on the job's own pace decides how often it is looked at."""
        with self._watching:
            self._watchlist.unpin(job)

    def endangered(self) -> list[str]:
        """The names of the jobs that are sampled ahead of the tick now."""
        return list(self._chosen())

    def health(self) -> list[Health]:
        """How every collector does now."""
        return [lane.health() for lane in self._lanes]

    def _run(self, name: str, target: Callable[[], None]) -> None:
        thread = threading.Thread(target=target, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _chosen(self) -> dict[str, float]:
        with self._watching:
            return self._watchlist.chosen()

    def _wake_jobs(self) -> None:
        for lane in self._lanes:
            lane.wake()

    def _handle(self, batch: Batch, whole: bool) -> None:
        if batch.family is JOB:
            index = next(i for i, metric in enumerate(JOB.metrics) if metric.name == "job_memory_headroom_bytes")
            pairs = zip(batch.labels, batch.columns[index], strict=True)
            headroom = {entity[0]: value for entity, value in pairs if not math.isnan(value)}
            with self._watching:
                self._watchlist.saw(batch.at, headroom)
                if whole:
                    self._watchlist.keep(headroom)
        self._deliver(batch)

    def _keep_time(self, began: float) -> None:
        while not self._stop.wait(_until_tick(began, self._settings.interval_s)):
            self.keep_account(self._clock.now())

    def keep_account(self, at: float) -> None:
        """Measure the collectors themselves, and say what changed. Called each tick by the timekeeper."""
        rows: dict[Entity, list[float | None]] = {}
        for lane in self._lanes:
            health = lane.health()
            self._say_support(at, health)
            if health.up is not None:
                rows[health.name,] = [float(health.up), health.seconds]
                self._say_change(at, health)
        self._deliver(self._coverage.batch(SENTINEL_COLLECTOR, at, rows))

    def _say_support(self, at: float, health: Health) -> None:
        support, before = health.support, self._said.get(health.name)
        if support is None or support == before:
            return
        self._said[health.name] = support
        self._bad_ticks.pop(health.name, None)
        words = support.reason + (f"; {support.hint}" if support.hint else "")
        if not support.available:
            self._tell("collector.unavailable", f"{health.name} is not measured: {words}", at, health)
        elif before is not None and not before.available:
            self._tell("collector.up", f"{health.name} can be measured now", at, health)
        if support.available and support.off:
            missing = ", ".join(support.off)
            self._tell(
                "collector.partial", f"{health.name}: not here: {missing}" + (words and f" ({words})"), at, health
            )

    def _say_change(self, at: float, health: Health) -> None:
        bad = self._bad_ticks.get(health.name, 0)
        if health.up:
            if bad >= DOWN_AFTER_TICKS:
                self._tell("collector.up", f"{health.name} is measured again", at, health)
            self._bad_ticks[health.name] = 0
            return
        self._bad_ticks[health.name] = bad + 1
        if bad + 1 == DOWN_AFTER_TICKS:
            text = f"{health.name} is not measured: {health.reason}"
            self._tell("collector.down", text, at, health, Severity.WARNING)

    def _tell(self, kind: str, text: str, at: float, health: Health, severity: Severity = Severity.INFO) -> None:
        self._emit(event(kind, text, at=at, severity=severity, collector=health.name, reason=health.reason))


class _Woke(Enum):
    """Why a lane's sleep ended."""

    DUE = "due"
    POKED = "poked"
    EARLY = "early"
    STOP = "stop"


class _Lane:
    """One collector and its thread."""

    def __init__(
        self,
        collector: Collector,
        sampler: JobSampler | None,
        handle: Callable[[Batch, bool], None],
        clock: Clock,
        settings: Settings,
        chosen: Callable[[], dict[str, float]],
    ) -> None:
        self.name = collector.name
        self._collector = collector
        self._sampler = sampler
        self._handle = handle
        self._clock = clock
        self._retry_s = settings.retry_s
        self._interval_s = collector.interval_s or settings.interval_s
        self._chosen = chosen
        self._changed = threading.Condition()
        self._flags: set[_Woke] = set()
        self._busy_since: float | None = None
        self._support: Support | None = None
        self._up: bool | None = None
        self._seconds = 0.0
        self._reason = ""

    def run(self, began: float) -> None:
        """The body of the thread: the first pass at once, then on the grid."""
        looked_at, wait = float("-inf"), 0.0
        while True:
            if self._support is None or not self._support.available:
                if not self._ask_support() and self._sleep(self._retry_s) is _Woke.STOP:
                    return
                wait = 0.0
                continue
            chosen = self._chosen() if self._sampler is not None else {}
            early = looked_at + min(chosen.values()) - time.monotonic() if chosen else math.inf
            if early > wait - _ROOM_S:
                early = math.inf
            woke = self._sleep(min(wait, early))
            if woke is _Woke.STOP:
                return
            if woke is not _Woke.EARLY:
                looked_at = time.monotonic()
                if early < wait and woke is _Woke.DUE and self._sampler is not None:
                    self._pass(partial(self._sampler.collect_only, jobs=frozenset(chosen)), whole=False)
                else:
                    self._pass(self._collector.collect, whole=True)
            wait = _until_tick(began, self._interval_s)

    def stop(self) -> None:
        """End the thread after the pass under way."""
        self._flag(_Woke.STOP)

    def poke(self) -> None:
        """Make a whole pass now."""
        self._flag(_Woke.POKED)

    def wake(self) -> None:
        """Think again about when the next pass is due."""
        self._flag(_Woke.EARLY)

    def _flag(self, flag: _Woke) -> None:
        with self._changed:
            self._flags.add(flag)
            self._changed.notify_all()

    def health(self) -> Health:
        """How it does, also while a pass hangs."""
        with self._changed:
            busy = None if self._busy_since is None else time.monotonic() - self._busy_since
            if busy is not None and busy > self._interval_s:
                return Health(self.name, self._support, False, busy, f"it has not come back for {busy:.1f} s")
            return Health(self.name, self._support, self._up, self._seconds, self._reason)

    def _sleep(self, seconds: float) -> _Woke:
        until = time.monotonic() + seconds
        with self._changed:
            while True:
                left = until - time.monotonic()
                for flag in (_Woke.STOP, _Woke.POKED, _Woke.EARLY):
                    if flag in self._flags:
                        if flag is not _Woke.STOP:
                            self._flags.discard(flag)
                        return flag
                if left <= 0:
                    return _Woke.DUE
                self._changed.wait(left)

    def _ask_support(self) -> bool:
        self._mark_busy()
        try:
            support = self._collector.supported()
        except Exception as fault:
            support = Support(available=False, reason=_words(fault))
        self._settle(support=support, up=None)
        return support.available

    def _pass(self, collect: Callable[[float], Sequence[Batch]], *, whole: bool) -> None:
        self._mark_busy()
        try:
            for batch in collect(self._clock.now()):
                self._handle(batch, whole)
        except Unavailable as why:
            self._settle(support=Support(available=False, reason=why.message, hint=why.hint or ""), up=None)
        except Exception as fault:
            self._settle(up=False, reason=_words(fault))
        else:
            self._settle(up=True)

    def _mark_busy(self) -> None:
        with self._changed:
            self._busy_since = time.monotonic()

    def _settle(self, *, up: bool | None, reason: str = "", support: Support | None = None) -> None:
        with self._changed:
            assert self._busy_since is not None
            self._seconds = time.monotonic() - self._busy_since
            self._busy_since = None
            self._up = up
            self._reason = reason
            self._support = support or self._support


def _until_tick(began: float, interval_s: float) -> float:
    """Seconds to the next tick of a grid that began at `began` (monotonic); missed ticks are not made up for."""
    return interval_s - (time.monotonic() - began) % interval_s


def _words(fault: Exception) -> str:
    return fault.message if isinstance(fault, SentinelError) else f"{type(fault).__name__}: {fault}"
