"""What people read, on a phone, at night: what, which job, how bad, since when, what sentinel did, what to do next.

Plain text. Whatever comes from a job is data: control characters are replaced
and mentions (@everyone) defused here; markup is never interpreted, since the
courier declares the text to be plain.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sentinel.model.alerts import Alert, Reason, RuleSpec
from sentinel.model.checkpoints import Checkpoint
from sentinel.model.jobs import Job, JobState
from sentinel.model.requests import Answer, Effect, Request, RequestKind
from sentinel.notify.router import Bulletin, Member
from sentinel.units import format_bytes, format_duration

LONGEST_TITLE = 120
LONGEST_BODY = 4096
IN_FULL = 5
"""How many alerts of a storm are told in full; the rest are counted."""
OF_RULES = 4
"""How many requests of rules the end of a job tells; those before are counted."""

_PERSON = "user:"

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_MENTION = re.compile(r"@(?=(?:everyone|here|channel|all)\b)|<(?=[@!#])", re.IGNORECASE)
_LIMIT = re.compile(r"(?:<=|>=|==|!=|<|>)\s*(?:bool\s+)?(-?\d+(?:\.\d+)?(?:e[+-]?\d+)?)\s*$", re.IGNORECASE)
_NEXT = ("next", "action", "what_to_do", "description", "runbook", "runbook_url")


@dataclass(frozen=True, slots=True)
class Text:
    """One message, before it is addressed.

    Attributes:
        kind: firing, resolved, job or test.
        title: One line.
        body: The rest.
        severity: info, success, warning or failure, as receivers colour them.
    """

    kind: str
    title: str
    body: str
    severity: str


def plain(text: str, limit: int = LONGEST_BODY) -> str:
    """Text that is nothing but text: no control characters but newlines and tabs, no mentions, bounded."""
    safe = _MENTION.sub(lambda found: found[0] + "\u200b", _CONTROL.sub("\ufffd", text))
    return safe if len(safe) <= limit else safe[: limit - 2].rstrip() + " …"


def limit_of(rule: RuleSpec | None) -> str:
    """The threshold that ends the rule's expression, as it is written there, or ""."""
    if rule is None:
        return ""
    found = {match[1] for line in rule.expr.splitlines() if (match := _LIMIT.search(line.rstrip(" )")))}
    return found.pop() if len(found) == 1 else ""


def bulletin(said: Bulletin, requests: Callable[[Alert], Sequence[Request]], at: float) -> Text:
    """The message of a group."""
    firing, over = said.firing, said.resolved
    if not firing:
        parts = [_resolved(member, requests(member.alert), at) for member in over[:IN_FULL]]
        dark = " (no data any more)" if any(member.ended == Reason.WENT_DARK.value for member in over) else ""
        gone = all(member.ended == Reason.JOB_ENDED.value for member in over)
        verb = "Over with its job" if gone else f"Resolved{dark}"
        title = f"{verb}: {_what(over[0])}" if len(over) == 1 else f"{verb}: {_crowd(over)}"
        return _text("resolved", title, [*parts, *_rest(over)], "info" if gone else "success")
    worst = min((member.alert.severity for member in firing), key=_rank)
    again = {"repeat": "Still firing: ", "unanswered": "Asked in vain: "}.get(said.occasion, "")
    title = _headline(firing[0]) if len(firing) == 1 else f"{worst.upper()}: {_crowd(firing)}"
    parts = [_firing(member, requests(member.alert), at) for member in firing[:IN_FULL]]
    parts += _rest(firing)
    if over:
        parts.append("Resolved meanwhile: " + ", ".join(_what(member) for member in over[:IN_FULL]))
        parts += _rest(over)
    return _text("firing", again + title, parts, "failure" if worst == "critical" else "warning")


