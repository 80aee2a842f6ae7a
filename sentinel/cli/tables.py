"""Tables that fit the terminal: columns shrink, then the least important ones go."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from sentinel.cli.colours import Paint

GAP = "  "
_UNBOUNDED = 1_000_000


@dataclass(frozen=True, slots=True)
class Column:
    """One column.

    Attributes:
        title: Its heading.
        right: Whether its cells stand at the right.
        least: To how many cells it may be cut; 0: never cut.
        weight: Columns with the least weight go first where even cutting is not enough.
    """

    title: str
    right: bool = False
    least: int = 0
    weight: int = 5


@dataclass(frozen=True, slots=True)
class Cell:
    """Text in a colour."""

    text: str
    colour: str = ""


def terminal_width() -> int:
    """Columns of the terminal; as good as unbounded where stdout is none."""
    said = os.environ.get("COLUMNS", "")
    if said.isdigit() and int(said) > 0:
        return int(said)
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or _UNBOUNDED
    except (OSError, ValueError):
        return _UNBOUNDED


def table(
    columns: Sequence[Column], rows: Sequence[Sequence[str | Cell]], *, width: int, paint: Paint, indent: str = ""
) -> list[str]:
    """The lines of a table, its heading first. Cells lose control characters and line breaks."""
    cells = [[_clean(cell) for cell in row] for row in rows]
    widths = _widths(columns, cells)
    shown = _fit(columns, widths, width - len(indent))
    lines = [indent + _line(columns, [Cell(column.title, "dim") for column in columns], widths, shown, paint)]
    lines += [indent + _line(columns, row, widths, shown, paint) for row in cells]
    return lines


def left_out(columns: Sequence[Column], rows: Sequence[Sequence[str | Cell]], *, width: int) -> list[str]:
    """The titles of the columns for which such a table has no room."""
    widths = _widths(columns, [[_clean(cell) for cell in row] for row in rows])
    shown = _fit(columns, widths, width)
    return [column.title for index, column in enumerate(columns) if index not in shown]


def wrapped(text: str, width: int, indent: str = "") -> list[str]:
    """`text` in indented lines of at most `width` cells; only a single word may be longer."""
    lines: list[str] = []
    for word in text.split():
        if lines and display_width(f"{lines[-1]} {word}") <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(indent + word)
    return lines or [indent]


def display_width(text: str) -> int:
    """How many cells of a terminal a text takes."""
    if text.isascii():
        return len(text)
    import unicodedata

    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text
    )


def cut(text: str, width: int) -> str:
    """`text` in at most `width` cells, with an ellipsis where something is missing."""
    if display_width(text) <= width:
        return text
    kept = ""
    for char in text:
        if display_width(kept) + display_width(char) > width - 1:
            break
        kept += char
    return kept + "…" if width > 0 else ""


def plain(text: str) -> str:
    """`text` as one line without control characters: what a job wrote must not command a terminal."""
    return "".join(char if char.isprintable() else "�" if char not in "\n\t" else " " for char in text)


def bar(ratio: float | None, width: int) -> str:
    """A bar of `width` cells; an empty one where the ratio is unknown."""
    if ratio is None or not 0 <= ratio < 1e6:
        return "·" * width
    full = round(min(1.0, ratio) * width)
    return "█" * full + "░" * (width - full)


def _widths(columns: Sequence[Column], cells: Sequence[Sequence[Cell]]) -> list[int]:
    return [
        max([display_width(column.title), *(display_width(row[index].text) for row in cells)])
        for index, column in enumerate(columns)
    ]


def _clean(cell: str | Cell) -> Cell:
    return Cell(plain(cell)) if isinstance(cell, str) else Cell(plain(cell.text), cell.colour)


def _fit(columns: Sequence[Column], widths: list[int], room: int) -> list[int]:
    """Which columns are shown; changes `widths` to what each gets."""
    shown = list(range(len(columns)))
    while True:
        excess = sum(widths[index] for index in shown) + len(GAP) * (len(shown) - 1) - room
        cuttable = [index for index in shown if columns[index].least]
        spare = sum(max(0, widths[index] - columns[index].least) for index in cuttable)
        if excess <= 0 or excess <= spare or len(shown) == 1:
            break
        shown.remove(min(shown, key=lambda index: (columns[index].weight, index)))
    while excess > 0 and cuttable:
        widest = max(cuttable, key=lambda index: widths[index] - columns[index].least)
        if widths[widest] <= columns[widest].least:
            break
        widths[widest] -= 1
        excess -= 1
    return shown


def _line(
    columns: Sequence[Column], cells: Sequence[Cell], widths: Sequence[int], shown: Sequence[int], paint: Paint
) -> str:
    parts: list[str] = []
    for index in shown:
        text = cut(cells[index].text, widths[index])
        pad = " " * (widths[index] - display_width(text))
        painted = paint(text, cells[index].colour)
        last = index == shown[-1] and not columns[index].right
        parts.append(pad + painted if columns[index].right else painted + ("" if last else pad))
    return GAP.join(parts).rstrip()
