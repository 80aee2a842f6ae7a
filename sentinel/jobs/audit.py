"""Is this job looked after? The questions of the night before, answered from what is known. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sentinel.units import format_bytes, format_duration

_STALE_INTERVALS = 2.0


@dataclass(frozen=True, slots=True)
class Finding:
    """One question and its answer.

    Attributes:
        question: As a person asks it.
        good: Whether nothing has to be done.
        answer: What is known.
        advice: What to do about it; empty where nothing has to be done.
    """

    question: str
    good: bool
    answer: str
    advice: str = ""


def audit(job: Mapping[str, Any], rules: Sequence[str], receivers: Sequence[str], now: float) -> list[Finding]:
    """All questions about one job.

    Args:
        job: As `/v1/jobs/JOB` shows it.
        rules: The names of the rules in force.
        receivers: Whom the configuration tells.
        now: Unix seconds.
    """
    spec = job["spec"]
    ways = {channel["request"]: channel for channel in spec["channels"]}
    return [
        _checkpoints(job, spec, ways, now),
        _limits(job, spec),
        _resources(job, spec, ways, rules),
        _resume(job, spec),
        _retry(spec),
        _budget(spec),
        _told(spec, receivers),
    ]


def _checkpoints(job: Mapping[str, Any], spec: Mapping[str, Any], ways: Mapping[str, Any], now: float) -> Finding:
    question = "Does it write checkpoints?"
    if not spec["checkpoints"]:
        return Finding(question, False, "nobody watches for any", "--checkpoints DIR:30m")
    newest = job.get("checkpoint")
    if not newest:
        return Finding(question, False, "none was ever seen", "is --checkpoints the directory that it writes to?")
    age = max(0.0, now - newest["finished"])
    answer = f"the newest is {format_duration(age)} old, {format_bytes(newest['size_bytes'])}"
    wanted = min((place["interval_s"] for place in spec["checkpoints"] if place["interval_s"]), default=None)
    if wanted and age > _STALE_INTERVALS * wanted:
        return Finding(question, False, f"{answer}; one is wanted every {format_duration(wanted)}", "look into its log")
    if "checkpoint" not in ways:
        return Finding(question, False, f"{answer}, but it cannot be asked for one", "--on-checkpoint signal:USR1")
    return Finding(question, True, f"{answer}, and it can be asked for one")


def _limits(job: Mapping[str, Any], spec: Mapping[str, Any]) -> Finding:
    question = "Does it end when it hangs?"
    limit = job.get("timeout_s")
    words = []
    if limit:
        words.append(f"an attempt ends after {format_duration(limit)}{' (learnt)' if spec['timeout_auto'] else ''}")
    if spec["stall_timeout_s"]:
        words.append(f"and after {format_duration(spec['stall_timeout_s'])} without progress")
    if not words:
        advice = "--timeout auto --stall-timeout 30m"
        return Finding(question, False, "no: a stall is told, nothing is stopped", advice)
    return Finding(question, True, " ".join(words).removeprefix("and "))


def _resources(
    job: Mapping[str, Any], spec: Mapping[str, Any], ways: Mapping[str, Any], rules: Sequence[str]
) -> Finding:
    question = "Is it warned before resources run out?"
    limit = (job.get("memory") or {}).get("limit_bytes")
    against = f" (memory against {format_bytes(limit)})" if limit else ""
    if not rules:
        return Finding(question, False, "no rule is in force", "shipped_rules: true")
    if spec["dry_run"]:
        return Finding(question, False, f"{len(rules)} rules watch{against}, but nothing is asked", "no --dry-run")
    if "degrade" not in ways:
        answer = f"{len(rules)} rules watch{against}, but it cannot be asked to use less"
        return Finding(question, False, answer, "--on-degrade signal:USR2")
    return Finding(question, True, f"{len(rules)} rules watch{against}, and it can be asked to use less")


def _resume(job: Mapping[str, Any], spec: Mapping[str, Any]) -> Finding:
    question = "Does it go on where it was?"
    if job.get("supervisor") is None:
        return Finding(question, False, "nobody would start it again: it was adopted", "sentinel run")
    if not spec["checkpoints"]:
        return Finding(question, False, "no: nobody knows its checkpoints", "--checkpoints DIR")
    if "{checkpoint}" in " ".join(spec["argv"]):
        return Finding(question, True, "its command is given the newest checkpoint")
    return Finding(
        question, False, "only if it reads SENTINEL_RESUME_FROM by itself", "--resume {checkpoint} in the command"
    )


def _retry(spec: Mapping[str, Any]) -> Finding:
    question = "Is it started again when it fails?"
    if not spec["retries"]:
        return Finding(question, False, "no", "--retries 3")
    return Finding(question, True, f"up to {spec['retries']} times without progress")


def _budget(spec: Mapping[str, Any]) -> Finding:
    question = "Does trying again come to an end?"
    if spec["budget_s"]:
        return Finding(
            question, True, f"no attempt begins later than {format_duration(spec['budget_s'])} after the first"
        )
    if not spec["retries"]:
        return Finding(question, True, "it is not tried again at all")
    return Finding(question, True, "after three attempts without progress; by the clock never (--budget DURATION)")


def _told(spec: Mapping[str, Any], receivers: Sequence[str]) -> Finding:
    question = "Who is told?"
    people = [*spec["notify"], *receivers]
    if not people:
        return Finding(question, False, "nobody", "--notify URL")
    return Finding(question, True, ", ".join(people[:4]))
