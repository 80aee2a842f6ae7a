"""The state machine of one alert, as a pure function.

```
            holds                 holds for `for`             clear, `keep_firing_for` over
 (none) ───────────────► pending ─────────────────► firing ────────────────────────────────► resolved
    ▲                       │                         │                                          ▲
    └──── clear, or dark ◄──┘                         └── dark for `dark_after`, then as clear ──┘
```

Dark is not clear: where no data says anything about an alert, it stays as it
is until `dark_after` has passed, and what follows says `went_dark`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from sentinel.model.alerts import Alert, AlertState, Reason, RuleSpec, Transition, fingerprint
from sentinel.model.labels import Labels

ALERT_NAME = "alertname"


@dataclass(frozen=True, slots=True)
class Holds:
    """The condition holds, with the value of the expression."""

    value: float


@dataclass(frozen=True, slots=True)
class Clear:
    """There is data, and the condition does not hold."""


@dataclass(frozen=True, slots=True)
class Dark:
    """There is no data that could say anything."""


Observation = Holds | Clear | Dark


@dataclass(frozen=True, slots=True)
class Step:
    """The alert to keep (None: nothing to keep), and the change to report, if any."""

    alert: Alert | None
    change: Transition | None = None


def step(rule: RuleSpec, labels: Labels, alert: Alert | None, seen: Observation, at: float) -> Step:
    """Advance one alert by one observation at time `at` (Unix seconds).

    Pure: the same arguments always give the same step.

    Args:
        rule: What it is an instance of.
        labels: All labels of the alert, `alertname` included.
        alert: As it stood, pending or firing; None where there is none.
        seen: What the data says now.
        at: When it was evaluated.
    """
    match alert, seen:
        case None, Holds(value):
            return _begin(rule, labels, value, at)
        case None, _:
            return Step(None)
        case Alert(), Holds(value):
            return _hold(rule, replace(alert, value=value, seen=at, quiet_since=None), at)
        case Alert(state=AlertState.PENDING), Clear():
            return _end(rule, replace(alert, seen=at), Reason.ENDED_EARLY, at)
        case Alert(), Clear():
            return _cool(rule, replace(alert, seen=at), Reason.ENDED, at)
        case Alert(), Dark() if at - alert.seen < rule.dark_after_s:
            return Step(alert)
        case Alert(state=AlertState.PENDING), Dark():
            return _end(rule, alert, Reason.WENT_DARK, at)
        case Alert(), Dark():
            return _cool(rule, alert, Reason.WENT_DARK, at)


def close(rule: RuleSpec | None, alert: Alert, reason: Reason, at: float) -> Transition:
    """End an alert now, whatever the data says: its job ended, or its rule is gone."""
    ending = _ended(alert, at)
    return Transition(ending, alert.state, reason, at, rule)


def _begin(rule: RuleSpec, labels: Labels, value: float, at: float) -> Step:
    pending = Alert(
        id=fingerprint(rule.group, labels),
        rule=rule.name,
        group=rule.group,
        labels=labels,
        state=AlertState.PENDING,
        value=value,
        began=at,
        seen=at,
    )
    if rule.for_s > 0:
        return Step(pending, Transition(pending, AlertState.INACTIVE, Reason.BEGAN, at, rule))
    firing = replace(pending, state=AlertState.FIRING, fired=at)
    return Step(firing, Transition(firing, AlertState.INACTIVE, Reason.BEGAN, at, rule))


def _hold(rule: RuleSpec, alert: Alert, at: float) -> Step:
    if alert.state is AlertState.PENDING and at - alert.began >= rule.for_s:
        firing = replace(alert, state=AlertState.FIRING, fired=at)
        return Step(firing, Transition(firing, AlertState.PENDING, Reason.HELD, at, rule))
    return Step(alert)


def _cool(rule: RuleSpec, alert: Alert, reason: Reason, at: float) -> Step:
    since = at if alert.quiet_since is None else alert.quiet_since
    if at - since < rule.keep_firing_for_s:
        return Step(replace(alert, quiet_since=since))
    return _end(rule, alert, reason, at)


def _end(rule: RuleSpec, alert: Alert, reason: Reason, at: float) -> Step:
    return Step(None, close(rule, alert, reason, at))


def _ended(alert: Alert, at: float) -> Alert:
    if alert.state is AlertState.PENDING:
        return replace(alert, state=AlertState.INACTIVE)
    return replace(alert, state=AlertState.RESOLVED, resolved=at)
