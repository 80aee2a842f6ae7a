"""State of agent pipelines: JSON, JSON lines, SQLite."""

from __future__ import annotations

import json
import os
import sqlite3
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from sentinel.checkpoints.contents import agent_part_of, part_of
from sentinel.checkpoints.form import LONGEST_JSON_BYTES, Form, Look, Verdict, reading, torn

_STEP_KEYS = ("global_step", "step", "iteration", "turn", "current_step", "round")
_MOST_MESSAGES = 10_000
_LAST_LINE_BYTES = 1 << 20
_MOST_TABLES = 1_000


def inspect_json(path: Path, _look: Look) -> Form:
    """One JSON document.

    Raises:
        OSError: It cannot be read.
    """
    if path.stat().st_size > LONGEST_JSON_BYTES:
        return Form("json", Verdict.SILENT, proven=False)
    try:
        data = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as fault:
        return torn("json", f"not whole JSON ({fault})")
    return Form("json", Verdict.WHOLE, "", json_step(data), frozenset(_json_parts(data)))


def inspect_lines(path: Path, look: Look) -> Form:
    """One JSON document per line; a last line without its end was cut.

    Raises:
        OSError: It cannot be read.
    """
    with reading(path) as (read, size):
        whole = look.deep or size <= _LAST_LINE_BYTES
        start = 0 if whole else size - _LAST_LINE_BYTES
        tail = read(start, size - start)
    if not tail.endswith(b"\n"):
        return torn("jsonl", "its last line has no end")
    lines = tail.split(b"\n")[0 if whole else 1 : -1]
    parts: set[str] = set()
    for number, line in enumerate(lines):
        try:
            data = json.loads(line) if line.strip() else {}
        except (ValueError, RecursionError):
            return torn("jsonl", f"line {number + 1}{'' if whole else ' of its last MiB'} is no whole JSON")
        if number < _MOST_MESSAGES:
            parts.update(_message_parts(data), _json_parts(data))
    return Form("jsonl", Verdict.WHOLE, contents=frozenset(parts))


def json_step(data: Any) -> int | None:
    """The step that a JSON state tells of itself."""
    if isinstance(data, dict):
        for key in _STEP_KEYS:
            value = data.get(key)
            if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
                return value
    return None


def _json_parts(data: Any) -> Iterator[str]:
    """Empty values are there, and say so: a run that has just begun has finished no subtask yet."""
    if isinstance(data, list):
        if data and all(isinstance(item, dict) and "role" in item for item in data[:100]):
            yield "conversation"
        for item in data[:_MOST_MESSAGES]:
            yield from _message_parts(item)
        return
    if not isinstance(data, dict):
        return
    for key, value in data.items():
        if (part := agent_part_of(key)) or ((part := part_of(key)) and part != "model"):
            yield part
        if isinstance(value, list):
            for item in value[:_MOST_MESSAGES]:
                yield from _message_parts(item)
        elif isinstance(value, dict) and not agent_part_of(key):
            yield from (part for inner in value if (part := agent_part_of(inner)))


def _message_parts(message: Any) -> Iterator[str]:
    if not isinstance(message, dict):
        return
    if message.get("role") in {"tool", "function"} or message.get("type") in {"tool_result", "function_call_output"}:
        yield "tool results"
    if "role" in message and "content" in message:
        yield "conversation"
    content = message.get("content")
    if isinstance(content, list) and any(isinstance(i, dict) and i.get("type") == "tool_result" for i in content):
        yield "tool results"


def inspect_sqlite(path: Path, look: Look) -> Form:
    """A database: as many pages as its header says, and no writer that left in the middle.

    It is opened only to read, without locks and without making files beside it.

    Raises:
        OSError: It cannot be read.
    """
    with reading(path) as (read, size):
        head = read(0, 100)
    if len(head) < 100:
        return torn("sqlite", f"the file has {size} bytes, its header alone takes 100")
    page = struct.unpack(">H", head[16:18])[0]
    page = 65536 if page == 1 else page
    changed, pages, valid_for = (struct.unpack(">I", head[at : at + 4])[0] for at in (24, 28, 92))
    if page < 512 or page & (page - 1):
        return torn("sqlite", "its header is damaged")
    counted = pages and changed == valid_for
    logged = _has_bytes(f"{path}-wal")
    if counted and not logged and size < pages * page:
        return torn("sqlite", f"it has {pages} pages of {page} bytes, the file has {size}")
    if size % page and not logged:
        return torn("sqlite", "its last page is not whole")
    if _has_bytes(f"{path}-journal"):
        return Form("sqlite", Verdict.SILENT, notes=("a writer is in the middle of a transaction, or left in it",))
    try:
        tables = _tables(path, deep=look.deep)
    except sqlite3.Error as fault:
        # Pages that are still in the log can make the file alone look damaged.
        return Form("sqlite", Verdict.SILENT) if logged else torn("sqlite", f"it cannot be read ({fault})")
    if isinstance(tables, str):
        return torn("sqlite", tables)
    return Form("sqlite", Verdict.WHOLE if counted else Verdict.SILENT, contents=frozenset(_table_parts(tables)))


def _tables(path: Path, *, deep: bool) -> list[str] | str:
    """Names of tables and their columns; or what a check of the whole file found."""
    quoted = str(path.absolute()).replace("%", "%25").replace("?", "%3f").replace("#", "%23")
    connection = sqlite3.connect(f"file:{quoted}?mode=ro&immutable=1", uri=True, timeout=0)
    try:
        connection.execute("PRAGMA trusted_schema=OFF")
        if deep and not _has_bytes(f"{path}-wal"):
            (said,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
            if said != "ok":
                return f"a check of it says: {str(said)[:200]}"
        rows = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' LIMIT ?", (_MOST_TABLES,))
        return [str(name) for (name,) in rows]
    finally:
        connection.close()


def _table_parts(tables: Iterable[str]) -> Iterator[str]:
    names = set(tables)
    if {"checkpoints", "writes"} <= names or {"checkpoints", "checkpoint_writes"} <= names:
        # LangGraph: each checkpoint holds the channels, messages among them; writes are what tasks have finished.
        yield from ("conversation", "tool results", "subtasks")
    for name in names:
        if part := agent_part_of(name):
            yield part


def _has_bytes(path: str) -> bool:
    try:
        return os.stat(path).st_size > 0
    except OSError:
        return False
