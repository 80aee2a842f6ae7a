"""The linter: what loads, and yet cannot mean what its author meant."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from sentinel.errors import Problem, nearest
from sentinel.model.families import METRICS, OWNER
from sentinel.model.labels import METRIC_NAME, Labels
from sentinel.rules.bounds import VALUES, bounds
from sentinel.rules.loader import DEFAULTS, Options, read
from sentinel.rules.ruleset import Group, Rule, RuleSet
from sentinel.rules.shapes import Shape, fixed, metric_of, of_metric, shape, vector
from sentinel.rules.template_tree import Field, Variable, fields_in
from sentinel.units import format_duration

if TYPE_CHECKING:
    from sentinel.promql.series import Matcher
    from sentinel.promql.tree import Aggregate, Binary, Expr, Range, Selector

FEWEST_SAMPLES = 4
"""In a range, so that a rate or a slope is worth something."""


@dataclass(slots=True)
class Checked:
    """What came of one file.

    Attributes:
        file: Its path.
        rules: How many it holds.
        problems: Errors, which refuse the file, and warnings, which do not; by line.
        duplicates: Names of rules that stand there more than once with the same labels.
    """

    file: str
    rules: int = 0
    problems: list[Problem] = field(default_factory=list)
    duplicates: list[str] = field(default_factory=list)

    @property
    def errors(self) -> list[Problem]:
        """Those that refuse the file."""
        return [problem for problem in self.problems if problem.severity == "error"]


def check(
    paths: Iterable[Path | str],
    *,
    beside: RuleSet | None = None,
    ticks: Mapping[str, float] | None = None,
    tick_s: float = 2.0,
    options: Options = DEFAULTS,
) -> list[Checked]:
    """Read files and look for what cannot be meant.

    Args:
        paths: Rule files; they know what each other records.
        beside: Rules in force beside them, whose recorded series exist too.
        ticks: How often a family is sampled (seconds), by its name.
        tick_s: The same for all others.
        options: As when they are loaded.
    """
    checked: list[Checked] = []
    sets: list[RuleSet] = []
    for path in paths:
        one = Checked(str(path))
        found = read(path, one.problems, options)
        one.rules = len(found)
        checked.append(one)
        sets.append(found)
    known = _Known([*(group for each in sets for group in each.groups), *(beside.groups if beside else ())])
    linter = _Linter(known, ticks or {}, tick_s)
    for one, found in zip(checked, sets, strict=True):
        for rule in found:
            linter.look(rule)
        one.duplicates = _duplicates(found)
        # The documents have added the warnings to the list of the file they stand in.
        one.problems.sort(key=lambda problem: (problem.line, problem.column))
    return checked


def _duplicates(rules: RuleSet) -> list[str]:
    seen: dict[tuple[str, Labels], int] = {}
    for rule in rules:
        key = rule.name, rule.spec.labels
        seen[key] = seen.get(key, 0) + 1
        if seen[key] == 2 and rule.node is not None:
            rule.node.report(f"`{rule.name}` stands here before, with the same labels", severity="warning")
    return [name for (name, _), count in seen.items() if count > 1]


class _Known:
    """What the rules at hand record."""

    def __init__(self, groups: Sequence[Group]) -> None:
        self._rules = {rule.name: (rule, group) for group in groups for rule in group.rules if rule.spec.recording}
        self._shapes: dict[str, Shape] = {}
        self._open: set[str] = set()

    def names(self) -> frozenset[str]:
        """Of all metrics that exist."""
        return frozenset(METRICS) | frozenset(self._rules) | {"ALERTS", "ALERTS_FOR_STATE"}

    def interval_s(self, name: str) -> float | None:
        """How often a recorded series gets a sample."""
        found = self._rules.get(name)
        return None if found is None else found[1].interval_s

    def shape(self, name: str) -> Shape | None:
        """The labels of a recorded series."""
        found = self._rules.get(name)
        if found is None:
            return None
        if name not in self._shapes:
            if name in self._open:
                return Shape(known=False)
            self._open.add(name)
            added = frozenset(key for key, _ in found[0].labels)
            self._shapes[name] = shape(found[0].expr, self.shape).plus(added, surely=True)
            self._open.discard(name)
        return self._shapes[name]


class _Linter:
    """Looks at one rule after the other; what it finds goes to the rule's document."""

    def __init__(self, known: _Known, ticks: Mapping[str, float], tick_s: float) -> None:
        self._known = known
        self._ticks = ticks
        self._tick_s = tick_s

    def look(self, rule: Rule) -> None:
        from sentinel.promql import tree

        for part in tree.walk(rule.expr):
            if isinstance(part, tree.Selector):
                self._selector(rule, part)
            elif isinstance(part, tree.Range):
                self._range(rule, part)
            elif isinstance(part, tree.Aggregate):
                self._grouping(rule, part)
            elif isinstance(part, tree.Binary):
                self._comparison(rule, part)
                self._join(rule, part)
        if not rule.spec.recording:
            result = shape(rule.expr, self._known.shape)
            self._addressee(rule, result)
            self._templates(rule, result)

    def _selector(self, rule: Rule, selector: Selector) -> None:
        name = metric_of(selector)
        start = selector.span.start
        if not name:
            return
        found = of_metric(name, self._known.shape)
        if found is None:
            near = nearest(name, self._known.names())
            hint = f"`{near}`" + (f" ({METRICS[near].help.rstrip('.')})" if near in METRICS else "") if near else None
            _warn(rule, f"unknown metric `{name}`", start, start + len(name), hint)
            return
        for matcher in selector.matchers:
            self._value(rule, selector, matcher, name)
            if matcher.name != METRIC_NAME and not found.may_have(matcher.name):
                place = rule.spec.expr.find(matcher.name, start, selector.span.end)
                near = nearest(matcher.name, found.possible)
                hint = f"`{near}`" if near else _those(name, found.possible)
                begin = place if place >= 0 else start
                _warn(rule, f"`{name}` has no label `{matcher.name}`", begin, begin + len(matcher.name), hint)

    @staticmethod
    def _value(rule: Rule, selector: Selector, matcher: Matcher, name: str) -> None:
        known = VALUES.get((name, matcher.name))
        if known is None or matcher.match.value != "=" or not matcher.value or matcher.value in known:
            return
        place = rule.spec.expr.find(matcher.value, selector.span.start, selector.span.end)
        begin, near = (place if place >= 0 else selector.span.start), nearest(matcher.value, known)
        _warn(
            rule,
            f"`{name}` has no `{matcher.name}` of this value",
            begin,
            begin + len(matcher.value),
            f"`{near}`" if near else ", ".join(f"`{value}`" for value in sorted(known)),
        )

    def _range(self, rule: Rule, part: Range) -> None:
        name = metric_of(part.selector)
        family = OWNER.get(name)
        tick = self._ticks.get(family.name, self._tick_s) if family else self._known.interval_s(name)
        if tick is None or part.range_s >= FEWEST_SAMPLES * tick:
            return
        _warn(
            rule,
            f"`{name}` is sampled every {format_duration(tick)}, so "
            f"{format_duration(part.range_s)} hold {int(part.range_s // tick)} of its samples",
            part.selector.span.end,
            part.span.end,
            f"at least [{format_duration(FEWEST_SAMPLES * tick).replace(' ', '')}]",
        )

    def _grouping(self, rule: Rule, part: Aggregate) -> None:
        inner = shape(part.expr, self._known.shape)
        for name in part.grouping:
            if not inner.may_have(name):
                place = rule.spec.expr.find(name, part.span.start, part.span.end)
                begin = place if place >= 0 else part.span.start
                near = nearest(name, inner.possible)
                hint = f"`{near}`" if near else None
                _warn(rule, f"nothing here has a label `{name}`", begin, begin + len(name), hint)

    def _comparison(self, rule: Rule, part: Binary) -> None:
        from sentinel.promql.tree import COMPARISON

        if part.op not in COMPARISON or part.returns_bool:
            return
        for one, other, op in ((part.left, part.right, part.op), (part.right, part.left, _MIRROR[part.op])):
            number = _number(other)
            if number is None or _number(one) is not None:
                continue
            found = bounds(one)
            if found.why and found.never(op, number):
                hint = f"{number / 100:g}" if found.share and 1 < number <= 100 else None
                _warn(rule, f"{found.why}, so this never holds", part.span.start, part.span.end, hint)

    def _join(self, rule: Rule, part: Binary) -> None:
        if part.op == "or" or not vector(part.left) or not vector(part.right):
            return
        left, right = shape(part.left, self._known.shape), shape(part.right, self._known.shape)
        labels = frozenset(part.matching.labels)
        for one, other, words in ((left, right, "right"), (right, left, "left")):
            wanted = one.always & labels if part.matching.on else one.always - labels
            missing = sorted(name for name in wanted if not other.may_have(name))
            if missing:
                named = ", ".join(f"`{name}`" for name in missing)
                _warn(
                    rule,
                    f"these never match: the {words} side has no {named}",
                    part.op_span.start,
                    part.op_span.end,
                    self._remedy(part, left, right),
                )
                return
        ours, theirs = fixed(part.left), fixed(part.right)
        for name in sorted(ours.keys() & theirs.keys()):
            if ours[name] != theirs[name] and (name in labels) is part.matching.on:
                _warn(
                    rule,
                    f'these never match: `{name}` is "{ours[name]}" on the left and "{theirs[name]}" on the right',
                    part.op_span.start,
                    part.op_span.end,
                    f"`{part.op} ignoring({name})`",
                )
                return

    @staticmethod
    def _remedy(part: Binary, left: Shape, right: Shape) -> str:
        common = ", ".join(sorted(left.possible & right.possible))
        group = ""
        if part.op not in ("and", "or", "unless") and left.always != right.always:
            group = " group_left()" if left.always > right.always else " group_right()"
        return f"`{part.op} on({common}){group}`"

    def _addressee(self, rule: Rule, result: Shape) -> None:
        asking = [action for action in rule.spec.actions if action.request is not None]
        silent = [action for action in asking if not action.jobs]
        has = {name for name, _ in rule.labels}
        if not silent or "job" in has or result.may_have("job") or result.may_have("uuid") or rule.node is None:
            return
        kinds = ", ".join(str(action.request) for action in silent)
        _warn(
            rule,
            f"`{rule.name}` names no job, so nobody is asked for {kinds}: it only tells people",
            0,
            len(rule.spec.expr.splitlines()[0]) if rule.spec.expr else 1,
            "`jobs: all` or a list of names on the action, or an expression that keeps the label `job`",
        )

    def _templates(self, rule: Rule, result: Shape) -> None:
        if not result.known:
            return
        for key, template in (*rule.annotations, *rule.labels):
            node = rule.texts.get(key)
            for found in fields_in(template.nodes):
                if not _label_of(found) or result.may_have(found.name) or found.name == METRIC_NAME or node is None:
                    continue
                near = nearest(found.name, result.possible)
                node.report(
                    f"the alert's result has no label `{found.name}`",
                    f"`{near}`" if near else _those("it", result.possible),
                    start=found.start,
                    end=found.end,
                    severity="warning",
                )


_MIRROR = {"<": ">", ">": "<", "<=": ">=", ">=": "<=", "==": "==", "!=": "!="}


def _label_of(found: Field) -> bool:
    """Whether it is `$labels.x` or `.Labels.x`."""
    return found.of == Variable("$labels") or (isinstance(found.of, Field) and found.of.name == "Labels")


def _those(name: str, labels: frozenset[str]) -> str:
    return f"{name} has " + (", ".join(f"`{label}`" for label in sorted(labels)) or "no labels")


def _warn(rule: Rule, message: str, start: int, end: int, hint: str | None = None) -> None:
    if rule.node is not None:
        rule.node.report(message, hint, start=start, end=end, severity="warning")


def _number(expr: Expr) -> float | None:
    from sentinel.promql import tree

    match tree.bare(expr):
        case tree.Number(value=value):
            return value
        case tree.Unary(op="-", expr=inner):
            below = _number(inner)
            return None if below is None else -below
    return None