def job_end(
    job: Job,
    checkpoint: Checkpoint | None,
    requests: Sequence[Request],
    at: float,
    left_open: Sequence[Alert] = (),
) -> Text:
    """How a job ended: always a message, once.

    Args:
        job: As it ended.
        checkpoint: Its newest whole one.
        requests: What was asked of its last attempt, oldest first.
        at: Now (Unix seconds).
        left_open: Alerts that fired and have ended only because the job has.
    """
    ended = job.ended or at
    ran = format_duration(max(0.0, ended - (job.attempt_started or job.created)))
    attempt = f" (attempt {job.attempt})" if job.attempt > 1 else ""
    verb, severity = _ENDS.get(job.state, ("ended", "info"))
    title = f"{job.name} {verb} after {ran}{attempt}"
    lines = []
    if job.cause:
        lines.append(f"cause: {job.cause}")
    if job.exit_signal is not None and "signal" not in job.cause.lower():
        lines.append(f"ended by signal {job.exit_signal}")
    elif job.exit_code and f"exit code {job.exit_code}" not in job.cause:
        lines.append(f"exit code {job.exit_code}")
    elif job.exit_code is None and job.state in {JobState.LOST, JobState.SUCCEEDED}:
        lines.append("nobody saw its exit code")
    if checkpoint is not None:
        step = f"step {checkpoint.step}, " if checkpoint.step is not None else ""
        age = format_duration(max(0.0, ended - checkpoint.finished))
        lines.append(f"last checkpoint: {step}{format_bytes(checkpoint.size_bytes)}, {age} before the end")
        lines.append(checkpoint.path)
    elif job.spec.checkpoints and job.state is not JobState.SUCCEEDED:
        lines.append("no whole checkpoint was found")
    if job.degrade_level:
        lines.append(f"it ran at degrade level {job.degrade_level}")
    lines += [f"open at the end: {alert.rule}, {alert.annotation('summary')}".rstrip(", ") for alert in left_open]
    lines += _asked(requests)
    if (price := job.spec.cost_per_hour) is not None:
        lines.append(_cost(job, price, ended))
    if job.output and job.state is not JobState.SUCCEEDED:
        lines.append(f"output: {job.output[-1]}")
    lines.append(f"owner: {job.owner}, ended {_clock(ended)}")
    if advice := _ADVICE.get(job.state):
        lines.append(f"next: {advice}")
    return _text("job", title, ["\n".join(lines)], severity)


def test_message(receiver: str, host: str, at: float) -> Text:
    """What `notify test` sends."""
    body = f"sentinel on {host} can reach the receiver {receiver}. Sent {_clock(at)}; nothing is wrong."
    return _text("test", f"Test from sentinel on {host}", [body], "info")


_ENDS = {
    JobState.SUCCEEDED: ("finished", "success"),
    JobState.FAILED: ("failed", "failure"),
    JobState.PREEMPTED: ("was preempted", "warning"),
    JobState.STOPPED: ("was stopped", "info"),
    JobState.LOST: ("is gone", "failure"),
}
_ADVICE = {
    JobState.FAILED: "look at the end of the output, then start it again from the last checkpoint",
    JobState.PREEMPTED: "start it again where there is room; it resumes from the last checkpoint",
    JobState.LOST: "its processes are gone and nobody saw how: look for a reboot or an out-of-memory kill",
}


_ENDINGS = {
    Reason.WENT_DARK.value: "there is no data any more: this is no all-clear, look whether it is still measured",
    Reason.JOB_ENDED.value: "the job has ended",
    Reason.RULE_REMOVED.value: "its rule was removed",
}


def _headline(member: Member) -> str:
    alert = member.alert
    summary = alert.annotation("summary") or _what(member)
    named = summary if alert.job is None or alert.job in summary else f"{alert.job}: {summary}"
    return f"{alert.severity.upper()}: {named}"


def _firing(member: Member, requests: Sequence[Request], at: float) -> str:
    alert = member.alert
    lines = [alert.annotation("summary") or _what(member)]
    lines.append(f"alert: {alert.rule} ({alert.severity})")
    lines += _subject(alert)
    lines.append(f"value: {_value(member)}")
    since = alert.began or alert.fired or at
    lines.append(f"since: {_clock(since)}, {format_duration(max(0.0, at - since))} ago")
    lines += _deeds(requests) or ["sentinel asked nothing of the job"]
    lines += [f"next: {text}" for name in _NEXT if (text := alert.annotation(name))][:2]
    return "\n".join(lines)


def _resolved(member: Member, requests: Sequence[Request], at: float) -> str:
    alert = member.alert
    ended = alert.resolved or at
    began = alert.fired or alert.began
    lines = [f"{_what(member)} is over after {format_duration(max(0.0, ended - began))}"]
    if why := _ENDINGS.get(member.ended):
        lines.append(why)
    if summary := alert.annotation("summary"):
        lines.append(f"it was: {summary}")
    lines += _subject(alert)
    lines.append(f"from {_clock(began)} to {_clock(ended)}")
    return "\n".join([*lines, *_deeds(requests)])


def _asked(requests: Sequence[Request]) -> list[str]:
    """What rules asked of a job, the last few a line each; then a line for each person who asked."""
    by_rules = [request for request in requests if not request.by.startswith(_PERSON)]
    sent = [request for request in by_rules if request.answer is not Answer.SUPPRESSED] or by_rules
    before = len(sent) - OF_RULES
    lines = [f"sentinel asked {before} times before"] if before > 0 else []
    lines += _deeds(sent[-OF_RULES:])
    people: dict[str, dict[str, int]] = {}
    for request in requests:
        if request.by.startswith(_PERSON):
            wishes = people.setdefault(request.by.removeprefix(_PERSON), {})
            answer = "" if request.answer in {None, Answer.DONE} else f" ({request.answer.value})"
            wish = f"{request.kind.value}{answer}"
            wishes[wish] = wishes.get(wish, 0) + 1
    for name, wishes in people.items():
        told = ", ".join(f"{wish} {often} times" if often > 1 else wish for wish, often in wishes.items())
        lines.append(f"{name} asked: {told}")
    return lines


