"""`sentinel jobs`: list jobs."""

from __future__ import annotations

import argparse

from sentinel.cli.colours import paint
from sentinel.cli.common import add_json, print_json, reach
from sentinel.cli.status import job_table
from sentinel.cli.tables import terminal_width


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What `sentinel jobs` takes."""
    add_json(parser)
    parser.add_argument("-a", "--all", action="store_true", help="also those that have ended lately")


def run(args: argparse.Namespace) -> int:
    """List them."""
    with reach() as client:
        jobs = client.get("/v1/jobs?all=1" if args.all else "/v1/jobs")
        now = client.get("/v1/health")["time"]
    if args.json:
        print_json(jobs)
        return 0
    if not jobs:
        print("no jobs; `sentinel run -- CMD` starts one")
        return 0
    jobs.sort(key=lambda job: -(job["ended"] or float("inf")))  # the living, then the newest that ended
    print("\n".join(job_table(jobs, now, width=terminal_width(), paint=paint())))
    return 0
