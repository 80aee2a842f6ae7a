"""What the daemon saw of an attempt: the evidence by which its end is judged and its worth is told."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sentinel.clock import Clock
from sentinel.jobs.bill import Kept
from sentinel.jobs.failures import Evidence
from sentinel.model.checkpoints import Checkpoint
from sentinel.model.jobs import Job
from sentinel.model.labels import METRIC_NAME
from sentinel.model.logs import LogEvent
from sentinel.model.requests import Answer, Request, RequestKind
from sentinel.promql.series import Block, Match, Matcher
from sentinel.store.window import Window

_CLOSE_BYTES = 512 * 1024 * 1024
"""What a board may hold more than before the job: contexts and caches of others move a little."""
_SLACK_S = 1.0


class Witness:
    """Remembers what belongs to which attempt. Belongs to the event loop.

    Args:
        window: What was measured lately.
        events: The last log events of a job by its id, of all its attempts.
        oom_kills: Kernel kills in a job's cgroup during its time.
        newest: The newest whole checkpoint of a job by its id.
        requests: What was asked of a job.
        clock: The time.
    """

    def __init__(
        self,
        window: Window,
        *,
        events: Callable[[str], Sequence[LogEvent]],
        oom_kills: Callable[[str], float | None],
        newest: Callable[[str], Checkpoint | None],
        requests: Callable[[str], Sequence[Request]],
        clock: Clock,
    ) -> None:
        self._window = window
        self._events = events
        self._oom_kills = oom_kills
        self._newest = newest
        self._requests = requests
        self._clock = clock
        self._earlier: dict[str, tuple[Sequence[LogEvent], float]] = {}
        self._checkpoints: dict[str, list[float]] = {}
        self._steps: dict[str, float] = {}
        self._levels: dict[str, dict[str, float]] = {}

    def registered(self, job: Job) -> None:
        """A job is about to start: what its boards hold now is not its own."""
        used = self._latest("gpu_memory_used_bytes", self._clock.now() - 30.0)
        self._levels[job.id] = {uuid: value for uuid, (value, _) in used.items()}

    def attempt_started(self, job: Job) -> None:
        """What was said and killed before this moment belongs to earlier attempts."""
        self._earlier[job.id] = list(self._events(job.id)), self._oom_kills(job.id) or 0.0

    def saw(self, job: Job, found: Checkpoint) -> None:
        """A whole checkpoint of a job."""
        moments = self._checkpoints.setdefault(job.id, [])
        if found.finished not in moments:
            self._checkpoints[job.id] = sorted([*moments, found.finished])[-2:]

    def forget(self, job: Job) -> None:
        """The job is over."""
        for book in (self._earlier, self._checkpoints, self._steps, self._levels):
            book.pop(job.id, None)

    def evidence(self, job: Job) -> Evidence:
        """Of the attempt that has just ended."""
        said, killed = self._earlier.get(job.id, ((), 0.0))
        events = [one for one in self._events(job.id) if not any(one is before for before in said)]
        kills = self._oom_kills(job.id)
        return Evidence(
            events,
            None if kills is None else max(0.0, kills - killed),
            kept=self.kept(job),
            gpus=len(self._boards(job)),
        )

    def kept(self, job: Job) -> Kept:
        """The whole checkpoints of a job, and whether sentinel had asked for the newest."""
        if (found := self._newest(job.id)) is not None:
            self.saw(job, found)
        moments = self._checkpoints.get(job.id, [])
        if not moments:
            return Kept()
        before = moments[-2] if len(moments) > 1 else None
        asked = any(
            request.kind is RequestKind.CHECKPOINT
            and request.answer is Answer.DONE
            and request.sent is not None
            and (before or 0.0) < request.sent <= moments[-1] + _SLACK_S
            for request in self._requests(job.id)
        )
        return Kept(moments[-1], before, asked)

    def progressed(self, job: Job) -> bool:
        """Whether the attempt got further than those before it: a newer checkpoint, a higher step."""
        started = job.attempt_started or job.created
        step = self._window.latest("job_step", job=job.name)
        higher = step is not None and step > self._steps.get(job.id, float("-inf"))
        known = job.id in self._steps
        if step is not None and higher:
            self._steps[job.id] = step
        newest = self.kept(job).newest
        return (higher and (known or job.attempt == 1)) or (newest is not None and newest >= started)

    def room(self, job: Job) -> str:
        """Why the boards that the job ran on are not free yet; "" where they are, or nobody can see."""
        ended = job.past[-1].ended if job.past else job.since
        boards = self._boards(job)
        if not boards:
            return ""
        used, orphans = self._latest("gpu_memory_used_bytes", ended), self._latest("gpu_orphan_memory_bytes", ended)
        held = self._latest("job_gpu_memory_bytes", ended, job=job.name)
        others = self._latest("job_gpu_memory_bytes", ended)
        known = self._latest("gpu_memory_used_bytes", ended - 60.0)
        for uuid in sorted(boards & known.keys()):
            if uuid not in used:
                return f"{uuid} has not been measured since the attempt ended"
            mine = held.get(uuid, (0.0, 0.0))[0]
            if mine > 0:
                return f"processes of the job still hold {mine / 2**30:.1f} GiB of {uuid}"
            if uuid in orphans:
                if orphans[uuid][0] > _CLOSE_BYTES:
                    return f"{uuid} still holds {orphans[uuid][0] / 2**30:.1f} GiB for which no process accounts"
            elif uuid not in others and used[uuid][0] > self._levels.get(job.id, {}).get(uuid, 0.0) + _CLOSE_BYTES:
                return f"{uuid} still holds {used[uuid][0] / 2**30:.1f} GiB, more than before the job"
        return ""

    def _boards(self, job: Job) -> set[str]:
        """The boards on which the job was seen in its last attempt."""
        since = job.attempt_started or job.created
        return {
            labels.get("uuid", "")
            for block in self._select("job_gpu_memory_bytes", since, self._clock.now(), job=job.name)
            for labels, present, values in zip(block.labels, block.present, block.values, strict=True)
            if present.any() and (values[present] > 0).any()
        }

    def _latest(self, metric: str, since: float, **labels: str) -> dict[str, tuple[float, float]]:
        """The newest value and its time, by board, of what was measured since then and has not ended."""
        found: dict[str, tuple[float, float]] = {}
        for block in self._select(metric, since, self._clock.now(), **labels):
            for series, present, stale, values in zip(
                block.labels, block.present, block.stale, block.values, strict=True
            ):
                moments = present.nonzero()[0]
                gone = stale.nonzero()[0]
                if moments.size and not (gone.size and gone[-1] > moments[-1]):
                    last = moments[-1]
                    uuid = series.get("uuid", "")
                    value = found.get(uuid, (0.0, 0.0))[0] + float(values[last])
                    found[uuid] = value, float(block.times[last])
        return found

    def _select(self, metric: str, start: float, end: float, **labels: str) -> Sequence[Block]:
        pairs = {METRIC_NAME: metric, **labels}
        return list(
            self._window.select(tuple(Matcher(name, Match.EQUAL, value) for name, value in pairs.items()), start, end)
        )
