"""What the engine answers with."""

from __future__ import annotations

from dataclasses import dataclass

from sentinel.model.alerts import Alert, AlertState, RuleSpec, Transition
from sentinel.model.series import Batch


@dataclass(frozen=True, slots=True)
class Fault:
    """A rule that could not be evaluated; its alerts stay as they are."""

    group: str
    rule: str
    message: str


@dataclass(frozen=True, slots=True)
class Round:
    """One evaluation of one group.

    Attributes:
        group: Its name.
        at: When (Unix seconds).
        transitions: What changed, in the order of the rules.
        batches: What was recorded, ALERTS, and what sentinel measures of its own rules.
        faults: Rules that failed.
        seconds: How long it took.
    """

    group: str
    at: float
    transitions: tuple[Transition, ...]
    batches: tuple[Batch, ...]
    faults: tuple[Fault, ...]
    seconds: float


@dataclass(frozen=True, slots=True)
class RuleStatus:
    """How one rule stands.

    Attributes:
        rule: What it says.
        interval_s: Of its group.
        state: The loudest state of its alerts.
        alerts: Pending and firing ones.
        value: Of its first result in the last round, or None.
        evaluated: When last (Unix seconds), or None.
        seconds: How long that took.
        fault: Why that failed, or "".
    """

    rule: RuleSpec
    interval_s: float
    state: AlertState
    alerts: tuple[Alert, ...]
    value: float | None
    evaluated: float | None
    seconds: float
    fault: str
