"""`sentinel silence`: keep messages and requests of some alerts back for a while."""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping
from typing import Any

from sentinel.cli.colours import paint
from sentinel.cli.common import add_json, print_json, reach, seconds
from sentinel.cli.tables import Cell, Column, table, terminal_width
from sentinel.units import format_duration

EPILOG = """\
examples:
  sentinel silence                                  list those in force
  sentinel silence job=train --for 2h               nothing about one job
  sentinel silence alertname=~'Gpu.*' severity=warning --comment 'new driver'

Several conditions must all hold. Silenced alerts are still shown and written down."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What `sentinel silence` takes."""
    parser.add_argument("matcher", nargs="*", metavar="LABEL=VALUE", help="also !=, =~ and !~; none lists the silences")
    parser.add_argument("--for", dest="duration", type=seconds, default=3600.0, metavar="DURATION", help="default: 1h")
    parser.add_argument("--comment", default="", metavar="TEXT", help="why")
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Put one in force, or list them."""
    with reach() as client:
        if args.matcher:
            body = {"matchers": args.matcher, "seconds": args.duration, "comment": args.comment}
            found = [client.post("/v1/silences", body)]
        else:
            found = client.get("/v1/silences")
    if args.json:
        print_json(found)
    elif args.matcher:
        print(f"silence {found[0]['id']}: {conditions(found[0])}, for {format_duration(args.duration)}")
    elif found:
        columns = [
            Column("ID", weight=9),
            Column("CONDITIONS", least=12, weight=8),
            Column("LEFT", right=True, weight=7),
            Column("BY", least=6, weight=5),
            Column("COMMENT", least=8, weight=4),
        ]
        rows: list[list[str | Cell]] = [
            [
                each["id"],
                conditions(each),
                format_duration(max(0, each["ends"] - time.time())),
                each["by"],
                each["comment"],
            ]
            for each in found
        ]
        print("\n".join(table(columns, rows, width=terminal_width(), paint=paint())))
    else:
        print("no silences")
    return 0


def conditions(silence: Mapping[str, Any]) -> str:
    """`job="train", severity!="critical"`."""
    return ", ".join(f'{each["name"]}{each["op"]}"{each["value"]}"' for each in silence["matchers"])
