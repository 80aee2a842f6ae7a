"""A chain: the steps that one rule asks of one job because of one alert.

    step 1 ──after──▶ step 2 ──after──▶ step 3

`move` is pure: it looks at what the last request has reached and says what
comes next, with the reason by name.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from sentinel.model.alerts import ActionSpec, After, Alert, On, RuleSpec
from sentinel.model.requests import Answer, Request, RequestKind, RequestState

FORECAST_LABEL = "forecast"
"""A rule whose label `forecast` is `seconds` says with its value how many seconds are left."""

HARMLESS = frozenset(
    {RequestKind.CHECKPOINT, RequestKind.DEGRADE, RequestKind.RESTORE, RequestKind.DUMP, RequestKind.RESUME}
)
"""What may follow a step nobody knows the outcome of. To stop, pause or restart on a guess could cost work."""


class Reached(StrEnum):
    """How far the last step of a chain came."""

    WAITING = "waiting"
    ACKNOWLEDGED = "acknowledged"
    DONE = "done"
    FAILED = "failed"  # refused, failed, expired
    UNKNOWN = "unknown"  # sentinel was restarted meanwhile
    SKIPPED = "skipped"  # the job has no way to be asked for it
    PRETENDED = "pretended"  # only observing; it goes on to say all it would have done
    BARRED = "barred"  # silenced, over the breaker, …: the chain ends


class Because(StrEnum):
    """Why a chain goes on, waits or ends."""

    FIRST = "first_step"
    ACKNOWLEDGED = "acknowledged"
    DONE = "done"
    FAILED = "failed"
    ANY = "sent"
    SKIPPED = "skipped_no_channel"
    PRETENDED = "would_have_asked"
    HALF_FORECAST = "half_of_the_forecast"
    NEVER_SENT = "never_sent_before_restart"
    WAITING = "waiting"
    COMPLETE = "complete"
    ALERT_ENDED = "alert_ended"
    JOB_ENDED = "job_ended"
    BARRED = "barred"
    NOT_REACHED = "not_reached"
    UNSAFE = "unsafe_after_restart"


@dataclass(frozen=True, slots=True)
class Chain:
    """One chain and how far it has come.

    Attributes:
        id: Names the occasion, so that the same occasion is never begun twice.
        rule: Name of the rule.
        rule_uid: Whose rule it is.
        alert: Fingerprint of the alert.
        job_id: Whom it asks.
        job: The job's name then.
        attempt: The attempt then.
        summary: Why, in words, as the alert said it.
        steps: What is asked, in order; hooks that wait for a request stand among them.
        position: The step that comes next.
        last: The request (or hook) of the step before, or "".
        reached: What a step without a request of its own reached, or None where `last` tells.
        begun: When it began (Unix seconds).
        asked: When the step before was handed over (Unix seconds).
        left_s: Seconds that the forecast left when it began, or None without a forecast.
        ended: When it ended (Unix seconds), or None.
        because: Why it went its last way.
        on: Whether it belongs to the beginning or to the end of the alert.
    """

    id: str
    rule: str
    rule_uid: int | None
    alert: str
    job_id: str
    job: str
    attempt: int
    summary: str
    steps: tuple[ActionSpec, ...]
    begun: float
    position: int = 0
    last: str = ""
    reached: Reached | None = None
    asked: float = 0.0
    left_s: float | None = None
    ended: float | None = None
    because: Because = Because.FIRST
    on: On = On.FIRING

    @property
    def open(self) -> bool:
        """Whether a step may still come."""
        return self.ended is None


@dataclass(frozen=True, slots=True)
class Go:
    """Take the next step."""

    because: Because


@dataclass(frozen=True, slots=True)
class Wait:
    """Not yet; look again at `until` at the latest (Unix seconds), or whenever something changes."""

    until: float | None


@dataclass(frozen=True, slots=True)
class End:
    """Nothing more comes."""

    because: Because


Move = Go | Wait | End


def occasion(alert: Alert, job_id: str, on: On) -> str:
    """The id of the chain for this alert, this time, and this job."""
    return f"{alert.id}/{alert.fired or alert.began:.3f}/{job_id}/{on.value}"


def next_round(chain_id: str) -> str:
    """The id of the chain after this one on the same occasion, for an alert that goes on."""
    first, _, number = chain_id.partition("#")
    return f"{first}#{int(number or 1) + 1}"


def of_occasion(chain_id: str) -> str:
    """The occasion, whatever the round."""
    return chain_id.partition("#")[0]


def forecast_s(rule: RuleSpec | None, alert: Alert) -> float | None:
    """The seconds that the alert says are left, where its rule forecasts."""
    labels = alert.labels if rule is None else {**rule.labels, **alert.labels}
    return max(0.0, alert.value) if labels.get(FORECAST_LABEL) == "seconds" else None


def patience_until(chain: Chain) -> float | None:
    """Until when the next step may wait: half of what the forecast left when the step before was sent."""
    if chain.left_s is None or not chain.asked:
        return None
    left = max(0.0, chain.left_s - (chain.asked - chain.begun))
    return chain.asked + left / 2


def reached(request: Request) -> Reached:
    """How far a request has come, as a chain sees it."""
    match request.answer:
        case None:
            waiting = request.state in {RequestState.PLANNED, RequestState.SENT}
            return Reached.WAITING if waiting else Reached.ACKNOWLEDGED
        case Answer.DONE:
            return Reached.DONE
        case Answer.UNKNOWN:
            return Reached.ACKNOWLEDGED if request.acknowledged is not None else Reached.UNKNOWN
        case Answer.EXPIRED:
            return Reached.FAILED
        case Answer.SUPPRESSED:
            return Reached.BARRED
    return Reached.FAILED


def move(chain: Chain, last: Request | None, *, alert_open: bool, at: float) -> Move:
    """What an open chain does now.

    Args:
        chain: As it stands.
        last: The request of the step before, where it had one.
        alert_open: Whether the alert still fires.
        at: Now (Unix seconds).
    """
    if chain.position >= len(chain.steps):
        return End(Because.COMPLETE)
    if not alert_open:
        return End(Because.ALERT_ENDED)
    if chain.position == 0:
        return Go(Because.FIRST)
    state = chain.reached if chain.reached is not None else reached(last) if last is not None else Reached.UNKNOWN
    following = chain.steps[chain.position]
    decided = _decide(state, following)
    if isinstance(decided, Wait):
        until = patience_until(chain)
        if until is not None and at >= until:
            return Go(Because.HALF_FORECAST)
        return Wait(until)
    return decided


def _decide(state: Reached, following: ActionSpec) -> Move:
    harmless = following.request is None or following.request in HARMLESS
    match state, following.after:
        case Reached.BARRED, _:
            return End(Because.BARRED)
        case Reached.PRETENDED, _:
            return Go(Because.PRETENDED)
        case Reached.UNKNOWN, After.DONE:
            return End(Because.UNSAFE)
        case Reached.UNKNOWN, _:
            return Go(Because.NEVER_SENT) if harmless else End(Because.UNSAFE)
        case Reached.WAITING, _:
            return Wait(None)
        case _, After.ANY:
            return Go(Because.ANY)
        case Reached.SKIPPED, After.ACKNOWLEDGED:
            return Go(Because.SKIPPED) if harmless else End(Because.NOT_REACHED)
        case Reached.SKIPPED | Reached.FAILED, After.FAILED:
            return Go(Because.FAILED)
        case Reached.ACKNOWLEDGED, After.ACKNOWLEDGED:
            return Go(Because.ACKNOWLEDGED)
        case Reached.DONE, After.ACKNOWLEDGED | After.DONE:
            return Go(Because.DONE)
        case Reached.ACKNOWLEDGED, After.DONE | After.FAILED:
            return Wait(None)
    return End(Because.NOT_REACHED)
