"""What many commands share: reaching the daemon, and writing what it says."""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import Any

from sentinel.api.client import Client, Unreachable
from sentinel.api.connect import connect
from sentinel.units import format_duration


def add_json(parser: argparse.ArgumentParser, what: str = "print JSON: one array") -> None:
    """The option `--json`."""
    parser.add_argument("--json", action="store_true", help=what)


def reach(*, timeout_s: float = 10.0) -> Client:
    """The daemon in charge here; none is started.

    Raises:
        Unreachable: There is none; it says how to start one.
    """
    try:
        return connect(start=False, timeout_s=timeout_s)
    except Unreachable as fault:
        raise Unreachable(
            f"no daemon is running: {fault.message}",
            hint="`sentinel status` or `sentinel run -- CMD` starts one; `sentinel daemon` runs it in the foreground",
        ) from None


def print_json(data: Any) -> None:
    """One JSON document on stdout: indented on a terminal, compact elsewhere."""
    indent = 2 if sys.stdout.isatty() else None
    print(json.dumps(data, indent=indent, ensure_ascii=False))


def print_line(data: Any) -> None:
    """One JSON line of a stream, at once."""
    print(json.dumps(data, separators=(",", ":"), ensure_ascii=False), flush=True)


def counted(count: int, thing: str) -> str:
    """`1 job`, `2 jobs`."""
    return f"{count} {thing}{'' if count == 1 else 's'}"


def ago(then: float | None, now: float) -> str:
    """`2m`, how long something is past; `-` where it never was."""
    return "-" if then is None else format_duration(max(0, round(now - then)))


def clock(at: float) -> str:
    """Local time of day, with the date where it is not today."""
    local = time.localtime(at)
    today = time.localtime()
    return time.strftime("%H:%M:%S" if local[:3] == today[:3] else "%Y-%m-%d %H:%M:%S", local)


def seconds(text: str) -> float:
    """An argument that is a duration, for argparse."""
    from sentinel.errors import UsageError
    from sentinel.units import parse_duration

    try:
        return parse_duration(text)
    except UsageError as fault:
        raise argparse.ArgumentTypeError(str(fault).replace("\n ", ";")) from None
