"""Which labels a result can have, known from its expression alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sentinel.model.families import OWNER
from sentinel.model.labels import METRIC_NAME

if TYPE_CHECKING:
    from sentinel.promql.tree import Aggregate, Binary, Call, Expr, Selector

SOMETIMES = frozenset({"mig"})
"""Labels of our families that some entities do not have."""


@dataclass(frozen=True, slots=True)
class Shape:
    """The labels of a result.

    Attributes:
        always: Every element has these.
        possible: No element has any other.
        known: Whether `possible` can be relied on; False where a metric is not ours.
    """

    always: frozenset[str] = frozenset()
    possible: frozenset[str] = frozenset()
    known: bool = True

    def without(self, names: frozenset[str]) -> Shape:
        """Less these labels."""
        return Shape(self.always - names, self.possible - names, self.known)

    def only(self, names: frozenset[str]) -> Shape:
        """Only these labels; an aggregation yields no others, whatever it is given."""
        return Shape(self.always & names, self.possible & names if self.known else names)

    def plus(self, names: frozenset[str], *, surely: bool) -> Shape:
        """And these labels."""
        return Shape(self.always | names if surely else self.always, self.possible | names, self.known)

    def may_have(self, name: str) -> bool:
        """Whether an element could have this label."""
        return not self.known or name in self.possible


NOTHING = Shape()
UNKNOWN = Shape(known=False)

Recorded = Callable[[str], Shape | None]
"""The shape of a recorded series by its name, or None where no rule records it."""


def shape(expr: Expr, recorded: Recorded) -> Shape:
    """The labels of what `expr` yields, the metric's name left out."""
    from sentinel.promql import tree

    match expr:
        case tree.Selector():
            return _selected(expr, recorded)
        case tree.Range(selector=selector):
            return _selected(selector, recorded)
        case tree.Subquery(expr=inner) | tree.Paren(expr=inner) | tree.Unary(expr=inner):
            return shape(inner, recorded)
        case tree.Call():
            return _called(expr, recorded)
        case tree.Aggregate():
            return _aggregated(expr, recorded)
        case tree.Binary():
            return _joined(expr, recorded)
    return NOTHING


def metric_of(selector: Selector) -> str:
    """The metric a selector names plainly, or ""."""
    names = [m.value for m in selector.matchers if m.name == METRIC_NAME and m.match.value == "="]
    return names[0] if names else selector.name


def of_metric(name: str, recorded: Recorded) -> Shape | None:
    """The labels of one metric; None where nobody knows it."""
    if name in ("ALERTS", "ALERTS_FOR_STATE"):
        return UNKNOWN
    family = OWNER.get(name)
    if family is not None:
        labels = frozenset(family.labels)
        return Shape(labels - SOMETIMES, labels)
    return recorded(name)


def _selected(selector: Selector, recorded: Recorded) -> Shape:
    found = of_metric(metric_of(selector), recorded) or UNKNOWN
    absent = frozenset(m.name for m in selector.matchers if m.match.value == "=" and m.value == "")
    present = frozenset(
        m.name for m in selector.matchers if m.match.value == "=" and m.value and found.may_have(m.name)
    )
    return found.without(absent).plus(present - {METRIC_NAME}, surely=True)


def _called(call: Call, recorded: Recorded) -> Shape:
    from sentinel.promql import tree

    if call.function in ("absent", "absent_over_time"):
        selectors = [node for node in tree.walk(call) if isinstance(node, tree.Selector)]
        matchers = [m for each in selectors[:1] for m in each.matchers]
        names = frozenset(m.name for m in matchers if m.match.value == "=" and m.name != METRIC_NAME)
        return Shape(names, names)
    if call.function in ("vector", "scalar", "time", "pi") or not call.args:
        return NOTHING
    vectors = [arg for arg in call.args if not isinstance(tree.bare(arg), tree.Number | tree.String)]
    inner = shape(vectors[-1], recorded) if vectors else NOTHING
    if call.function in ("label_replace", "label_join"):
        target = call.args[1]
        made = frozenset({target.value}) if isinstance(target, tree.String) else frozenset()
        return inner.plus(made, surely=False)
    if call.function == "histogram_quantile":
        return inner.without(frozenset({"le"}))
    return inner


def _aggregated(aggregate: Aggregate, recorded: Recorded) -> Shape:
    from sentinel.promql import tree

    inner = shape(aggregate.expr, recorded)
    if aggregate.op in ("topk", "bottomk", "limitk", "limit_ratio"):
        return inner
    grouping = frozenset(aggregate.grouping)
    made = inner.without(grouping) if aggregate.without else inner.only(grouping)
    if aggregate.op == "count_values" and isinstance(aggregate.param, tree.String):
        made = made.plus(frozenset({aggregate.param.value}), surely=True)
    return made


def _joined(binary: Binary, recorded: Recorded) -> Shape:
    left, right = shape(binary.left, recorded), shape(binary.right, recorded)
    left_is_vector, right_is_vector = vector(binary.left), vector(binary.right)
    if not right_is_vector or binary.op in ("and", "unless"):
        return left
    if not left_is_vector:
        return right
    if binary.op == "or":
        return Shape(left.always & right.always, left.possible | right.possible, left.known and right.known)
    matching = binary.matching
    labels = frozenset(matching.labels)
    include = frozenset(matching.include)
    if matching.group == "left":
        return left.plus(include, surely=False)
    if matching.group == "right":
        return right.plus(include, surely=False)
    return left.only(labels) if matching.on else left.without(labels)


def fixed(expr: Expr) -> dict[str, str]:
    """Labels that every element of `expr` has with one and the same value, since a selector asks for it."""
    from sentinel.promql import tree

    match expr:
        case tree.Selector(matchers=matchers):
            equal = {m.name: m.value for m in matchers if m.match.value == "=" and m.value}
            equal.pop(METRIC_NAME, None)
            return equal
        case tree.Range(selector=inner):
            return fixed(inner)
        case tree.Subquery(expr=inner) | tree.Paren(expr=inner) | tree.Unary(expr=inner):
            return fixed(inner)
        case tree.Call(function=function, args=args):
            if function.startswith(("label_", "absent", "histogram_quantiles")):
                return {}
            return next((fixed(arg) for arg in reversed(args) if fixed(arg)), {})
        case tree.Aggregate(expr=inner, grouping=grouping, without=without, op=op):
            every = op in ("topk", "bottomk", "limitk")
            kept = fixed(inner)
            return {name: value for name, value in kept.items() if every or (name in grouping) is not without}
        case tree.Binary(op="and" | "unless", left=left):
            return fixed(left)
        case tree.Binary(left=left, right=right) if not vector(left) or not vector(right):
            return fixed(left) or fixed(right)
    return {}


def vector(expr: Expr) -> bool:
    """Whether it yields elements with labels."""
    from sentinel.promql import type_of

    return str(type_of(expr).value).endswith("vector")
