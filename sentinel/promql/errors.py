"""What can go wrong with an expression: when it is read, and when it is evaluated."""

from __future__ import annotations

from sentinel.errors import Problem, SentinelError


class PromQLError(SentinelError):
    """An expression that cannot be read.

    Args:
        message: What is wrong, naming the thing.
        start: Offset into the text where it begins, in characters.
        end: Offset just after it.
        expected: What would have been right there, or None.
        hint: What to try, usually the nearest known name.
    """

    def __init__(
        self, message: str, start: int, end: int, expected: str | None = None, hint: str | None = None
    ) -> None:
        super().__init__(f"{message}; expected {expected}" if expected else message, hint=hint, exit_code=2)
        self.start = start
        self.end = max(end, start + 1)
        self.expected = expected

    def position(self, text: str) -> tuple[int, int]:
        """Line and column in `text`, both from 1."""
        return position(text, self.start)

    def problem(self, text: str, file: str | None = None) -> Problem:
        """The same as a problem with the offending line and a caret, for an expression that stands alone."""
        line, column = self.position(text)
        lines = text.split("\n")
        source = lines[line - 1] if line <= len(lines) else ""
        if len(source) > _LINE_SHOWN:
            # The caret counts from the start of the line, so a long line is cut behind it or not shown at all.
            shown = source[:_LINE_SHOWN] if column <= _LINE_SHOWN else None
            return Problem(file, line, column, self.message, self.hint, shown)
        width = min(self.end - self.start, max(1, len(source) - column + 1))
        return Problem(file, line, column, self.message, self.hint, source, width)


class Refused(PromQLError):
    """Something that Prometheus knows and sentinel leaves out: native histograms, experimental syntax."""


class EvaluationError(SentinelError):
    """An expression that reads well but has no answer on this data, such as a join with several partners.

    Args:
        message: What is wrong, in Prometheus's words where it has some.
        start: Offset of the part of the expression at fault.
        end: Offset just after it.
    """

    def __init__(self, message: str, start: int = 0, end: int = 0) -> None:
        super().__init__(message)
        self.start = start
        self.end = end


def position(text: str, offset: int) -> tuple[int, int]:
    """Line and column of an offset into `text`, both from 1."""
    before = text[:offset]
    return before.count("\n") + 1, offset - (before.rfind("\n") + 1) + 1


_LINE_SHOWN = 160
