"""`sentinel rules check|test|backtest|list|export`: are they right, do they do what they should, how do they stand."""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from sentinel.cli.common import counted, seconds
from sentinel.errors import UsageError

if TYPE_CHECKING:
    from sentinel.rules.check import Checked
    from sentinel.rules.testing import Verdict

EPILOG = """\
FILE is a file, or a directory whose *.yaml and *.yml files are meant. Without one, check and export take
the shipped rules, and backtest the rules in force. Exit codes: 0 fine, 1 something is wrong.
`sentinel help rules` says how rules are written."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What `sentinel rules` takes."""
    kinds = parser.add_subparsers(dest="action", metavar="check|test|backtest|list|export", required=True)
    check = kinds.add_parser("check", help="say everything that is wrong with rule files, and what cannot be meant")
    check.add_argument("files", nargs="*", type=Path, metavar="FILE")
    check.add_argument("--strict", action="store_true", help="warnings count as wrong")
    test = kinds.add_parser("test", help="run unit tests of rules, in promtool's format")
    test.add_argument("files", nargs="+", type=Path, metavar="FILE")
    past = kinds.add_parser("backtest", help="when would rules have fired on what was recorded, and what is different")
    past.add_argument("files", nargs="*", type=Path, metavar="FILE")
    past.add_argument(
        "--since", type=seconds, default=7 * 86400.0, metavar="DURATION", help="how far back (default: 7d)"
    )
    past.add_argument("--step", type=seconds, metavar="DURATION", help="evaluate so often, not at the groups' interval")
    past.add_argument("--timeout", type=seconds, default=600.0, metavar="DURATION", help="give up then (default: 10m)")
    past.add_argument("-a", "--all", action="store_true", help="each firing of each alert, not the first few")
    past.add_argument("--json", action="store_true", help="print JSON: one object")
    listed = kinds.add_parser("list", help="the rules in force: state, value, last evaluation, cost")
    listed.add_argument("-a", "--all", action="store_true", help="in full, also for a narrow terminal")
    for each in (check, test, listed):
        each.add_argument("--json", action="store_true", help="print JSON: one array")
    export = kinds.add_parser("export", help="rule files as Prometheus reads them, on stdout")
    export.add_argument("files", nargs="*", type=Path, metavar="FILE")
    export.add_argument("--prometheus", action="store_true", help="the only format there is, and the default")


def run(args: argparse.Namespace) -> int:
    """Do one of them."""
    actions = {"check": _check, "test": _test, "backtest": _backtest, "list": _list, "export": _export}
    return actions[args.action](args)


def _files(given: list[Path]) -> list[Path | str]:
    from sentinel.paths import shipped
    from sentinel.rules.loader import expand

    found = expand(given or [shipped("rules")])
    if not found:
        raise UsageError(
            f"no rule files in {', '.join(str(each) for each in given)}", hint="files that end in .yaml or .yml"
        )
    return found


def _check(args: argparse.Namespace) -> int:
    from sentinel.paths import shipped
    from sentinel.rules.check import check
    from sentinel.rules.loader import load

    beside = load([shipped("rules")]) if args.files else None
    results = check(_files(args.files), beside=beside)
    if args.json:
        from sentinel.cli.common import print_json

        print_json(
            [
                {"file": each.file, "rules": each.rules, "problems": [asdict(problem) for problem in each.problems]}
                for each in results
            ]
        )
    else:
        for each in results:
            _print_checked(each)
    wrong = any(each.errors or (args.strict and each.problems) for each in results)
    return 1 if wrong else 0


def _print_checked(checked: Checked) -> None:
    print(f"Checking {checked.file}")
    for problem in checked.problems:
        print(problem if problem.severity == "error" else f"warning: {problem}")
    warned = len(checked.problems) - len(checked.errors)
    warnings = f", {counted(warned, 'warning')}" if warned else ""
    if checked.errors:
        print(f"  FAILED: {counted(len(checked.errors), 'error')}{warnings}")
    else:
        print(f"  SUCCESS: {counted(checked.rules, 'rule')} found{warnings}")


