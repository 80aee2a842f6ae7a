"""Rules as loaded, alerts as they stand, and the transitions between."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from enum import StrEnum

from sentinel.model.labels import EMPTY, Labels
from sentinel.model.requests import RequestKind


class AlertState(StrEnum):
    """Where an alert is. Inactive alerts are not kept."""

    INACTIVE = "inactive"
    PENDING = "pending"
    FIRING = "firing"
    RESOLVED = "resolved"


class Reason(StrEnum):
    """Why an alert changed."""

    BEGAN = "began"  # inactive → pending, or → firing where `for` is 0
    HELD = "held"  # pending → firing
    ENDED_EARLY = "ended_early"  # pending → inactive
    ENDED = "ended"  # firing → resolved
    WENT_DARK = "went_dark"  # no data for `dark_after`
    JOB_ENDED = "job_ended"
    RULE_REMOVED = "rule_removed"


class After(StrEnum):
    """What the step before must have reached before a step of a chain is sent."""

    ACKNOWLEDGED = "acknowledged"
    DONE = "done"
    FAILED = "failed"
    ANY = "any"


class On(StrEnum):
    """At which transition an action is taken."""

    FIRING = "firing"
    RESOLVED = "resolved"


@dataclass(frozen=True, slots=True)
class ActionSpec:
    """One step of a rule's `actions`.

    Attributes:
        request: What to ask of the job, or None where `run` is given.
        run: An argument vector for a hook, never a shell line; empty where `request` is given.
        on: At firing or at resolved.
        timeout_s: How long to wait for the answer.
        after: When it follows another request: what that one must have reached.
        cooldown_s: Not asked again of the same job by the same rule within this time.
        restore_after_s: For degrade: one level back up after this much quiet; None: never.
        jobs: "all", or job names; empty: the alert's own job.
        owner: Only jobs of this user; empty: any.
    """

    request: RequestKind | None = None
    run: tuple[str, ...] = ()
    on: On = On.FIRING
    timeout_s: float = 60.0
    after: After = After.ACKNOWLEDGED
    cooldown_s: float = 300.0
    restore_after_s: float | None = None
    jobs: tuple[str, ...] = ()
    owner: str = ""


@dataclass(frozen=True, slots=True)
class RuleSpec:
    """One alerting or recording rule, loaded and checked.

    Attributes:
        group: The group it stands in.
        name: Of the alert, or of the series it records.
        expr: PromQL, as written.
        recording: Whether it records a series instead of alerting.
        for_s: How long it must hold before it fires (seconds).
        keep_firing_for_s: How long it fires on after it stopped holding.
        dark_after_s: How long without data before it resolves as `went_dark`.
        labels: Added to the alert's, may be templates.
        annotations: Templates.
        actions: The chain, in order.
        file: Where it was loaded from.
        line: The line of its expression.
        uid: Whose rule it is: None for the daemon's own and the shipped ones,
            else it sees and asks only that user's jobs.
        job_id: For a rule given by `run --rules`: the only job it is about.
    """

    group: str
    name: str
    expr: str
    recording: bool = False
    for_s: float = 0.0
    keep_firing_for_s: float = 0.0
    dark_after_s: float = 300.0
    labels: Labels = EMPTY
    annotations: tuple[tuple[str, str], ...] = ()
    actions: tuple[ActionSpec, ...] = ()
    file: str = ""
    line: int = 0
    uid: int | None = None
    job_id: str | None = None


@dataclass(frozen=True, slots=True)
class Alert:
    """One instance of a rule, for one label set.

    Attributes:
        id: The fingerprint: stable over restarts, the same for the same rule and labels.
        rule: The rule's name, the label `alertname`.
        group: The group of the rule.
        labels: All of them, `alertname` included.
        state: Where it is.
        value: Of the expression, when last seen.
        began: When it first held (Unix seconds).
        fired: When it began to fire, or None.
        resolved: When it resolved, or None.
        seen: When data last said anything about it, holds or clear.
        quiet_since: Since when it has been clear while kept firing, or None.
        annotations: Rendered when it last changed.
        acknowledged_by: Who said "I have seen it", or "".
    """

    id: str
    rule: str
    group: str
    labels: Labels
    state: AlertState
    value: float
    began: float
    fired: float | None = None
    resolved: float | None = None
    seen: float = 0.0
    quiet_since: float | None = None
    annotations: tuple[tuple[str, str], ...] = ()
    acknowledged_by: str = ""

    @property
    def job(self) -> str | None:
        """The job it is about, if it is about one."""
        return self.labels.get("job")

    @property
    def severity(self) -> str:
        """`critical`, `warning`, `info`, or whatever the rule says; `warning` where it says nothing."""
        return self.labels.get("severity", "warning")

    def annotation(self, name: str) -> str:
        """One rendered annotation, or ""."""
        return dict(self.annotations).get(name, "")


def fingerprint(group: str, labels: Labels) -> str:
    """The id of the alert with these labels (alertname included): 16 hex digits."""
    text = "\x00".join([group, *(f"{name}\x01{value}" for name, value in labels.items())])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Transition:
    """All that the rule engine hands out: one alert went from one state to another.

    Attributes:
        alert: As it stands after the change.
        was: The state before.
        reason: Why.
        at: Unix seconds.
        rule: What it is an instance of, actions included; None where the rule is gone.
    """

    alert: Alert
    was: AlertState
    reason: Reason
    at: float
    rule: RuleSpec | None = None

    @property
    def firing(self) -> bool:
        """Whether it has just begun to fire."""
        return self.alert.state is AlertState.FIRING and self.was is not AlertState.FIRING

    @property
    def resolving(self) -> bool:
        """Whether it fired and has just ended, for whatever reason."""
        return self.alert.state is AlertState.RESOLVED and self.was is AlertState.FIRING
