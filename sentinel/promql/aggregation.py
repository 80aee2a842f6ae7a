"""Aggregations over groups of rows, all groups and all steps at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sentinel.model.labels import METRIC_NAME, Labels
from sentinel.promql.errors import EvaluationError
from sentinel.promql.frames import (
    Frame,
    Groups,
    Ints,
    LabelSets,
    all_false,
    all_true,
    counted,
    empty,
    every,
    group,
    memo,
    reduced,
)
from sentinel.promql.numbers import go_float, go_g
from sentinel.promql.over_time import quantiles
from sentinel.promql.relabel import label_order
from sentinel.promql.series import Floats, Mask
from sentinel.promql.sums import doubtful, mean, neumaier
from sentinel.promql.tree import Aggregate

_MOST_CELLS = 4_000_000
_INT64 = 2.0**63


def groups_of(labels: LabelSets, grouping: tuple[str, ...], *, without: bool) -> Groups:
    """The groups of `by (…)` or `without (…)`."""

    def make() -> Groups:
        if without:
            gone = (*grouping, METRIC_NAME)
            return group([one.without(gone) for one in labels])
        return group([one.only(grouping) for one in labels] if grouping else [Labels()] * len(labels))

    return memo("groups", (labels,), (grouping, without), make)


def aggregated(expr: Aggregate, frame: Frame, param: Floats | str | None) -> Frame:
    """What `expr` makes of `frame`; `param` is its first argument, per step."""
    if not frame.labels:
        return empty(frame.steps)
    groups = groups_of(frame.labels, expr.grouping, without=expr.without)
    if expr.op in {"topk", "bottomk", "limitk"}:
        assert isinstance(param, np.ndarray)
        return _chosen(expr.op, frame, groups, param)
    if expr.op == "count_values":
        assert isinstance(param, str)
        return _count_values(expr, frame, param)
    counts = counted(groups, frame.kept)
    present = counts > 0 if frame.present is frame.kept else reduced(np.logical_or, groups, frame.present)
    dropping = np.count_nonzero(frame.drop)
    if dropping in {0, len(frame.labels)}:
        drop = all_true(len(groups.labels)) if dropping else all_false(len(groups.labels))
    else:
        drop = reduced(np.logical_or, groups, frame.drop.reshape(-1, 1))[:, 0]
    if expr.op == "quantile":
        assert isinstance(param, np.ndarray)
        values = _quantile(frame, groups, param)
    else:
        values = _summary(expr.op, frame, groups, counts)
    return Frame(groups.labels, values, present, counts > 0, drop)


def _summary(op: str, frame: Frame, groups: Groups, counts: Ints) -> Floats:
    everything = every(frame.kept)
    values = frame.values
    match op:
        case "count":
            return counts.astype(np.float64)
        case "group":
            return np.ones(counts.shape)
        case "sum":
            return _sums(values if everything else np.where(frame.kept, values, 0.0), groups)
        case "avg":
            return _means(frame, groups, counts)
        case "min" | "max":
            return reduced(
                np.fmin if op == "min" else np.fmax,
                groups,
                values if everything else np.where(frame.kept, values, np.nan),
            )
        case _:
            # Seen from the least value, a constant has no variance at all, not just a tiny one.
            seen = values if everything else np.where(frame.kept, values, np.nan)
            centred = seen - reduced(np.fmin, groups, seen)[groups.ids]
            sums = reduced(np.add, groups, centred if everything else np.where(frame.kept, centred, 0.0))
            centred = centred - (sums / np.maximum(counts, 1))[groups.ids]
            if not everything:
                centred = np.where(frame.kept, centred, 0.0)
            variance = reduced(np.add, groups, centred * centred) / np.maximum(counts, 1)
            return variance if op == "stdvar" else np.sqrt(variance)


def _sums(values: Floats, groups: Groups) -> Floats:
    sums = reduced(np.add, groups, values)
    # Terms of one sign cannot cancel, and then a plain sum is as good.
    if not groups.lone and not values.min(initial=0.0) >= 0:
        check = doubtful(sums, reduced(np.add, groups, np.abs(values)), int(groups.sizes.max()))
        if check.any():
            sums = sums.copy()
            for at, step in np.argwhere(check):
                sums[at, step] = neumaier(_members(values, groups, int(at), int(step)))
    return sums


def _members(values: Floats, groups: Groups, at: int, step: int) -> list[float]:
    begin = int(groups.starts[at])
    found: list[float] = values[groups.order[begin : begin + int(groups.sizes[at])], step].tolist()
    return found


def _means(frame: Frame, groups: Groups, counts: Ints) -> Floats:
    values = frame.values if every(frame.kept) else np.where(frame.kept, frame.values, 0.0)
    sums = _sums(values, groups)
    means = sums / np.maximum(counts, 1)
    if not every(np.isfinite(sums)):
        for at, step in np.argwhere(~np.isfinite(sums) & (counts > 0)):
            begin = int(groups.starts[at])
            rows = groups.order[begin : begin + int(groups.sizes[at])]
            means[at, step] = mean(frame.values[rows[frame.kept[rows, step]], step].tolist())
    return means


@dataclass(frozen=True, slots=True, eq=False)
class _Table:
    """Each group's rows in a rectangle.

    Attributes:
        rows: int[G, M], the last ones repeated where a group has fewer.
        real: bool[G, M].
    """

    rows: Ints
    real: Mask


def _table(labels: LabelSets, groups: Groups, order: Ints | None = None) -> _Table:
    def make() -> _Table:
        width = int(groups.sizes.max())
        places = np.minimum(groups.starts[:, None] + np.arange(width), len(groups.order) - 1)
        by_group = groups.order
        if order is not None:
            by_group = order[np.argsort(groups.ids[order], kind="stable")]
        return _Table(by_group[places], np.arange(width) < groups.sizes[:, None])

    return memo("table", (labels, groups.labels), order is None, make)


def _pieces(table: _Table, steps: int) -> list[slice]:
    size = max(1, _MOST_CELLS // max(1, table.rows.size))
    return [slice(begin, min(steps, begin + size)) for begin in range(0, steps, size)]


def _quantile(frame: Frame, groups: Groups, phi: Floats) -> Floats:
    table = _table(frame.labels, groups)
    if frame.steps == 1:
        kept = frame.kept[table.rows, 0] & table.real
        return quantiles(frame.values[table.rows, 0], kept, kept.sum(axis=1), phi).reshape(-1, 1)
    made = np.empty((len(groups.labels), frame.steps))
    for piece in _pieces(table, frame.steps):
        values = np.moveaxis(frame.values[table.rows, piece], 1, 2)
        kept = np.moveaxis(frame.kept[table.rows, piece] & table.real[..., None], 1, 2)
        count = kept.sum(axis=2)
        made[:, piece] = quantiles(values, kept, count, np.broadcast_to(phi[piece], count.shape))
    return made


def _chosen(op: str, frame: Frame, groups: Groups, wanted: Floats) -> Frame:
    """The k first of each group, by value or as they come; the others are masked."""
    if np.isnan(wanted).any():
        raise EvaluationError("Parameter value is NaN")
    for value in wanted[~(np.abs(wanted) < _INT64)][:1].tolist():
        raise EvaluationError(f"Scalar value {go_g(value)} {'over' if value > 0 else 'under'}flows int64")
    most = np.trunc(wanted)
    table = _table(frame.labels, groups, label_order(frame.labels) if op == "limitk" else None)
    chosen = np.zeros(frame.values.shape, dtype=bool)
    ranks = np.zeros(frame.values.shape, dtype=np.int64)
    for piece in _pieces(table, frame.steps):
        kept = frame.kept[table.rows, piece] & table.real[..., None]
        if op == "limitk":
            rank = np.cumsum(kept, axis=1) - 1
        else:
            values = frame.values[table.rows, piece]
            order = np.lexsort((-values if op == "topk" else values, ~kept), axis=1)
            rank = np.argsort(order, axis=1, kind="stable")
        good = kept & (rank < most[piece])
        at = table.rows[table.real]
        chosen[at, piece] = good[table.real]
        ranks[at, piece] = rank[table.real]
    ordered = None
    if frame.steps == 1:
        ordered = np.lexsort((ranks[:, 0], groups.ids)) if op != "limitk" else None
    return Frame(frame.labels, frame.values, frame.present, chosen, frame.drop, ordered)


def _count_values(expr: Aggregate, frame: Frame, name: str) -> Frame:
    """How often each value occurs; the value becomes a label before the groups are made."""
    texts: dict[float, str] = {}
    found: dict[Labels, int] = {}
    dropped: set[int] = set()
    cells: dict[tuple[int, int], int] = {}
    for place, step in np.argwhere(frame.present).tolist():
        value = float(frame.values[place, step])
        text = "NaN" if np.isnan(value) else texts.get(value)
        if text is None:
            text = texts[value] = go_float(value)
        labels = frame.labels[place].merged({name: text})
        key = labels.without((*expr.grouping, METRIC_NAME)) if expr.without else labels.only((*expr.grouping, name))
        at = found.setdefault(key, len(found))
        cells[at, step] = cells.get((at, step), 0) + int(frame.kept[place, step])
        if frame.drop[place] and name != METRIC_NAME:
            dropped.add(at)
    values = np.zeros((len(found), frame.steps))
    present = np.zeros(values.shape, dtype=bool)
    for cell, count in cells.items():
        values[cell] = count
        present[cell] = True
    drop = np.array([at in dropped for at in range(len(found))], dtype=bool)
    return Frame(tuple(found), values, present, values > 0, drop)
