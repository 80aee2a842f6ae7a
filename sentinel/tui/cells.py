"""How things look in one line: colours say where something is going, never only where it stands. Pure."""

from __future__ import annotations

import os

from rich.text import Text

from sentinel.tui.snapshot import Alert, Checkpoint, Event, Job, Memory, Request, Snapshot
from sentinel.tui.text import (
    ASKED,
    BAD,
    CALM,
    DIM,
    FAINT,
    GOOD,
    NOTE,
    PLAIN,
    SEVERITY,
    WARN,
    literal,
    words,
)
from sentinel.units import format_bytes

SOON_S = 120.0
"""A job that is full within this is red, as an endangered one is to the daemon."""
LATER_S = 15 * 60.0
_STILL = 64 * 1024.0
"""Growth below this many bytes a second is none."""

STATES = {
    "starting": ("◌", NOTE),
    "running": ("●", GOOD),
    "paused": ("‖", WARN),
    "stopping": ("◍", WARN),
    "waiting": ("◌", NOTE),
    "succeeded": ("✓", GOOD),
    "failed": ("✗", BAD),
    "preempted": ("✗", WARN),
    "stopped": ("■", DIM),
    "lost": ("?", BAD),
}
OUTCOMES = {
    "planned": NOTE,
    "sent": NOTE,
    "acknowledged": CALM,
    "done": GOOD,
    "refused": WARN,
    "failed": BAD,
    "expired": BAD,
    "unknown": WARN,
    "suppressed": DIM,
}
EFFECTS = {"observed": ("seen to work", GOOD), "not_observed": ("no effect seen", WARN), "not_observable": ("", DIM)}


def state(job: Job) -> tuple[str, str]:
    """A sign and its colour."""
    return STATES.get(job.state, ("?", DIM))


def danger(memory: Memory) -> str:
    """The colour of a job's memory. A steady level is no danger, however high."""
    if memory.full_in is not None and memory.full_in < SOON_S:
        return BAD
    if memory.full_in is not None and memory.full_in < LATER_S:
        return WARN
    return CALM


def of_machine(memory: Memory, seen: Snapshot) -> bool:
    """Whether the limit that kills is the machine's own, which others fill too."""
    total = seen.host.get("memory_total_bytes")
    return bool(total and memory.limit and abs(memory.limit - total) < 0.01 * total)


def forecast(memory: Memory, *, machine: bool = False) -> tuple[str, str]:
    """What becomes of it at this pace, in words, and their colour.

    Args:
        memory: Of a job.
        machine: Whether it is the machine that fills up, not this job alone: no reason to shout before it is soon.
    """
    if memory.full_in is not None:
        style = danger(memory)
        return f"full in {words(memory.full_in)}", DIM if machine and style == WARN else style
    if memory.used is None:
        return "—", FAINT
    if memory.growth is None:
        return "…", DIM
    if memory.growth > _STILL:
        return f"+{format_bytes(memory.growth)}/s", DIM if machine else WARN
    if memory.growth < -_STILL:
        return "falling", GOOD
    return "steady", DIM


def alert_mark(alerts: tuple[Alert, ...]) -> tuple[str, str]:
    """`▲2` in the colour of the worst that fires; blank for none."""
    firing = [alert for alert in alerts if alert.state == "firing"]
    if not firing:
        return ("△", DIM) if any(alert.state == "pending" for alert in alerts) else ("", DIM)
    style = SEVERITY.get(firing[0].severity, WARN)
    if all(alert.acknowledged_by for alert in firing):
        style = DIM
    return f"▲{len(firing)}", style


def age_style(age: float | None, target: float | None) -> str:
    """Of a checkpoint's age against how often one is wanted."""
    if age is None:
        return FAINT
    if target and age > 2 * target:
        return WARN
    return PLAIN


_WORDS = {
    "checkpoint.complete": "checkpoint",
    "checkpoint.broken": "broken ckpt",
    "request.sent": "asked",
    "request.acknowledged": "acknowledged",
    "request.closed": "answered",
    "alert.firing": "alert",
    "alert.pending": "pending",
    "alert.resolved": "resolved",
    "notification.sent": "told",
    "notification.failed": "not told",
    "gpu.xid": "xid",
}


def event_word(event: Event) -> str:
    """One word for an event's kind, as people would say it."""
    return _WORDS.get(event.kind) or event.kind.rpartition(".")[2].replace("_", " ")


def checkpoint_name(checkpoint: Checkpoint) -> str:
    """`step 142`, else the name of its file."""
    if checkpoint.step is not None:
        return f"step {checkpoint.step:.0f}"
    return literal(os.path.basename(checkpoint.path.rstrip("/")), 60)


def event_message(event: Event) -> str:
    """The words, without the job's name before all others: it stands beside them. A whole checkpoint needs few."""
    if event.kind == "checkpoint.complete" and event.checkpoint and event.checkpoint.size is not None:
        name = checkpoint_name(event.checkpoint)
        return f"{name}, {format_bytes(event.checkpoint.size)}: {literal(event.checkpoint.path)}"
    words = event.message
    if event.job:
        words = words.removeprefix(f"{event.job}: ")
        words = words.removeprefix(f"{event.job} ") if words.startswith(f"{event.job} (") else words
    return literal(words)


def event_style(event: Event) -> str:
    """The colour of an event's kind."""
    head, _, tail = event.kind.partition(".")
    if head == "alert":
        return {"firing": SEVERITY.get(event.severity, BAD), "resolved": GOOD}.get(tail, DIM)
    if head == "request":
        return ASKED
    if head == "checkpoint":
        return BAD if tail == "broken" else GOOD
    if head == "job":
        return STATES.get(tail, ("", NOTE))[1]
    if event.severity in {"critical", "warning"}:
        return SEVERITY[event.severity]
    return NOTE if head == "notification" else DIM


def request_words(request: Request) -> Text:
    """`done, seen to work`: how a request stands."""
    text = Text(request.outcome, OUTCOMES.get(request.outcome, PLAIN), end="")
    said, style = EFFECTS.get(request.effect, ("", DIM))
    if said:
        text.append(f", {said}", style)
    return text


def asked_by(by: str) -> str:
    """`rule MemoryExhaustionImminent`, `you`, `sentinel`."""
    kind, _, name = by.partition(":")
    return literal(f"{kind} {name}" if name else kind)


def ending(job: Job) -> str:
    """Why a job ended, in words; "" for a living one."""
    if job.alive:
        return ""
    if job.cause:
        return literal(job.cause)
    if job.exit_signal:
        return f"signal {job.exit_signal}"
    return f"exit code {job.exit_code}" if job.exit_code is not None else job.state
