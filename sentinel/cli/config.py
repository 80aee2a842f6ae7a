"""`sentinel config check|show|init`: is the file right, what is in force, and a file to begin with."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from sentinel import paths
from sentinel.errors import Problem, Problems, UsageError

EPILOG = """\
Without FILE it is the one in force: $SENTINEL_CONFIG, else $XDG_CONFIG_HOME/sentinel/sentinel.yaml,
else (for root) /etc/sentinel/sentinel.yaml. No file is needed: everything has a default."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What `sentinel config` takes."""
    kinds = parser.add_subparsers(dest="action", metavar="check|show|init", required=True)
    check = kinds.add_parser("check", help="say everything that is wrong with a file and the files it names")
    show = kinds.add_parser("show", help="every value in force, secrets masked, and where it comes from")
    for each in (check, show):
        each.add_argument("file", nargs="?", type=Path, metavar="FILE")
        each.add_argument("--json", action="store_true", help="print JSON: one array")
    init = kinds.add_parser("init", help="a commented file to begin with, on stdout or in FILE")
    init.add_argument("file", nargs="?", type=Path, metavar="FILE", help="made anew, never overwritten")


def run(args: argparse.Namespace) -> int:
    """Do one of them."""
    return {"check": _check, "show": _show, "init": _init}[args.action](args)


def _check(args: argparse.Namespace) -> int:
    from dataclasses import asdict

    from sentinel import config
    from sentinel.cli.common import counted, print_json

    path = args.file or paths.configuration_file()
    problems: list[Problem] = []
    settings = config.read(path, problems, try_on=_try_on)
    _check_rules([*settings.rules, *(rule for each in settings.adoptions for rule in each.spec.rules)], problems)
    errors = sum(problem.severity == "error" for problem in problems)
    if args.json:
        print_json([asdict(problem) for problem in problems])
    elif problems:
        for problem in problems:
            print(problem if problem.severity == "error" else f"warning: {problem}", file=sys.stderr)
        counts = ((errors, "error"), (len(problems) - errors, "warning"))
        print(f"{path}: " + ", ".join(counted(count, what) for count, what in counts if count), file=sys.stderr)
    else:
        print(f"{path}: fine" if path else "there is no file; all defaults are in force")
    return 2 if errors else 0


def _try_on(urls: Sequence[str]) -> list[str | None]:
    """What is wrong with addresses: apprise knows, in a process of its own."""
    from contextlib import closing

    from sentinel.notify.courier import AppriseCourier

    with closing(AppriseCourier()) as courier:
        return courier.check(urls)


def _check_rules(patterns: list[str], problems: list[Problem]) -> None:
    """The rule files that are named, as the daemon would load them."""
    if not patterns:
        return
    import glob

    from sentinel.rules.loader import load

    for pattern in patterns:
        found = sorted(glob.glob(pattern))
        if not found and not glob.has_magic(pattern):
            problems.append(Problem(pattern, 0, 0, "no such rule file", "check `rules:` in the configuration"))
        for file in found:
            try:
                load([file])
            except Problems as refused:
                problems += refused.problems


def _show(args: argparse.Namespace) -> int:
    from dataclasses import asdict

    from sentinel import config
    from sentinel.cli.colours import paint
    from sentinel.cli.common import print_json
    from sentinel.cli.tables import Cell, Column, table, terminal_width
    from sentinel.config.show import DEFAULT, shown

    values = shown(config.load(args.file))
    if args.json:
        print_json([asdict(each) for each in values])
        return 0
    columns = [Column("KEY", weight=9), Column("VALUE", least=12, weight=8), Column("FROM", least=10, weight=5)]
    rows: list[list[str | Cell]] = [
        [each.key, each.value, Cell(each.origin, "dim" if each.origin == DEFAULT else "")] for each in values
    ]
    print("\n".join(table(columns, rows, width=terminal_width(), paint=paint())))
    return 0


def _init(args: argparse.Namespace) -> int:
    import os

    from sentinel.config.sample import SAMPLE

    if args.file is None:
        print(SAMPLE, end="")
        return 0
    try:
        if not args.file.parent.is_dir():
            raise UsageError(f"there is no directory {args.file.parent}", hint=f"mkdir -p {args.file.parent}")
        descriptor = os.open(args.file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise UsageError(f"{args.file} exists already and is left as it is", hint="sentinel config check") from None
    except OSError as fault:
        raise UsageError(f"cannot write {args.file}: {fault.strerror}") from None
    with os.fdopen(descriptor, "w") as file:
        file.write(SAMPLE)
    print(f"{args.file}: written; `sentinel config check {args.file}` checks it")
    return 0
