"""The memory chart: braille dots, the limit as a line, the forecast as a dotted one. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from rich.text import Text

from sentinel.tui.text import ASKED, BAD, CALM, DIM, FAINT, GOOD, PLAIN, WARN, fit
from sentinel.units import format_bytes

Point = tuple[float, float]

_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
"""The bit of each dot of a braille cell: row from the top, column."""
_GUTTER = 9
"""Cells left of the plot, for the numbers of the axis."""


@dataclass(frozen=True, slots=True)
class Mark:
    """Something that happened, shown under the time axis."""

    time: float
    sign: str
    style: str


CHECKPOINT = ("▲", GOOD)
ASKED_FOR = ("◆", ASKED)
ALERT = ("!", BAD)


@dataclass(frozen=True, slots=True)
class Curve:
    """What the chart shows.

    Attributes:
        points: Time (Unix seconds) and bytes, in order of time.
        limit: The limit in force now (bytes), or None.
        growth: Bytes per second now, or None.
        now: The right end of the past.
        back_s: How far back it shows.
        ahead_s: How far ahead.
        marks: Under the axis.
    """

    points: Sequence[Point]
    limit: float | None
    growth: float | None
    now: float
    back_s: float
    ahead_s: float
    marks: Sequence[Mark] = ()


def draw(curve: Curve, width: int, height: int) -> list[Text]:
    """`height` lines of `width` cells: the plot, a lane of marks, the time axis."""
    rows, columns = height - 2, width - _GUTTER
    if rows < 2 or columns < 10:
        return [Text(fit("too small for a chart", width), DIM, end="")] + [Text("", end="")] * max(0, height - 1)
    top, shows_limit = _scale(curve)
    plot = _Plot(columns, rows, curve.now - curve.back_s, curve.now + curve.ahead_s, top)
    plot.area(curve.points)
    if curve.points and curve.growth and curve.growth > 0 and curve.limit and curve.ahead_s > 0:
        plot.forecast(curve.points[-1], curve.growth, curve.limit)
    limit_row = plot.row(curve.limit) if shows_limit and curve.limit else None
    lines = []
    for row in range(rows):
        line = _label(row, rows, top, limit_row, curve.limit, plot.row)
        line.append_text(plot.line(row, limit_row, curve.limit if shows_limit else None))
        lines.append(line)
    lines.append(_lane(curve, plot))
    lines.append(_axis(curve, plot))
    return lines


def _scale(curve: Curve) -> tuple[float, bool]:
    """The value at the top, and whether the limit is inside.

    A limit far above what is used would press the curve flat against the
    floor, so it is left out unless the forecast reaches it within the chart.
    """
    highest = max((value for _, value in curve.points), default=0.0)
    if not curve.limit:
        return max(highest * 1.25, 1.0), False
    last = curve.points[-1][1] if curve.points else 0.0
    reached = last + max(0.0, curve.growth or 0.0) * curve.ahead_s
    if highest >= 0.2 * curve.limit or reached >= curve.limit or not curve.points:
        return max(curve.limit, highest) * 1.1, True
    return max(highest * 1.6, 1.0), False


class _Plot:
    """Dots on a grid of braille cells."""

    def __init__(self, columns: int, rows: int, start: float, end: float, top: float) -> None:
        self.columns, self.rows = columns, rows
        self._start, self._end, self._top = start, end, top
        self._solid = [[0] * columns for _ in range(rows)]
        self._dotted = [[0] * columns for _ in range(rows)]

    def column(self, time: float) -> int:
        """The cell of a moment; may lie outside."""
        return int((time - self._start) / (self._end - self._start) * self.columns)

    def row(self, value: float) -> int:
        """The row of cells in which a value lies, from the top."""
        return min(self.rows - 1, max(0, (self.rows * 4 - 1 - self._height(value)) // 4))

    def area(self, points: Sequence[Point]) -> None:
        """Fill under the curve. A gap of more than a twentieth of the chart stays a gap."""
        widest = (self._end - self._start) / 20
        for before, after in pairwise(points):
            if after[0] - before[0] > widest:
                continue
            first, last = self._dot(before[0]), self._dot(after[0])
            for x in range(first, last + 1):
                share = 0.0 if last == first else (x - first) / (last - first)
                self._stack(x, self._height(before[1] + share * (after[1] - before[1])))
        if len(points) == 1:
            self._stack(self._dot(points[0][0]), self._height(points[0][1]))

    def forecast(self, last: Point, growth: float, limit: float) -> None:
        """Dots from the last point up to the limit, at the present pace."""
        for x in range(self._dot(last[0]) + 2, self.columns * 2, 2):
            time = self._start + x / (self.columns * 2) * (self._end - self._start)
            value = last[1] + growth * (time - last[0])
            if value > limit:
                break
            self._set(self._dotted, x, self._height(value))

    def line(self, row: int, limit_row: int | None, limit: float | None) -> Text:
        """One row of cells, coloured by how near to the limit it lies."""
        text = Text(end="")
        middle = self._top * (self.rows - row - 0.5) / self.rows
        style = CALM if not limit or middle < 0.6 * limit else WARN if middle < 0.85 * limit else BAD
        for solid, dotted in zip(self._solid[row], self._dotted[row], strict=True):
            if row == limit_row and not dotted:
                text.append(chr(0x2800 + solid) if solid else "╌", BAD)
            elif solid:
                text.append(chr(0x2800 + solid), style)
            elif dotted:
                text.append(chr(0x2800 + dotted), f"bold {PLAIN}")
            else:
                text.append(" ")
        return text

    def _dot(self, time: float) -> int:
        return int((time - self._start) / (self._end - self._start) * self.columns * 2)

    def _height(self, value: float) -> int:
        return int(value / self._top * (self.rows * 4 - 1))

    def _stack(self, x: int, height: int) -> None:
        for y in range(min(height, self.rows * 4 - 1) + 1):
            self._set(self._solid, x, y)

    def _set(self, grid: list[list[int]], x: int, y: int) -> None:
        if 0 <= x < self.columns * 2 and 0 <= y < self.rows * 4:
            from_top = self.rows * 4 - 1 - y
            grid[from_top // 4][x // 2] |= _DOTS[from_top % 4][x % 2]


def _label(
    row: int, rows: int, top: float, limit_row: int | None, limit: float | None, row_of: Callable[[float], int]
) -> Text:
    if row == limit_row and limit:
        return Text(fit(format_bytes(limit), _GUTTER - 1, right=True) + " ", f"bold {BAD}", end="")
    shown = {row_of(top * 0.95): top * 0.95, row_of(top / 2): top / 2}
    if limit_row is not None and limit:
        shown = {row_of(limit / 2): limit / 2}
    words = "0" if row == rows - 1 else format_bytes(shown[row]) if row in shown else ""
    return Text(fit(words, _GUTTER - 1, right=True) + " ", DIM, end="")


def _lane(curve: Curve, plot: _Plot) -> Text:
    signs: dict[int, Mark] = {}
    for mark in curve.marks:
        if 0 <= (column := plot.column(mark.time)) < plot.columns:
            signs[column] = mark
    text = Text(" " * (_GUTTER - 1) + "└", FAINT, end="")
    now = plot.column(curve.now)
    for column in range(plot.columns):
        if column in signs:
            text.append(signs[column].sign, f"bold {signs[column].style}")
        else:
            text.append("┴" if column == now and curve.ahead_s else "─", FAINT)
    return text


def _reach(seconds: float) -> str:
    return f"{seconds:.0f}s" if seconds < 120 else f"{seconds / 60:.3g}m"


def _axis(curve: Curve, plot: _Plot) -> Text:
    line = [" "] * plot.columns

    def put(at: int, words: str) -> None:
        at = max(0, min(plot.columns - len(words), at))
        if all(char == " " for char in line[max(0, at - 1) : at + len(words) + 1]):
            line[at : at + len(words)] = words

    put(0, f"-{_reach(curve.back_s)}")
    now = plot.column(curve.now)
    put(now - 1, "now")
    if curve.ahead_s:
        put(plot.columns, f"+{_reach(curve.ahead_s)}")
    put(plot.column(curve.now - curve.back_s / 2) - 2, f"-{_reach(curve.back_s / 2)}")
    return Text(" " * _GUTTER + "".join(line), DIM, end="")
