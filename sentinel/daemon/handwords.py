"""What a hand says is text from a job: bounded, cleaned and masked before anything is made of it. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from sentinel.daemon.handwire import Look
from sentinel.logs.masking import clean, mask
from sentinel.model.checkpoints import Checkpoint, CheckpointState
from sentinel.model.families import CHECKPOINT
from sentinel.model.logs import LogEvent
from sentinel.model.requests import Delivery
from sentinel.notify.ports import Receipt

_MOST = 200
_MOST_COUNTED = 10**12
_SHORT, _LINE, _CONTEXT = 200, 4096, 512
_CONTEXT_LINES, _FIELDS = 20, 30
_LONGEST_WISH_S = 7 * 86400.0


def count(value: int) -> int:
    """A number that may only grow a counter, within reason."""
    return min(max(0, value), _MOST_COUNTED)


def moment(value: float | None, now: float) -> float | None:
    """A time that is not in the future (Unix seconds)."""
    return None if value is None or not 0 <= value < float("inf") else min(value, now)


def events(said: Sequence[LogEvent]) -> list[LogEvent]:
    """Log events."""
    return [_event(found) for found in list(said)[-_MOST:]]


@dataclass(frozen=True, slots=True)
class Looked:
    """A look, checked."""

    row: Mapping[str, float]
    newest: Checkpoint | None
    found: tuple[Checkpoint, ...]


def look(said: Look, now: float) -> Looked:
    """What there is in the checkpoint directories."""
    known = {metric.name for metric in CHECKPOINT.metrics}
    row = {
        name: float(value)
        for name, value in said.row.items()
        if name in known and isinstance(value, int | float) and not isinstance(value, bool) and value - value == 0
    }
    newest = _checkpoint(said.newest, now) if said.newest is not None else None
    if newest is not None and newest.state is not CheckpointState.COMPLETE:
        newest = None
    found = [_checkpoint(each, now) for each in said.found[-_MOST:]]
    return Looked(row, newest, tuple(each for each in found if each.state is not CheckpointState.WRITING))


def delivery(said: Delivery) -> Delivery:
    """What came of an errand. A hand signals nobody, so there are no pids."""
    return Delivery(said.outcome, clean(mask(said.detail)))


def receipt(said: Receipt) -> Receipt:
    """What came of a message."""
    wish = said.retry_after_s
    return replace(
        said,
        error=clean(mask(said.error), _LINE),
        retry_after_s=min(wish, _LONGEST_WISH_S) if wish is not None and wish >= 0 else None,
    )


def _event(found: LogEvent) -> LogEvent:
    values = list(found.fields.items())[:_FIELDS]
    return LogEvent(
        found.kind,
        clean(mask(found.line), _LINE),
        count(found.line_number),
        found.retryable,
        clean(found.framework, _SHORT),
        {clean(name, _SHORT): kept for name, value in values if (kept := _scalar(value)) is not None},
        clean(found.pattern, _SHORT),
        max(1, count(found.count)),
        tuple(clean(mask(line), _CONTEXT) for line in found.context[-_CONTEXT_LINES:]),
    )


def _scalar(value: object) -> object:
    if isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if value - value == 0 else None
    return clean(mask(value), _CONTEXT) if isinstance(value, str) else None


def _checkpoint(found: Checkpoint, now: float) -> Checkpoint:
    return replace(
        found,
        path=clean(found.path, _LINE),
        finished=moment(found.finished, now) or 0.0,
        size_bytes=count(found.size_bytes),
        format=clean(found.format, _SHORT),
        reason=clean(mask(found.reason), _LINE),
        contents=tuple(clean(name, _SHORT) for name in found.contents[:_FIELDS]),
        missing=tuple(clean(name, _SHORT) for name in found.missing[:_FIELDS]),
    )
