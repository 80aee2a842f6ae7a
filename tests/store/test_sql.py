"""What users may ask the database, and what they may not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sentinel.clock import ManualClock
from sentinel.errors import SentinelError, UsageError
from sentinel.model.families import HOST_DISK
from sentinel.store.database import StoreUnavailable
from sentinel.store.settings import Settings
from sentinel.store.store import Store

T0 = ManualClock().now()


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    made = Store.open(tmp_path_factory.mktemp("sql"), Settings(flush_s=3600.0), ManualClock(), lambda _: None)
    for tick in range(10):
        made.put(HOST_DISK.batch(T0 + tick, {("/",): (tick, 9, None, 0), ("/data",): (5, 9, 1, 0)}))
    made.flush()
    yield made
    made.close()


ALLOWED = [
    "SELECT 1;",
    "FROM host_disk",
    "SELECT mount, avg(host_disk_free_bytes) FROM main.host_disk GROUP BY ALL ORDER BY 1",
    "SELECT time_bucket(INTERVAL 5 seconds, time) AS t, count(*) FROM host_disk GROUP BY t HAVING count(*) > 1",
    "WITH a AS (SELECT * FROM host_disk), b AS (FROM a) SELECT * FROM b JOIN a USING (ts) WHERE b.mount LIKE '/%'",
    "SELECT * FROM host_disk ASOF JOIN events USING (ts)",
    "SELECT *, lag(host_disk_free_bytes) OVER (PARTITION BY mount ORDER BY ts) FROM host_disk QUALIFY row_number() OVER () < 3",
    "SELECT CASE WHEN host_disk_free_bytes BETWEEN 1 AND 2 THEN 'a' || mount ELSE NULL END, ts::BIGINT % 7 FROM host_disk",
    "SELECT count(*) FILTER (WHERE mount = '/'), quantile_cont(ts, 0.99), max_by(mount, ts) FROM host_disk",
    "SELECT * EXCLUDE (ts) FROM host_disk WHERE time > now() - INTERVAL '1 hour' OR mount IN (SELECT mount FROM host_disk)",
    "SELECT i FROM range(3) t(i) UNION ALL SELECT unnest([1, 2])",
    "SELECT replace(mount, '/', 'root') || ' ' || host_disk_free_bytes || ' bytes' FROM host_disk",
    "VALUES (1, 'a')",
    "DESCRIBE host_disk",
    "SUMMARIZE host_disk",
    "show tables",
]


@pytest.mark.parametrize("statement", ALLOWED)
def test_reading_what_is_published_is_allowed(store: Store, statement: str) -> None:
    assert store.sql(statement).columns


REFUSED = [
    "DELETE FROM host_disk",
    "INSERT INTO family.host_disk (ts) VALUES (1)",
    "CREATE TABLE x (a INTEGER)",
    "DROP VIEW host_disk",
    "COPY host_disk TO '/tmp/x.csv'",
    "COPY (SELECT 1) TO '/tmp/x.csv'",
    "EXPORT DATABASE '/tmp/x'",
    "ATTACH '/tmp/x.duckdb'",
    "CHECKPOINT",
    "PRAGMA database_list",
    "SET memory_limit = '1GB'",
    "INSTALL httpfs",
    "LOAD httpfs",
    "CALL pragma_database_size()",
    "EXPLAIN ANALYZE SELECT 1",
    "ROLLBACK",
    "SELECT 1; SELECT 2",
    "SELECT 1; DROP VIEW host_disk",
    "SELECT * FROM family.host_disk",
    "SELECT * FROM record.events",
    "SELECT * FROM host_disk WHERE ts = (SELECT max(ts) FROM family.host_disk)",
    "WITH host_disk AS (SELECT * FROM family.host_disk) FROM host_disk",
    "SELECT * FROM duckdb_settings",
    "SELECT * FROM duckdb_settings, (WITH duckdb_settings AS (SELECT 1) FROM duckdb_settings)",
    "SELECT * FROM information_schema.tables",
    "SELECT * FROM pg_catalog.pg_class",
    "SELECT * FROM sqlite_master",
    "SELECT * FROM duckdb_secrets()",
    "SELECT * FROM read_csv('/etc/passwd')",
    "SELECT * FROM '/etc/passwd'",
    "SELECT * FROM read_text('/etc/passwd')",
    "SELECT * FROM read_blob('/etc/passwd')",
    "SELECT read_text('/etc/passwd')",
    "SELECT * FROM glob('/*')",
    "SELECT * FROM query('SELECT 1')",
    "SELECT * FROM query_table('host_disk')",
    "SELECT * FROM range((SELECT count(*)::INT FROM family.host_disk))",
    "SELECT getenv('HOME')",
    "SELECT current_setting('memory_limit')",
    "SELECT repeat('x', 1000000000)",
    "SELECT nextval('x')",
    "SELECT system.main.getenv('HOME')",
    "SELECT sum(ts) OVER (ORDER BY getenv('HOME')) FROM host_disk",
    "SELECT list_transform([1], x -> getenv('HOME'))",
    "SELECT * FROM host_disk ORDER BY getenv('HOME')",
    "WITH RECURSIVE a AS (SELECT 1 AS x UNION ALL SELECT x FROM a) FROM a",
    "SELECT * FROM (SHOW ALL TABLES)",
    "PIVOT host_disk ON mount USING sum(ts)",
    "",
    "nonsense",
    "SELECT ?",
    "SELECT * FROM hostdisk",
    "SELECT nothing FROM host_disk",
    "SELECT " + "(" * 5000 + "1" + ")" * 5000,
    "SELECT 1" + " + 1" * 4000,
    "SELECT '" + "x" * 20000 + "'",
    "SELECT '\ud800'",
    "WITH a AS (SELECT 'x' AS s), b AS (SELECT s || s || s || s || s || s || s || s AS s FROM a) SELECT s || s || s || s || s || s || s FROM b",
    "SELECT concat(" + ", ".join(["mount"] * 20) + ") FROM host_disk",
    "SELECT replace(replace(mount, '/', 'xxxx'), 'x', 'xxxx') FROM host_disk",
    "SELECT list(i) FROM range(100000000) t(i)",
]


@pytest.mark.parametrize("statement", REFUSED, ids=lambda text: text[:60].encode("ascii", "replace").decode())
def test_all_else_is_refused_with_words(store: Store, statement: str) -> None:
    with pytest.raises(UsageError) as caught:
        store.sql(statement)
    assert caught.value.message
    assert store.sql("SELECT count(*) FROM host_disk").rows == [(20,)]


def test_a_slip_in_a_name_is_helped(store: Store) -> None:
    with pytest.raises(UsageError, match="there is no table `hostdisk` to read") as caught:
        store.sql("SELECT * FROM hostdisk")
    assert caught.value.hint == "`host_disk`"


def test_rows_are_capped_and_said_to_be(store: Store) -> None:
    table = store.sql("SELECT ts, mount FROM host_disk ORDER BY ts, mount", row_limit=3)

    assert table.columns == ("ts", "mount")
    assert table.types == ("DOUBLE", "VARCHAR")
    assert table.rows == [(T0, "/"), (T0, "/data"), (T0 + 1, "/")]
    assert table.truncated
    assert not store.sql("SELECT ts FROM host_disk", row_limit=20).truncated


def test_what_takes_too_long_is_stopped(store: Store) -> None:
    with pytest.raises(StoreUnavailable, match=r"took longer than 0\.2 s"):
        store.sql("SELECT count(*) FROM range(1000000) a, range(1000000) b", deadline_s=0.2)
    assert store.sql("SELECT 1").rows == [(1,)]


def test_values_are_plain(store: Store) -> None:
    (row,) = store.sql(
        "SELECT to_timestamp(0), [1, 2], {'a': 1.5}, 'nan'::DOUBLE, 1.5::DECIMAL(4,1), INTERVAL 90 seconds, NULL,"
        " '\\x01'::BLOB, DATE '2020-01-02'"
    ).rows

    assert row == ("1970-01-01 00:00:00.000Z", [1, 2], {"a": 1.5}, None, 1.5, 90.0, None, "01", "2020-01-02")


def test_nothing_is_answered_by_a_store_that_is_closed(tmp_path: Path) -> None:
    closed = Store.open(tmp_path, Settings(flush_s=3600.0), ManualClock(), lambda _: None)
    closed.close()

    with pytest.raises(SentinelError, match="the store is not open"):
        closed.sql("SELECT 1")
