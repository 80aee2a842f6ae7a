"""`sentinel report`: what was useful, lost, at risk and saved, in hours and in money."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from sentinel.cli.common import add_json, print_json, reach, seconds
from sentinel.cli.tables import plain
from sentinel.units import format_duration

HELP = "the bill: useful, lost, at risk, saved"
EPILOG = """useful: finished, or in a whole checkpoint. lost: since the last whole checkpoint when it ended.
at risk: the same, right now. saved: what a checkpoint preserved that sentinel asked for.
P99: of the runs that finished, on which `--timeout auto` rests from 20 runs on."""
_COLUMNS = ("job", "state", "attempts", "ran", "gpu hours", "useful", "lost", "at risk", "saved", "cost", "P99")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """From when on."""
    parser.add_argument(
        "--since", type=seconds, default=None, metavar="DURATION", help="only what ended so lately (default: all kept)"
    )
    add_json(parser, "print the report as JSON")


def run(args: argparse.Namespace) -> int:
    """Ask for it and print it."""
    with reach(timeout_s=30.0) as client:
        since = 0.0 if args.since is None else client.get("/v1/health")["time"] - args.since
        found = client.get(f"/v1/report?since={since:.3f}")
    if args.json:
        print_json(found)
        return 0
    if not found["jobs"]:
        print("no attempt has ended yet, and none runs")
        return 0
    rows = [_COLUMNS, *(_row(entry) for entry in found["jobs"])]
    if len(found["jobs"]) > 1:
        rows.append(_row({**found["total"], "job": "total", "state": "", "run_p99_seconds": None}))
    widths = [max(len(row[index]) for row in rows) for index in range(len(_COLUMNS))]
    for row in rows:
        cells = [
            cell.ljust(width) if index < 2 else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        print("  ".join(cells).rstrip())
    return 0


def _row(entry: Mapping[str, Any]) -> tuple[str, ...]:
    def work(name: str) -> str:
        cost = entry[f"{name}_cost"]
        said = format_duration(round(entry[f"{name}_seconds"]))
        return said if cost is None else f"{said} ({cost:.2f})"

    p99 = entry["run_p99_seconds"]
    return (
        plain(entry["job"]),
        entry["state"],
        str(entry["attempts"]),
        format_duration(round(entry["run_seconds"])),
        f"{entry['gpu_hours']:.2f}",
        work("useful"),
        work("lost"),
        work("at_risk"),
        work("saved"),
        "-" if entry["cost"] is None else f"{entry['cost']:.2f}",
        "-" if p99 is None else format_duration(round(p99)),
    )
