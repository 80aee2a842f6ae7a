"""Reading what jobs write: counting, classifying, remembering where reading stopped."""

from __future__ import annotations

import json
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from sentinel.logs.classify import Classifier
from sentinel.logs.progress import NAN_STEPS, Seen, look
from sentinel.logs.tail import Lines, Position, Tailer
from sentinel.model.families import LOG, LOG_VOLUME
from sentinel.model.jobs import Job
from sentinel.model.logs import LogEvent, LogKind
from sentinel.model.series import Entity, Family
from sentinel.model.wire import WireError, decode, encode

REMEMBERED = 50
MOST_TOLD = 200
"""Jobs of other users whose last events are remembered, as many as the register remembers."""
LOOK_FOR_FILES_S = 3.0
SAVE_S = 2.0


class Count(Protocol):
    """Where counters move."""

    def declare(self, family: Family, entity: Entity) -> None:
        """A counter begins at 0, at once."""
        ...

    def inc(self, family: Family, entity: Entity, metric: str, by: float = 1) -> None:
        """It moves."""
        ...


@dataclass(slots=True)
class _Told:
    last: deque[LogEvent]
    output_at: float | None = None


@dataclass(slots=True)
class _Reading:
    job: Job
    tailer: Tailer
    last: deque[LogEvent]
    looked: float = 0.0
    output_at: float | None = None
    paths: tuple[str, ...] = field(default=())
    seen: Seen = field(default_factory=Seen)
    progress_at: float | None = None


