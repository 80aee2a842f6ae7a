"""What changes labels or the order of elements: `label_replace`, `label_join`, `sort*`, the labels of `absent`."""

from __future__ import annotations

import functools
import re
from typing import Any

import numpy as np

from sentinel.model.labels import METRIC_NAME, Labels
from sentinel.promql.errors import EvaluationError
from sentinel.promql.frames import Frame, Ints, LabelSets, counted, memo, same_labels
from sentinel.promql.match import Match
from sentinel.promql.regex import compiled
from sentinel.promql.tree import Expr, Range, Selector, bare

_REFERENCE = re.compile(r"\$(?:\$|\{([A-Za-z0-9_]+)\}|([A-Za-z0-9_]+))")
SAME_LABELS = "vector cannot contain metrics with the same labelset"


def replaced(frame: Frame, target: str, replacement: str, source: str, pattern: str) -> Frame:
    """`label_replace`: where the source matches, the target becomes the replacement."""

    def make() -> tuple[LabelSets, Any]:
        regex = compiled(pattern)
        found: list[Labels] = []
        hit: list[bool] = []
        for labels in frame.labels:
            match = regex.fullmatch(labels.get(source, ""))
            hit.append(match is not None)
            found.append(labels if match is None else labels.merged({target: _expanded(replacement, match)}))
        return tuple(found), np.array(hit, dtype=bool)

    labels, hit = memo("label_replace", (frame.labels,), (target, replacement, source, pattern), make)
    drop = frame.drop & ~hit if target == METRIC_NAME else frame.drop
    return _merged(Frame(labels, frame.values, frame.present, frame.kept, drop))


def _expanded(template: str, match: Any) -> str:
    groups = match.re.groupindex

    def one(found: re.Match[str]) -> str:
        name = found[1] or found[2]
        if name is None:
            return "$"
        if name.isdecimal():
            return (match.group(int(name)) or "") if int(name) <= match.re.groups else ""
        return (match.group(groups[name]) or "") if name in groups else ""

    return _REFERENCE.sub(one, template)


def joined_label(frame: Frame, target: str, separator: str, sources: tuple[str, ...]) -> Frame:
    """`label_join`: the target becomes the sources, joined."""

    def make() -> LabelSets:
        return tuple(
            labels.merged({target: separator.join(labels.get(source, "") for source in sources)})
            for labels in frame.labels
        )

    labels = memo("label_join", (frame.labels,), (target, separator, sources), make)
    drop = np.zeros_like(frame.drop) if target == METRIC_NAME else frame.drop
    return _merged(Frame(labels, frame.values, frame.present, frame.kept, drop))


def _merged(frame: Frame) -> Frame:
    return merged(frame, frame.labels)


def merged(frame: Frame, labels: LabelSets) -> Frame:
    """`frame` under other labels, rows with equal ones made one.

    Raises:
        EvaluationError: Two of them are there at the same step.
    """
    groups = same_labels(labels)
    if groups is None:
        if labels is frame.labels:
            return frame
        return Frame(labels, frame.values, frame.present, frame.kept, frame.drop, frame.ordered)
    if (counted(groups, frame.kept) > 1).any():
        raise EvaluationError(SAME_LABELS)
    # The row that is kept wins, then one that is there but masked; among equals the first.
    size, order = len(labels), groups.order
    rank = frame.kept.astype(np.int64) * 2 + frame.present
    score = rank[order] * size + (size - 1 - np.arange(size))[:, None]
    row = order[size - 1 - np.maximum.reduceat(score, groups.starts, axis=0) % size]
    return Frame(
        groups.labels,
        np.take_along_axis(frame.values, row, axis=0),
        np.take_along_axis(frame.present, row, axis=0),
        np.take_along_axis(frame.kept, row, axis=0),
        frame.drop[order[groups.starts]],
    )


def sorted_by_value(frame: Frame, *, falling: bool) -> Frame:
    """In order of value, NaN last, for a single step."""
    values = frame.values[:, 0]
    order = np.argsort(-values if falling else values, kind="stable")
    return _ordered(frame, order)


def sorted_by_labels(frame: Frame, names: tuple[str, ...], *, falling: bool) -> Frame:
    """In the natural order of some labels (`4m5` before `4m600`), then of all."""

    def make() -> Ints:
        def key(place: int) -> tuple[object, ...]:
            labels = frame.labels[place]
            return (*(natural(labels.get(name, "")) for name in names), tuple(labels.items()))

        return np.array(sorted(range(len(frame.labels)), key=key, reverse=falling), dtype=np.int64)

    return _ordered(frame, memo("sort_by_label", (frame.labels,), (names, falling), make))


def _ordered(frame: Frame, order: Ints) -> Frame:
    return Frame(frame.labels, frame.values, frame.present, frame.kept, frame.drop, order.astype(np.int64))


@functools.lru_cache(maxsize=4096)
def natural(text: str) -> tuple[tuple[int, int, str], ...]:
    """A key that sorts runs of digits as numbers."""
    parts = re.findall(r"\d+|\D+", text)
    return tuple((0, int(part), part) if part.isdecimal() else (1, 0, part) for part in parts)


def label_order(labels: LabelSets) -> Ints:
    """The rows sorted by their labels, as Prometheus reads them from its store."""

    def make() -> Ints:
        places = sorted(range(len(labels)), key=lambda place: tuple(labels[place].items()))
        return np.array(places, dtype=np.int64)

    return memo("label_order", (labels,), None, make)


def absent_labels(expr: Expr) -> Labels:
    """What `absent(expr)` can say about what is missing: the labels that must be equal."""
    inner = bare(expr)
    selector = inner.selector if isinstance(inner, Range) else inner
    if not isinstance(selector, Selector):
        return Labels()
    found: dict[str, str] = {}
    seen: set[str] = set()
    for matcher in selector.matchers:
        if matcher.name == METRIC_NAME:
            continue
        if matcher.match is Match.EQUAL and matcher.name not in seen:
            found[matcher.name] = matcher.value
            seen.add(matcher.name)
        else:
            found.pop(matcher.name, None)
    return Labels(found)
