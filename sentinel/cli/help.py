"""`sentinel help TOPIC`: read about a topic."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from sentinel.errors import UsageError, nearest

_DOCS = Path(__file__).resolve().parents[1] / "docs"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What `sentinel help` takes."""
    parser.add_argument("topic", nargs="?", metavar="TOPIC", help="none lists them")


def run(args: argparse.Namespace) -> int:
    """Print it; on a terminal through a pager where it is longer than the screen."""
    from sentinel.cli.main import COMMANDS, parser_for

    known = topics()
    if args.topic is None:
        print("topics:")
        for name, path in known.items():
            print(f"  {name:<18} {title(path)}")
        print("\n`sentinel help TOPIC` shows one, `sentinel COMMAND --help` the options of a command.")
        return 0
    if args.topic in known:
        _page(known[args.topic].read_text(encoding="utf-8"))
        return 0
    if args.topic in COMMANDS:
        parser_for(args.topic).print_help()
        return 0
    close = nearest(args.topic, [*known, *COMMANDS])
    raise UsageError(
        f"there is no topic `{args.topic}`", hint=f"`sentinel help {close}`" if close else "`sentinel help` lists them"
    )


def topics() -> dict[str, Path]:
    """Every topic and its text; the first to read comes first."""
    found = sorted(_DOCS.glob("*.md"), key=lambda path: (path.stem != "getting-started", path.stem))
    return {path.stem: path for path in found}


def title(path: Path) -> str:
    """Its first heading."""
    with path.open(encoding="utf-8") as file:
        return file.readline().lstrip("# ").strip()


def _page(text: str) -> None:
    lines = text.count("\n")
    if sys.stdout.isatty() and lines >= os.get_terminal_size(sys.stdout.fileno()).lines:
        import shutil
        import subprocess

        if (pager := shutil.which("less")) is not None:
            subprocess.run([pager, "-RFX"], input=text, text=True, check=False)
            return
    print(text, end="")
