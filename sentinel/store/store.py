"""The store as the rest of sentinel sees it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from sentinel.clock import Clock
from sentinel.model.events import Event, Severity
from sentinel.model.series import Batch, Entity
from sentinel.store import schema, sql
from sentinel.store.database import Database, StoreUnavailable
from sentinel.store.history import History, last_values
from sentinel.store.ports import Publish
from sentinel.store.refill import refill
from sentinel.store.retention import Retention
from sentinel.store.settings import Settings
from sentinel.store.window import Window
from sentinel.store.writer import Writer

_LOOKBACK_S = 300.0
_SIZE_S = 30.0


class Store:
    """Everything that was measured and everything that happened, on disk.

    Putting never blocks and never raises. Reading raises `StoreUnavailable`
    while the database cannot be opened. Nothing here is needed to keep
    measuring, judging and acting.
    """

    def __init__(self, database: Database, writer: Writer, settings: Settings, clock: Clock) -> None:
        self._database = database
        self._writer = writer
        self._settings = settings
        self._clock = clock
        self._sized: tuple[float, int] | None = None

    @classmethod
    def open(cls, directory: Path, settings: Settings, clock: Clock, report: Publish) -> Store:
        """Open the database in a directory and start its writer.

        A damaged file is moved aside and told; where the disk is full or another
        process has the file, the store goes on without and tries again.

        Args:
            directory: Of the state; nothing else in it is touched.
            settings: How much and how long.
            clock: For ages.
            report: Gets `store.*` events, from the writer's thread too.
        """
        database = Database(directory, settings, clock, report)
        writer = Writer(database, settings, clock, report, Retention(settings, clock))
        writer.flush()  # opens the file, and tells if it cannot
        writer.start()
        return cls(database, writer, settings, clock)

    def put(self, batch: Batch) -> None:
        """Keep what a collector saw."""
        self._writer.put(batch)

    def put_event(self, happened: Event) -> None:
        """Keep an event."""
        self._writer.put(happened)

    def put_row(self, table: str, encoded: Mapping[str, object]) -> None:
        """Append a noun, as `model.wire.encode` made it, to one of the tables of `schema.RECORDS`."""
        if table not in schema.RECORDS:
            raise ValueError(f"there is no table {table!r}; known: {', '.join(schema.RECORDS)}")
        self._writer.put((table, self._clock.now(), encoded))

    def refill(self, window: Window, since: float) -> int:
        """Give a window what was measured since then (Unix seconds); the number of samples.

        To be called before the first live batch. Without a database the window
        stays empty.
        """
        try:
            count = refill(self._database, window, since)
        except StoreUnavailable:
            return 0
        window.filled(since)
        return count

    def history(self, lookback: Callable[[str], float] = lambda _: _LOOKBACK_S) -> History:
        """A reader of series for any thread.

        Args:
            lookback: Of a family (seconds); `Window.lookback_s` says what the rules use.
        """
        return History(self._database, lookback=lookback, deadline_s=self._settings.query_s)

    def last_values(self, family: str, since: float) -> dict[Entity, dict[str, float]]:
        """The newest values of a family's entities, so that counters go on where they were."""
        try:
            return last_values(self._database, family, since)
        except StoreUnavailable:
            return {}

    def events(
        self,
        since: float,
        until: float = float("inf"),
        *,
        job: str | None = None,
        kinds: Iterable[str] = (),
        limit: int = 1000,
    ) -> list[Event]:
        """Events from the database, the newest `limit` of them, in order of time.

        Args:
            since: Unix seconds.
            until: Unix seconds.
            job: Only of this job.
            kinds: Only kinds that begin with one of these.
            limit: At most so many.
        """
        where, values = ["ts >= ?", "ts <= ?"], [since, until]
        wanted: list[object] = list(values)
        if job is not None:
            where.append("job = ?")
            wanted.append(job)
        if prefixes := list(kinds):
            where.append("(" + " OR ".join(["starts_with(kind, ?)"] * len(prefixes)) + ")")
            wanted += prefixes
        with self._database.cursor(self._settings.query_s) as cursor:
            rows = cursor.execute(
                "SELECT id, ts, kind, job, severity, message, data, uid FROM record.events"
                f" WHERE {' AND '.join(where)} ORDER BY ts DESC, id DESC LIMIT ?",
                [*wanted, limit],
            ).fetchall()
        return [
            Event(key, at, kind, about, Severity(severity), message, json.loads(data), uid)
            for key, at, kind, about, severity, message, data, uid in reversed(rows)
        ]

    def run_p99(self, name: str, command: str) -> tuple[float | None, int]:
        """P99 of how long the runs of a job took that succeeded (seconds; None: there is none), and how many there are.

        Args:
            name: The job's name.
            command: As its rows in `attempts` have it.
        """
        with self._database.cursor(self._settings.query_s) as cursor:
            row = cursor.execute(
                "SELECT quantile_cont(ran, 0.99), count(*) FROM (SELECT CAST(data->>'$.ended' AS DOUBLE)"
                " - CAST(data->>'$.started' AS DOUBLE) AS ran FROM record.attempts WHERE data->>'$.job' = ?"
                " AND data->>'$.command' = ? AND data->>'$.outcome' = 'succeeded' ORDER BY ts DESC LIMIT 1000)",
                [name, command],
            ).fetchone()
        return (None if row[0] is None else float(row[0])), int(row[1])

    def attempts(self, since: float, *, limit: int = 10_000) -> list[dict[str, Any]]:
        """The attempts that ended since then (Unix seconds), oldest first, as they were put."""
        with self._database.cursor(self._settings.query_s) as cursor:
            rows = cursor.execute(
                "SELECT data FROM record.attempts WHERE ts >= ? ORDER BY ts DESC, seq DESC LIMIT ?", [since, limit]
            ).fetchall()
        return [json.loads(data) for (data,) in reversed(rows)]

    def sql(self, statement: str, *, row_limit: int = 10_000, deadline_s: float | None = None) -> sql.Table:
        """Answer one statement of a user over the published views.

        Raises:
            UsageError: It may not be asked, or makes no sense.
            StoreUnavailable: The store is closed, or the deadline has passed.
        """
        return sql.ask(self._database, statement, row_limit=row_limit, deadline_s=deadline_s or self._settings.query_s)

    def flush(self) -> bool:
        """Write everything now; True if nothing is left."""
        return self._writer.flush()

    def maintain(self) -> None:
        """Delete what is too old or too much, and checkpoint, now. The writer does so every hour by itself."""
        self._writer.flush()
        self._writer.maintain(force=True)
        self._sized = None

    def lag_s(self) -> float:
        """Age of the oldest thing that is not on disk yet (seconds)."""
        return self._writer.lag_s()

    def size_bytes(self) -> int:
        """What the data takes on disk, looked at twice a minute at most; 0 while the database is not open."""
        moment = self._clock.monotonic()
        if self._sized is None or moment - self._sized[0] >= _SIZE_S:
            try:
                self._sized = moment, self._database.used_bytes()
            except StoreUnavailable:
                return 0
        return self._sized[1]

    def close(self) -> None:
        """Write what there is and close the file."""
        self._writer.stop()
