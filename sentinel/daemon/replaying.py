"""`sentinel rules backtest` on the daemon's side: history through other rules, in a thread, one at a time."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from sentinel.errors import SentinelError
from sentinel.model.alerts import RuleSpec
from sentinel.model.wire import encode
from sentinel.promql import limits
from sentinel.promql.series import Match, Matcher, SeriesReader
from sentinel.rules.backtest import Difference, Firing, Replay, differences, replay
from sentinel.rules.loader import load_text
from sentinel.rules.ruleset import RuleSet

_ALWAYS_MEASURED = (Matcher("__name__", Match.EQUAL, "host_memory_total_bytes"),)

Sees = Callable[[RuleSpec], Collection[str] | None]


def backtest(
    files: Sequence[tuple[str, str]],
    in_force: RuleSet,
    reader: SeriesReader,
    start: float,
    end: float,
    *,
    step_s: float | None,
    sees: Sees,
    budget_s: float,
) -> dict[str, Any]:
    """What rule files would have said, and how that differs from the rules in force.

    Args:
        files: Names and texts; none: the rules in force themselves.
        in_force: Those that whoever asks may see.
        reader: What whoever asks may read.
        start: Unix seconds; what is before the first measurement is left out.
        end: Unix seconds.
        step_s: Evaluate so often instead of at the groups' intervals.
        sees: Which jobs' series a rule may read.
        budget_s: How long it may take.

    Raises:
        SentinelError: The files are wrong, or it took too long.
    """
    changed = RuleSet()
    for name, text in files:
        changed = changed.with_(load_text(text, name))
    try:
        with limits.within(budget_s):
            measured = [block.times for block in reader.select(_ALWAYS_MEASURED, start, end) if len(block.times)]
            begin = max(start, min((float(times[0]) for times in measured), default=start))
            rules = changed if files else in_force
            new = replay(rules, reader, begin, end, step_s=step_s, sees=sees)
            found: list[Difference] = []
            if files:
                old = replay(_counterparts(in_force, changed), reader, begin, end, step_s=step_s, sees=sees)
                found = differences(changed, new, old, in_force, end)
    except TimeoutError:
        raise SentinelError(
            f"the backtest took longer than {budget_s:g} s", hint="a shorter --since, fewer rules, or a longer --step"
        ) from None
    return {
        "start": begin,
        "end": end,
        "rules": [_rule(rule.name, rule.spec.group, new, end) for rule in rules if not rule.spec.recording],
        "difference": [_difference(one, end) for one in found] if files else None,
        "faults": dict(new.faults),
    }


def _counterparts(in_force: RuleSet, changed: RuleSet) -> RuleSet:
    """The rules in force of the same names, and everything that is recorded for them."""
    names = {rule.name for rule in changed}
    kept = (
        replace(group, rules=tuple(rule for rule in group.rules if rule.spec.recording or rule.name in names))
        for group in in_force.groups
    )
    return RuleSet(tuple(group for group in kept if group.rules))


def _rule(name: str, group: str, found: Replay, end: float) -> dict[str, Any]:
    firings = [each for each in found.firings if each.rule == name and each.group == group]
    return {
        "rule": name,
        "group": group,
        "fault": found.faults.get(name),
        "seconds": sum(each.seconds(end) for each in firings),
        "firings": [_firing(each, end) for each in firings],
    }


def _difference(found: Difference, end: float) -> dict[str, Any]:
    return {
        "rule": found.rule,
        "in_force": found.in_force,
        "more": [_firing(each, end) for each in found.more],
        "fewer": [_firing(each, end) for each in found.fewer],
        "same": found.same,
    }


def _firing(firing: Firing, end: float) -> Mapping[str, Any]:
    return {
        "labels": firing.labels.as_dict(),
        "job": firing.labels.get("job"),
        "began": firing.began,
        "fired": firing.fired,
        "ended": firing.ended,
        "reason": firing.reason.value if firing.reason else None,
        "seconds": firing.seconds(end),
        "value": encode(firing.value),
        "summary": firing.summary,
        "requests": [{"job": job or None, "request": request.value} for job, request in firing.requests],
    }
