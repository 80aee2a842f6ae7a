"""What the database remembers, as series."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sentinel.errors import UsageError
from sentinel.model.families import BY_NAME
from sentinel.model.labels import Labels
from sentinel.model.series import COUNTER, GAUGE, Entity, Family, Kind, Metric
from sentinel.promql.series import Block, Floats, Match, Matcher
from sentinel.store.database import Connection, Database, quoted
from sentinel.store.matching import condition, matches, split
from sentinel.store.schema import Table

MOST_SAMPLES = 10_000_000
"""Cells that one selection may need: 100 MB."""
_MOST_CACHED = 256

Lookback = Callable[[str], float]
"""Of a family, in seconds."""


class History:
    """A reader of series for lookbacks longer than the window, and for ranges.

    Any thread may use it; each selection has a cursor of its own.
    """

    def __init__(self, database: Database, *, lookback: Lookback, deadline_s: float) -> None:
        self._database = database
        self._lookback = lookback
        self._deadline_s = deadline_s
        self._names: dict[tuple[str, tuple[str, ...], tuple[Entity, ...]], tuple[Labels, ...]] = {}

    def select(self, matchers: tuple[Matcher, ...], start: float, end: float) -> Sequence[Block]:
        """All series that match, with their samples from `start` to `end`, both included.

        Raises:
            StoreUnavailable: The store is closed, or it took too long.
            UsageError: The answer would not fit into memory.
        """
        name, rest = split(matchers)
        blocks: list[Block] = []
        with self._database.cursor(self._deadline_s) as cursor:
            for table in self._database.tables:
                for metric in table.metrics:
                    if name is None or (metric == name if isinstance(name, str) else name(metric)):
                        block = self._wide(cursor, table, metric, rest, start, end)
                        if block is not None:
                            blocks.append(block)
            blocks += self._narrow(cursor, matchers, start, end)
        return blocks

    def known(self, matchers: tuple[Matcher, ...], start: float, end: float) -> set[Labels]:
        """The label sets of all series that match and have a sample from `start` to `end`; no sample is read.

        Raises:
            StoreUnavailable: The store is closed, or it took too long.
        """
        name, rest = split(matchers)
        found: set[Labels] = set()
        with self._database.cursor(self._deadline_s) as cursor:
            for table in self._database.tables:
                metrics = [
                    metric
                    for metric in table.metrics
                    if name is None or (metric == name if isinstance(name, str) else name(metric))
                ]
                if metrics and all(condition(each)("") for each in rest if each.name not in table.labels):
                    found |= _series_of(cursor, table, metrics, rest, start, end)
            living = {
                number
                for (number,) in cursor.execute(
                    "SELECT DISTINCT series FROM family.samples WHERE ts BETWEEN ? AND ?", [start, end]
                ).fetchall()
            }
            for number, metric, text in cursor.execute("SELECT id, metric, labels FROM record.series").fetchall():
                labels = Labels({"__name__": metric, **json.loads(text)})
                if number in living and matches(labels, matchers):
                    found.add(labels)
        return found

    def _wide(
        self, cursor: Connection, table: Table, metric: str, rest: tuple[Matcher, ...], start: float, end: float
    ) -> Block | None:
        if any(not condition(matcher)("") for matcher in rest if matcher.name not in table.labels):
            return None
        known = [matcher for matcher in rest if matcher.name in table.labels]
        equal = [matcher for matcher in known if matcher.match is Match.EQUAL and matcher.value]
        where = "ts BETWEEN ? AND ?" + "".join(f" AND {quoted(matcher.name)} = ?" for matcher in equal)
        values: list[object] = [start, end, *(matcher.value for matcher in equal)]
        entities = self._entities(cursor, table, metric, known, where, values)
        if not entities:
            return None
        found = read(cursor, table, (metric,), where, values, entities)
        labels = self._labels(metric, table.labels, tuple(entities))
        return _block(labels, found["ts"], found["v0"], found["n"], self._lookback(table.name))

    def _entities(
        self,
        cursor: Connection,
        table: Table,
        metric: str,
        known: list[Matcher],
        where: str,
        values: list[object],
    ) -> list[Entity]:
        """Those with at least one value in the time, and that match."""
        if not table.labels:
            sql = f"SELECT 1 FROM {table.sql} WHERE {where} AND {quoted(metric)} IS NOT NULL LIMIT 1"
            return [()] if cursor.execute(sql, values).fetchone() else []
        names = ", ".join(f"coalesce({quoted(label)}, '')" for label in table.labels)
        sql = f"SELECT DISTINCT {names} FROM {table.sql} WHERE {where} AND {quoted(metric)} IS NOT NULL"
        rows: list[Entity] = sorted(cursor.execute(sql, values).fetchall())
        tests = [(table.labels.index(matcher.name), condition(matcher)) for matcher in known]
        return [row for row in rows if all(test(row[index]) for index, test in tests)]

    def _narrow(self, cursor: Connection, matchers: tuple[Matcher, ...], start: float, end: float) -> Iterator[Block]:
        families: dict[str, list[tuple[int, Labels]]] = {}
        for number, family, metric, text in cursor.execute(
            "SELECT id, family, metric, labels FROM record.series"
        ).fetchall():
            labels = Labels({"__name__": metric, **json.loads(text)})
            if matches(labels, matchers):
                families.setdefault(family, []).append((number, labels))
        for family, series in families.items():
            found = cursor.execute(
                "SELECT s.ts, coalesce(s.value, 'nan'::DOUBLE) AS v, e.n FROM family.samples s"
                " JOIN (SELECT unnest(?::INTEGER[]) AS id, unnest(range(?)) AS n) e ON e.id = s.series"
                " WHERE s.ts BETWEEN ? AND ?",
                [[number for number, _ in series], len(series), start, end],
            ).fetchnumpy()
            if len(found["ts"]):
                labels_of = tuple(labels for _, labels in series)
                yield _block(labels_of, found["ts"], found["v"], found["n"], self._lookback(family))

    def _labels(self, metric: str, names: tuple[str, ...], entities: tuple[Entity, ...]) -> tuple[Labels, ...]:
        key = (metric, names, entities)
        found = self._names.get(key)
        if found is None:
            if len(self._names) >= _MOST_CACHED:
                self._names.clear()
            found = tuple(Labels([("__name__", metric), *zip(names, entity, strict=True)]) for entity in entities)
            self._names[key] = found
        return found


def read(
    cursor: Connection,
    table: Table,
    metrics: Sequence[str],
    where: str,
    values: Sequence[object],
    entities: Sequence[Entity],
) -> dict[str, NDArray[Any]]:
    """Rows of some entities as arrays: `ts`, the entity's number `n`, and `v0`, `v1`, … with NaN for NULL."""
    columns = ", ".join(
        f"coalesce({quoted(metric)}, 'nan'::DOUBLE) AS v{index}" for index, metric in enumerate(metrics)
    )
    rows = f"(SELECT * FROM {table.sql} WHERE {where}) t"
    if not table.labels:
        found: dict[str, NDArray[Any]] = cursor.execute(
            f"SELECT ts, 0 AS n, {columns} FROM {rows}", values
        ).fetchnumpy()
        return found
    numbered = ", ".join(f"unnest(?::VARCHAR[]) AS l{index}" for index in range(len(table.labels)))
    joined = " AND ".join(f"coalesce(t.{quoted(label)}, '') = e.l{index}" for index, label in enumerate(table.labels))
    sql = (
        f"SELECT t.ts, e.n, {columns} FROM {rows}"
        f" JOIN (SELECT {numbered}, unnest(range({len(entities)})) AS n) e ON {joined}"
    )
    columns_of = [list(column) for column in zip(*entities, strict=True)]
    answer: dict[str, NDArray[Any]] = cursor.execute(sql, [*values, *columns_of]).fetchnumpy()
    return answer


