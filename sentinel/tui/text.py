"""Text for cells: taken literally, measured in cells, numbers as people say them.

What a job or a host supplied goes through `literal` before it reaches a
widget, and reaches it as a rich `Text`, which knows no markup.
"""

from __future__ import annotations

import math

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from sentinel.units import format_bytes

GOOD = "#3fb950"
CALM = "#39c5bb"
NOTE = "#58a6ff"
ASKED = "#bc8cff"
WARN = "#e3b341"
BAD = "#ff6b61"
PLAIN = "#d7dde5"
DIM = "#7d8793"
FAINT = "#3d4652"
TRACK = "#39424e"

SEVERITY = {"critical": BAD, "warning": WARN, "info": NOTE}

_UNITS = ((1024**5, "PiB"), (1024**4, "TiB"), (1024**3, "GiB"), (1024**2, "MiB"), (1024, "KiB"), (1, "B"))


def literal(value: object, longest: int = 4096) -> str:
    """`value` as one line that does nothing to a terminal: what is not printable becomes �."""
    text = str(value)[:longest]
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else " " if char in "\n\t" else "�" for char in text)


def fit(text: str, width: int, *, right: bool = False) -> str:
    """`text` in exactly `width` cells, cut with … where it is too long."""
    if width <= 0:
        return ""
    used = cell_len(text)
    if used > width:
        return set_cell_size(text, width - 1) + "…"
    return " " * (width - used) + text if right else text + " " * (width - used)


def cell(text: object, width: int, style: str = PLAIN, *, right: bool = False) -> Text:
    """One literal cell of a table."""
    return Text(fit(literal(text), width, right=right), style, no_wrap=True, end="")


def bar(ratio: float | None, width: int, style: str = CALM) -> Text:
    """A bar in halves of a cell on a track; only the track where the ratio is unknown.

    A heavy line on a thin one, not blocks: bars in neighbouring rows must not grow
    together, and it reads without colours.
    """
    if width <= 0:
        return Text("", end="")
    halves = 0 if ratio is None or not math.isfinite(ratio) else round(max(0.0, min(1.0, ratio)) * width * 2)
    if ratio and not halves:
        halves = 1
    whole, part = divmod(halves, 2)
    text = Text(end="", no_wrap=True)
    text.append("━" * whole + "╸" * part, style)
    return text.append("─" * (width - whole - part), TRACK)


def of(used: float | None, limit: float | None) -> str:
    """`412/600 MiB`: both in the unit of the larger; `412 MiB` without a limit."""
    if used is None:
        return "—"
    if limit is None or limit <= 0:
        return format_bytes(used)
    size, unit = next(((size, unit) for size, unit in _UNITS if max(limit, used) >= size), (1, "B"))
    if 0 < used / size < 0.1:
        below, small = next(((size, unit) for size, unit in _UNITS if used >= size), (1, "B"))
        return f"{used / below:.0f}{small[0]}/{_short(limit / size)} {unit}"
    return f"{_short(used / size)}/{_short(limit / size)} {unit}"


def _short(value: float) -> str:
    return f"{value:.0f}" if value >= 99.95 or value == 0 else f"{value:.1f}"


def short_bytes(value: float | None) -> str:
    """`12.4 GiB`, or — where unknown."""
    return "—" if value is None else format_bytes(value)


def span(seconds: float | None) -> str:
    """A time span in at most five cells: `3s`, `12m`, `5h`, `3d`; — where unknown."""
    if seconds is None or not math.isfinite(seconds):
        return "—"
    left = max(0.0, seconds)
    if left < 99.5:
        return f"{left:.0f}s"
    if left < 99.5 * 60:
        return f"{left / 60:.0f}m"
    if left < 48 * 3600:
        return f"{left / 3600:.0f}h"
    return f"{left / 86400:.0f}d"


def words(seconds: float) -> str:
    """The same in words that can be read aloud: `50 s`, `12 min`, `5 h`, `3 days`."""
    if seconds < 99.5:
        return f"{seconds:.0f} s"
    if seconds < 99.5 * 60:
        return f"{seconds / 60:.0f} min"
    if seconds < 48 * 3600:
        return f"{seconds / 3600:.0f} h"
    return f"{seconds / 86400:.0f} days"


def percent(ratio: float | None) -> str:
    """`98%`, or — where unknown."""
    return "—" if ratio is None else f"{ratio * 100:.0f}%"


def count(number: int, noun: str, several: str = "") -> str:
    """`1 alert`, `2 alerts`."""
    return f"{number} {noun}" if number == 1 else f"{number} {several or noun + 's'}"