class JobLogs:
    """Follows the output and the logs of every living job, in a thread of its own.

    Args:
        targets: The living jobs.
        classifier: What lines mean. One for all jobs: it keeps its state by path.
        count: Moves log_events_total, log_lines_total, log_bytes_total.
        tell: Called in this thread with each batch of events of a job.
        state: Where positions are kept over a restart.
        clock: Unix seconds.
    """

    def __init__(
        self,
        targets: Callable[[], Sequence[Job]],
        classifier: Classifier,
        count: Count,
        tell: Callable[[Job, list[LogEvent]], None],
        state: Path,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._targets = targets
        self._classifier = classifier
        self._count = count
        self._tell = tell
        self._state = state
        self._clock = clock
        self._readings: dict[str, _Reading] = {}
        self._ended: dict[str, deque[LogEvent]] = {}
        self._told: dict[str, _Told] = {}
        self._lock = threading.Lock()
        self._saved_at = 0.0
        self._dirty = False
        self._kept = _load(state)

    def look(self) -> None:
        """Read what has come. Never raises: a file that cannot be read is passed over."""
        self._classifier.prepare()  # before the first job needs it, and before anybody waits for the lock
        with self._lock:
            living = {job.id: job for job in self._targets()}
            for job in living.values():
                self._read(job)
            for gone in self._readings.keys() - living.keys():
                self._close(gone)
            if self._dirty and self._clock() - self._saved_at >= SAVE_S:
                self._save()

    def drain(self, job: Job) -> list[LogEvent]:
        """Read a job's output to its end; the last events it brought, oldest first."""
        with self._lock:
            if job.id not in self._readings and job.id in self._ended:
                return list(self._ended[job.id])
            self._read(job, look_again=True)
            reading = self._readings[job.id]
            for path in reading.paths:
                self._heed(reading, self._classifier.forget(path))
            return list(reading.last)

    def take(
        self, job: Job, events: list[LogEvent], *, lines: int = 0, size_bytes: int = 0, output_at: float | None = None
    ) -> None:
        """What its owner's hand has read of a job that is not ours to read."""
        known = self._told_of(job)
        known.output_at = output_at if output_at is not None else known.output_at
        if lines or size_bytes:
            self._count.inc(LOG_VOLUME, (job.name,), "log_lines_total", lines)
            self._count.inc(LOG_VOLUME, (job.name,), "log_bytes_total", size_bytes)
        self._account(job, known.last, events)

    def recall(self, job: Job, events: list[LogEvent]) -> None:
        """What its owner's hand had said of it before we were there: told and counted then, but still evidence."""
        known = self._told_of(job)
        if not known.last:
            known.last.extend(events)

    def last_output(self, job_id: str) -> float | None:
        """When its output last grew (Unix seconds)."""
        found = self._readings.get(job_id) or self._told.get(job_id)
        return found.output_at if found else None

    def progress(self, job_id: str) -> tuple[int | None, float | None]:
        """The step that its log last told, and when that last moved (Unix seconds)."""
        found = self._readings.get(job_id)
        return (found.seen.step, found.progress_at) if found else (None, None)

    def last_events(self, job_id: str) -> list[LogEvent]:
        """The last events of a job, oldest first."""
        found = self._readings.get(job_id) or self._told.get(job_id)
        return list(found.last if found else self._ended.get(job_id, ()))

    def close(self) -> None:
        """Remember where reading stopped, and stop."""
        with self._lock:
            self._save()
            for reading in self._readings.values():
                reading.tailer.close()

    def _read(self, job: Job, *, look_again: bool = False) -> None:
        reading = self._readings.get(job.id)
        paths = tuple(dict.fromkeys((*job.output, *job.spec.logs)))
        if reading is None or reading.paths != paths:
            reading = self._begin(job, paths, reading)
        reading.job = job
        now = self._clock()
        if look_again or now - reading.looked >= LOOK_FOR_FILES_S or now < reading.looked:
            reading.looked = now
            reading.tailer.look_for_files()
        came = False
        for chunk in reading.tailer.read():
            self._take(reading, chunk, now)
            came = True
        for line in reading.tailer.open_lines() if came else ():
            self._progress(reading, line, now)

    def _progress(self, reading: _Reading, data: bytes, now: float) -> None:
        before, reading.seen = reading.seen, look(data, reading.seen)
        if reading.seen.step != before.step:
            reading.progress_at = now
        if reading.seen.nan_steps >= NAN_STEPS > before.nan_steps:
            words = f"the loss was not a number in {reading.seen.nan_steps} logged steps in a row"
            at_step = {} if reading.seen.step is None else {"step": reading.seen.step}
            found = LogEvent(LogKind.NUMERIC_ANOMALY, words, 0, False, "", at_step, "loss-stays-nan", count=0)
            self._heed(reading, [found])

    def _begin(self, job: Job, paths: tuple[str, ...], before: _Reading | None) -> _Reading:
        positions = {**self._kept.pop(job.id, {}), **(before.tailer.positions() if before else {})}
        if before is None:
            self._declare(job)
        else:
            before.tailer.close()
        # An adopted process has written before anybody looked: those lines are the past. Output of ours is read whole.
        own = Tailer(paths, positions, from_end=job.adopted and not positions)
        reading = _Reading(job, own, before.last if before else deque(maxlen=REMEMBERED), paths=paths)
        reading.output_at = before.output_at if before else None
        if before is not None:
            reading.seen, reading.progress_at = before.seen, before.progress_at
        self._readings[job.id] = reading
        return reading

    def _take(self, reading: _Reading, chunk: Lines, now: float) -> None:
        self._dirty = True
        reading.output_at = now
        entity = (reading.job.name,)
        self._count.inc(LOG_VOLUME, entity, "log_lines_total", chunk.count)
        self._count.inc(LOG_VOLUME, entity, "log_bytes_total", chunk.size_bytes)
        if chunk.count:
            self._heed(reading, self._classifier.feed(chunk))
            self._progress(reading, chunk.data, now)

    def _heed(self, reading: _Reading, events: list[LogEvent]) -> None:
        self._account(reading.job, reading.last, events)

    def _account(self, job: Job, last: deque[LogEvent], events: list[LogEvent]) -> None:
        if not events:
            return
        for event in events:
            self._count.inc(LOG, (job.name, event.kind.value), "log_events_total", event.count)
        last.extend(events)
        self._tell(job, events)

    def _declare(self, job: Job) -> None:
        for kind in LogKind:
            self._count.declare(LOG, (job.name, kind.value))
        self._count.declare(LOG_VOLUME, (job.name,))

    def _told_of(self, job: Job) -> _Told:
        known = self._told.get(job.id)
        if known is None:
            self._declare(job)
            known = self._told[job.id] = _Told(deque(maxlen=REMEMBERED))
            while len(self._told) > MOST_TOLD:
                del self._told[next(iter(self._told))]
        return known

    def _close(self, job_id: str) -> None:
        reading = self._readings.pop(job_id)
        for chunk in reading.tailer.read():
            self._take(reading, chunk, self._clock())
        reading.tailer.close()
        self._ended[job_id] = reading.last
        while len(self._ended) > REMEMBERED:
            del self._ended[next(iter(self._ended))]
        self._dirty = True

    def _save(self) -> None:
        found = {job_id: reading.tailer.positions() for job_id, reading in self._readings.items()}
        text = json.dumps(encode({**self._kept, **found}))
        temporary = self._state.with_suffix(".tmp")
        try:
            temporary.write_text(text, encoding="utf-8")
            os.replace(temporary, self._state)
        except OSError:
            return  # a full disk: the worst is that some lines are read again after a restart
        self._saved_at, self._dirty = self._clock(), False


def _load(state: Path) -> dict[str, dict[str, Position]]:
    try:
        data = json.loads(state.read_text(encoding="utf-8"))
        return {
            job_id: {path: decode(Position, position) for path, position in files.items()}
            for job_id, files in data.items()
        }
    except (OSError, ValueError, AttributeError, WireError):
        return {}
