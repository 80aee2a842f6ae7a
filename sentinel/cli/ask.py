"""`sentinel checkpoint|degrade|restore|pause|resume|stop|restart|dump JOB`: ask a job, and say what came of it."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from typing import Any

from sentinel.api.client import quote
from sentinel.cli.common import add_json, print_json, reach, seconds
from sentinel.cli.tables import plain

_TIMEOUTS = {"checkpoint": 300.0, "stop": 300.0, "restart": 300.0}
_TIMEOUT_S = 60.0
_MORE_S = 15.0

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
    wait = 0.0 if args.no_wait else args.timeout
    body = {"request": args.command, "reason": args.reason, "timeout_seconds": args.timeout, "wait": wait}
    with reach() as client:
        if not args.no_wait and sys.stderr.isatty():
            print(f"asked {plain(args.job)} to {args.command}; waiting up to {args.timeout:g}s", file=sys.stderr)
        asked = client.post(f"/v1/jobs/{quote(args.job)}/requests", body, timeout_s=wait + _MORE_S)
    if args.json:
        print_json(asked)
    else:
        print(told(asked))
    return 0 if asked["answer"] in {"done", None} else 1


def told(request: Mapping[str, Any]) -> str:
    """What happened to a request, in one line."""
    name, kind = plain(request["job"]), request["kind"]
    level = f" to level {request['level']}" if request["level"] is not None else ""
    detail = f": {plain(request['detail'])}" if request["detail"] else ""
    via = f" by {plain(request['via'])}" if request["via"] else ""
    words = {
        "done": f"{name}: {kind}{level} done{via}{_seen(request)}{detail}",
        "refused": f"{name}: {kind}{level} refused{detail}",
        "failed": f"{name}: {kind}{level} failed{via}{detail}",
        "expired": f"{name}: {kind}{level} was asked{via} and not answered in time{detail}",
        "unknown": f"{name}: {kind}{level} has no known outcome{detail}",
        "suppressed": f"{name}: {kind}{level} was not sent{detail}",
    }
    return words.get(request["answer"] or "", f"{name}: {kind}{level} {request['state']}{via}{detail}")


def _seen(request: Mapping[str, Any]) -> str:
    return {"observed": ", seen to happen", "not_observed": ", but nothing was seen to happen"}.get(
        request["effect"] or "", ""
    )