def _series_of(
    cursor: Connection, table: Table, metrics: list[str], rest: tuple[Matcher, ...], start: float, end: float
) -> set[Labels]:
    """The series of one table: which metrics each entity has had a value of."""
    shape = family_of(table)
    names = [f"coalesce({quoted(label)}, '')" for label in table.labels]
    counts = [f"count({quoted(metric)})" for metric in metrics]
    grouped = f" GROUP BY {', '.join(names)}" if names else ""
    rows = cursor.execute(
        f"SELECT {', '.join((*names, *counts))} FROM {table.sql} WHERE ts BETWEEN ? AND ?{grouped}", [start, end]
    ).fetchall()
    width = len(names)
    return {
        labels
        for row in rows
        for metric, count in zip(metrics, row[width:], strict=True)
        if count and matches(labels := shape.series(metric, tuple(row[:width])), rest)
    }


def axis(at: Floats) -> tuple[NDArray[np.intp] | None, Floats, NDArray[np.intp]]:
    """How to sort rows (None: they are), their distinct times, and the column of each sorted row."""
    order = None if (np.diff(at) >= 0).all() else np.argsort(at, kind="stable")
    if order is not None:
        at = at[order]
    new = np.ones(len(at), dtype=np.bool_)
    new[1:] = np.diff(at) != 0
    return order, at[new], np.cumsum(new) - 1


