"""The text of one document, by lines, and the list its problems go to."""

from __future__ import annotations

import re

from sentinel.errors import Problem

MOST_PROBLEMS = 100
"""Of one file: enough to mend, not enough to drown in."""

_BREAK = re.compile("\r\n|[\n\r\x85\u2028\u2029]")
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
_LONGEST_LINE = 240


class Source:
    """Lines as YAML counts them, so that its marks fit.

    Attributes:
        file: The path as the user gave it, or None.
        lines: Without their line breaks.
        problems: Where problems go; shared by all files that are loaded together.
    """

    __slots__ = ("_left", "file", "lines", "problems")

    def __init__(self, text: str, file: str | None, problems: list[Problem]) -> None:
        self.file = file
        self.lines = _BREAK.split(text)
        self.problems = problems
        self._left = MOST_PROBLEMS

    def problem(
        self,
        line: int,
        column: int,
        message: str,
        hint: str | None = None,
        *,
        width: int = 1,
        severity: str = "error",
    ) -> Problem:
        """A problem at a place; the line is shown as a terminal may see it."""
        if line > len(self.lines):  # the end of the text
            line, column = len(self.lines), len(self.lines[-1]) + 1
        text = self.lines[line - 1] if 0 < line <= len(self.lines) else None
        if text is not None and len(text) > _LONGEST_LINE:
            text = text[:_LONGEST_LINE] + "…" if column <= _LONGEST_LINE else None
        if text is not None:
            text = _CONTROL.sub("\ufffd", text)
            width = max(1, min(width, len(text) - column + 1))
        return Problem(self.file, line, column, _CONTROL.sub("\ufffd", message), hint, text, width, severity)

    def report(self, problem: Problem) -> None:
        """Add to the list; after a hundred of one file say once that there are more."""
        if self._left > 0:
            self.problems.append(problem)
        elif self._left == 0:
            self.problems.append(Problem(self.file, 0, 0, f"more than {MOST_PROBLEMS} problems; the rest is not shown"))
        self._left -= 1
