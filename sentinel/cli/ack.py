"""`sentinel ack`: say that you have seen an alert."""

from __future__ import annotations

import argparse

from sentinel.api.client import quote
from sentinel.cli.common import add_json, print_json, reach
from sentinel.cli.tables import plain

EPILOG = "`sentinel alerts` shows the ids; the first four characters are enough."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What `sentinel ack` takes."""
    parser.add_argument("alert", nargs="+", metavar="ALERT", help="its id, or how the id begins")
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Acknowledge them."""
    with reach() as client:
        seen = [client.post(f"/v1/alerts/{quote(alert)}/ack") for alert in args.alert]
    if args.json:
        print_json(seen)
    else:
        for alert in seen:
            about = f" ({plain(alert['job'])})" if alert["job"] else ""
            print(f"{alert['id'][:8]} {plain(alert['rule'])}{about}: seen by {alert['acknowledged_by']}")
    return 0
