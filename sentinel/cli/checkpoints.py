"""`sentinel checkpoints inspect|list`: is one whole and what does it hold; which a job has and how often it should."""

from __future__ import annotations

import argparse
import os
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sentinel.cli.common import add_json, ago, clock, print_json, reach
from sentinel.errors import UsageError
from sentinel.units import format_bytes, format_duration

if TYPE_CHECKING:
    from sentinel.checkpoints.interval import Advice
    from sentinel.model.checkpoints import Checkpoint

EPILOG = """\
inspect never loads anything: pickles are read opcode by opcode and never run. PATH is a file, a
directory, or one that holds several (then the newest whole one). Exit codes: 0 fine, 1 it is broken.
JOB is a job's name or id, or a directory."""
_SHOWN = 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What `sentinel checkpoints` takes."""
    kinds = parser.add_subparsers(dest="action", metavar="inspect|list", required=True)
    inspect = kinds.add_parser("inspect", help="is it whole, what does it hold, what will not come back")
    inspect.add_argument("path", type=Path, metavar="PATH")
    inspect.add_argument("--deep", action="store_true", help="read every byte that has a checksum")
    add_json(inspect, "print JSON: one object")
    listed = kinds.add_parser("list", help="a job's checkpoints, how long they took, and how often one is worth it")
    listed.add_argument("job", metavar="JOB")
    listed.add_argument("-a", "--all", action="store_true", help=f"all of them, not only the newest {_SHOWN}")
    add_json(listed, "print JSON: one object")


def run(args: argparse.Namespace) -> int:
    """Do one of them."""
    return _inspect(args) if args.action == "inspect" else _list(args)


def _inspect(args: argparse.Namespace) -> int:
    from sentinel.checkpoints.report import report
    from sentinel.cli.colours import paint
    from sentinel.cli.tables import plain

    try:
        found = report(args.path, time.time(), deep=args.deep)
    except OSError as fault:
        raise UsageError(f"cannot read {args.path}: {fault.strerror or fault}") from None
    if args.json:
        print_json(asdict(found))
        return 1 if found.valid is False else 0
    colour = paint()
    state, tint = {True: ("whole", "green"), False: ("broken", "red"), None: ("under way", "yellow")}[found.valid]
    lines = [
        ("format", found.format),
        ("step", "-" if found.step is None else str(found.step)),
        ("size", f"{format_bytes(found.size_bytes)} in {found.files} file{'' if found.files == 1 else 's'}"),
        ("written", f"{clock(found.finished)}, {ago(found.finished, time.time())} ago"),
        ("holds", ", ".join(found.contents) or "-"),
        ("missing", ", ".join(found.missing) or "-"),
        ("verdict", found.verdict),
        *(("note", note) for note in found.notes),
    ]
    print(f"{plain(found.path)}: {colour(state, tint)}, {plain(found.reason)}")
    for name, text in lines:
        print(f"  {colour(f'{name:<8}', 'dim')} {plain(text)}")
    return 1 if found.valid is False else 0


def _list(args: argparse.Namespace) -> int:
    from sentinel.checkpoints.interval import advise, write_cost
    from sentinel.checkpoints.watch import history
    from sentinel.cli.colours import paint
    from sentinel.cli.tables import plain, terminal_width
    from sentinel.model.jobs import CheckpointDir

    if os.sep in args.job or os.path.isdir(args.job):
        took: dict[tuple[str, float], float] = {}
        name, observed_s, failures, now = args.job, 0.0, 0, time.time()
        places = [CheckpointDir(os.path.abspath(args.job))]
        if not os.path.isdir(args.job):
            raise UsageError(f"there is no directory {args.job}")
    else:
        name, places, took, observed_s, failures, now = _asked(args.job)
    found = [_timed(each, took) for each in history(places, now, most=10_000 if args.all else 200)]
    advice = advise(write_cost([each.write_seconds for each in reversed(found)]), observed_s, failures)
    target = next((place.interval_s for place in places if place.interval_s is not None), None)
    if args.json:
        print_json(
            {
                "job": name,
                "places": [place.path for place in places],
                "checkpoints": [asdict(each) for each in found],
                "interval_target_seconds": target,
                "recommended": asdict(advice) if advice is not None else None,
            }
        )
        return 0
    if not found:
        print(f"no checkpoint in {', '.join(plain(place.path) for place in places) or 'any declared directory'}")
        return 0
    shown = found if args.all else found[:_SHOWN]
    print("\n".join(_table(shown, now, terminal_width(), paint())))
    if len(shown) < len(found):
        print(f"and {len(found) - len(shown)} more: --all")
    print(_recommendation(advice, target))
    return 0


def _asked(job: str) -> tuple[str, list[Any], dict[tuple[str, float], float], float, int, float]:
    """From the daemon: the job's directories, the write times it saw, and how often the job failed."""
    from urllib.parse import quote

    from sentinel.model.jobs import CheckpointDir

    with reach() as client:
        found = client.get(f"/v1/jobs/{quote(job, safe='')}")
        now = client.get("/v1/health")["time"]
        events = client.get(f"/v1/events?kind=checkpoint.complete&limit=10000&job={quote(found['name'], safe='')}")
    took: dict[tuple[str, float], float] = {}
    for event in events:
        seen = event["data"].get("checkpoint") or {}
        if seen.get("write_seconds") is not None:
            took[str(seen["path"]), float(seen["finished"])] = float(seen["write_seconds"])
    places = [
        CheckpointDir(each["path"], each.get("interval_s"), each.get("complete_when", ""))
        for each in found["spec"]["checkpoints"]
    ]
    observed = max(0.0, (found.get("ended") or now) - found["created"])
    failures = found["attempt"] - 1 + (found["state"] in {"failed", "lost", "preempted"})
    return found["name"], places, took, observed, failures, now


def _timed(found: Checkpoint, took: dict[tuple[str, float], float]) -> Checkpoint:
    from dataclasses import replace

    seen = took.get((found.path, found.finished))
    return replace(found, write_seconds=seen) if seen is not None else found


def _table(found: list[Checkpoint], now: float, width: int, paint: Any) -> list[str]:
    from sentinel.cli.tables import Cell, Column, table

    columns = [
        Column("STEP", right=True, weight=9),
        Column("STATE", weight=9),
        Column("AGE", right=True, weight=8),
        Column("SIZE", right=True, weight=7),
        Column("WRITE", right=True, weight=6),
        Column("FORMAT", weight=3),
        Column("MISSING", least=12, weight=4),
        Column("PATH", least=16, weight=8),
    ]
    tints = {"complete": "green", "writing": "yellow", "broken": "red"}
    rows: list[list[str | Cell]] = [
        [
            "-" if each.step is None else str(each.step),
            Cell(each.state.value, tints.get(each.state.value, "")),
            ago(each.finished, now),
            format_bytes(each.size_bytes),
            "-" if each.write_seconds is None else f"{each.write_seconds:.3g}s",
            each.format,
            each.reason or ", ".join(each.missing) or ("-" if each.contents else "?"),
            each.path,
        ]
        for each in found
    ]
    return table(columns, rows, width=width, paint=paint)


def _recommendation(advice: Advice | None, target: float | None) -> str:
    if advice is None:
        return "interval: no advice before a write was seen from its beginning to its end"
    wanted = f", asked for is {format_duration(target)}" if target is not None else ""
    return (
        f"interval: {format_duration(max(1, round(advice.interval_s)))} is worth it{wanted}: {advice.reason}; "
        f"{100 * advice.lost_ratio:.2g} % of the time goes into writes and into work done twice (Young 1974, Daly 2006)"
    )
