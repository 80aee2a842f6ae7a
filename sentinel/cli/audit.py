"""`sentinel audit JOB`: is it looked after, and what to do where it is not."""

from __future__ import annotations

import argparse

from sentinel.api.client import quote
from sentinel.cli.colours import paint
from sentinel.cli.common import add_json, print_json, reach
from sentinel.cli.tables import plain
from sentinel.jobs.audit import audit
from sentinel.model.wire import encode

HELP = "is a job looked after, and what is missing?"
EPILOG = "Exit code 0: nothing is missing. 1: something is."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which job."""
    parser.add_argument("job", metavar="JOB", help="its name or id")
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Ask the questions."""
    with reach() as client:
        job = client.get(f"/v1/jobs/{quote(args.job)}")
        health = client.get("/v1/health")
        rules = [rule["name"] for group in client.get("/api/v1/rules")["data"]["groups"] for rule in group["rules"]]
    findings = audit(job, rules, health.get("receivers") or [], health["time"])
    if args.json:
        print_json(encode(findings))
        return 0 if all(one.good for one in findings) else 1
    colour = paint()
    width = max(len(one.question) for one in findings)
    for one in findings:
        mark = colour("✓", "green") if one.good else colour("✗", "yellow")
        print(f"{mark} {one.question:<{width}}  {plain(one.answer)}")
        if one.advice:
            print(f"  {'':<{width}}  try: {plain(one.advice)}")
    return 0 if all(one.good for one in findings) else 1
