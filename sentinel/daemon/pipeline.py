"""The natural path: what was measured is kept and judged; what changed is written down, acted upon and told."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Protocol

from sentinel.clock import Clock
from sentinel.daemon.hub import Hub
from sentinel.model.alerts import AlertState, Reason, Transition
from sentinel.model.events import Event, Severity, event
from sentinel.model.journal import JournalUnavailable
from sentinel.model.series import Batch
from sentinel.rules.engine import Engine, journalled
from sentinel.units import format_duration

_log = logging.getLogger(__name__)

_SEVERITIES = {"critical": Severity.CRITICAL, "info": Severity.INFO}


class Keeps(Protocol):
    """Window or store: somewhere a batch goes."""

    def __call__(self, batch: Batch) -> None:
        """Take it in."""
        ...


class Pipeline:
    """Movement through the daemon, in the order in which it happens. Belongs to the event loop.

    Args:
        keep: Where every batch goes: the window, then the store.
        engine: Judges.
        write: The journal's `append`.
        hub: Shows every step.
        act: The dispatcher's `submit`.
        tell: The notifier's `on_transition`.
        owner: Whose alert it is, by the name of its job; None for the host's.
        clock: The time.
    """

    def __init__(
        self,
        *,
        keep: tuple[Keeps, ...],
        engine: Engine,
        write: Callable[[str, dict[str, object]], None],
        hub: Hub,
        act: Callable[[Transition], None],
        tell: Callable[[Transition], None],
        owner: Callable[[str | None], int | None],
        clock: Clock,
    ) -> None:
        self._keep = keep
        self._engine = engine
        self._write = write
        self._hub = hub
        self._steps = (act, tell)
        self._owner = owner
        self._clock = clock
        self._unwritten = False

    def on_batch(self, batch: Batch, *, early: bool = False) -> None:
        """Something was measured. What came ahead of the tick is judged at once."""
        for keep in self._keep:
            keep(batch)
        if early:
            self._engine.nudge([metric.name for metric in batch.family.metrics])

    def judge(self) -> bool:
        """Evaluate the groups that are due, and take what has come of those that look far back. Whether any was due."""
        for round_ in self._engine.answered():
            self.on_changes(round_.transitions)
        due = self._engine.due(self._clock.monotonic())
        for group in due:
            round_ = self._engine.evaluate(group, self._clock.now())
            self.on_changes(round_.transitions)
        return bool(due)

    def on_changes(self, changes: Iterable[Transition]) -> None:
        """A rule group has spoken: write it down before anything is done about it."""
        for change in changes:
            self._record(change)
            self._hub.publish(_event(change, self._owner(change.alert.job)))
            for step in self._steps:
                try:
                    step(change)
                except Exception:  # neither action nor message may stop the other
                    _log.exception("a fault of sentinel itself, at %s", change.alert.rule)

    def _record(self, change: Transition) -> None:
        try:
            self._write("alert", journalled(change))
            self._unwritten = False
        except JournalUnavailable as fault:
            if not self._unwritten:
                self._unwritten = True
                text = f"alerts are not written down: {fault.message}"
                self._hub.publish(
                    event("store.journal_unavailable", text, at=self._clock.now(), severity=Severity.CRITICAL)
                )


_WHY = {
    Reason.WENT_DARK: ", because nothing is measured any more, which is no all-clear",
    Reason.JOB_ENDED: ", because the job has ended",
    Reason.RULE_REMOVED: ", because the rule was removed",
}


def _over(change: Transition) -> str:
    """How an alert ended, in words; whose it was stands beside them."""
    alert = change.alert
    lasted = format_duration(max(0.0, change.at - (alert.fired or alert.began)))
    how = f"is over after {lasted}" if alert.fired is not None else f"did not last: it held for {lasted}"
    return f"{alert.rule} {how}{_WHY.get(change.reason, '')}"


def _event(change: Transition, uid: int | None) -> Event:
    alert = change.alert
    state = alert.state if alert.state is not AlertState.INACTIVE else AlertState.RESOLVED
    summary = alert.annotation("summary") or alert.rule
    words = summary if state is not AlertState.RESOLVED else _over(change)
    loud = state is AlertState.FIRING
    return event(
        f"alert.{state.value}",
        words,
        at=change.at,
        job=alert.job,
        severity=_SEVERITIES.get(alert.severity, Severity.WARNING) if loud else Severity.INFO,
        uid=uid,
        alert=alert.id,
        rule=alert.rule,
        group=alert.group,
        was=change.was.value,
        reason=change.reason.value,
        value=alert.value,
        labels=alert.labels.as_dict(),
    )
