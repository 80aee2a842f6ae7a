"""`sentinel alerts`: list alerts."""

from __future__ import annotations

import argparse

from sentinel.cli.colours import paint
from sentinel.cli.common import add_json, print_json, reach
from sentinel.cli.status import alert_table
from sentinel.cli.tables import terminal_width

EPILOG = "It lists, and ends with 0 whatever there is; `sentinel status` ends with 1 while an alert fires."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What `sentinel alerts` takes."""
    add_json(parser)
    parser.add_argument("-a", "--all", action="store_true", help="also those resolved lately")


def run(args: argparse.Namespace) -> int:
    """List them."""
    with reach() as client:
        alerts = client.get("/v1/alerts?all=1" if args.all else "/v1/alerts")
        now = client.get("/v1/health")["time"]
    if args.json:
        print_json(alerts)
    elif alerts:
        print("\n".join(alert_table(alerts, now, width=terminal_width(), paint=paint())))
    else:
        print("no alerts")
    return 0
