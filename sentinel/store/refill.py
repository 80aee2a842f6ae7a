"""From the database back into the window, at the start of the daemon."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sentinel.model.series import Entity, Family, Metric
from sentinel.promql.series import Floats
from sentinel.store.database import Connection, Database, quoted
from sentinel.store.history import axis, family_of, kind_of, read
from sentinel.store.window import Window


def refill(database: Database, window: Window, since: float) -> int:
    """Give an empty window all that was measured since then (Unix seconds); the number of samples."""
    count = 0
    with database.cursor() as cursor:
        for table in database.tables:
            names = ", ".join(f"coalesce({quoted(label)}, '')" for label in table.labels) or "1"
            rows = cursor.execute(f"SELECT DISTINCT {names} FROM {table.sql} WHERE ts >= ?", [since]).fetchall()
            if rows:
                entities: list[Entity] = sorted(rows) if table.labels else [()]
                family = family_of(table)
                metrics = [metric.name for metric in family.metrics if metric.name in table.metrics]
                found = read(cursor, table, metrics, "ts >= ?", [since], entities)
                places = [index for index, metric in enumerate(family.metrics) if metric.name in table.metrics]
                columns = dict(zip(places, (found[f"v{index}"] for index in range(len(metrics))), strict=True))
                count += _load(window, family, entities, found["ts"], found["n"], columns)
        count += _narrow(cursor, window, since)
    return count


def _narrow(cursor: Connection, window: Window, since: float) -> int:
    """Recorded series: a family of one metric for each set of label names, as the rules write them."""
    count = 0
    shapes: dict[tuple[str, str, tuple[str, ...]], list[tuple[int, Entity]]] = {}
    for number, family, metric, text in cursor.execute(
        "SELECT id, family, metric, labels FROM record.series"
    ).fetchall():
        labels = json.loads(text)
        shapes.setdefault((family, metric, tuple(labels)), []).append((number, tuple(labels.values())))
    for (name, metric, names), series in shapes.items():
        found = cursor.execute(
            "SELECT s.ts, e.n, coalesce(s.value, 'nan'::DOUBLE) AS v FROM family.samples s"
            " JOIN (SELECT unnest(?::INTEGER[]) AS id, unnest(range(?)) AS n) e ON e.id = s.series WHERE s.ts >= ?",
            [[number for number, _ in series], len(series), since],
        ).fetchnumpy()
        if len(found["ts"]):
            family = Family(name, names, (Metric(metric, kind_of(metric), ""),), narrow=True)
            entities = [entity for _, entity in series]
            count += _load(window, family, entities, found["ts"], found["n"], {0: found["v"]})
    return count


def _load(
    window: Window,
    family: Family,
    entities: Sequence[Entity],
    at: Floats,
    rows: NDArray[Any],
    columns: dict[int, Floats],
) -> int:
    order, times, places = axis(at)
    if order is not None:
        rows = rows[order]
    values = np.full((len(family.metrics), len(entities), len(times)), np.nan)
    seen = np.zeros(values.shape[1:], dtype=np.bool_)
    seen[rows, places] = True
    for metric, column in columns.items():
        values[metric, rows, places] = column if order is None else column[order]
    window.load(family, times, entities, values, seen)
    return int(np.count_nonzero(~np.isnan(values)))
