"""What is too old or too much goes: every hour by DELETE, once a day with a checkpoint."""

from __future__ import annotations

from sentinel.clock import Clock
from sentinel.store import schema
from sentinel.store.database import Connection, Database, quoted
from sentinel.store.settings import Settings

_HOUR = 3600.0
_DAY = 86400.0
_SHARE = 0.1
"""Of the time that is kept, given up at a time when the file is too large."""
_MOST_ROUNDS = 20


class Retention:
    """Keeps the file within its age and size."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._hourly = self._daily = clock.monotonic()

    def tend(self, database: Database, *, force: bool = False) -> bool:
        """Do what is due; True if narrow series were given up, so that their numbers must be read again."""
        moment = self._clock.monotonic()
        if not force and moment - self._hourly < _HOUR:
            return False
        self._hourly = moment
        root, now = database.root, self._clock.now()
        families = [table.sql for table in database.tables] + ["family.samples"]
        for table in families:
            root.execute(f"DELETE FROM {table} WHERE ts < ?", [now - self._settings.raw_s])
        for name in ("events", *schema.RECORDS):
            root.execute(f"DELETE FROM record.{quoted(name)} WHERE ts < ?", [now - self._settings.rollup_s])
        shrunk = self._shrink(database, families)
        if not force and not shrunk and moment - self._daily < _DAY:
            return False
        self._daily = moment
        root.execute("DELETE FROM record.series WHERE id NOT IN (SELECT DISTINCT series FROM family.samples)")
        root.execute("CHECKPOINT")
        return True

    def _shrink(self, database: Database, families: list[str]) -> bool:
        """Give up the oldest samples until the data fits."""
        used = database.used_bytes()
        shrunk = False
        for _ in range(_MOST_ROUNDS):
            oldest = _oldest(database.root, families) if used > self._settings.size_bytes else None
            if oldest is None:
                break
            until = oldest + max(_SHARE * (self._clock.now() - oldest), 60.0)
            for table in families:
                database.root.execute(f"DELETE FROM {table} WHERE ts < ?", [until])
            database.root.execute("CHECKPOINT")
            shrunk, before, used = True, used, database.used_bytes()
            if used >= before:  # space comes back a whole row group at a time; more will go in an hour
                break
        return shrunk


def _oldest(root: Connection, families: list[str]) -> float | None:
    parts = " UNION ALL ".join(f"SELECT min(ts) AS ts FROM {table}" for table in families)
    found = root.execute(f"SELECT min(ts) FROM ({parts})").fetchone()
    return None if found is None or found[0] is None else float(found[0])
