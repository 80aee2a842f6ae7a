"""The three questions about a job, each answered yes or no with what to do. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from sentinel.tui.snapshot import Alert, Event, Job, Snapshot
from sentinel.tui.text import BAD, GOOD, WARN, count, literal, short_bytes, span, words

_SILENT_S = 10 * 60.0
"""No output for so long is worth a look."""
_RECENT_S = 15 * 60.0
_TIMEOUTS = frozenset({"log.timeout", "log.rate_limited", "log.overloaded", "log.connection_lost"})


@dataclass(frozen=True, slots=True)
class Answered:
    """One question and its answer.

    Attributes:
        question: As it is asked.
        yes: The answer.
        style: Whether that is good.
        says: What is known.
        do: What to do about it, or "".
    """

    question: str
    yes: bool
    style: str
    says: str
    do: str = ""


def questions(job: Job, seen: Snapshot, events: list[Event]) -> tuple[Answered, ...]:
    """Does it have checkpoints? Does it have timeouts? Does it have resource alerts?"""
    return (
        _checkpoints(job, seen.time),
        _timeouts(job, seen.time, events),
        _alerts(job, seen.alerts_of(job), seen.rules),
    )


def _checkpoints(job: Job, now: float) -> Answered:
    asked = "checkpoint" in job.channels
    if job.checkpoint is not None:
        age = now - job.checkpoint.finished if job.checkpoint.finished is not None else None
        step = f"step {job.checkpoint.step:.0f}, " if job.checkpoint.step is not None else ""
        says = f"newest: {step}{span(age)} ago, {short_bytes(job.checkpoint.size)}"
        target = next((interval for _, interval in job.checkpoint_dirs if interval), None)
        late = age is not None and target is not None and age > 2 * target
        if late and target:
            says += f"; one is wanted every {words(target)}"
        do = (
            ("press c: it can be asked" if late else "") if asked else "it cannot be asked: --on-checkpoint signal:USR1"
        )
        return Answered("checkpoints?", True, WARN if late else GOOD, says, do)
    if job.checkpoint_dirs:
        where = literal(job.checkpoint_dirs[0][0])
        return Answered("checkpoints?", False, WARN, f"none in {where}", "press c" if asked else "does it write there?")
    return Answered("checkpoints?", False, WARN, "no directory was named", "start it with --checkpoints DIR")


def _timeouts(job: Job, now: float, events: list[Event]) -> Answered:
    recent = [event for event in events if event.kind in _TIMEOUTS and event.time > now - _RECENT_S]
    silent = now - job.last_output if job.last_output else None
    heard = f"last output {span(silent)} ago" if silent is not None else "no output yet"
    has = "; ".join(job.timeouts) if job.timeouts else "a stall is only told"
    says, style, do = f"{has}; {heard}", GOOD if job.timeouts else WARN, ""
    if recent:
        last = recent[-1]
        if job.level:
            do = f"it has been asked to slow down (level {job.level} of {job.levels})"
        elif "degrade" in job.channels:
            do = "press d: it can slow down"
        else:
            do = "with --on-degrade it could be asked to slow down"
        kind = last.kind.removeprefix("log.").replace("_", " ")
        says, style = f"{count(len(recent), 'event')}, last: {kind} {span(now - last.time)} ago", WARN
    elif job.alive and silent is not None and silent > _SILENT_S:
        says, style, do = f"silent: {heard}", WARN, "sentinel dump shows where it hangs"
    elif not job.timeouts:
        do = "start it with --timeout auto or --stall-timeout 30m"
    return Answered("timeouts?", bool(job.timeouts), style, says, do)


def _alerts(job: Job, alerts: tuple[Alert, ...], rules: int) -> Answered:
    if not rules:
        return Answered("resource alerts?", False, WARN, "no rules are in force", "shipped_rules: true, and reload")
    watched = f"{count(rules, 'rule')} watch it"
    firing = [alert for alert in alerts if alert.state == "firing"]
    if firing:
        names = ", ".join(literal(alert.rule) for alert in firing)
        open_ = [request for request in job.requests if request.state != "closed"]
        do = f"sentinel has asked it to {open_[0].kind}" if open_ else "press a when you have seen it"
        return Answered("resource alerts?", True, BAD if firing[0].severity == "critical" else WARN, names, do)
    if alerts:
        return Answered("resource alerts?", True, GOOD, f"{watched}, {literal(alerts[0].rule)} is pending")
    return Answered("resource alerts?", True, GOOD, f"{watched}, none fires")
