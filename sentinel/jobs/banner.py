"""The banner: what is protected and what is not, before the job's first line. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

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
    if trouble:
        return "\n".join((*lines, *_alone(trouble, colours))) + "\n"
    lines += [
        _line(good, name, text, colours)
        for name, (good, text) in (
            ("checkpoints", _checkpoints(spec, met, home)),
            ("can be asked", _requests(spec)),
            ("memory", _memory(spec)),
            ("told", _told(spec, met)),
        )
    ]
    if met.facts.get("mode") == "observe":
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


def _alone(trouble: str, colours: bool) -> list[str]:
    """Without a daemon nothing that was declared is done: no line may look as if it were."""
    return [
        _line(False, "daemon", f"none: {' '.join(trouble.split())}", colours),
        _line(False, "watched", "nothing, and nobody is asked or told: sentinel daemon", colours),
    ]


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
    """Whom the end of this job is told to, as the daemon will do it: the job's own addresses, else the route's."""
    told = met.facts.get("told")
    if not isinstance(told, Mapping):  # a daemon of before this was asked of it
        told = {"own": True, "addresses": [{} for _ in spec.notify]}
    found = [each for each in told.get("addresses") or () if isinstance(each, Mapping)]
    if not found:
        return False, "nobody, when it ends or fails: --notify URL"
    wrong = [each for each in found if each.get("problem")]
    named = _addresses(len(found) - len(wrong)) if told.get("own") else str(told.get("receiver"))
    if wrong:
        first = f"{wrong[0].get('address')}: {wrong[0]['problem']}"
        more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
        who = f"{named}, but not" if len(wrong) < len(found) else "nobody, not even"
        return False, f"{who} {first}{more}: --notify URL"
    return True, named + ("" if told.get("checked", True) else ", not looked at yet")


def _addresses(count: int) -> str:
    return f"{count} address{'' if count == 1 else 'es'} of yours"


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
