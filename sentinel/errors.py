"""What goes wrong, in words a user can act on.

Every error that reaches a user says three things: where, what, and what to
try. Nothing else in sentinel prints a traceback to a user.
"""

from __future__ import annotations

from dataclasses import dataclass


class SentinelError(Exception):
    """Base of every error with a message meant for a user.

    Args:
        message: What is wrong, naming the thing.
        hint: What to try; shown on a line of its own, without "try:".
        exit_code: What a command ends with: 1 a finding, 2 bad usage or configuration.
    """

    def __init__(self, message: str, *, hint: str | None = None, exit_code: int = 1) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.exit_code = exit_code

    def __str__(self) -> str:
        return self.message if self.hint is None else f"{self.message}\n  try: {self.hint}"


class UsageError(SentinelError):
    """A command or configuration that cannot be carried out as written (exit code 2)."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint, exit_code=2)


@dataclass(frozen=True, slots=True)
class Problem:
    """One mistake in one file.

    Attributes:
        file: The path as the user gave it; None for text that is in no file.
        line: From 1; 0 where no line is known.
        column: From 1.
        width: How many characters the caret underlines, at least 1.
        message: What is wrong and what was expected.
        hint: What to try, or None.
        source: The offending line, or None.
        severity: "error" refuses the file, "warning" does not.
    """

    file: str | None
    line: int
    column: int
    message: str
    hint: str | None = None
    source: str | None = None
    width: int = 1
    severity: str = "error"

    def __str__(self) -> str:
        where = ":".join(str(part) for part in (self.file, self.line or None, self.column or None) if part is not None)
        lines = [f"{where}: {self.message}" if where else self.message]
        if self.source is not None and self.line:
            gutter = f"{self.line:>5} | "
            # A tab before the caret must stay a tab, or the caret drifts.
            pad = "".join("\t" if char == "\t" else " " for char in self.source[: self.column - 1])
            lines += [gutter + self.source, " " * (len(gutter) - 2) + "| " + pad + "^" * max(1, self.width)]
        if self.hint:
            lines.append(f"  try: {self.hint}")
        return "\n".join(lines)


class Problems(UsageError):
    """All the mistakes of a file or of a set of files, together."""

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = problems


def nearest(word: str, known: list[str] | tuple[str, ...] | set[str] | frozenset[str]) -> str | None:
    """The known word that `word` is most likely a slip of, or None."""
    import difflib  # only on the way to an error

    found = difflib.get_close_matches(word, sorted(known), n=1, cutoff=0.6)
    return found[0] if found else None
