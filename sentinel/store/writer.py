"""The one thread that writes to the database."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Mapping

from sentinel.clock import Clock
from sentinel.model.events import Event, Severity, event
from sentinel.model.series import Batch, Entity
from sentinel.store import schema
from sentinel.store.database import Connection, Database, Fault, fault, quoted
from sentinel.store.pending import Pending, Queue, series_labels
from sentinel.store.ports import Publish
from sentinel.store.retention import Retention
from sentinel.store.settings import Settings

_MANY_ROWS = 2048
"""A table with so many new rows is written at the next turn."""

Item = Batch | Event | tuple[str, float, Mapping[str, object]]


class Writer:
    """Collects what is put and writes it in one transaction every few seconds.

    Nothing is lost to a full disk: what could not be written is kept, bounded,
    and written when there is room. An instance that broke is opened anew in
    the same process.

    Attributes:
        pending: What waits.
    """

    def __init__(
        self, database: Database, settings: Settings, clock: Clock, report: Publish, retention: Retention
    ) -> None:
        self.pending = Pending()
        self._database = database
        self._settings = settings
        self._clock = clock
        self._report = report
        self._retention = retention
        self._incoming: deque[Item] = deque()
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._tables: dict[str, schema.Table] = {}
        self._series: dict[tuple[str, str, str], int] = {}
        self._fresh: dict[tuple[str, str, str], int] = {}
        self._numbers: dict[tuple[str, str, tuple[str, ...], Entity], int] = {}
        self._appenders: dict[str, tuple[tuple[str, ...], Connection]] = {}
        self._prepared = False
        self._doubt: tuple[str, float, dict[object, int]] | None = None
        self._trouble = ""
        self._told_dropped = 0
        self._thread = threading.Thread(target=self._run, name="store-writer", daemon=True)

    def start(self) -> None:
        """Begin to write in a thread of its own."""
        self._thread.start()

    def put(self, item: Item) -> None:
        """Take something to be written; returns at once."""
        self._incoming.append(item)

    def stop(self) -> None:
        """Write what there is, and end the thread."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
        self.flush()
        with self._lock:
            self._forget()

    def flush(self, *, everything: bool = True) -> bool:
        """Write what is due, or everything; True if nothing that was due is left.

        Never raises: what goes wrong is reported, and kept for the next turn.
        """
        with self._lock:
            while self._incoming:
                self._take(self._incoming.popleft())
            self._tell_dropped()
            keys = [key for key, queue in self.pending.queues.items() if everything or self._due(queue)]
            try:
                if not self._prepared:
                    self._prepare()
                    keys = [key for key in keys if key in self.pending.queues]
                if keys:
                    self._write(keys)
            except Exception as error:
                self._fault(error, keys)
                return False
            self._well()
            return True

    def maintain(self, *, force: bool = False) -> None:
        """Delete what is too old or too much, and checkpoint, where it is time."""
        with self._lock:
            if not self._prepared:
                return
            try:
                if self._retention.tend(self._database, force=force):
                    self._read_series()
            except Exception as error:
                self._fault(error, [])

    def lag_s(self) -> float:
        """Age of the oldest thing that is not in the database yet (seconds)."""
        with contextlib.suppress(IndexError, RuntimeError):  # the thread may be taking it right now
            times = [self.pending.oldest, _time(self._incoming[0]) if self._incoming else None]
            return max(0.0, self._clock.now() - min((at for at in times if at is not None), default=self._clock.now()))
        return 0.0

    def _run(self) -> None:
        while not self._stop.wait(self._settings.flush_s):
            self.flush(everything=False)
            self.maintain()

    def _take(self, item: Item) -> None:
        try:
            self.pending.add(item)
        except Exception as error:
            self._refused(f"{type(item).__name__}", error)

    def _due(self, queue: Queue) -> bool:
        waited = self._clock.now() - queue.oldest
        patience = self._settings.patience_s if queue.family is not None else 0.0
        return queue.count >= _MANY_ROWS or waited >= patience or waited < 0

    def _prepare(self) -> None:
        self._database.connect()
        root = self._database.root
        schema.prepare(root)
        self._tables = {table.name: table for table in schema.tables(root)}
        self._database.tables = tuple(self._tables.values())
        self._read_series()
        self._prepared = True
        self._settle()

    def _read_series(self) -> None:
        self._series = _known_series(self._database.root)
        self._numbers.clear()

    def _settle(self) -> None:
        """When an instance broke at a commit, see whether it had taken the transaction: whole or not at all."""
        if self._doubt is None:
            return
        table, at, amounts = self._doubt
        self._doubt = None
        if self._database.root.execute(f"SELECT 1 FROM {table} WHERE ts = ? LIMIT 1", [at]).fetchone() is None:
            return
        for key, amount in amounts.items():
            if key in self.pending.queues:
                self.pending.taken(key, amount)

    def _write(self, keys: list[object]) -> None:
        root = self._database.root
        for key in keys:
            queue = self.pending.queues[key]
            if queue.family is not None and not queue.family.narrow:
                self._ensure(root, queue)
        amounts = {key: self.pending.queues[key].amount for key in keys}
        self._fresh = {}
        root.begin()
        try:
            for key in keys:
                self._append(self.pending.queues[key], key)
            root.commit()
        except BaseException as error:
            self._appenders.clear()
            self._numbers.clear()
            if isinstance(error, Exception) and fault(error) is Fault.REOPEN:
                self._doubt = *_last_row(keys[0], self.pending.queues[keys[0]]), amounts
            with contextlib.suppress(Exception):  # a commit that failed has ended the transaction itself
                root.rollback()
            raise
        self._series |= self._fresh
        for key, amount in amounts.items():
            self.pending.taken(key, amount)

    def _append(self, queue: Queue, key: object) -> None:
        family = queue.family
        if family is None:
            self._rows(f"record.{quoted(str(key))}", (), queue.rows)
        elif family.narrow:
            self._narrow(queue)
        else:
            table = self._tables[family.name]
            columns = (schema.TIME, *family.labels, *(metric.name for metric in family.metrics))
            self._rows(table.sql, columns, list(queue.wide()))

    def _narrow(self, queue: Queue) -> None:
        family = queue.family
        assert family is not None
        before = len(self._fresh)
        rows: list[tuple[object, ...]] = []
        for at, metric, entity, value in queue.narrow():
            short = (family.name, metric, family.labels, entity)
            number = self._numbers.get(short)
            if number is None:
                number = self._numbers[short] = self._number((family.name, metric, series_labels(family, entity)))
            rows.append((at, number, value))
        fresh = list(self._fresh.items())[before:]
        if fresh:
            self._rows("record.series", (), [(number, *key) for key, number in fresh])
        self._rows("family.samples", (), rows)

    def _number(self, key: tuple[str, str, str]) -> int:
        number = self._series.get(key, self._fresh.get(key))
        if number is None:
            number = max([*self._series.values(), *self._fresh.values()], default=0) + 1
            self._fresh[key] = number
        return number

    def _rows(self, table: str, columns: tuple[str, ...], rows: list[tuple[object, ...]]) -> None:
        kept = self._appenders.get(table)
        if kept is None or kept[0] != columns:
            made = self._database.root.appender(table, columns=list(columns) if columns else None)
            kept = self._appenders[table] = columns, made
        kept[1].append_rows(rows)
        kept[1].flush()

    def _ensure(self, root: Connection, queue: Queue) -> None:
        """Have a table that fits this family. A change of tables is checkpointed at once."""
        family = queue.family
        assert family is not None
        wanted = schema.Table(family.name, family.labels, tuple(metric.name for metric in family.metrics))
        table = self._tables.get(family.name)
        if table is None:
            schema.create(root, wanted)
            table = wanted
        else:
            labels = [name for name in wanted.labels if name not in table.labels]
            metrics = [name for name in wanted.metrics if name not in table.metrics]
            if not labels and not metrics:
                return
            schema.widen(root, table, labels, metrics)
            table = schema.Table(table.name, (*table.labels, *labels), (*table.metrics, *metrics))
        self._tables[table.name] = table
        self._appenders.clear()
        self._database.tables = tuple(self._tables.values())
        schema.publish(root)
        root.execute("CHECKPOINT")

    def _fault(self, error: Exception, keys: list[object]) -> None:
        match fault(error):
            case Fault.LATER:
                self._say(error)
            case Fault.REOPEN:
                self._say(error)
                self._reopen(keys)
            case Fault.REFUSED if len(keys) > 1:
                for key in keys:  # one bad table must not hold up the others
                    try:
                        self._write([key])
                    except Exception as single:
                        self._fault(single, [key])
            case Fault.REFUSED:
                for key in keys:
                    if key in self.pending.queues:
                        self.pending.taken(key, self.pending.queues[key].amount)
                        self._refused(str(key), error)

    def _reopen(self, keys: list[object]) -> None:
        """Open the broken instance anew, in this process, and write what it did not keep."""
        self._forget()
        try:
            self._prepare()
            left = [key for key in keys if key in self.pending.queues]
            if left:
                self._write(left)
        except Exception as error:
            if fault(error) is Fault.REOPEN:
                self._forget()
            return
        self._well()

    def _forget(self) -> None:
        self._appenders.clear()
        self._prepared = False
        self._database.close()

    def _say(self, error: Exception) -> None:
        """Tell of trouble once, not at every turn."""
        if self._trouble:
            return
        self._trouble = (str(error) or type(error).__name__).splitlines()[0][:300]
        message = f"the store cannot write; samples are kept in memory until it can: {self._trouble}"
        self._emit("store.unavailable", message, Severity.WARNING)

    def _well(self) -> None:
        if self._trouble:
            self._trouble = ""
            self._emit("store.recovered", "the store writes again", Severity.INFO)

    def _refused(self, what: str, error: Exception) -> None:
        reason = (str(error) or type(error).__name__).splitlines()[0][:300]
        self._emit("store.refused", f"{what} was not taken by the store: {reason}", Severity.WARNING)

    def _tell_dropped(self) -> None:
        if self.pending.dropped and not self._told_dropped:
            self._told_dropped = self.pending.dropped
            message = "the store could not write for so long that the oldest samples were given up"
            self._emit("store.dropped", message, Severity.WARNING)

    def _emit(self, kind: str, message: str, severity: Severity) -> None:
        with contextlib.suppress(Exception):  # a listener's fault is not the writer's
            self._report(event(kind, message, at=self._clock.now(), severity=severity))


def _known_series(connection: Connection) -> dict[tuple[str, str, str], int]:
    rows = connection.execute("SELECT family, metric, labels, id FROM record.series").fetchall()
    return {(family, metric, labels): number for family, metric, labels, number in rows}


def _last_row(key: object, queue: Queue) -> tuple[str, float]:
    """A table and the time of a row that is in it if the queue is."""
    if queue.family is None:
        return f"record.{quoted(str(key))}", float(str(queue.rows[-1][0]))
    table = "family.samples" if queue.family.narrow else f"family.{quoted(queue.family.name)}"
    return table, queue.batches[-1][0].at


def _time(item: Item) -> float:
    if isinstance(item, Batch):
        return item.at
    return item.time if isinstance(item, Event) else item[1]
