"""SQL from users: it may read what is published, for a while, and nothing else."""

from __future__ import annotations

import datetime as dt
import decimal
import json
import math
from dataclasses import dataclass
from typing import Any

from sentinel.errors import UsageError, nearest
from sentinel.store import schema
from sentinel.store.database import Connection, Database
from sentinel.store.functions import AGGREGATES, LENGTHENING, SCALARS, TABLE_FUNCTIONS

LONGEST = 16_384
"""Characters of a statement."""
_LONGEST_CELL = 65_536
_REFERENCES = frozenset({"BASE_TABLE", "SUBQUERY", "JOIN", "EMPTY", "EXPRESSION_LIST", "TABLE_FUNCTION", "SHOW_REF"})
_READABLE = "SELECT, DESCRIBE and SHOW TABLES are understood"


@dataclass(frozen=True, slots=True)
class Table:
    """An answer.

    Attributes:
        columns: Names.
        types: DuckDB's names of their types.
        rows: Plain JSON values; a time is text in UTC.
        truncated: Whether there were more rows.
    """

    columns: tuple[str, ...]
    types: tuple[str, ...]
    rows: list[tuple[object, ...]]
    truncated: bool


def ask(database: Database, statement: str, *, row_limit: int, deadline_s: float) -> Table:
    """Answer one statement.

    Raises:
        UsageError: It is not one that may be asked, or it cannot be understood.
        StoreUnavailable: The store is closed, or the deadline has passed.
    """
    import duckdb

    statement = statement.strip().rstrip(";").strip()
    with database.cursor(deadline_s) as cursor:
        views = schema.published(cursor)
        if statement.lower().split() == ["show", "tables"]:
            return Table(("name",), ("VARCHAR",), [(view,) for view in views], truncated=False)
        _check(cursor, statement, frozenset(views))
        cursor.execute("BEGIN TRANSACTION READ ONLY")
        try:
            cursor.execute(statement)
            described = [(column[0], str(column[1])) for column in cursor.description]
            rows = cursor.fetchmany(row_limit + 1)
        except (duckdb.InterruptException, duckdb.FatalException, duckdb.InternalException):
            raise
        except duckdb.OutOfMemoryException as error:
            raise UsageError("the query needs more memory than it may have", hint="ask for less at a time") from error
        except duckdb.Error as error:
            raise UsageError(_first_line(error)) from error
        finally:
            _end(cursor)
    return Table(
        tuple(name for name, _ in described),
        tuple(kind for _, kind in described),
        [tuple(map(_plain, row)) for row in rows[:row_limit]],
        truncated=len(rows) > row_limit,
    )


def _end(cursor: Connection) -> None:
    import duckdb

    try:
        cursor.execute("ROLLBACK")
    except duckdb.Error:  # the cursor is closed next; with it the transaction
        return


def _check(cursor: Connection, statement: str, views: frozenset[str]) -> None:
    if not statement:
        raise UsageError("the statement is empty", hint="SELECT * FROM jobs")
    if len(statement) > LONGEST:
        raise UsageError(f"the statement is longer than {LONGEST} characters")
    try:
        statement.encode()
    except UnicodeEncodeError:
        raise UsageError("the statement is not text in Unicode") from None
    try:
        _judge(json.loads(cursor.execute("SELECT json_serialize_sql(?::VARCHAR)", [statement]).fetchone()[0]), views)
    except RecursionError:
        raise UsageError("the statement is nested too deeply") from None


def _judge(tree: dict[str, Any], views: frozenset[str]) -> None:
    if tree.get("error"):
        if tree.get("error_type") == "not implemented":
            raise UsageError("only a statement that reads may be asked", hint=_READABLE)
        raise UsageError(f"the statement cannot be read: {tree.get('error_message', '')}")
    if len(tree.get("statements", ())) != 1:
        raise UsageError("one statement at a time")
    _walk(tree["statements"][0], views, frozenset())
    for name, most in LENGTHENING.items():
        if _uses(tree, name) > most:
            raise UsageError(f"`{name}` may be used {most} times in one statement, because text can grow too long")


