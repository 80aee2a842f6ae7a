"""The life of one request, as a pure function of what is seen.

    planned ──▶ sent ──▶ acknowledged ──▶ closed(answer)
       └──────────┴───────────┴──────────────▶

`effect` stands beside the answer: whether what was asked for could be seen to
happen. It may still be open (None) when the request is closed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from sentinel.model.jobs import How, Job
from sentinel.model.requests import Answer, Delivery, Effect, Outcome, Request, RequestKind, RequestState

CHECKPOINT_SLACK_S = 0.02
"""File times are as coarse as a tick of the kernel: a file written just after the request may seem older."""

EFFECT_GRACE_S = 120.0
"""How long after its deadline the effect of a degrade may still be seen: an alert takes a while to end."""


@dataclass(frozen=True, slots=True)
class HandedOver:
    """It leaves for the job now."""


@dataclass(frozen=True, slots=True)
class Delivered:
    """What the channel said right after the delivery."""

    delivery: Delivery
    one_way: bool = False  # nothing more than this can ever be heard (a signal, an acknowledged file)
    observable: bool = False  # its effect can be seen


@dataclass(frozen=True, slots=True)
class Answered:
    """What the job said by itself, later."""

    outcome: Outcome
    detail: str = ""
    observable: bool = False


@dataclass(frozen=True, slots=True)
class Happened:
    """What was asked for was seen to happen."""

    detail: str = ""


@dataclass(frozen=True, slots=True)
class TimePassed:
    """Nothing happened but time."""


@dataclass(frozen=True, slots=True)
class Ended:
    """The job, or the attempt that was asked, is over."""

    detail: str


@dataclass(frozen=True, slots=True)
class Restarted:
    """Sentinel was restarted, and nobody knows what happened in between."""


@dataclass(frozen=True, slots=True)
class Suppressed:
    """It will not be sent, for this reason: not now (suppressed), or it cannot be (refused)."""

    detail: str
    answer: Answer = Answer.SUPPRESSED


Seen = HandedOver | Delivered | Answered | Happened | TimePassed | Ended | Restarted | Suppressed


def step(request: Request, seen: Seen, at: float) -> Request:
    """Advance one request by one observation at time `at` (Unix seconds).

    Pure: the same request again where the observation changes nothing.
    """
    if not request.open:
        return _afterwards(request, seen, at)
    match request.state, seen:
        case RequestState.PLANNED, HandedOver():
            return replace(request, state=RequestState.SENT, sent=at)
        case _, Suppressed(detail, answer):
            return _close(request, answer, at, detail)
        case _, Delivered(delivery, one_way, observable):
            return _delivered(request, delivery, one_way=one_way, observable=observable, at=at)
        case _, Answered(outcome, detail, observable):
            return _heard(request, outcome, detail, observable=observable, at=at)
        case _, Happened(detail):
            known = _acknowledge(request, at)
            return _close(known, Answer.DONE, at, _join(request.detail, detail), Effect.OBSERVED)
        case RequestState.PLANNED, Restarted():
            return _close(request, Answer.UNKNOWN, at, "sentinel was restarted before it was sent")
        case RequestState.SENT, Restarted():
            return _close(request, Answer.UNKNOWN, at, "sentinel was restarted before the answer; not asked again")
        case RequestState.ACKNOWLEDGED, Restarted():
            return request  # its end can still be seen: a checkpoint, an answer, the deadline
        case _, Ended(detail):
            return _ended(request, detail, at)
        case _, TimePassed() if at >= request.deadline:
            return _expire(request, at)
    return request


def effect_open(request: Request) -> bool:
    """Whether a closed request still waits to see what came of it."""
    return request.answer is Answer.DONE and request.effect is None


def effect_until(request: Request) -> float:
    """When waiting for the effect ends (Unix seconds)."""
    grace = EFFECT_GRACE_S if request.kind is RequestKind.DEGRADE else 0.0
    return request.deadline + grace


def one_way(job: Job, request: Request) -> bool:
    """Whether nothing can be heard after the acknowledgement: the channel has no way back."""
    channel = job.spec.channel(request.kind)
    return channel is None or channel.how in {How.SIGNAL, How.FILE}


def observable(job: Job, request: Request) -> bool:
    """Whether the effect of this request on this job can be seen from outside."""
    match request.kind:
        case RequestKind.CHECKPOINT:
            return bool(job.spec.checkpoints)
        case RequestKind.DEGRADE:
            return request.alert is not None  # the alert ends
        case RequestKind.PAUSE | RequestKind.RESUME | RequestKind.STOP | RequestKind.RESTART:
            return True
    return False


def _delivered(request: Request, delivery: Delivery, *, one_way: bool, observable: bool, at: float) -> Request:
    if delivery.outcome is Outcome.ACKNOWLEDGED and one_way:
        known = replace(_acknowledge(request, at), detail=_join(request.detail, delivery.detail))
        if not observable:
            return _close(known, Answer.DONE, at, known.detail, Effect.NOT_OBSERVABLE)
        if request.kind is RequestKind.DEGRADE:
            return _close(known, Answer.DONE, at, known.detail)
        return known  # a checkpoint, a stop: done when seen
    return _heard(request, delivery.outcome, delivery.detail, observable=observable, at=at)


def _heard(request: Request, outcome: Outcome, detail: str, *, observable: bool, at: float) -> Request:
    said = _join(request.detail, detail)
    match outcome:
        case Outcome.SENT:
            return replace(request, detail=said)
        case Outcome.ACKNOWLEDGED:
            return replace(_acknowledge(request, at), detail=said)
        case Outcome.DONE:
            effect = None if observable else Effect.NOT_OBSERVABLE
            return _close(_acknowledge(request, at), Answer.DONE, at, said, effect)
        case Outcome.REFUSED:
            return _close(request, Answer.REFUSED, at, said)
        case Outcome.FAILED:
            return _close(request, Answer.FAILED, at, said)


def _expire(request: Request, at: float) -> Request:
    if request.state is RequestState.PLANNED:
        return _close(request, Answer.EXPIRED, at, _join(request.detail, "its time ran out before it was sent"))
    effect = Effect.NOT_OBSERVED if request.kind is RequestKind.CHECKPOINT else None
    what = "no checkpoint appeared in time" if effect else "no answer in time"
    return _close(request, Answer.EXPIRED, at, _join(request.detail, what), effect)


def _ended(request: Request, detail: str, at: float) -> Request:
    if request.kind in {RequestKind.STOP, RequestKind.RESTART} and request.state is not RequestState.PLANNED:
        return _close(_acknowledge(request, at), Answer.DONE, at, _join(request.detail, detail), Effect.OBSERVED)
    if request.state is RequestState.PLANNED:
        return _close(request, Answer.SUPPRESSED, at, _join(request.detail, detail))
    return _close(request, Answer.FAILED, at, _join(request.detail, detail))


def _afterwards(request: Request, seen: Seen, at: float) -> Request:
    """A closed request hears only what makes it truer."""
    late = request.answer in {Answer.UNKNOWN, Answer.EXPIRED} and request.sent is not None
    match seen:
        case Happened(detail) if effect_open(request):
            return replace(request, effect=Effect.OBSERVED, detail=_join(request.detail, detail))
        case Happened(detail) if late:
            known = _acknowledge(replace(request, state=RequestState.SENT, closed=None), at)
            return _close(known, Answer.DONE, at, _join(request.detail, f"late: {detail}"), Effect.OBSERVED)
        case Answered(Outcome.ACKNOWLEDGED, _, _) if late and request.acknowledged is None:
            return replace(request, acknowledged=at, detail=_join(request.detail, "acknowledged late"))
        case Answered(Outcome.DONE | Outcome.REFUSED | Outcome.FAILED as outcome, detail, observable) if late:
            reopened = replace(request, state=RequestState.SENT, closed=None, answer=None)
            return _heard(reopened, outcome, _join("answered late", detail), observable=observable, at=at)
        case TimePassed() if effect_open(request) and at >= effect_until(request):
            return replace(request, effect=Effect.NOT_OBSERVED)
    return request


def _acknowledge(request: Request, at: float) -> Request:
    if request.acknowledged is not None:
        return request
    sent = request.sent if request.sent is not None else at
    return replace(request, state=RequestState.ACKNOWLEDGED, sent=sent, acknowledged=at)


def _close(request: Request, answer: Answer, at: float, detail: str, effect: Effect | None = None) -> Request:
    return replace(
        request,
        state=RequestState.CLOSED,
        closed=at,
        answer=answer,
        detail=detail,
        effect=effect if effect is not None else request.effect,
    )


def _join(first: str, second: str) -> str:
    return "; ".join(part for part in (first, second) if part)
