"""Colours, only where a person looks at them: on a terminal, and without NO_COLOR."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import TextIO

_CODES = {"red": "31", "green": "32", "yellow": "33", "cyan": "36", "dim": "2", "bold": "1", "alarm": "1;31"}

OF_SEVERITY = {"critical": "alarm", "warning": "yellow", "info": ""}
OF_STATE = {
    "running": "green",
    "succeeded": "green",
    "firing": "red",
    "pending": "yellow",
    "paused": "yellow",
    "waiting": "yellow",
    "stopping": "yellow",
    "failed": "red",
    "lost": "red",
    "preempted": "yellow",
    "resolved": "green",
}


class Paint:
    """Colours text, or leaves it.

    Args:
        on: Whether it colours at all.
    """

    def __init__(self, *, on: bool) -> None:
        self.on = on

    def __call__(self, text: str, colour: str) -> str:
        """`text` in a colour; unknown colours and "" change nothing."""
        code = _CODES.get(colour)
        return f"\x1b[{code}m{text}\x1b[0m" if self.on and code and text else text


def paint(stream: TextIO | None = None, environ: Mapping[str, str] = os.environ) -> Paint:
    """What is right for a stream, stdout where none is given."""
    stream = sys.stdout if stream is None else stream
    return Paint(on=stream.isatty() and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb")