def _test(args: argparse.Namespace) -> int:
    from sentinel.rules.testing import run as run_tests

    verdicts: list[Verdict] = []
    for file in _files(args.files):
        if not args.json:
            print(f"Unit Testing:  {file}", flush=True)
        verdict = run_tests(file)
        verdicts.append(verdict)
        if not args.json:
            _print_verdict(verdict)
    if args.json:
        from sentinel.cli.common import print_json

        print_json(
            [
                {
                    "file": each.file,
                    "passed": each.passed,
                    "tests": each.stories,
                    "failures": each.failures,
                    "problems": [asdict(problem) for problem in each.problems],
                    "warnings": each.warnings,
                }
                for each in verdicts
            ]
        )
    return 0 if all(each.passed for each in verdicts) else 1


def _print_verdict(verdict: Verdict) -> None:
    for warning in verdict.warnings:
        print(f"  warning: {warning}")
    if verdict.passed:
        print("  SUCCESS\n")
        return
    print("  FAILED:")
    for problem in verdict.problems:
        print(problem)
    for failure in verdict.failures:
        print(failure + "\n")


def _backtest(args: argparse.Namespace) -> int:
    from sentinel.cli.backtest import lines
    from sentinel.cli.common import print_json, reach
    from sentinel.rules.loader import load

    if args.since <= 0 or (args.step is not None and args.step <= 0):
        raise UsageError("--since and --step are longer than nothing", hint="--since 7d --step 15s")
    paths = _files(args.files) if args.files else []
    load(paths)  # what is wrong is said here, with its place
    files = [{"name": str(path), "text": Path(path).read_text(encoding="utf-8")} for path in paths]
    question = {"files": files, "since": args.since, "step": args.step or 0.0, "timeout": args.timeout}
    with reach(timeout_s=args.timeout + 30.0) as client:
        found = client.post("/v1/rules/backtest", question)
    if args.json:
        print_json(found)
    else:
        print("\n".join(lines(found, every=args.all)))
    for rule, fault in found["faults"].items():
        print(f"{rule}: {fault}", file=sys.stderr)
    return 1 if found["faults"] else 0


def _list(args: argparse.Namespace) -> int:
    from sentinel.cli.common import print_json, reach

    with reach() as client:
        rules = client.get("/v1/rules")
        now = client.get("/v1/health")["time"]
    if args.json:
        print_json(rules)
        return 0
    from sentinel.cli.colours import paint
    from sentinel.cli.common import ago
    from sentinel.cli.tables import Cell, Column, table, terminal_width
    from sentinel.units import format_duration

    columns = [
        Column("RULE", least=16, weight=9),
        Column("STATE", weight=8),
        Column("VALUE", right=True, weight=6),
        Column("EVALUATED", right=True, weight=4),
        Column("COST", right=True, weight=3),
        Column("GROUP", least=6, weight=2),
    ]
    rows: list[list[str | Cell]] = []
    for rule in rules:
        state = "unhealthy" if rule.get("fault") else rule.get("state") or "recording"
        value = rule.get("value")
        rows.append(
            [
                str(rule.get("name", "")),
                Cell(state, _COLOURS.get(state, "")),
                "-" if value is None else f"{value:.4g}",
                ago(rule.get("evaluated"), now),
                format_duration(rule["seconds"]) if rule.get("evaluated") else "-",
                str(rule.get("group", "")),
            ]
        )
    width = 1_000_000 if args.all else terminal_width()
    print("\n".join(table(columns, rows, width=width, paint=paint())))
    for rule in rules:
        if rule.get("fault"):
            print(f"{rule['name']}: {rule['fault']}", file=sys.stderr)
    return 0


_COLOURS = {"firing": "red", "pending": "yellow", "unhealthy": "red"}


def _export(args: argparse.Namespace) -> int:
    from sentinel.rules.export import for_prometheus

    print(for_prometheus(_files(args.files)), end="")
    return 0
