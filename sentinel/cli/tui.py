"""`sentinel tui`: the live dashboard."""

from __future__ import annotations

import argparse
import sys

from sentinel.errors import UsageError

EPILOG = "Press ? for the keys. Quitting leaves jobs and daemon as they are."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What `sentinel tui` takes."""
    parser.add_argument("--no-daemon", action="store_true", help="start no daemon where none is running")
    parser.add_argument(
        "--refresh", type=float, default=1.0, metavar="SECONDS", help="time between two looks (default: 1)"
    )


def run(args: argparse.Namespace) -> int:
    """Show it until the user quits."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError("the dashboard needs a terminal", hint="`sentinel status`, or `sentinel status --json`")
    if not 0.1 <= args.refresh <= 3600:
        raise UsageError("--refresh must be from 0.1 to 3600 seconds", hint="--refresh 1")
    from sentinel.api.client import Client
    from sentinel.api.connect import connect
    from sentinel.tui.app import run as show
    from sentinel.tui.settings import Settings

    connect(start=not args.no_daemon).close()  # says now, in words, why there is none

    def again() -> Client:
        return connect(start=False, timeout_s=5.0)

    show(again, Settings(refresh_s=args.refresh))
    return 0