def _cost(job: Job, price: float, ended: float) -> str:
    """`cost: 3.32 (10m at 19.92 an hour)`: of all attempts."""
    spans = {past.attempt: past.ended - past.started for past in job.past}
    if job.attempt_started is not None:
        spans[job.attempt] = ended - job.attempt_started
    seconds = sum(max(0.0, span) for span in spans.values())
    attempts = f" in {len(spans)} attempts" if len(spans) > 1 else ""
    return f"cost: {seconds / 3600 * price:.2f} ({format_duration(seconds)}{attempts} at {price:g} an hour)"


def _deeds(requests: Sequence[Request]) -> list[str]:
    """What sentinel did about it, a line for each request."""
    return [_deed(request) for request in requests]


def _deed(request: Request) -> str:
    level = f" to level {request.level}" if request.kind in {RequestKind.DEGRADE, RequestKind.RESTORE} else ""
    wish = f"{request.kind.value}{level}"
    if request.answer is Answer.SUPPRESSED:
        return f"sentinel did not ask for {wish}: {request.words}"
    effect = {
        Effect.OBSERVED: ", and it was seen to work",
        Effect.NOT_OBSERVED: ", but nothing was seen to change",
    }.get(request.effect or Effect.NOT_OBSERVABLE, "")
    took = ""
    if request.acknowledged is not None and request.sent is not None and request.acknowledged > request.sent:
        took = f" after {format_duration(request.acknowledged - request.sent)}"
    state = request.answer.value if request.answer else request.state.value
    seen = request.kind is RequestKind.CHECKPOINT and request.effect is Effect.OBSERVED
    told = request.answer not in {None, Answer.DONE} or seen
    detail = f" ({request.words})" if request.detail and told else ""
    mark = " [not journalled]" if request.unjournalled else ""
    return f"sentinel asked for {wish}: {state}{took}{effect}{detail}{mark}"


def _subject(alert: Alert) -> list[str]:
    """The labels that say what it is about."""
    told = {"alertname", "severity", "forecast"}
    rest = ", ".join(f"{name} {value}" for name, value in alert.labels.items() if name not in told and name != "job")
    lines = [f"job: {alert.job}"] if alert.job is not None else []
    return [*lines, *([rest] if rest else [])]


def _value(member: Member) -> str:
    alert = member.alert
    if said := alert.annotation("value"):
        return said
    seconds = alert.labels.get("forecast") == "seconds"
    shown = f"{format_duration(alert.value)} left" if seconds else _number(alert.value)
    limit = alert.annotation("limit") or (
        format_duration(float(member.limit)) if seconds and member.limit else member.limit
    )
    return f"{shown} (limit {limit})" if limit else shown


def _number(value: float) -> str:
    if not math.isfinite(value):
        return "unknown" if math.isnan(value) else str(value)
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else f"{value:.4g}"


def _what(member: Member) -> str:
    alert = member.alert
    where = alert.job or alert.labels.get("mount") or alert.labels.get("gpu") or alert.labels.get("instance")
    return f"{alert.rule} on {where}" if where else alert.rule


def _crowd(members: Sequence[Member]) -> str:
    """`12 alerts: MemoryLow (llama, bert and 10 more)`."""
    rules = list(dict.fromkeys(member.alert.rule for member in members))
    jobs = list(dict.fromkeys(member.alert.job for member in members if member.alert.job))
    names = ", ".join(rules[:2]) + (f" and {len(rules) - 2} more" if len(rules) > 2 else "")
    where = ", ".join(jobs[:2]) + (f" and {len(jobs) - 2} more" if len(jobs) > 2 else "")
    return f"{len(members)} alerts: {names}" + (f" ({where})" if where else "")


def _rest(members: Sequence[Member]) -> list[str]:
    left = len(members) - IN_FULL
    return [f"… and {left} more"] if left > 0 else []


def _rank(severity: str) -> int:
    return {"critical": 0, "warning": 1, "info": 2}.get(severity, 1)


def _clock(at: float) -> str:
    return time.strftime("%a %H:%M:%S %Z", time.localtime(at))


def _text(kind: str, title: str, parts: Sequence[str], severity: str) -> Text:
    one_line = " ".join(title.split())
    return Text(kind, plain(one_line, LONGEST_TITLE), plain("\n\n".join(parts)), severity)