def last_values(database: Database, family: str, since: float) -> dict[Entity, dict[str, float]]:
    """The newest value of each metric of each entity of a family, so that counters go on where they were."""
    with database.cursor() as cursor:
        table = next((table for table in database.tables if table.name == family), None)
        if table is None or not table.metrics:
            return {}
        shape = family_of(table)
        labels = [f"coalesce({quoted(label)}, '')" for label in shape.labels]
        metrics = [metric.name for metric in shape.metrics if metric.name in table.metrics]
        values = [f"arg_max({quoted(metric)}, ts)" for metric in metrics]
        grouped = f" GROUP BY {', '.join(labels)}" if labels else ""
        rows = cursor.execute(
            f"SELECT {', '.join((*labels, *values))} FROM {table.sql} WHERE ts >= ?{grouped}", [since]
        ).fetchall()
    width = len(shape.labels)
    found: dict[Entity, dict[str, float]] = {}
    for row in rows:
        pairs = zip(metrics, row[width:], strict=True)
        known = {metric: float(value) for metric, value in pairs if value is not None}
        if known:
            found[tuple(row[:width])] = known
    return found


def _block(labels: tuple[Labels, ...], at: Floats, values: Floats, rows: NDArray[np.int64], lookback_s: float) -> Block:
    """Spread the samples over one axis of time. NULL, read as NaN, is the end of a series."""
    order, times, columns = axis(at)
    if order is not None:
        values, rows = values[order], rows[order]
    if len(labels) * len(times) > MOST_SAMPLES:
        raise UsageError(
            f"{len(labels)} series over {len(times)} moments are more than fit into memory",
            hint="a shorter range, or fewer series",
        )
    spread = np.full((len(labels), len(times)), np.nan)
    stale = np.zeros(spread.shape, dtype=np.bool_)
    missing = np.isnan(values)
    stale[rows[missing], columns[missing]] = True
    here = ~missing
    spread[rows[here], columns[here]] = values[here]
    present = ~np.isnan(spread)
    stale &= ~present
    return Block(labels, times, spread, present, stale, lookback_s)


def family_of(table: Table) -> Family:
    """What the table holds: one of ours as it is now, or a stranger as it was."""
    known = BY_NAME.get(table.name)
    if known is not None and known.labels == table.labels:
        return known
    return Family(table.name, table.labels, tuple(Metric(name, kind_of(name), "") for name in table.metrics))


def kind_of(metric: str) -> Kind:
    """The rule of the name is the rule of the kind."""
    return COUNTER if metric.endswith("_total") else GAUGE
