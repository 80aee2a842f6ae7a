"""`sentinel events`: what happened, and with --follow what happens."""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Mapping
from typing import Any

from sentinel.api.client import Client, path_with, quote
from sentinel.cli.colours import OF_SEVERITY, Paint, paint
from sentinel.cli.common import add_json, clock, print_json, print_line, reach, seconds
from sentinel.cli.tables import plain, terminal_width, wrapped
from sentinel.errors import UsageError, nearest

_NARROW = 60
_FAMILIES = frozenset(
    {
        "alert", "checkpoint", "collector", "gpu", "hook", "job", "log", "notification", "request", "sentinel",
        "silence", "store",
    }
)  # fmt: skip
"""What a kind begins with."""

EPILOG = """\
kinds: log.KIND, checkpoint.complete, job.STATE, alert.firing, request.sent, notification.failed,
gpu.xid, collector.down, store.*; `--kind alert` means all that begin with `alert.`"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What `sentinel events` takes."""
    add_json(parser, "print JSON: one array, or with --follow a line each")
    parser.add_argument("-f", "--follow", action="store_true", help="go on with what happens from now on")
    parser.add_argument("--job", metavar="NAME", help="only of this job")
    parser.add_argument("--kind", metavar="KIND", help="only of this kind or family of kinds; several with commas")
    parser.add_argument("--since", type=seconds, metavar="DURATION", help="only of the last 10m, 2h, …")
    parser.add_argument("-n", "--limit", type=int, default=None, metavar="N", help="at most so many (default: 50)")


def run(args: argparse.Namespace) -> int:
    """Print them, the newest last."""
    if args.limit is not None and args.limit < (0 if args.follow else 1):
        raise UsageError(f"--limit {args.limit} shows nothing", hint="--limit 50")
    limit = args.limit if args.limit is not None else 1000 if args.since is not None else 50
    since = time.time() - args.since if args.since is not None else None
    path = path_with("/v1/events", job=args.job, kind=args.kind, since=since, limit=limit)
    colours, width = paint(), terminal_width()
    with reach() as client:
        if not args.follow:
            found = client.get(path)
            if args.json:
                print_json(found)
            else:
                for event in found:
                    print(line(event, colours, width))
            return 0 if found else _none(client, args.job, args.kind)
        with client.stream(f"{path}&follow=1") as stream:
            for event in stream:
                if args.json:
                    print_line(event)
                else:
                    print(line(event, colours, width), flush=True)
    print("sentinel: the daemon has ended the stream", file=sys.stderr)
    return 1


def _none(client: Client, job: str | None, kind: str | None) -> int:
    """Nothing was found: say whether it can have been meant. A job that nobody knows is an error, as elsewhere."""
    if job is not None:
        client.get(f"/v1/jobs/{quote(job)}")
    families = [each for each in (kind or "").split(",") if each.partition(".")[0] not in _FAMILIES]
    if families and kind:
        near = nearest(families[0].partition(".")[0], _FAMILIES)
        known = f"`{near}`" if near else ", ".join(sorted(_FAMILIES))
        print(f"sentinel: no event is of a kind `{plain(families[0])}`\n  try: {known}", file=sys.stderr)
    else:
        print("no events", file=sys.stderr)
    return 0


def line(event: Mapping[str, Any], colours: Paint, width: int = 1_000_000) -> str:
    """One event as a line; as several where the terminal is narrow."""
    message = plain(event["message"])
    job = "" if not event["job"] or names(message, plain(event["job"])) else f" {plain(event['job'])}:"
    colour = OF_SEVERITY.get(event["severity"], "")
    if width >= _NARROW:
        kind = colours(f"{event['kind']:<21}", "dim")
        return f"{colours(clock(event['time']), 'dim')} {kind}{job} {colours(message, colour)}"
    head = colours(f"{clock(event['time'])} {event['kind']}{job.rstrip(':')}", "dim")
    return "\n".join((head, *(colours(part, colour) for part in wrapped(message, width, "  "))))


def names(message: str, job: str) -> bool:
    """Whether a message says by itself which job it is about: its name as a word, not within a path or another name."""
    return re.search(rf"(?<![\w./-]){re.escape(job)}(?![\w/-]|\.\w)", message) is not None
