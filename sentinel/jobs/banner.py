"""The banner: what is protected and what is not, before the job's first line. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from sentinel.jobs.link import Registration
from sentinel.model.jobs import JobSpec
from sentinel.model.requests import RequestKind
from sentinel.units import format_bytes, format_duration

_BOLD, _GREEN, _YELLOW, _DIM, _PLAIN = "\x1b[1m", "\x1b[32m", "\x1b[33m", "\x1b[2m", "\x1b[0m"
_WIDTH = 12
_ASKABLE = (RequestKind.CHECKPOINT, RequestKind.DEGRADE)


def banner(
    spec: JobSpec, met: Registration, logs: Sequence[str], *, trouble: str = "", colours: bool = False, home: str = ""
) -> str:
    """At most six lines. Each "no" names the option that changes it.

    Args:
        spec: What the owner declared.
        met: What the daemon said.
        logs: Where the output is kept.
        trouble: Why no daemon was reached; empty: one was.
        colours: Whether the reader is a terminal.
        home: Shortened to ~ where it begins a path.
    """
    lines = [_head(spec, met, logs, home, colours)]
    lines += [
        _line(good, name, text, colours)
        for name, (good, text) in (
            ("checkpoints", _checkpoints(spec, met, home)),
            ("can be asked", _requests(spec)),
            ("memory", _memory(spec)),
            ("told", _told(spec, met)),
        )
    ]
    if trouble:
        lines.append(_line(False, "daemon", f"none, so nothing is measured: {trouble}", colours))
    elif met.facts.get("mode") == "observe":
        lines.append(_line(False, "acts", "no, the daemon only says what it would do: mode: act", colours))
    elif spec.dry_run:
        lines.append(_line(False, "acts", "no, it only says what it would do: leave --dry-run out", colours))
    return "\n".join(lines) + "\n"


def _head(spec: JobSpec, met: Registration, logs: Sequence[str], home: str, colours: bool) -> str:
    name = f"{_BOLD}{met.name}{_PLAIN}" if colours else met.name
    parts = [f"sentinel: {name}"]
    if met.renamed_from:
        parts[0] += f" ({met.renamed_from} runs already)"
    if met.resume_from:
        used = "{checkpoint}" in " ".join(spec.argv)
        parts.append(f"{'resumes from' if used else 'newest checkpoint'} {_short(met.resume_from, home)}")
    if logs:
        parts.append(f"log {_short(logs[0], home)}")
    return " · ".join(parts)


def _checkpoints(spec: JobSpec, met: Registration, home: str) -> tuple[bool, str]:
    if not spec.checkpoints:
        return False, "not watched: --checkpoints DIR"
    places = ", ".join(_short(place.path, home) for place in spec.checkpoints[:2])
    more = f" and {len(spec.checkpoints) - 2} more" if len(spec.checkpoints) > 2 else ""
    words = [f"{places}{more}"]
    age = met.facts.get("checkpoint_age_seconds")
    if isinstance(age, int | float):
        words.append(f"newest {format_duration(age)} old")
    elif not met.resume_from:
        words.append("none yet")
    if skipped := met.facts.get("checkpoints_skipped"):
        words.append(f"{len(skipped)} newer not whole")
    interval = next((place.interval_s for place in spec.checkpoints if place.interval_s), None)
    if interval:
        words.append(f"expected every {format_duration(interval)}")
    return True, ", ".join(words)


def _requests(spec: JobSpec) -> tuple[bool, str]:
    have = [f"{kind.value} by {channel}" for kind in RequestKind if (channel := spec.channel(kind))]
    missing = [kind for kind in _ASKABLE if spec.channel(kind) is None]
    options = " ".join(f"--on-{kind.value} signal:USR{1 + _ASKABLE.index(kind)}" for kind in missing)
    if not have:
        return False, f"nothing: {options}"
    if missing:
        return True, f"{', '.join(have)}; not to {' or '.join(kind.value for kind in missing)}: {options}"
    return True, ", ".join(have)


def _memory(spec: JobSpec) -> tuple[bool, str]:
    if spec.memory_limit_bytes is not None:
        return True, f"against {format_bytes(spec.memory_limit_bytes)}"
    return True, "against the cgroup or host; tighter: --memory-limit SIZE"


def _told(spec: JobSpec, met: Registration) -> tuple[bool, str]:
    names = [str(name) for name in met.facts.get("receivers") or ()]
    count = len(spec.notify)
    if count:
        names.insert(0, f"{count} address{'es' if count > 1 else ''} of yours")
    if not names:
        return False, "nobody, when it ends or fails: --notify URL"
    return True, ", ".join(names[:4])


def _line(good: bool, name: str, text: str, colours: bool) -> str:
    mark = "✓" if good else "✗"
    if not colours:
        return f"  {mark} {name:<{_WIDTH}}  {text}"
    said, colon, option = text.rpartition(": ")
    if colon and not good:
        text = f"{said}: {_YELLOW}{option}{_PLAIN}"
    return f"  {_GREEN if good else _YELLOW}{mark}{_PLAIN} {_DIM}{name:<{_WIDTH}}{_PLAIN}  {text}"


def _short(path: str, home: str) -> str:
    return f"~{path[len(home) :]}" if home and path.startswith(f"{home}/") else path
