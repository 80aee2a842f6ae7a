"""Binary operators: between two vectors that must find each other by labels, or a vector and a number."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sentinel.model.labels import METRIC_NAME, Labels
from sentinel.promql.errors import EvaluationError
from sentinel.promql.frames import (
    Frame,
    Groups,
    Ints,
    LabelSets,
    all_true,
    counted,
    empty,
    group,
    joined,
    memo,
    reduced,
)
from sentinel.promql.numbers import go_labels
from sentinel.promql.series import Floats, Mask
from sentinel.promql.tree import COMPARISON, Binary, Matching

OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "/": np.divide,
    "%": np.fmod,
    "^": np.float_power,
    "atan2": np.arctan2,
    "==": np.equal,
    "!=": np.not_equal,
    ">": np.greater,
    "<": np.less,
    ">=": np.greater_equal,
    "<=": np.less_equal,
}


def between_scalars(op: str, left: Floats, right: Floats) -> Floats:
    """Two numbers, step by step."""
    return np.asarray(OPERATORS[op](left, right), dtype=np.float64)


def with_scalar(expr: Binary, frame: Frame, scalar: Floats, *, scalar_left: bool) -> Frame:
    """A vector and a number."""
    sides = (scalar, frame.values) if scalar_left else (frame.values, scalar)
    made = OPERATORS[expr.op](*sides)
    gone = all_true(len(frame.labels))
    if expr.op not in COMPARISON:
        return Frame(frame.labels, made, frame.present, frame.kept, gone)
    if expr.returns_bool:
        return Frame(frame.labels, made.astype(np.float64), frame.present, frame.kept, gone)
    return Frame(frame.labels, frame.values, frame.present, frame.kept & made, frame.drop)


@dataclass(frozen=True, slots=True, eq=False)
class _Join:
    """How the rows of two sides meet, known from their labels.

    Attributes:
        left: Groups of the left rows by their signature.
        right: The same of the right rows; signatures are the groups' labels.
        partner: int[N left]: the right group with the same signature, or -1.
        back: int[G right]: the left group with the same signature, or -1.
        all_met: Whether no left row is without a partner.
    """

    left: Groups
    right: Groups
    partner: Ints
    back: Ints
    all_met: bool


def _join(left: LabelSets, right: LabelSets, matching: Matching) -> _Join:
    def make() -> _Join:
        ours, theirs = _signatures(left, matching), _signatures(right, matching)
        index = {signature: at for at, signature in enumerate(theirs.labels)}
        by_group = np.array([index.get(signature, -1) for signature in ours.labels], dtype=np.int64)
        partner = by_group[ours.ids] if len(left) else np.zeros(0, dtype=np.int64)
        back = np.full(len(theirs.labels), -1, dtype=np.int64)
        back[by_group[by_group >= 0]] = np.flatnonzero(by_group >= 0)
        return _Join(ours, theirs, partner, back, bool((partner >= 0).all()))

    return memo("join", (left, right), (matching.on, matching.labels), make)


def _signatures(labels: LabelSets, matching: Matching) -> Groups:
    def make() -> Groups:
        if matching.on:
            return group([one.only(matching.labels) for one in labels])
        gone = (*matching.labels, METRIC_NAME)
        return group([one.without(gone) for one in labels])

    return memo("signatures", (labels,), (matching.on, matching.labels), make)


# -- set operators --------------------------------------------------------------------------------------------


def set_operation(expr: Binary, left: Frame, right: Frame) -> Frame:
    """`and`, `or`, `unless`."""
    join = _join(left.labels, right.labels, expr.matching)
    if expr.op == "or":
        return _either(join, left, right)
    holds = _meets(join.right, join.partner, right.kept, left.steps)
    if expr.op == "unless":
        return Frame(left.labels, left.values, left.present, left.kept & ~holds, left.drop)
    # A partner that is there but masked makes the element clear; no partner at all leaves it dark.
    there = holds if right.present is right.kept else _meets(join.right, join.partner, right.present, left.steps)
    return Frame(left.labels, left.values, left.present & there, left.kept & holds, left.drop)


def _meets(groups: Groups, partner: Ints, mask: Mask, steps: int) -> Mask:
    """Per row of one side: whether `mask` is set anywhere in its partner group on the other side."""
    if not len(groups.labels):
        return np.zeros((len(partner), steps), dtype=bool)
    some = reduced(np.logical_or, groups, mask)
    return np.asarray(some[partner] & (partner >= 0)[:, None])


def _either(join: _Join, left: Frame, right: Frame) -> Frame:
    if not right.labels:
        return left
    if not left.labels:
        return right
    ours = _meets(join.left, join.back[join.right.ids], left.kept, left.steps)
    others = Frame(right.labels, right.values, right.present, right.kept & ~ours, right.drop)
    return joined([left, others], left.steps)


# -- arithmetic and comparison --------------------------------------------------------------------------------


def between_vectors(expr: Binary, left: Frame, right: Frame) -> Frame:
    """Two vectors; `group_right` is `group_left` seen from the other side."""
    swapped = expr.matching.group == "right"
    many, one = (right, left) if swapped else (left, right)
    return _Operation(expr, swapped, many, one).result()


class _Operation:
    def __init__(self, expr: Binary, swapped: bool, many: Frame, one: Frame) -> None:
        self._expr = expr
        self._swapped = swapped
        self._many = many
        self._one = one
        matching = expr.matching
        fills = (matching.fill_left, matching.fill_right)
        self._fill_many, self._fill_one = fills[::-1] if swapped else fills
        self._join = _join(many.labels, one.labels, matching)
        self._filling = self._fill_many is not None or self._fill_one is not None

    def result(self) -> Frame:
        steps = self._many.steps
        if not self._filling and (not self._many.labels or not self._one.labels):
            return empty(steps)
        if self._expr.matching.include and not self._join.right.lone:
            return self._spread()
        one = self._collapsed()
        frames = [self._matched(one)] if self._many.labels else []
        if self._fill_many is not None and one.labels:
            frames.append(self._filled(one, self._fill_many))
        return joined(frames, steps)

    # The side of one, with one row per signature.
    def _collapsed(self) -> Frame:
        one, groups = self._one, self._join.right
        if groups.lone:
            return one
        self._refuse_duplicates(one, groups)
        order = groups.order
        # Of several rows the kept one counts, else one that is there but masked.
        rank = one.kept.astype(np.int64) * 2 + one.present
        best = np.maximum.reduceat(rank[order] * len(order) + np.arange(len(order))[:, None], groups.starts, axis=0)
        rows = order[best % len(order)]

        def pick(array: NDArray[Any]) -> Any:
            return np.take_along_axis(array, rows, axis=0)

        first = order[groups.starts]
        labels = memo("firsts", (one.labels, groups.labels), None, lambda: tuple(one.labels[at] for at in first))
        return Frame(labels, pick(one.values), pick(one.present), pick(one.kept), one.drop[first])

    def _refuse_duplicates(self, one: Frame, groups: Groups) -> None:
        doubled = counted(groups, one.kept) > 1
        if not self._filling and self._many.labels:
            doubled &= self._many.kept.any(axis=0)
        if not doubled.any() or (not self._filling and not self._many.labels):
            return
        step = int(np.flatnonzero(doubled.any(axis=0))[0])
        pairs = []
        for at in np.flatnonzero(doubled[:, step]).tolist():
            begin = int(groups.starts[at])
            rows = groups.order[begin : begin + int(groups.sizes[at])]
            pairs.append(([int(row) for row in rows if one.kept[row, step]][1::-1], at))
        # Named is the pair whose second member comes first, as when the rows are read one by one.
        rows_of_pair, at = min(pairs)
        both = [one.labels[row] for row in reversed(rows_of_pair)]
        side = "left" if self._swapped else "right"
        raise EvaluationError(
            f"found duplicate series for the match group {go_labels(groups.labels[at])} on the {side} hand-side of "
            f"the operation: [{go_labels(both[1])}, {go_labels(both[0])}];many-to-many matching not allowed: "
            "matching labels must be unique on one side",
            self._expr.op_span.start,
            self._expr.op_span.end,
        )

    def _matched(self, one: Frame) -> Frame:
        join, many = self._join, self._many
        partner = join.partner
        if self._fill_one is not None:
            values, present, kept = self._with_fill(one, self._fill_one)
            rows: Ints | None = None
        else:
            rows = None if join.all_met else memo(
                "met", (many.labels, join.right.labels), None, lambda: np.flatnonzero(partner >= 0)
            )  # fmt: skip
            at = partner if rows is None else partner[rows]
            values, present, kept = one.values[at], one.present[at], one.kept[at]
        labels = self._labels(rows)
        mine = many if rows is None else Frame(
            labels, many.values[rows], many.present[rows], many.kept[rows], many.drop[rows]
        )  # fmt: skip
        made = self._computed(mine, values, mine.present & present, mine.kept & kept, labels)
        self._refuse_ambiguous(made, rows)
        return made

    def _with_fill(self, one: Frame, fill: float) -> tuple[Floats, Mask, Mask]:
        shape = self._many.values.shape
        met = self._join.partner >= 0
        at = np.maximum(self._join.partner, 0)
        if not one.labels:
            return np.full(shape, fill), np.ones(shape, dtype=bool), np.ones(shape, dtype=bool)
        there: Mask = np.asarray(one.kept[at] & met[:, None], dtype=np.bool_)
        masked = one.present[at] & met[:, None] & ~there
        values = np.where(there | masked, one.values[at], fill)
        return values, np.ones(shape, dtype=bool), ~masked

    def _computed(self, mine: Frame, others: Floats, present: Mask, kept: Mask, labels: LabelSets) -> Frame:
        op = self._expr.op
        left, right = (others, mine.values) if self._swapped else (mine.values, others)
        made = OPERATORS[op](left, right)
        drop = mine.drop
        if op in COMPARISON:
            if self._expr.returns_bool:
                return Frame(labels, made.astype(np.float64), present, kept, np.ones(len(labels), dtype=bool))
            return Frame(labels, np.asarray(left), present, kept & made, drop)
        return Frame(labels, made, present, kept, drop)

    def _labels(self, rows: Ints | None) -> LabelSets:
        expr, many, one = self._expr, self._many, self._one
        matching = expr.matching
        keep_name = expr.op in COMPARISON

        def make() -> LabelSets:
            places = range(len(many.labels)) if rows is None else rows.tolist()
            groups = self._join.right
            found = []
            for place in places:
                at = int(self._join.partner[place])
                source = one.labels[int(groups.order[groups.starts[at]])] if at >= 0 else Labels()
                found.append(_result_labels(many.labels[place], source, matching, keep_name=keep_name))
            return tuple(found)

        key = (matching, keep_name, rows is None)
        return memo("result", (many.labels, one.labels), key, make)

    def _refuse_ambiguous(self, made: Frame, rows: Ints | None) -> None:
        """One-to-one: no two left rows with one partner. Many-to-one: no two results with the same labels."""
        if self._expr.matching.group:
            groups = memo("result groups", (made.labels,), None, lambda: group(list(made.labels)))
            words = "multiple matches for labels: grouping labels must ensure unique matches"
        else:
            if self._join.left.lone:
                return
            ours = self._join.left
            groups = ours if rows is None else memo(
                "met groups", (self._many.labels, self._one.labels), self._expr.matching,
                lambda: group([ours.labels[at] for at in ours.ids[rows]]),
            )  # fmt: skip
            words = "multiple matches for labels: many-to-one matching must be explicit (group_left/group_right)"
        if groups.lone:
            return
        if (counted(groups, made.kept) > 1).any():
            raise EvaluationError(words, self._expr.op_span.start, self._expr.op_span.end)

    def _filled(self, one: Frame, fill: float) -> Frame:
        """Rows of the side of one that found nobody, with `fill` in the place of the missing."""
        join = self._join
        met = _meets(join.left, join.back, self._many.kept, one.steps) if self._many.labels else np.zeros(
            one.values.shape, dtype=bool
        )  # fmt: skip
        matching, keep_name = self._expr.matching, self._expr.op in COMPARISON

        def make() -> LabelSets:
            return tuple(
                _result_labels(signature, labels, matching, keep_name=keep_name)
                for signature, labels in zip(join.right.labels, one.labels, strict=True)
            )

        labels = memo("filled", (join.right.labels, one.labels), (matching, keep_name), make)
        # With lone groups the rows of `one` stand in the order of its series, which is that of the groups.
        stand_in = Frame(
            labels, np.full(one.values.shape, fill), one.present & ~met, one.kept & ~met,
            np.zeros(len(labels), dtype=bool),
        )  # fmt: skip
        return self._computed(stand_in, one.values, stand_in.present, stand_in.kept, labels)

    def _spread(self) -> Frame:
        """Where several rows of the side of one share a signature and lend labels: every pair gets a row."""
        many, one, join = self._many, self._one, self._join
        self._refuse_duplicates(one, join.right)
        firsts: list[int] = []
        seconds: list[int] = []
        there = np.asarray(one.present.any(axis=1)).tolist()
        for place, at in enumerate(join.partner.tolist()):
            if at >= 0:
                begin = int(join.right.starts[at])
                for row in join.right.order[begin : begin + int(join.right.sizes[at])].tolist():
                    if there[row]:
                        firsts.append(place)
                        seconds.append(row)
        if len(firsts) > _MOST_PAIRS:
            raise EvaluationError("this join has too many possible partners", self._expr.op_span.start)
        matching, keep_name = self._expr.matching, self._expr.op in COMPARISON
        labels = tuple(
            _result_labels(many.labels[a], one.labels[b], matching, keep_name=keep_name)
            for a, b in zip(firsts, seconds, strict=True)
        )
        mine = Frame(labels, many.values[firsts], many.present[firsts], many.kept[firsts], many.drop[firsts])
        made = self._computed(
            mine, one.values[seconds], mine.present & one.present[seconds], mine.kept & one.kept[seconds], labels
        )
        self._refuse_ambiguous(made, None)
        frames = [made]
        if self._filling:
            frames += self._spread_fills()
        return joined(frames, many.steps)

    def _spread_fills(self) -> list[Frame]:
        many, one, join = self._many, self._one, self._join
        matching, keep_name = self._expr.matching, self._expr.op in COMPARISON
        frames = []
        if self._fill_one is not None:
            met = _meets(join.right, join.partner, one.kept, many.steps)
            labels = tuple(_result_labels(each, Labels(), matching, keep_name=keep_name) for each in many.labels)
            mine = Frame(labels, many.values, many.present & ~met, many.kept & ~met, many.drop)
            fill = np.full(many.values.shape, self._fill_one)
            frames.append(self._computed(mine, fill, mine.present, mine.kept, labels))
        if self._fill_many is not None:
            back = join.back[join.right.ids]
            met = _meets(join.left, back, many.kept, many.steps)
            labels = tuple(
                _result_labels(join.right.labels[at], one.labels[row], matching, keep_name=keep_name)
                for row, at in enumerate(join.right.ids.tolist())
            )
            fill = np.full(one.values.shape, self._fill_many)
            mine = Frame(labels, fill, one.present & ~met, one.kept & ~met, np.zeros(len(labels), dtype=bool))
            frames.append(self._computed(mine, one.values, mine.present, mine.kept, labels))
        return frames


def _result_labels(mine: Labels, other: Labels, matching: Matching, *, keep_name: bool) -> Labels:
    found = mine.as_dict()
    if not keep_name:
        found.pop(METRIC_NAME, None)
    if not matching.group:
        if matching.on:
            found = {name: value for name, value in found.items() if name in matching.labels}
        else:
            for name in matching.labels:
                found.pop(name, None)
    for name in matching.include:
        found[name] = other.get(name, "")
    return Labels(found)


_MOST_PAIRS = 1_000_000
