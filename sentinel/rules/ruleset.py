"""What a set of rule files says, once it has been read and found good."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from sentinel.model.alerts import RuleSpec
from sentinel.model.labels import Labels
from sentinel.rules.templates import Template

if TYPE_CHECKING:
    from sentinel.documents import Node
    from sentinel.promql.tree import Expr


@dataclass(frozen=True, slots=True, eq=False)
class Rule:
    """One rule, ready to be evaluated.

    Attributes:
        spec: What it says.
        expr: Its expression, read.
        reads: Names of the metrics it reads.
        labels: Added to what it yields; each may be a template.
        annotations: Templates.
        node: Where its expression stands, for problems found later.
        texts: Where its annotations and labels stand, by name.
    """

    spec: RuleSpec
    expr: Expr
    reads: frozenset[str]
    labels: tuple[tuple[str, Template], ...] = ()
    annotations: tuple[tuple[str, Template], ...] = ()
    node: Node | None = None
    texts: Mapping[str, Node] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The alert's name, or that of the series it records."""
        return self.spec.name

    def fixed_labels(self) -> Labels:
        """Those of its labels that are the same for every alert."""
        return Labels({name: template.text for name, template in self.labels if template.constant})


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """Rules that are evaluated together, in order.

    Attributes:
        name: Unique in a rule set.
        file: Where it was loaded from.
        interval_s: How often.
        rules: In order.
        limit: Most alerts or series one of its rules may yield; 0: any number.
        query_offset_s: How far back in time it looks.
    """

    name: str
    file: str
    interval_s: float
    rules: tuple[Rule, ...]
    limit: int = 0
    query_offset_s: float = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class RuleSet:
    """All groups in force."""

    groups: tuple[Group, ...] = ()

    def __iter__(self) -> Iterator[Rule]:
        for group in self.groups:
            yield from group.rules

    def __len__(self) -> int:
        return sum(len(group.rules) for group in self.groups)

    def overridden_by(self, other: RuleSet) -> RuleSet:
        """These rules, less those that `other` has under the same name, then the others."""
        taken = {rule.name for rule in other}
        kept = (
            replace(group, rules=tuple(rule for rule in group.rules if rule.name not in taken)) for group in self.groups
        )
        return RuleSet(_unique((*(group for group in kept if group.rules), *other.groups)))

    def with_(self, other: RuleSet) -> RuleSet:
        """These rules and the others: those of a job, which replace nothing."""
        return RuleSet(_unique((*self.groups, *other.groups)))

    def without_job(self, job_id: str) -> RuleSet:
        """These rules less the ones that came with that job."""
        kept = (
            replace(group, rules=tuple(rule for rule in group.rules if rule.spec.job_id != job_id))
            for group in self.groups
        )
        return RuleSet(tuple(group for group in kept if group.rules))


def _unique(groups: Iterable[Group]) -> tuple[Group, ...]:
    """The groups, with the file in the name of those that would share one."""
    named: list[Group] = []
    seen: Counter[str] = Counter()
    for group in groups:
        name = group.name
        if seen[name]:
            name = f"{group.name} ({group.file})"
            while seen[name]:
                name += "'"
        seen[name] += 1
        named.append(group if name == group.name else _renamed(group, name))
    return tuple(named)


def _renamed(group: Group, name: str) -> Group:
    rules = tuple(replace(rule, spec=replace(rule.spec, group=name)) for rule in group.rules)
    return replace(group, name=name, rules=rules)
