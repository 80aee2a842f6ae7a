"""Which requests a rule's chain leads to, when every step is acknowledged."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sentinel.model.alerts import ActionSpec, After, On, Transition
from sentinel.model.requests import RequestKind


@dataclass(frozen=True, slots=True)
class Planned:
    """One request that would be asked.

    Attributes:
        at: When (Unix seconds).
        job: Of whom: a name, "all" for every job, or "" where an alert names none.
        request: What.
        rule: By which rule.
    """

    at: float
    job: str
    request: RequestKind
    rule: str


def planned(transitions: Iterable[Transition]) -> list[Planned]:
    """The requests that these transitions lead to, before the gates that only a running daemon knows.

    Cooldowns count; silences, the breaker and a job's start-up do not.
    """
    made: list[Planned] = []
    asked: dict[tuple[str, str, RequestKind], float] = {}
    for change in transitions:
        on = On.FIRING if change.firing else On.RESOLVED if change.resolving else None
        if on is None or change.rule is None:
            continue
        answered: dict[str, bool] = {}
        for action in change.rule.actions:
            if action.request is None or action.on is not on:
                continue
            for job in _addressees(action, change):
                before = answered.get(job)
                key = change.rule.name, job, action.request
                cooling = key in asked and change.at - asked[key] < action.cooldown_s
                if not _follows(action.after, before) or cooling:
                    answered[job] = False
                    continue
                answered[job] = True
                asked[key] = change.at
                made.append(Planned(change.at, job, action.request, change.rule.name))
    return made


def _addressees(action: ActionSpec, change: Transition) -> tuple[str, ...]:
    return action.jobs or ((change.alert.job or ""),)


def _follows(after: After, before: bool | None) -> bool:
    """Whether a step is sent, given whether the one before was (None: it is the first).

    Here every step that is sent is acknowledged, so none has failed.
    """
    return before is None or after is After.ANY or (before and after is not After.FAILED)
