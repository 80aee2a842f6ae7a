"""What a line says, whatever it is wrapped in: docker's JSON, journald's, JSON logs, CRI, escape sequences."""

from __future__ import annotations

import json
import re

_ANSI = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-~])")
_CRI = re.compile(rb"^\d{4}-\d\d-\d\dT[\d:.]+(?:Z|[+-]\d\d:\d\d) (?:stdout|stderr) [FP] ")
_IDENTITIES = frozenset({
    "id", "ts", "time", "timestamp", "@timestamp", "date", "datetime", "request_id", "requestid", "req_id",
    "trace_id", "traceid", "span_id", "spanid", "trace", "span", "caller", "logger", "filename", "file", "lineno",
    "function", "func", "tid", "thread", "pid", "hostname", "host", "version", "latency_ms", "duration",
    "duration_ms", "latency", "elapsed", "elapsed_ms", "step", "epoch", "user_id", "session_id",
})  # fmt: skip
_TEXT = ("log", "MESSAGE", "message", "msg", "event", "text")
_DEEPEST = 6


def plain(raw: bytes) -> bytes:
    r"""One line as its writer meant it: unwrapped, without escape sequences, `\"` and `\n` of nested JSON undone."""
    line = _ANSI.sub(b"", raw) if b"\x1b" in raw else raw
    line = line.rstrip(b"\r\n")
    if (cut := _CRI.match(line)) is not None:
        line = line[cut.end() :]
    start = line.lstrip()
    if start[:1] == b"{" and start[-1:] == b"}" and (found := _object(start)) is not None:
        line = found
    if b"\\" in line:
        line = line.replace(b'\\\\"', b'"').replace(b'\\"', b'"').replace(b"\\\\n", b" ").replace(b"\\n", b" ")
        line = _ANSI.sub(b"", line.replace(b"\\u001b", b"\x1b"))
    return line


def _object(text: bytes) -> bytes | None:
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(data, dict):
        return None
    for key in ("log", "MESSAGE"):  # docker and journald: what the program itself wrote, which may be JSON again
        inner = data.get(key)
        if isinstance(inner, str):
            return plain(inner.encode("utf-8", "replace"))
    words: list[str] = []
    _flatten(data, words, 0)
    return " ".join(words).replace("\n", " ").encode("utf-8", "replace")


def _flatten(data: dict[str, object], words: list[str], depth: int) -> None:
    for key, value in data.items():
        name = str(key)
        if name.lower() in _IDENTITIES:
            continue
        if isinstance(value, dict):
            if depth < _DEEPEST:
                _flatten(value, words, depth + 1)
        elif isinstance(value, list):
            for item in value[:20]:
                if isinstance(item, dict) and depth < _DEEPEST:
                    _flatten(item, words, depth + 1)
                elif isinstance(item, str):
                    words.append(item)
        elif isinstance(value, str):
            words.append(value if name in _TEXT else f"{name}: {value}")
        elif value is not None:
            words.append(f"{name}: {json.dumps(value)}")
