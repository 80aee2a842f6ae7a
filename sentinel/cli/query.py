"""`sentinel query`: evaluate a PromQL expression."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from sentinel.api.client import path_with
from sentinel.cli.colours import paint
from sentinel.cli.common import add_json, clock, print_json, reach, seconds
from sentinel.cli.tables import Column, plain, table, terminal_width

EPILOG = """\
examples:
  sentinel query 'job_memory_used_bytes / job_memory_limit_bytes'
  sentinel query --range 10m --step 1m 'rate(job_cpu_seconds_total[1m])'"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What `sentinel query` takes."""
    parser.add_argument("expr", metavar="EXPR", help="the expression")
    add_json(parser, "print Prometheus's JSON: the object `data`")
    parser.add_argument("--time", type=float, metavar="UNIX", help="evaluate at this time instead of now")
    parser.add_argument(
        "--range", type=seconds, nargs="?", const=600.0, metavar="DURATION", help="over the last so long (default: 10m)"
    )
    parser.add_argument("--step", type=seconds, metavar="DURATION", help="with --range: every so often")


def run(args: argparse.Namespace) -> int:
    """Print the answer."""
    with reach(timeout_s=60.0) as client:
        end = args.time if args.time is not None else client.get("/v1/health")["time"]
        if args.range is None:
            path = path_with("/api/v1/query", query=args.expr, time=end)
        else:
            step = args.step or max(1.0, args.range / 20)
            path = path_with("/api/v1/query_range", query=args.expr, start=end - args.range, end=end, step=step)
        answer = client.get(path)
    for word in (*answer.get("warnings", []), *answer.get("infos", [])):
        print(f"sentinel: {plain(word)}", file=sys.stderr)
    data = answer["data"]
    if args.json:
        print_json(data)
        return 0
    lines = _lines(data)
    if not lines:
        print("no series", file=sys.stderr)
    for line in lines:
        print(line)
    return 0


def series(labels: dict[str, str]) -> str:
    """`name{label="value"}`."""
    pairs = ", ".join(f'{name}="{plain(value)}"' for name, value in labels.items() if name != "__name__")
    name = labels.get("__name__", "")
    return f"{name}{{{pairs}}}" if pairs or not name else name


def _lines(data: dict[str, Any]) -> list[str]:
    result = data["result"]
    match data["resultType"]:
        case "scalar" | "string":
            return [plain(str(result[1]))]
        case "vector":
            if not result:
                return []
            rows = [[series(each["metric"]), each["value"][1]] for each in result]
            columns = [Column("SERIES", least=20, weight=1), Column("VALUE", right=True, weight=9)]
            return table(columns, rows, width=terminal_width(), paint=paint())
        case _:
            lines: list[str] = []
            for each in result:
                lines.append(series(each["metric"]))
                lines += [f"  {clock(float(at))}  {value}" for at, value in each["values"]]
            return lines
