"""What an expression will read, known from its tree alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from sentinel.promql.match import Match
from sentinel.promql.regex import literals
from sentinel.promql.tree import At, Call, Expr, Range, Selector, Subquery, children, walk

DEFAULT_LOOKBACK_S = 300.0


@dataclass(frozen=True, slots=True)
class Reading:
    """One selector and how far back it reads.

    Attributes:
        selector: The selector.
        range_s: Its own range, or None for an instant selector.
        back_s: Seconds before the evaluation time that it may reach, lookback, offsets and subqueries included.
        since: Unix seconds, where `@` names a moment: it may reach `back_s` before that one instead.
    """

    selector: Selector
    range_s: float | None
    back_s: float
    since: float | None = None

    def begins(self, at: float) -> float:
        """The earliest moment it may read (Unix seconds) when it is evaluated at `at`."""
        return (at if self.since is None else self.since) - self.back_s


def readings(expr: Expr, lookback_s: float = DEFAULT_LOOKBACK_S) -> list[Reading]:
    """Every selector in `expr`, in the order in which they are written."""
    return list(_readings(expr, 0.0, lookback_s, None))


def _readings(expr: Expr, outer_s: float, lookback_s: float, since: float | None) -> Iterator[Reading]:
    match expr:
        case Selector(offset_s=offset_s, at=at):
            outer_s, since = _anchored(at, outer_s, since)
            yield Reading(expr, None, outer_s + offset_s + lookback_s, since)
        case Range(selector=selector, range_s=range_s):
            outer_s, since = _anchored(selector.at, outer_s, since)
            yield Reading(selector, range_s, outer_s + selector.offset_s + range_s, since)
        case Subquery(expr=inner, range_s=range_s, offset_s=offset_s, at=at):
            outer_s, since = _anchored(at, outer_s, since)
            yield from _readings(inner, outer_s + offset_s + range_s, lookback_s, since)
        case _:
            for child in children(expr):
                yield from _readings(child, outer_s, lookback_s, since)


def _anchored(at: At | float | None, outer_s: float, since: float | None) -> tuple[float, float | None]:
    """Where counting back starts once `@` has been looked at; `start()` and `end()` are of the query itself."""
    if at is None:
        return outer_s, since
    return (0.0, None) if isinstance(at, At) else (0.0, float(at))


def metric_names(expr: Expr) -> frozenset[str]:
    """The metrics that `expr` reads by name; a selector that gives no plain name adds none."""
    found: set[str] = set()
    for node in walk(expr):
        if isinstance(node, Selector):
            for matcher in node.matchers:
                if matcher.name == "__name__" and matcher.match is Match.EQUAL:
                    found.add(matcher.value)
                elif matcher.name == "__name__" and matcher.match is Match.REGEX:
                    found.update(literals(matcher.value) or ())
    return frozenset(found)


def longest_range_s(expr: Expr) -> float:
    """How many seconds back from the evaluation time `expr` may reach (moments fixed by `@` aside)."""
    return max((reading.back_s for reading in readings(expr)), default=0.0)


_SHARED: dict[int, tuple[Expr, dict[int, int]]] = {}
_MOST_SHARED = 4096


def shared_parts(root: Expr) -> Mapping[int, int]:
    """Selectors and functions over ranges that stand in `root` more than once: which are the same.

    From the identity of a node to a number that equal nodes share. Remembered
    with the root itself, so that the identities stay taken.
    """
    found = _SHARED.get(id(root))
    if found is None:
        if len(_SHARED) >= _MOST_SHARED:
            _SHARED.clear()
        found = _SHARED[id(root)] = (root, _shared_parts(root))
    return found[1]


def _shared_parts(root: Expr) -> dict[int, int]:
    equal: dict[Expr, list[int]] = {}
    for node in walk(root):
        if isinstance(node, Selector) or (isinstance(node, Call) and any(isinstance(arg, Range) for arg in node.args)):
            equal.setdefault(node, []).append(id(node))
    return {each: part for part, ids in enumerate(equal.values()) if len(ids) > 1 for each in ids}
