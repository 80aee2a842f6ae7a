"""Requests as events: one line for people, the particulars for programs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from sentinel.actions.hooks import HookRun
from sentinel.model.checkpoints import Checkpoint
from sentinel.model.events import Event, Severity, event
from sentinel.model.requests import Answer, Effect, Request, RequestKind, RequestState
from sentinel.units import format_bytes

_WISH = {
    RequestKind.CHECKPOINT: "to checkpoint",
    RequestKind.DEGRADE: "to go down to level {level}",
    RequestKind.RESTORE: "to go back up to level {level}",
    RequestKind.PAUSE: "to pause",
    RequestKind.RESUME: "to resume",
    RequestKind.STOP: "to stop",
    RequestKind.RESTART: "to restart",
    RequestKind.DUMP: "for its stacks",
}
_BAD = frozenset({Answer.REFUSED, Answer.FAILED, Answer.EXPIRED, Answer.UNKNOWN})


def wish(request: Request) -> str:
    """What was asked, in words that follow "asked llama"."""
    return _WISH[request.kind].format(level=request.level)


def appeared(found: Checkpoint, asked: float) -> str:
    """The checkpoint that answers a request: its step, its size, and how long after the asking it was whole."""
    parts = [
        f"step {found.step}" if found.step is not None else "",
        format_bytes(found.size_bytes),
        f"written in {found.write_seconds:.3g} s" if found.write_seconds is not None else "",
        f"whole {max(0.0, found.finished - asked):.1f} s after it was asked for",
    ]
    name = os.path.basename(found.path.rstrip("/"))
    return f"checkpoint {name} appeared: {', '.join(part for part in parts if part)}"


def events(before: Request | None, after: Request, *, at: float, uid: int | None) -> Iterator[Event]:
    """The events that lie between two moments of one request, in order."""
    if after.sent is not None and (before is None or before.sent is None):
        via = f" by {after.via}" if after.via else ""
        yield _event("request.sent", f"asked {after.job} {wish(after)}{via}: {after.reason}", after, at, uid)
    if after.acknowledged is not None and (before is None or before.acknowledged is None):
        yield _event("request.acknowledged", f"{after.job} was reached: {_what(after)}", after, at, uid)
    if after.state is RequestState.CLOSED and (
        before is None or before.state is not RequestState.CLOSED or before.answer is not after.answer
    ):
        yield _event("request.closed", closing(after), after, at, uid)
    elif before is not None and before.effect is not after.effect and after.effect is not None:
        seen = "was seen to work" if after.effect is Effect.OBSERVED else "was not seen to change anything"
        yield _event("request.effect", f"{after.kind.value} of {after.job} {seen}: {after.detail}", after, at, uid)


def closing(request: Request) -> str:
    """How it ended, in one line."""
    answer = request.answer.value if request.answer else "open"
    if request.answer is Answer.SUPPRESSED:
        return f"did not ask {request.job} {wish(request)}: {request.words}"
    effect = " and seen" if request.effect is Effect.OBSERVED else ""
    return f"{request.kind.value} of {request.job}: {answer}{effect}" + (
        f" ({request.words})" if request.detail else ""
    )


def hook_event(hook: HookRun, *, at: float) -> Event:
    """How a hook began or ended."""
    program = hook.argv[0]
    data: dict[str, Any] = {
        "hook": hook.id,
        "rule": hook.rule,
        "alert": hook.alert,
        "argv": list(hook.argv),
        "code": hook.code,
    }
    if hook.closed is None:
        return event("hook.started", f"started {program} for {hook.rule}", at=at, job=hook.job, **data)
    how = f"exit {hook.code}" if hook.code is not None else "no exit code"
    return event(
        "hook.ended",
        f"{program} for {hook.rule} ended: {how}" + (f": {hook.detail}" if hook.detail else ""),
        at=at,
        job=hook.job,
        severity=Severity.INFO if hook.code == 0 else Severity.WARNING,
        detail=hook.detail,
        **data,
    )


def _what(request: Request) -> str:
    return f"{request.kind.value}" + (f" ({request.detail})" if request.detail else "")


def _event(kind: str, message: str, request: Request, at: float, uid: int | None) -> Event:
    bad = kind == "request.closed" and request.answer in _BAD
    return event(
        kind,
        message + (" [not journalled]" if request.unjournalled else ""),
        at=at,
        job=request.job,
        severity=Severity.WARNING if bad else Severity.INFO,
        uid=uid,
        id=request.id,
        job_id=request.job_id,
        request=request.kind.value,
        level=request.level,
        state=request.state.value,
        answer=request.answer.value if request.answer else None,
        effect=request.effect.value if request.effect else None,
        alert=request.alert,
        by=request.by,
        via=request.via,
        reason=request.reason,
        detail=request.detail,
        unjournalled=request.unjournalled,
    )
