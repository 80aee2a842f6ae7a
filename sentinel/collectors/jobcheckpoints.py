"""Looking at the places where jobs write their checkpoints."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sentinel.checkpoints.outside import free_space
from sentinel.checkpoints.wakeups import Wakeups
from sentinel.checkpoints.watch import Watcher
from sentinel.collectors.joblogs import Count
from sentinel.model.checkpoints import Checkpoint, CheckpointState
from sentinel.model.families import CHECKPOINT, CHECKPOINTS
from sentinel.model.jobs import Job
from sentinel.model.series import Batch, Entity, Support

PATIENCE_S = 0.5
"""A look that takes longer goes on by itself; what is known so far is reported meanwhile."""
_APART_S = 0.1
_SAME_AGAIN_S = 10.0
"""One and the same file written again within so long is counted, but not told again: an agent saves at every turn."""
_MOST_TOLD = 256
Tell = Callable[[Job, Checkpoint], None]
Row = tuple[float | None, ...]


class JobCheckpoints:
    """One row per job that declares a checkpoint directory.

    Only whole checkpoints count: one that is still being written is neither
    fresh nor broken. A job without any is covered but has no value for the
    last one, so a rule sees it with ``absent()``.

    Each job is looked at in a thread of its own, so that a mount that hangs
    blinds nobody else; where the kernel tells that something came, it looks at
    once.

    Args:
        targets: The living jobs.
        count: Moves checkpoints_total.
        tell: Called in a thread of ours with each checkpoint that became whole or broken
            since the job was first looked at.
        clock: Unix seconds, on the clock that stamps files.
    """

    name = "checkpoints"
    families = (CHECKPOINT,)
    interval_s: float | None = 1.0

    def __init__(
        self,
        targets: Callable[[], Sequence[Job]],
        count: Count,
        tell: Tell,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._targets = targets
        self._count = count
        self._tell = tell
        self._clock = clock
        self._wakeups = Wakeups()
        self._lookers: dict[str, _Looker] = {}
        self._told: dict[str, _Told] = {}
        self._telling = threading.Lock()
        self._last_told: dict[tuple[str, str, CheckpointState], float] = {}
        self._covered: set[Entity] = set()

    def supported(self) -> Support:
        """Needs only a file system."""
        return Support()

    def newest(self, job_id: str) -> Checkpoint | None:
        """The newest whole checkpoint of a job, as of the last look. Safe from any thread."""
        found = self._lookers.get(job_id) or self._told.get(job_id)
        return found.newest if found is not None else None

    def collect(self, at: float) -> Sequence[Batch]:
        """Look at every job's places once; no longer than half a second."""
        values: dict[Entity, Row] = {(name,): row for name, row in self.look().items()}
        values.update({(told.name,): told.row for told in list(self._told.values())})
        covers = self._covered | set(values)
        self._covered = set(values)
        return (CHECKPOINT.batch(at, values, covers),) if covers else ()

    def look(self) -> dict[str, Row]:
        """The same, as rows by the jobs' names: values of the family `checkpoint` in its order."""
        jobs = [job for job in self._targets() if job.spec.checkpoints]
        for gone in self._lookers.keys() - {job.id for job in jobs}:
            self._lookers.pop(gone).stop()
        for job in jobs:
            self._looker(job).ask()
        until = time.monotonic() + PATIENCE_S
        rows = {job.name: self._lookers[job.id].row(until - time.monotonic()) for job in jobs}
        return {name: row for name, row in rows.items() if row is not None}

    def take(self, job: Job, row: Row, newest: Checkpoint | None, found: Sequence[Checkpoint]) -> None:
        """What its owner's hand has seen of a job that is not ours to look at."""
        if job.id not in self._told:
            self._declare(job)
        self._told[job.id] = _Told(job.name, row, newest)
        for checkpoint in found:
            self._found(job, checkpoint)

    def forget(self, job_id: str) -> None:
        """Such a job is over."""
        self._told.pop(job_id, None)

    def _declare(self, job: Job) -> None:
        for state in (CheckpointState.COMPLETE, CheckpointState.BROKEN):
            self._count.declare(CHECKPOINTS, (job.name, state.value))

    def _looker(self, job: Job) -> _Looker:
        looker = self._lookers.get(job.id)
        if looker is None:
            self._declare(job)
            looker = self._lookers[job.id] = _Looker(job, self._found, self._clock, self._wakeups)
        return looker

    def _found(self, job: Job, checkpoint: Checkpoint) -> None:
        self._count.inc(CHECKPOINTS, (job.name, checkpoint.state.value), "checkpoints_total")
        key = (job.id, checkpoint.path, checkpoint.state)
        with self._telling:
            again = 0 <= checkpoint.finished - self._last_told.get(key, float("-inf")) < _SAME_AGAIN_S
            if not again:
                self._last_told[key] = checkpoint.finished
            while len(self._last_told) > _MOST_TOLD:
                del self._last_told[next(iter(self._last_told))]
        if not again:
            self._tell(job, checkpoint)


