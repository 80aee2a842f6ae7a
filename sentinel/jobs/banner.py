"""The banner: what is protected and what is not, before the job's first line. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sentinel.jobs.limits import AUTO_DEFAULT_S, AUTO_RUNS
from sentinel.jobs.link import Registration
from sentinel.model.jobs import JobSpec
from sentinel.model.requests import RequestKind
from sentinel.units import format_bytes, format_duration

_BOLD, _GREEN, _YELLOW, _DIM, _PLAIN = "\x1b[1m", "\x1b[32m", "\x1b[33m", "\x1b[2m", "\x1b[0m"
_WIDTH = 12
_ASKABLE = (RequestKind.CHECKPOINT, RequestKind.DEGRADE)


def banner(
    spec: JobSpec,
    met: Registration,
    logs: Sequence[str],
    *,
    trouble: str = "",
    colours: bool = False,
    home: str = "",
    deadline_s: float | None = None,
    adopted: bool = False,
) -> str:
    """At most six lines. Each "no" names the option that changes it.

    Args:
        spec: What the owner declared.
        met: What the daemon said.
        logs: Where the output is kept.
        trouble: Why no daemon was reached; empty: one was.
        colours: Whether the reader is a terminal.
        home: Shortened to ~ where it begins a path.
        deadline_s: In how long a scheduler ends the job; None: there is none that says so.
        adopted: Whether it ran before it was watched, so that nobody here can start it again or end it in time.
    """
    lines = [_head(spec, met, logs, home, colours)]
    if trouble:
        return "\n".join((*lines, *_alone(spec, met, trouble, deadline_s, colours))) + "\n"
    lines += [
        _line(good, name, text, colours)
        for name, (good, text) in (
            ("checkpoints", _checkpoints(spec, met, home)),
            ("can be asked", _requests(spec)),
            ("told", _told(spec, met)),
            ("retry", (False, "nobody here can start it again: sentinel run -- CMD") if adopted else _retry(spec)),
            ("limits", _limits(spec, met, deadline_s, adopted=adopted)),
        )
    ]
    if met.facts.get("mode") == "observe":
        lines[-1] = _line(False, "acts", "no, the daemon only says what it would do: mode: act", colours)
    elif spec.dry_run:
        lines[-1] = _line(False, "acts", "no, it only says what it would do: leave --dry-run out", colours)
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


def _alone(spec: JobSpec, met: Registration, trouble: str, deadline_s: float | None, colours: bool) -> list[str]:
    """Without a daemon only the supervisor's own part of what was declared is done: no other line may look so."""
    own = [("retry", _retry(spec))] if spec.retries else []
    if spec.timeout_s or spec.timeout_auto or spec.stall_timeout_s or deadline_s is not None:
        own.append(("limits", _limits(spec, met, deadline_s, alone=True)))
    return [
        *(_line(good, name, text, colours) for name, (good, text) in own),
        _line(False, "daemon", f"none: {_first(trouble)}", colours),
        _line(False, "watched", "nothing, and nobody is asked or told: sentinel daemon", colours),
    ]


def _first(trouble: str) -> str:
    """Trouble in one line: what an error shows of a file, and its hints, are indented and left out."""
    return " ".join(line for line in trouble.splitlines() if line and not line[0].isspace())


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
        absent = met.facts.get("checkpoints_absent") or ()
        words.append("does not exist yet" if len(absent) == len(spec.checkpoints) else "none yet")
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


def _retry(spec: JobSpec) -> tuple[bool, str]:
    if not spec.retries:
        return False, "no, a failure ends it: --retries 3"
    within = f" within {format_duration(spec.budget_s)}" if spec.budget_s is not None else ""
    words = f"{spec.retries} times{within} without progress"
    if not spec.checkpoints:
        return False, f"{words}, each from the start: --checkpoints DIR"
    how = "from the newest checkpoint" if resumes(spec) else "if it reads SENTINEL_RESUME_FROM"
    return True, f"{words}, {how}"


def resumes(spec: JobSpec) -> bool:
    """Whether the command is given its checkpoint."""
    return "{checkpoint}" in " ".join(spec.argv)


def _limits(
    spec: JobSpec, met: Registration, deadline_s: float | None, *, alone: bool = False, adopted: bool = False
) -> tuple[bool, str]:
    """Time, stalls, the scheduler's end, and memory, in one line."""
    words = []
    if deadline_s is not None:
        words.append(f"the scheduler ends it in {format_duration(max(0.0, deadline_s))}, a checkpoint is asked before")
    if spec.timeout_auto:
        limit, runs = met.facts.get("timeout_seconds"), met.facts.get("timeout_runs")
        learnt = isinstance(runs, int) and runs >= AUTO_RUNS
        known = f"P99 of {runs} runs" if learnt else f"so far {runs or 0} of {AUTO_RUNS} runs known"
        words.append(f"time {format_duration(float(limit or AUTO_DEFAULT_S))} ({known})")
    elif spec.timeout_s is not None:
        words.append(f"time {format_duration(spec.timeout_s)}")
    if spec.stall_timeout_s is not None:
        words.append(f"stopped after {format_duration(spec.stall_timeout_s)} without progress")
    elif not alone:
        words.append("a stall is only told" + ("" if adopted else " (--stall-timeout)"))
    if alone:
        pass  # memory is the daemon's to measure
    elif spec.memory_limit_bytes is not None:
        words.append(f"memory {format_bytes(spec.memory_limit_bytes)}")
    else:
        words.append("memory of cgroup or host")
    return True, ", ".join(words)


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
