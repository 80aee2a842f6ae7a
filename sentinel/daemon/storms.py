"""Log events on their way to people: the first at once, a storm as one event with a count."""

from __future__ import annotations

from dataclasses import dataclass

from sentinel.model.events import Event, Severity, event
from sentinel.model.jobs import Job
from sentinel.model.logs import LogEvent, LogKind

QUIET_S = 10.0
"""Between two events of one kind about one job."""


@dataclass(slots=True)
class _Gathered:
    job: Job
    told_at: float
    count: int = 0
    first: float = 0.0
    last: LogEvent | None = None


class LogStorms:
    """Gathers what the logs say. The counters stay exact whatever is gathered here."""

    def __init__(self) -> None:
        self._gathered: dict[tuple[str, LogKind], _Gathered] = {}

    def take(self, job: Job, events: list[LogEvent], at: float) -> list[Event]:
        """Log events of one job; what to publish now."""
        said: list[Event] = []
        for found in events:
            key = (job.id, found.kind)
            known = self._gathered.get(key)
            if known is None or (not known.count and at - known.told_at >= QUIET_S):
                self._gathered[key] = _Gathered(job, at)
                said.append(_event(job, found, found.count, at, at))
                continue
            known.first = known.first if known.count else at
            known.count += found.count
            known.last = found
        return said

    def due(self, at: float) -> list[Event]:
        """What was gathered and has waited long enough."""
        said: list[Event] = []
        for key, known in list(self._gathered.items()):
            if at - known.told_at < QUIET_S:
                continue
            if known.last is None:
                del self._gathered[key]
                continue
            said.append(_event(known.job, known.last, known.count, known.first, at))
            self._gathered[key] = _Gathered(known.job, at)
        return said


def _event(job: Job, found: LogEvent, count: int, first: float, at: float) -> Event:
    mild = found.kind is LogKind.CHECKPOINT_SAVED
    times = f" ({count} times)" if count > 1 else ""
    return event(
        f"log.{found.kind.value}",
        f"{job.name}{times}: {found.line}",
        at=at,
        job=job.name,
        severity=Severity.INFO if mild else Severity.WARNING,
        uid=job.uid,
        count=count,
        first=first,
        last=at,
        line=found.line,
        line_number=found.line_number,
        retryable=found.retryable,
        framework=found.framework,
        pattern=found.pattern,
        fields=dict(found.fields),
        context=list(found.context),
    )
