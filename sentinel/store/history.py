"""What the database remembers, as series."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from sentinel.errors import UsageError
from sentinel.model.families import BY_NAME
from sentinel.model.labels import Labels
from sentinel.model.series import COUNTER, GAUGE, Batch, Entity, Family, Metric
from sentinel.promql.series import Block, Floats, Match, Matcher
from sentinel.store import schema
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
            for table in schema.tables(cursor):
                for metric in table.metrics:
                    if name is None or (metric == name if isinstance(name, str) else name(metric)):
                        block = self._wide(cursor, table, metric, rest, start, end)
                        if block is not None:
                            blocks.append(block)
            blocks += self._narrow(cursor, matchers, start, end)
        return blocks

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
        column = f"coalesce({quoted(metric)}, 'nan'::DOUBLE) AS v"
        if not table.labels:
            sql = f"SELECT ts, {column}, 0 AS n FROM {table.sql} WHERE {where}"
        else:
            names = ", ".join(f"unnest(?::VARCHAR[]) AS l{index}" for index in range(len(table.labels)))
            joined = " AND ".join(
                f"coalesce(t.{quoted(label)}, '') = e.l{index}" for index, label in enumerate(table.labels)
            )
            sql = (
                f"SELECT t.ts, {column}, e.n FROM (SELECT * FROM {table.sql} WHERE {where}) t"
                f" JOIN (SELECT {names}, unnest(range({len(entities)})) AS n) e ON {joined}"
            )
            values += [list(column) for column in zip(*entities, strict=True)]
        found = cursor.execute(sql, values).fetchnumpy()
        labels = self._labels(metric, table.labels, tuple(entities))
        return _block(labels, found["ts"], found["v"], found["n"], self._lookback(table.name))

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


def batches(database: Database, since: float) -> Iterator[Batch]:
    """Everything measured since then as the batches it came in, family by family, each in order of time."""
    with database.cursor() as cursor:
        for table in schema.tables(cursor):
            family = _family(table)
            columns = [schema.TIME, *family.labels, *(metric.name for metric in family.metrics)]
            rows = cursor.execute(
                f"SELECT {', '.join(map(quoted, columns))} FROM {table.sql} WHERE ts >= ? ORDER BY ts", [since]
            ).fetchall()
            width = len(family.labels)
            split_rows = ((row[0], tuple(each or "" for each in row[1 : width + 1]), row[width + 1 :]) for row in rows)
            yield from _passes(family, split_rows)
        narrow = cursor.execute(
            "SELECT d.family, d.metric, d.labels, s.ts, s.value FROM family.samples s"
            " JOIN record.series d ON d.id = s.series WHERE s.ts >= ? ORDER BY d.family, d.metric, d.labels, s.ts",
            [since],
        ).fetchall()
        families: dict[tuple[str, str, tuple[str, ...]], list[tuple[float, Entity, tuple[float | None]]]] = {}
        for name, metric, text, at, value in narrow:
            labels = json.loads(text)
            key = (name, metric, tuple(labels))
            families.setdefault(key, []).append((at, tuple(labels.values()), (value,)))
        for (name, metric, labels), series in families.items():
            family = Family(name, labels, (_metric(metric),), narrow=True)
            yield from _passes(family, sorted(series, key=lambda each: each[0]))


def last_values(database: Database, family: str, since: float) -> dict[Entity, dict[str, float]]:
    """The newest value of each metric of each entity of a family, so that counters go on where they were."""
    with database.cursor() as cursor:
        table = next((table for table in schema.tables(cursor) if table.name == family), None)
        if table is None or not table.metrics:
            return {}
        shape = _family(table)
        labels = [f"coalesce({quoted(label)}, '')" for label in shape.labels]
        values = [f"arg_max({quoted(metric.name)}, ts)" for metric in shape.metrics]
        grouped = f" GROUP BY {', '.join(labels)}" if labels else ""
        rows = cursor.execute(
            f"SELECT {', '.join((*labels, *values))} FROM {table.sql} WHERE ts >= ?{grouped}", [since]
        ).fetchall()
    width = len(shape.labels)
    found: dict[Entity, dict[str, float]] = {}
    for row in rows:
        pairs = zip(shape.metrics, row[width:], strict=True)
        known = {metric.name: float(value) for metric, value in pairs if value is not None}
        if known:
            found[tuple(row[:width])] = known
    return found


def _passes(family: Family, rows: Iterable[tuple[float, Entity, Sequence[float | None]]]) -> Iterator[Batch]:
    """Rows in order of time as batches; a row of NULLs is an entity that ended."""
    at: float | None = None
    values: dict[Entity, Sequence[float | None]] = {}
    ended: list[Entity] = []
    for moment, entity, row in rows:
        if at is not None and moment != at:
            yield family.batch(at, values, covers=[*values, *ended])
            values, ended = {}, []
        at = moment
        if all(value is None for value in row):
            ended.append(entity)
        else:
            values[entity] = row
    if at is not None:
        yield family.batch(at, values, covers=[*values, *ended])


def _block(labels: tuple[Labels, ...], at: Floats, values: Floats, rows: NDArray[np.int64], lookback_s: float) -> Block:
    """Spread the samples over one axis of time. NULL, read as NaN, is the end of a series."""
    at = np.asarray(at, dtype=np.float64)
    order = None if (np.diff(at) >= 0).all() else np.argsort(at, kind="stable")
    if order is not None:
        at, values, rows = at[order], values[order], rows[order]
    new = np.ones(len(at), dtype=np.bool_)
    new[1:] = np.diff(at) != 0
    times = at[new]
    columns = np.cumsum(new) - 1
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


def _family(table: Table) -> Family:
    known = BY_NAME.get(table.name)
    if known is not None and known.labels == table.labels and _names(known) == table.metrics:
        return known
    return Family(table.name, table.labels, tuple(map(_metric, table.metrics)))


def _names(family: Family) -> tuple[str, ...]:
    return tuple(metric.name for metric in family.metrics)


def _metric(name: str) -> Metric:
    return Metric(name, COUNTER if name.endswith("_total") else GAUGE, "")
