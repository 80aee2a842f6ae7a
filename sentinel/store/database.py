"""The database file: opening it whatever state it is in, cursors for readers, starting it anew when it broke."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator
from enum import Enum, auto
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sentinel.clock import Clock
from sentinel.errors import SentinelError
from sentinel.model.events import Severity, event
from sentinel.store.ports import Publish
from sentinel.store.settings import Settings

if TYPE_CHECKING:
    import duckdb

    from sentinel.store.schema import Table

Connection = Any
"""duckdb.DuckDBPyConnection; a cursor is one too."""

_SPILL_LIMIT = "256MB"


class StoreUnavailable(SentinelError):
    """The database cannot answer now."""


class Fault(Enum):
    """What an error of the database asks for."""

    LATER = auto()
    """The disk is full or memory is short: keep the batch, try again."""
    REOPEN = auto()
    """The instance is invalid: close everything, open it anew."""
    REFUSED = auto()
    """This content will never be taken."""


class Database:
    """One open database file, its root connection, and the cursors that read beside it.

    The root connection belongs to the writer; everybody else borrows a cursor.

    Args:
        directory: Of the file and of what spills; nothing outside it can be reached by SQL.
        settings: Its memory.
        clock: For the time of events and the names of what is moved aside.
        report: Where faults are told.

    Attributes:
        path: The file.
        tables: The families' tables, as the writer last made or found them.
    """

    def __init__(self, directory: Path, settings: Settings, clock: Clock, report: Publish) -> None:
        self.path = directory / "store.duckdb"
        self.tables: tuple[Table, ...] = ()
        self._settings = settings
        self._clock = clock
        self._report = report
        self._root: Connection | None = None
        self._readers: set[Connection] = set()
        self._changed = threading.Condition()
        self._closing = False

    @property
    def root(self) -> Connection:
        """The writer's connection.

        Raises:
            StoreUnavailable: It is not open.
        """
        if self._root is None:
            raise StoreUnavailable("the store is not open", hint="`sentinel events` says why")
        return self._root

    @property
    def open(self) -> bool:
        """Whether there is something to write to."""
        return self._root is not None

    @property
    def wal(self) -> Path:
        """The write-ahead log beside the file."""
        return self.path.with_name(self.path.name + ".wal")

    def connect(self) -> None:
        """Open the file. What is damaged is moved aside and told; nothing is deleted.

        Raises:
            StoreUnavailable: It cannot be opened now: the disk is full, another
                process has it, or it may not be written.
        """
        if self._root is not None:
            return
        if self.wal.exists() and not self.path.exists():
            self._move_aside(self.wal, reason="its database file is missing")
        for _ in range(3):
            existed = self.path.exists()
            try:
                connection = self._connected()
            except Exception as error:
                if not existed:  # half of a new file is no damage to tell of
                    self.path.unlink(missing_ok=True)
                    self.wal.unlink(missing_ok=True)
                self._on_open_error(error)
                continue
            with self._changed:
                self._root, self._closing = connection, False
            return
        raise StoreUnavailable(f"the store {self.path} cannot be opened")

    def close(self) -> None:
        """Close every cursor and the file. Queries in progress are interrupted."""
        with self._changed:
            self._closing = True
            give_up = time.monotonic() + 10.0
            while self._readers and time.monotonic() < give_up:
                for cursor in self._readers:
                    with contextlib.suppress(Exception):
                        cursor.interrupt()
                self._changed.wait(0.05)
            root, self._root = self._root, None
        if root is not None:
            with contextlib.suppress(Exception):  # a last checkpoint may find the disk full
                root.close()

    @contextlib.contextmanager
    def cursor(self, deadline_s: float | None = None) -> Iterator[Connection]:
        """A cursor of one's own, for one use by one thread.

        Args:
            deadline_s: Whatever runs is interrupted after this long.

        Raises:
            StoreUnavailable: The store is closed, broke during the query, or the
                deadline has passed.
        """
        with self._changed:
            if self._root is None or self._closing:
                raise StoreUnavailable("the store is not open", hint="`sentinel events` says why")
            cursor = self._root.cursor()
            self._readers.add(cursor)
        late = threading.Event()
        timer = None
        if deadline_s is not None:
            timer = threading.Timer(deadline_s, _stop, (cursor, late))
            timer.daemon = True
            timer.start()
        try:
            yield cursor
        except SentinelError:
            raise
        except Exception as error:
            if late.is_set():
                message = f"the query took longer than {deadline_s:g} s"
                raise StoreUnavailable(message, hint="ask for less at a time") from error
            if self._closing or fault(error) is Fault.REOPEN:
                raise StoreUnavailable("the store was closed during the query", hint="try again") from error
            raise
        finally:
            if timer is not None:
                timer.cancel()
            with contextlib.suppress(Exception):
                cursor.close()
            with self._changed:
                self._readers.discard(cursor)
                self._changed.notify_all()

    def used_bytes(self) -> int:
        """What the data takes, the write-ahead log included, without blocks that are free inside the file."""
        with self.cursor() as cursor:
            used, block = cursor.execute("SELECT used_blocks, block_size FROM pragma_database_size()").fetchone()
        return int(used) * int(block) + _size(self.wal)

    def _connected(self) -> duckdb.DuckDBPyConnection:
        import duckdb

        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        connection = duckdb.connect(
            str(self.path),
            config={
                "threads": 1,
                "async_threads": 1,
                "memory_limit": f"{self._settings.memory_bytes >> 10}KiB",
                "python_enable_replacements": "false",
                "autoinstall_known_extensions": "false",
                "autoload_known_extensions": "false",
                "temp_directory": str(self.path.with_name("spill")),
                "max_temp_directory_size": _SPILL_LIMIT,
            },
        )
        try:
            os.chmod(self.path, 0o600)
            connection.execute("SET GLOBAL TimeZone = 'UTC'")
            connection.execute(f"SET allowed_directories = [{literal(str(self.path.parent))}]")
            connection.execute("SET enable_external_access = false")
            connection.execute("SET lock_configuration = true")
            _probe(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _on_open_error(self, error: Exception) -> None:
        """Move aside what is damaged; raise for what may pass by itself."""
        text = str(error)
        passing = (
            "No space left",
            "Could not set lock",
            "Permission denied",
            "Read-only",
            "Cannot open file",
            "Out of Memory",
        )
        if isinstance(error, OSError) or any(words in text for words in passing):
            reason = text.splitlines()[0] if text else type(error).__name__
            raise StoreUnavailable(f"the store {self.path} cannot be opened: {reason}") from error
        if "WAL" in text and self.wal.exists():
            self._move_aside(self.wal, reason=text)
        else:
            self._move_aside(self.path, self.wal, reason=text)

    def _move_aside(self, *paths: Path, reason: str) -> None:
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(self._clock.now()))
        moved: list[str] = []
        for path in paths:
            if not path.exists():
                continue
            target = path.with_name(f"{path.name}.damaged-{stamp}")
            number = 1
            while target.exists():
                number += 1
                target = path.with_name(f"{path.name}.damaged-{stamp}-{number}")
            path.rename(target)
            moved.append(str(target))
        lost = "what was written since the last checkpoint" if self.path.exists() else "the history"
        self._report(
            event(
                "store.damaged",
                f"{lost} could not be read and was moved aside to {', '.join(moved)}",
                at=self._clock.now(),
                severity=Severity.CRITICAL,
                reason=reason[:500],
                moved=moved,
            )
        )


def fault(error: BaseException) -> Fault:
    """What an error of the database asks for."""
    import duckdb

    text = str(error)
    if isinstance(error, duckdb.FatalException | duckdb.InternalException | duckdb.ConnectionException):
        return Fault.REOPEN
    if "has been invalidated" in text:
        return Fault.REOPEN
    passing = (duckdb.IOException, duckdb.OutOfMemoryException, duckdb.TransactionException, OSError, StoreUnavailable)
    return Fault.LATER if isinstance(error, passing) else Fault.REFUSED


def literal(text: str) -> str:
    """An SQL string."""
    return "'" + text.replace("'", "''") + "'"


def quoted(name: str) -> str:
    """An SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def _probe(connection: Connection) -> None:
    """Damaged blocks show only when they are read: read the ends of each table."""
    tables = connection.execute(
        "SELECT schema_name, table_name FROM duckdb_tables()"
        " WHERE schema_name IN ('family', 'record') AND estimated_size > 0"
    ).fetchall()
    for schema, table in tables:
        connection.execute(f"SELECT * FROM {quoted(schema)}.{quoted(table)} LIMIT 1").fetchall()


def _stop(cursor: Connection, late: threading.Event) -> None:
    late.set()
    with contextlib.suppress(Exception):
        cursor.interrupt()


def _size(path: Path) -> int:
    try:
        return path.stat().st_size  # stat opens nothing, so the file's lock is safe
    except OSError:
        return 0
