"""`sentinel checkpoint|degrade|restore|pause|resume|stop|restart|dump JOB`: ask a job, and say what came of it."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping
from typing import Any

from sentinel.api.client import Client, quote
from sentinel.cli.common import add_json, print_json, reach, seconds
from sentinel.cli.tables import plain
from sentinel.errors import UsageError
from sentinel.model.requests import in_words
from sentinel.units import format_duration

_TIMEOUTS = {"checkpoint": 300.0, "stop": 300.0, "restart": 300.0}
_TIMEOUT_S = 60.0
_MORE_S = 15.0
_GRACE_S = 3.0
"""Longer than the request's own time, so that how it ended is heard."""
_LONGEST_S = 590.0
_LOOK_S = 0.5

EPILOG = "Exit code 0: done or acknowledged. 1: refused, failed or not answered in time."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What each of them takes."""
    name = str(parser.get_default("command"))
    default = _TIMEOUTS.get(name, _TIMEOUT_S)
    parser.add_argument("job", metavar="JOB", help="its name or id")
    add_json(parser, "print the request as JSON")
    parser.add_argument("--reason", default="", metavar="TEXT", help="told to the job, kept in the history")
    parser.add_argument(
        "--timeout", type=seconds, default=default, metavar="DURATION", help=f"how long it may take ({default:g}s)"
    )
    parser.add_argument("--no-wait", action="store_true", help="do not wait for the answer")


def run(args: argparse.Namespace) -> int:
    """Ask and report."""
    if args.timeout <= 0:
        raise UsageError("--timeout must be longer than nothing", hint="--timeout 60s")
    wait = 0.0 if args.no_wait else min(args.timeout + _GRACE_S, _LONGEST_S)
    body = {"request": args.command, "reason": args.reason, "timeout_seconds": args.timeout, "wait": wait}
    with reach() as client:
        if not args.no_wait and sys.stderr.isatty():
            waiting = f"waiting up to {format_duration(args.timeout)}"
            print(f"asked {plain(args.job)} to {args.command}; {waiting}", file=sys.stderr)
        asked = client.post(f"/v1/jobs/{quote(args.job)}/requests", body, timeout_s=wait + _MORE_S)
        if not args.no_wait:
            asked = _ended(client, asked)
    if args.json:
        print_json(asked)
    else:
        print(told(asked, waited=not args.no_wait))
    return 0 if asked["answer"] == "done" or (args.no_wait and asked["answer"] is None) else 1


def _ended(client: Client, asked: dict[str, Any]) -> dict[str, Any]:
    """The request once it is closed: a stop saves first, and a long one outlasts one call."""
    left = asked["deadline"] - client.get("/v1/health")["time"] + _GRACE_S if asked["answer"] is None else 0.0
    until = time.monotonic() + left
    while asked["answer"] is None and time.monotonic() < until:
        time.sleep(_LOOK_S)
        asked = client.get(f"/v1/requests/{quote(asked['id'])}")
    return asked


def told(request: Mapping[str, Any], *, waited: bool = True) -> str:
    """What happened to a request, in one line; one that is open after all the waiting was not answered."""
    name, kind = plain(request["job"]), request["kind"]
    level = f" to level {request['level']}" if request["level"] is not None else ""
    said = plain(in_words(request["detail"], sent=request["sent"] is not None))
    detail = f": {said}" if said else ""
    time_given = format_duration(request["deadline"] - request["created"])
    via = f" by {plain(request['via'])}" if request["via"] else ""
    words = {
        "done": f"{name}: {kind}{level} done{via}{_seen(request)}{detail}",
        "refused": f"{name}: {kind}{level} refused{detail}",
        "failed": f"{name}: {kind}{level} failed{via}{detail}",
        "expired": f"{name}: {kind}{level} was asked{via} and not answered in {time_given}{_beside(said)}",
        "unknown": f"{name}: {kind}{level} has no known outcome{detail}",
        "suppressed": f"{name}: {kind}{level} was not sent{detail}",
    }
    open_still = "expired" if waited else ""
    return words.get(request["answer"] or open_still, f"{name}: {kind}{level} {request['state']}{via}{detail}")


def _beside(said: str) -> str:
    """What is known of a request without an answer, beside that it has none."""
    known = [part for part in said.split("; ") if part and part != "no answer in time"]
    return f": {'; '.join(known)}" if known else ""


def _seen(request: Mapping[str, Any]) -> str:
    return {"observed": ", seen to happen", "not_observed": ", but nothing was seen to happen"}.get(
        request["effect"] or "", ""
    )
