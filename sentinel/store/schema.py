"""Tables and the views that people query.

Each family has a wide table in the schema `family`: `ts`, its labels, a DOUBLE
per metric. Families whose shape is not ours share `family.samples`. What
happened is appended to tables in the schema `record`. Nobody but this room
reads those; the views in `main` are what is published.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sentinel.model.families import FAMILIES
from sentinel.store.database import Connection, quoted

TIME = "ts"
SAMPLES = "samples"
RECORDS = ("jobs", "attempts", "requests", "transitions", "outbox", "silences")
"""Tables of encoded nouns: ts, id, data (JSON)."""

_LATEST = "(SELECT max(ts) AS ts, id, arg_max(data, seq) AS data FROM record.{table} GROUP BY id)"
_TEXT = "data->>'$.{path}' AS {name}"
_NUMBER = "TRY_CAST(data->>'$.{path}' AS DOUBLE) AS {name}"
_MOMENT = "to_timestamp(TRY_CAST(data->>'$.{path}' AS DOUBLE)) AS {name}"


@dataclass(frozen=True, slots=True)
class Table:
    """One family's table as it is in the file.

    Attributes:
        name: Of the family.
        labels: Columns of text.
        metrics: Columns of numbers.
    """

    name: str
    labels: tuple[str, ...]
    metrics: tuple[str, ...]

    @property
    def sql(self) -> str:
        """Its name in a statement."""
        return f"family.{quoted(self.name)}"


def prepare(connection: Connection) -> None:
    """Make what is not there yet, views included, and checkpoint if anything was made."""
    before = _count(connection)
    connection.begin()
    try:
        changed = _make(connection)
        connection.commit()
    except BaseException:
        with contextlib.suppress(Exception):
            connection.rollback()
        raise
    if changed or _count(connection) != before:
        connection.execute("CHECKPOINT")


def _count(connection: Connection) -> int:
    return int(connection.execute("SELECT count(*) FROM duckdb_tables() WHERE NOT internal").fetchone()[0])


def _make(connection: Connection) -> bool:
    for schema in ("family", "record"):
        connection.execute(f"CREATE SCHEMA IF NOT EXISTS {schema}")
    connection.execute("CREATE TABLE IF NOT EXISTS record.meta (key VARCHAR, value VARCHAR)")
    connection.execute("CREATE TABLE IF NOT EXISTS family.samples (ts DOUBLE, series INTEGER, value DOUBLE)")
    connection.execute(
        "CREATE TABLE IF NOT EXISTS record.series (id INTEGER, family VARCHAR, metric VARCHAR, labels VARCHAR)"
    )
    connection.execute(
        "CREATE TABLE IF NOT EXISTS record.events (ts DOUBLE, id VARCHAR, kind VARCHAR, job VARCHAR,"
        " severity VARCHAR, message VARCHAR, data VARCHAR, uid BIGINT)"
    )
    for table in RECORDS:
        connection.execute(
            f"CREATE TABLE IF NOT EXISTS record.{table} (ts DOUBLE, seq BIGINT, id VARCHAR, data VARCHAR)"
        )
    known = {table.name: table for table in tables(connection)}
    for family in FAMILIES:
        if family.name not in known:
            create(connection, Table(family.name, family.labels, tuple(metric.name for metric in family.metrics)))
    return publish(connection)


def create(connection: Connection, table: Table) -> None:
    """A table for a family."""
    columns = [f"{TIME} DOUBLE"]
    columns += [f"{quoted(label)} VARCHAR" for label in table.labels]
    columns += [f"{quoted(metric)} DOUBLE" for metric in table.metrics]
    connection.execute(f"CREATE TABLE {table.sql} ({', '.join(columns)})")


def widen(connection: Connection, table: Table, labels: Iterable[str], metrics: Iterable[str]) -> None:
    """Columns that are new to a table."""
    for names, kind in ((labels, "VARCHAR"), (metrics, "DOUBLE")):
        for name in names:
            connection.execute(f"ALTER TABLE {table.sql} ADD COLUMN {quoted(name)} {kind}")


def tables(connection: Connection) -> list[Table]:
    """The families' tables in the file."""
    rows = connection.execute(
        "SELECT table_name, column_name, data_type FROM duckdb_columns() WHERE schema_name = 'family'"
        " AND table_name <> 'samples' ORDER BY table_name, column_index"
    ).fetchall()
    found: dict[str, tuple[list[str], list[str]]] = {}
    for name, column, kind in rows:
        labels, metrics = found.setdefault(name, ([], []))
        if column != TIME:
            (labels if kind == "VARCHAR" else metrics).append(column)
    return [Table(name, tuple(labels), tuple(metrics)) for name, (labels, metrics) in found.items()]


