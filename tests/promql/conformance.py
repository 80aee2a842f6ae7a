"""Runs files in Prometheus's test language against sentinel's PromQL.

    python tests/promql/conformance.py FILE…

Each instant case is also run as a range query around its time, and with every
selector pinned by `@` to its time and evaluated at other times, as Prometheus
does. Skipped are only cases about native histograms and experimental syntax,
each with its reason. Words of an expected failure are compared where the
failure happens at evaluation; what is refused while parsing is refused in our
own words. The last line is `N passed, N failed, N skipped`.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import re
import sys
from collections.abc import Iterable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))  # so that it runs from anywhere, without being installed

from sentinel.errors import SentinelError
from sentinel.model.labels import METRIC_NAME, Labels
from sentinel.promql import EvaluationError, Expr, PromQLError, evaluate, evaluate_range, parse, walk
from sentinel.promql.errors import Refused, position
from sentinel.promql.notes import Note
from sentinel.promql.regex import matches
from sentinel.promql.series import Matrix, Scalar, Text, Vector
from sentinel.promql.tree import Aggregate, Binary, Call, Paren, Range, Selector, Subquery, Unary
from tests.promql import language
from tests.promql.memory import STALE, MemoryReader

LOOKBACK_S = 300.0
_UNSAFE_WITH_AT = frozenset(
    {
        *("days_in_month", "day_of_month", "day_of_week", "day_of_year", "hour", "minute", "month", "year"),
        *("predict_linear", "time", "timestamp", "start", "end", "step", "range"),
    }
)
Cell = float | None
Rows = dict[Labels, list[Cell]]


class Mismatch(AssertionError):
    """What came is not what was expected."""


@dataclasses.dataclass
class Tally:
    """How the cases of one file went."""

    passed: int = 0
    failed: list[str] = dataclasses.field(default_factory=list)
    skipped: list[str] = dataclasses.field(default_factory=list)


def run(path: Path) -> Tally:
    """All cases of one file."""
    tally = Tally()
    world = _World()
    for command in language.read(path):
        match command:
            case language.Load():
                world.load(command)
            case language.Clear():
                world.clear()
            case language.Case():
                where = f"{path.name}:{command.line}: {command.expr}"
                if reason := world.unfit(command):
                    tally.skipped.append(f"{where}: {reason}")
                    continue
                try:
                    world.check(command)
                except Refused as refused:
                    tally.skipped.append(f"{where}: {refused.message}")
                except (Mismatch, SentinelError) as fault:
                    tally.failed.append(f"{where}: {fault}")
                else:
                    tally.passed += 1
    return tally


class _World:
    """The series loaded so far."""

    def __init__(self) -> None:
        self._reader = MemoryReader(lookback_s=LOOKBACK_S)
        self._native: set[Labels] = set()

    def clear(self) -> None:
        self._reader.clear()
        self._native.clear()

    def load(self, command: language.Load) -> None:
        # Within one load the last line of a series counts.
        for series in {series.labels: series for series in command.series}.values():
            if series.native:
                self._native.add(series.labels)
            if command.native_too and series.labels.get(METRIC_NAME, "").endswith("_bucket"):
                name = series.labels[METRIC_NAME].removesuffix("_bucket")
                self._native.add(series.labels.without(["le"]).with_(__name__=name))
            self._reader.add(
                series.labels,
                [
                    (round(at * command.step_s, 3), STALE if value == language.STALE else value)
                    for at, value in enumerate(series.values)
                    if value is not None
                ],
            )

    def unfit(self, case: language.Case) -> str | None:
        """Why a case is none of ours, or None."""
        if case.ignored:
            return "the file says to ignore it"
        if case.native or "{{" in case.expr:
            return "native histograms"
        try:
            expr = parse(case.expr)
        except Refused as refused:
            return refused.message
        except PromQLError:
            return None
        for node in walk(expr):
            if isinstance(node, Selector) and any(
                all(matches(matcher, labels.get(matcher.name, "")) for matcher in node.matchers)
                for labels in self._native
            ):
                return "native histograms among the series it selects"
        return None

    def check(self, case: language.Case) -> None:
        """Run one case every way there is.

        Raises:
            Mismatch: It went otherwise.
        """
        if case.expects("fail"):
            self._check_failure(case)
            return
        expr = parse(case.expr)
        notes: list[Note] = []
        if not case.instant:
            found = evaluate_range(expr, self._reader, case.start, case.end, case.step, notes=notes)
            _compare_rows(_wanted_rows(case), _rows(found))
            _check_notes(case, notes)
            return
        at = case.over[1] if case.over else case.start
        value = evaluate(expr, self._reader, at, lookback_s=LOOKBACK_S, notes=notes)
        _check_notes(case, notes)
        if case.over:
            _compare_range_vector(case, value)
            return
        _compare_instant(case, value)
        if isinstance(value, Text):
            return
        self._check_as_range(case, expr)
        self._check_pinned(case, expr)

    def _check_failure(self, case: language.Case) -> None:
        try:
            expr = parse(case.expr)
            if case.instant:
                evaluate(expr, self._reader, case.start, lookback_s=LOOKBACK_S)
            else:
                evaluate_range(expr, self._reader, case.start, case.end, case.step)
        except Refused:
            raise
        except PromQLError:
            return
        except EvaluationError as fault:
            for wanted in case.wanted:
                if wanted.what == "fail" and not _says(wanted, [fault.message]):
                    raise Mismatch(f"failed with {fault.message!r}, expected {wanted.words!r}") from None
            return
        raise Mismatch("expected to fail, and did not")

    def _check_as_range(self, case: language.Case, expr: Expr) -> None:
        if case.expects("ordered"):
            return
        if any(isinstance(node, Call) and node.function in {"start", "end", "step", "range"} for node in walk(expr)):
            return  # what these answer depends on the kind of query
        matrix = evaluate_range(expr, self._reader, case.start - 60, case.start + 60, 60)
        middle: dict[Labels, Cell] = {labels: row[1] for labels, row in _rows(matrix).items() if row[1] is not None}
        wanted: dict[Labels, Cell] = {Labels(): case.scalar} if case.scalar is not None else _wanted_instant(case)
        _compare_cells(wanted, middle, "as a range query: ")

    def _check_pinned(self, case: language.Case, expr: Expr) -> None:
        if any(isinstance(node, Call) and node.function in _UNSAFE_WITH_AT for node in walk(expr)):
            return
        pinned = _pinned(expr, case.start)
        others = (-10 * case.start, 0.0, case.start / 5, case.start, 10 * case.start)
        for at in others if case.start else (-1.0, 0.0, 1.0):
            value = evaluate(pinned, self._reader, at, lookback_s=LOOKBACK_S)
            try:
                _compare_instant(case, value)
            except Mismatch as fault:
                raise Mismatch(f"pinned and evaluated at {at:g}: {fault}") from None


def _pinned(expr: Expr, at: float) -> Expr:
    match expr:
        case Selector(at=None):
            return dataclasses.replace(expr, at=at)
        case Range(selector=selector):
            inner = _pinned(selector, at)
            assert isinstance(inner, Selector)
            return dataclasses.replace(expr, selector=inner)
        case Subquery(at=None):
            return dataclasses.replace(expr, at=at)
        case Paren(expr=inner) | Unary(expr=inner):
            return dataclasses.replace(expr, expr=_pinned(inner, at))
        case Call(args=args):
            return dataclasses.replace(expr, args=tuple(_pinned(arg, at) for arg in args))
        case Aggregate(expr=inner, param=param):
            return dataclasses.replace(
                expr, expr=_pinned(inner, at), param=None if param is None else _pinned(param, at)
            )
        case Binary(left=left, right=right):
            return dataclasses.replace(expr, left=_pinned(left, at), right=_pinned(right, at))
        case _:
            return expr


def _says(wanted: language.Wanted, messages: Iterable[str]) -> bool:
    if wanted.how is None:
        return True
    if wanted.how == "msg":
        return wanted.words in messages
    return any(re.search(wanted.words, message) for message in messages)


def _check_notes(case: language.Case, notes: list[Note]) -> None:
    for level, word in (("warn", "warning"), ("info", "info")):
        mine = [note for note in notes if note.level == word]
        messages = []
        for note in mine:
            line, column = position(case.expr, note.start)
            messages.append(f"PromQL {word}: {note.message} ({line}:{column})")
        if case.expects(f"no_{level}") and messages:
            raise Mismatch(f"unexpected {messages}")
        for wanted in case.wanted:
            if wanted.what == level and (not messages or not _says(wanted, messages)):
                raise Mismatch(f"expected {level} {wanted.words!r}, got {messages}")


def _rows(matrix: Matrix) -> Rows:
    return {
        labels: [float(value) if there else None for value, there in zip(values, present, strict=True)]
        for labels, values, present in zip(matrix.labels, matrix.values, matrix.present, strict=True)
    }


def _wanted_rows(case: language.Case) -> Rows:
    steps = math.floor((case.end - case.start) / case.step + 1e-9) + 1
    found: Rows = {}
    for series in case.series:
        cells = [value if isinstance(value, float) else None for value in series.values][:steps]
        found[series.labels] = cells + [None] * (steps - len(cells))
    return {labels: cells for labels, cells in found.items() if any(cell is not None for cell in cells)}


def _wanted_instant(case: language.Case) -> dict[Labels, Cell]:
    return {
        series.labels: series.values[0]
        for series in case.series
        if series.values and isinstance(series.values[0], float)
    }


def _compare_instant(case: language.Case, value: object) -> None:
    match value:
        case Text(value=text):
            if case.text is None or text != case.text:
                raise Mismatch(f"expected {case.text!r}, got {text!r}")
        case Scalar(value=number):
            wanted = case.scalar
            if wanted is None and len(case.series) == 1:
                wanted = _wanted_instant(case).get(Labels())
            if wanted is None or not almost(wanted, number):
                raise Mismatch(f"expected {wanted}, got {number}")
        case Vector():
            if case.scalar is not None:
                raise Mismatch(f"expected the number {case.scalar}, got a vector")
            samples = value.samples()
            found: dict[Labels, Cell] = dict(samples)
            if len(found) != len(samples):
                raise Mismatch(f"the same labels twice in {samples}")
            wanted_cells = _wanted_instant(case)
            _compare_cells(wanted_cells, found, "")
            if case.expects("ordered") and list(found) != list(wanted_cells):
                raise Mismatch(f"expected the order {list(wanted_cells)}, got {list(found)}")
        case _:
            raise Mismatch(f"unexpected {value}")


def _compare_range_vector(case: language.Case, value: object) -> None:
    assert case.over
    if not isinstance(value, Matrix):
        raise Mismatch("expected a range vector")
    start, _, step = case.over
    wanted = {
        (series.labels, round(start + place * step, 3)): cell
        for series in case.series
        for place, cell in enumerate(series.values)
        if isinstance(cell, float)
    }
    found = {
        (labels, round(float(value.times[place]), 3)): cell
        for labels, cells in _rows(value).items()
        for place, cell in enumerate(cells)
        if cell is not None
    }
    if set(wanted) != set(found):
        raise Mismatch(f"expected {sorted(map(str, wanted))}, got {sorted(map(str, found))}")
    for key, cell in wanted.items():
        if not almost(cell, found[key]):
            raise Mismatch(f"{key}: expected {cell}, got {found[key]}")


def _compare_cells(wanted: dict[Labels, Cell], found: dict[Labels, Cell], prefix: str) -> None:
    if set(wanted) != set(found):
        missing, more = sorted(map(repr, set(wanted) - set(found))), sorted(map(repr, set(found) - set(wanted)))
        raise Mismatch(f"{prefix}missing {missing}, not expected {more}")
    for labels, cell in wanted.items():
        other = found[labels]
        if cell is None or other is None or not almost(cell, other):
            raise Mismatch(f"{prefix}{labels!r}: expected {cell}, got {other}")


def _compare_rows(wanted: Rows, found: Rows) -> None:
    if set(wanted) != set(found):
        missing, more = sorted(map(repr, set(wanted) - set(found))), sorted(map(repr, set(found) - set(wanted)))
        raise Mismatch(f"missing {missing}, not expected {more}")
    for labels, cells in wanted.items():
        same = len(cells) == len(found[labels]) and all(
            (a is None and b is None) or (a is not None and b is not None and almost(a, b))
            for a, b in zip(cells, found[labels], strict=True)
        )
        if not same:
            raise Mismatch(f"{labels!r}: expected {cells}, got {found[labels]}")


def almost(a: float, b: float) -> bool:
    """Equal to one part in a million, as Prometheus's own tests take it."""
    if math.isnan(a) or math.isnan(b):
        return math.isnan(a) and math.isnan(b)
    if a == b:
        return True
    least = sys.float_info.min
    together, apart = abs(a) + abs(b), abs(a - b)
    if a == 0 or b == 0 or together < least:
        return apart < 1e-6 * least
    return apart / min(together, sys.float_info.max) < 1e-6


def main(arguments: list[str] | None = None) -> int:
    """Run the files named on the command line; 1 if a case failed."""
    parser = argparse.ArgumentParser(description="Run Prometheus's test language against sentinel's PromQL.")
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE")
    parser.add_argument("-q", "--quiet", action="store_true", help="do not list what was skipped")
    options = parser.parse_args(arguments)
    passed = failed = skipped = 0
    for path in options.files:
        tally = run(path)
        for line in tally.failed:
            print(f"FAILED {line}")
        if not options.quiet:
            for line in tally.skipped:
                print(f"skipped {line}")
        print(f"{path.name}: {tally.passed} passed, {len(tally.failed)} failed, {len(tally.skipped)} skipped")
        passed, failed, skipped = passed + tally.passed, failed + len(tally.failed), skipped + len(tally.skipped)
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