def _walk(node: object, views: frozenset[str], known: frozenset[str]) -> None:
    """Refuse whatever is not on a list. `known` are the names that WITH has given."""
    if isinstance(node, list):
        for item in node:
            _walk(item, views, known)
        return
    if not isinstance(node, dict):
        return
    if isinstance(node.get("cte_map"), dict):
        known |= {str(entry.get("key")) for entry in node["cte_map"].get("map", ())}
    kind = str(node.get("type", ""))
    if kind == "RECURSIVE_CTE_NODE":
        raise UsageError("WITH RECURSIVE is not allowed here")
    if "sample" in node and "class" not in node and "modifiers" not in node:
        _reference(node, kind, views, known)
    if "function_name" in node:
        _function(node, table=False)
    for key, value in node.items():
        if kind == "TABLE_FUNCTION" and key == "function":
            _function(value, table=True)
            _walk(value.get("arguments", value.get("children")), views, known)
        else:
            _walk(value, views, known)


def _uses(node: object, name: str) -> int:
    """How often a function stands in the statement, each argument after the first counted."""
    if isinstance(node, list):
        return sum(_uses(item, name) for item in node)
    if not isinstance(node, dict):
        return 0
    below = sum(_uses(value, name) for value in node.values())
    if str(node.get("function_name", "")).lower() != name:
        return below
    return below + (1 if LENGTHENING[name] == 1 else max(1, len(node.get("arguments") or ()) - 1))


def _reference(node: dict[str, object], kind: str, views: frozenset[str], known: frozenset[str]) -> None:
    if kind not in _REFERENCES:
        raise UsageError(f"{kind.replace('_', ' ').lower()} is not allowed here", hint=_READABLE)
    if kind == "SHOW_REF" and node.get("query") is None:
        raise UsageError("only SHOW TABLES, DESCRIBE and SUMMARIZE are allowed", hint=_READABLE)
    if kind != "BASE_TABLE":
        return
    name = str(node.get("table_name", ""))
    plain = not node.get("catalog_name") and node.get("schema_name") in ("", None, "main")
    if plain and (name in known or name.lower() in views):
        return
    if not plain:
        raise UsageError(f"`{node.get('schema_name')}.{name}` is not published", hint="SHOW TABLES lists what is")
    near = nearest(name.lower(), set(views))
    raise UsageError(f"there is no table `{name}` to read", hint=f"`{near}`" if near else "SHOW TABLES lists them")


def _function(node: dict[str, object], *, table: bool) -> None:
    name = str(node.get("function_name", "")).lower()
    if node.get("schema") in ("", None, "main") and not node.get("catalog"):
        if name in (TABLE_FUNCTIONS if table else SCALARS | AGGREGATES):
            return
        if not table and not any(char.isalnum() for char in name):  # operators: + ~~ ->> …
            return
    raise UsageError(f"the function {name}() is not allowed here")


def _plain(value: object) -> object:
    """As JSON can carry it."""
    match value:
        case None | bool() | int():
            return value
        case float():
            return value if math.isfinite(value) else None
        case str():
            return value[:_LONGEST_CELL]
        case dt.datetime():
            text = value.astimezone(dt.UTC).replace(tzinfo=None) if value.tzinfo else value
            return text.isoformat(sep=" ", timespec="milliseconds") + ("Z" if value.tzinfo else "")
        case decimal.Decimal():
            return float(value)
        case dt.timedelta():
            return value.total_seconds()
        case list() | tuple():
            return [_plain(item) for item in value]
        case dict():
            return {str(key): _plain(item) for key, item in value.items()}
        case bytes():
            return value[:_LONGEST_CELL].hex()
    return str(value)[:_LONGEST_CELL]


def _first_line(error: BaseException) -> str:
    text = str(error).strip() or type(error).__name__
    return text.split("\n\nLINE", maxsplit=1)[0][:500]