@dataclass(frozen=True, slots=True)
class _Told:
    """What a hand has said of another user's job."""

    name: str
    row: Row
    newest: Checkpoint | None


class _Looker:
    """Looks at one job's places, in a thread that may hang without harm."""

    def __init__(self, job: Job, found: Tell, clock: Callable[[], float], wakeups: Wakeups) -> None:
        self._job = job
        self._found = found
        self._clock = clock
        self._watcher = Watcher(job.spec.checkpoints)
        self._arrived: list[str] = []
        self._ear = wakeups.listen(self._heard)
        self._changed = threading.Condition()
        self._asked, self._answered, self._stopped = 0, 0, False
        self._busy_since: float | None = None
        self._looked: Row | None = None
        self._took = 0.0
        self.newest: Checkpoint | None = None
        self._thread = threading.Thread(target=self._run, name=f"checkpoints {job.name}", daemon=True)
        self._thread.start()

    def ask(self) -> None:
        """Look soon, unless a look is under way."""
        with self._changed:
            if self._busy_since is None:
                self._asked += 1
                self._changed.notify_all()

    def row(self, patience_s: float) -> Row | None:
        """What is known once the look that was asked for is over, or after so long; None before the first."""
        with self._changed:
            wanted = self._asked
            self._changed.wait_for(lambda: self._answered >= wanted, max(0.0, patience_s))
            busy = self._busy_since
            if self._looked is None:
                return None if busy is None else (*(None,) * (len(CHECKPOINT.metrics) - 1), time.monotonic() - busy)
            return (*self._looked, self._took if busy is None else time.monotonic() - busy)

    def stop(self) -> None:
        """End after the look under way."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def _heard(self, path: str, renamed: bool) -> None:
        with self._changed:
            if renamed:
                self._arrived.append(path)
            self._asked += 1
            self._changed.notify_all()

    def _run(self) -> None:
        began = float("-inf")
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._stopped or self._asked > self._answered)
                # Many events in a row are one look.
                pause = began + _APART_S - time.monotonic()
                if not self._stopped and pause > 0:
                    self._changed.wait_for(lambda: self._stopped, pause)
                if self._stopped:
                    break
                asked, arrived, self._arrived = self._asked, self._arrived, []
                began = self._busy_since = time.monotonic()
            looked: Row | None = None
            try:
                looked = self._look(arrived)
            except OSError:
                looked = None
            finally:
                with self._changed:
                    self._looked = looked if looked is not None else self._looked
                    self._took = time.monotonic() - began
                    self._answered, self._busy_since = asked, None
                    self._changed.notify_all()
        self._ear.close()

    def _look(self, arrived: Sequence[str]) -> Row:
        watcher, job = self._watcher, self._job
        for path in arrived:
            watcher.arrived(path)
        first = self._looked is None
        news = watcher.poll(self._clock())
        newest = self.newest = watcher.newest()
        for checkpoint in () if first else news:  # what was there at the first look was not made in this job's time
            self._found(job, checkpoint)
        self._ear.attend(watcher.directories())
        places = job.spec.checkpoints
        targets = [place.interval_s for place in places if place.interval_s is not None]
        space = free_space(place.path for place in places)
        return (
            newest.finished if newest else None,
            newest.size_bytes if newest else None,
            newest.step if newest else None,
            newest.write_seconds if newest else None,
            min(targets) if targets else None,
            space[0] if space else None,
            space[1] if space else None,
            newest.size_bytes if newest else job.spec.checkpoint_size_bytes,
            watcher.kept(),
        )
