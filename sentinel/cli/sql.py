"""`sentinel sql`: ask the database, read-only."""

from __future__ import annotations

import argparse
import sys

from sentinel.cli.colours import paint
from sentinel.cli.common import add_json, print_json, reach
from sentinel.cli.tables import Cell, Column, left_out, plain, table, terminal_width

EPILOG = """\
examples:
  sentinel sql 'SELECT * FROM jobs ORDER BY created DESC'
  sentinel sql "SELECT kind, count(*) FROM events GROUP BY kind ORDER BY 2 DESC"
  echo 'SELECT 1' | sentinel sql -"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What `sentinel sql` takes."""
    parser.add_argument("statement", metavar="STATEMENT", help="one SELECT; - reads it from stdin")
    add_json(parser, "print JSON: one array of objects")
    parser.add_argument(
        "-n", "--limit", type=int, default=1000, metavar="N", help="at most so many rows (default: 1000)"
    )


def run(args: argparse.Namespace) -> int:
    """Print the table."""
    statement = sys.stdin.read() if args.statement == "-" else args.statement
    with reach(timeout_s=60.0) as client:
        found = client.post("/v1/sql", {"statement": statement, "limit": args.limit})
    if found["truncated"]:
        print(f"sentinel: only the first {len(found['rows'])} rows; --limit takes more", file=sys.stderr)
    if args.json:
        print_json([dict(zip(found["columns"], row, strict=True)) for row in found["rows"]])
        return 0
    numbers = [any(word in kind for word in ("INT", "DOUBLE", "FLOAT", "DECIMAL")) for kind in found["types"]]
    columns = [
        Column(name, right=right, least=0 if right else 6)
        for name, right in zip(found["columns"], numbers, strict=True)
    ]
    rows = [[_cell(value) for value in row] for row in found["rows"]]
    width = terminal_width()
    if missing := left_out(columns, rows, width=width):
        words = ", ".join(plain(name) for name in missing)
        print(f"sentinel: no room for {words}; --json prints all", file=sys.stderr)
    print("\n".join(table(columns, rows, width=width, paint=paint())))
    return 0


def _cell(value: object) -> Cell:
    if value is None:
        return Cell("null", "dim")
    if isinstance(value, float):
        return Cell(f"{value:.15g}")
    return Cell(str(value))
