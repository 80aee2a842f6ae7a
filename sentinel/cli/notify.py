"""`sentinel notify`: is there a way to reach people, and what is still on its way?"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping
from typing import Any

EPILOG = """\
  sentinel notify test oncall       send a test message to a receiver, or to a job's own (--notify)
  sentinel notify outbox            messages that have not been delivered yet, and why
Exit code 1 where something could not be delivered."""

_TEST_TIMEOUT_S = 120.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What `sentinel notify` takes."""
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="test|outbox")
    test = verbs.add_parser("test", help="send a test message to one receiver, now")
    test.add_argument("receiver", metavar="RECEIVER", help="a receiver of the configuration, or a job's name")
    outbox = verbs.add_parser("outbox", help="messages not yet delivered")
    for verb in (test, outbox):
        verb.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> int:
    """Carry it out; 1 where something could not be delivered."""
    from sentinel.api.connect import connect

    with connect(start=False) as client:
        if args.verb == "test":
            said = client.post("/v1/notify/test", {"receiver": args.receiver}, timeout_s=_TEST_TIMEOUT_S)
            print(json.dumps(said) if args.json else "\n".join(tested(said)))
            return 0 if said["ok"] else 1
        letters = client.get("/v1/outbox")
    if args.json:
        print(json.dumps(letters))
    else:
        print("\n".join(waiting(letters, time.time())))
    return 1 if any(letter["error"] for letter in letters) else 0


def tested(said: Mapping[str, Any]) -> list[str]:
    """What became of a test message, a line for each address."""
    return [
        f"{said['receiver']}: {each['address']}: " + ("delivered" if each["delivered"] else f"failed: {each['error']}")
        for each in said["deliveries"]
    ]


def waiting(letters: list[Mapping[str, Any]], now: float) -> list[str]:
    """The outbox for people: two lines for each message."""
    from sentinel.units import format_duration

    if not letters:
        return ["everything has been delivered"]
    lines = []
    for letter in letters:
        age = format_duration(max(0.0, now - letter["created"]))
        lines.append(f"{letter['title']}  →  {letter['receiver']} ({letter['address']}), {age} old")
        if letter["error"]:
            again = format_duration(max(0.0, (letter["next_at"] or now) - now))
            lines.append(f"  {letter['attempts']} attempts, again in {again}: {letter['error']}")
    return lines
