"""`sentinel unsilence`: end silences."""

from __future__ import annotations

import argparse

from sentinel.api.client import quote
from sentinel.cli.common import add_json, print_json, reach
from sentinel.cli.silence import conditions

EPILOG = "`sentinel silence` without arguments lists them."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What `sentinel unsilence` takes."""
    parser.add_argument("silence", nargs="+", metavar="ID", help="of the silence")
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """End them."""
    with reach() as client:
        ended = [client.delete(f"/v1/silences/{quote(silence)}") for silence in args.silence]
    if args.json:
        print_json(ended)
    else:
        for each in ended:
            print(f"silence {each['id']} ended: {conditions(each)}")
    return 0