def publish(connection: Connection) -> bool:
    """Make the views anew where they differ from what they should be; whether they did."""
    views = {table.name: _family_view(table) for table in tables(connection)}
    views |= _record_views()
    wanted = hashlib.sha256("\n".join(f"{name} {text}" for name, text in sorted(views.items())).encode()).hexdigest()
    found = connection.execute("SELECT value FROM record.meta WHERE key = 'views'").fetchone()
    if found is not None and found[0] == wanted:
        return False
    for name, text in views.items():
        connection.execute(f"CREATE OR REPLACE VIEW main.{quoted(name)} AS {text}")
    connection.execute("DELETE FROM record.meta WHERE key = 'views'")
    connection.execute("INSERT INTO record.meta VALUES ('views', ?)", [wanted])
    return True


def published(connection: Connection) -> list[str]:
    """The names of the views."""
    rows = connection.execute(
        "SELECT view_name FROM duckdb_views() WHERE schema_name = 'main' AND NOT internal ORDER BY view_name"
    ).fetchall()
    return [name for (name,) in rows]


def _family_view(table: Table) -> str:
    columns = [f"to_timestamp({TIME}) AS time", TIME, *map(quoted, (*table.labels, *table.metrics))]
    return _union([f"SELECT {', '.join(columns)} FROM {table.sql}"])


def _union(branches: Sequence[str]) -> str:
    """Of the hot table, and of what has been rolled out beside it."""
    return " UNION ALL BY NAME ".join(branches)


def _record_views() -> dict[str, str]:
    alert = {"id": "alert.id", "rule": "alert.rule", "job": "alert.labels.job", "severity": "alert.labels.severity"}
    moments = {name: f"alert.{name}" for name in ("began", "fired", "resolved")}
    changed = _columns(
        {**alert, "state": "alert.state", "was": "was", "reason": "reason"}, {"value": "alert.value"}, {}
    )
    alerts = _columns({**alert, "state": "alert.state", "reason": "reason"}, {"value": "alert.value"}, moments)
    views = {
        SAMPLES: "SELECT to_timestamp(s.ts) AS time, s.ts, d.metric, d.labels, s.value"
        " FROM family.samples s JOIN record.series d ON d.id = s.series",
        "events": "SELECT to_timestamp(ts) AS time, ts, id, kind, job, severity, message, data FROM record.events",
        "transitions": f"SELECT to_timestamp(ts) AS time, {changed}, data->'$.alert.labels' AS labels"
        " FROM record.transitions",
        "alerts": f"SELECT {alerts}, data->'$.alert.labels' AS labels FROM {_LATEST.format(table='transitions')}",
        "jobs": "SELECT "
        + _columns(
            {name: name for name in ("id", "name", "owner", "state", "cause")},
            {name: name for name in ("attempt", "degrade_level", "exit_code", "exit_signal")},
            {name: name for name in ("created", "attempt_started", "since", "ended")},
        )
        + f" FROM {_LATEST.format(table='jobs')}",
        "requests": "SELECT "
        + _columns(
            {
                name: name
                for name in ("id", "job", "kind", "state", "answer", "effect", "reason", "by", "via", "detail")
            },
            {name: name for name in ("attempt", "level")},
            {name: name for name in ("created", "sent", "acknowledged", "closed", "deadline")},
        )
        + f" FROM {_LATEST.format(table='requests')}",
    }
    for table in ("attempts", "outbox", "silences"):
        views[table] = f"SELECT to_timestamp(ts) AS time, ts, id, data FROM {_LATEST.format(table=table)}"
    return views


def _columns(texts: dict[str, str], numbers: dict[str, str], moments: dict[str, str]) -> str:
    parts: list[str] = []
    for form, names in ((_TEXT, texts), (_NUMBER, numbers), (_MOMENT, moments)):
        parts += [form.format(path=path, name=quoted(name)) for name, path in names.items()]
    return ", ".join(parts)
