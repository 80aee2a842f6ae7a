"""`sentinel hold [DURATION]`: what waits to run after a job (`--on-exit`) does not run."""

from __future__ import annotations

import argparse
import os
import time

from sentinel.cli.common import clock, seconds
from sentinel.errors import SentinelError
from sentinel.jobs import hold

HELP = "keep --on-exit from running, for a while"
EPILOG = """examples:
  sentinel hold            for an hour
  sentinel hold 8h
  sentinel hold --lift

What was cancelled does not run later: it is the box that stays, not the command that waits."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """How long."""
    parser.add_argument("duration", nargs="?", type=seconds, default=3600.0, metavar="DURATION", help="default 1h")
    parser.add_argument("--lift", action="store_true", help="hold no longer")


def run(args: argparse.Namespace) -> int:
    """Write it down where every supervisor of ours looks."""
    if args.lift:
        print("no longer held" if hold.lift(os.environ) else "nothing was held")
        return 0
    until = time.time() + args.duration
    try:
        hold.put(os.environ, until)
    except OSError as fault:
        raise SentinelError(f"cannot hold: {fault.strerror}: {fault.filename}") from None
    print(f"held until {clock(until)}")
    return 0
