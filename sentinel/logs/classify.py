"""What the lines of a log mean: one set scan over a chunk, single patterns only on a hit."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace

import re2

from sentinel.logs.masking import clean
from sentinel.logs.patterns import Pattern
from sentinel.logs.tail import Lines
from sentinel.model.logs import LogEvent, LogKind

CONTEXT_LINES = 4
_NUMBERS = frozenset({"status", "step", "xid", "rank", "retry_after_seconds", "tokens_over", "limit"})


class Classifier:
    """Recognises records by patterns.

    A record is a line, or a traceback: from `Traceback (most recent call last)`
    to the line that names the exception, which decides what it is. It counts
    once, as the most telling kind among its lines.

    Args:
        patterns: In order of rank: of two that match a line, the first decides.
    """

    def __init__(self, patterns: Sequence[Pattern]) -> None:
        self._patterns = tuple(patterns)
        options = re2.Options()
        options.max_mem = 64 << 20
        options.log_errors = False
        self._any = re2.Set.SearchSet(options)
        for pattern in self._patterns:
            self._any.Add(pattern.regex)
        self._any.Compile()
        single = re2.Options()
        single.log_errors = False
        self._single = [re2.compile(pattern.regex, single) for pattern in self._patterns]
        self._open: dict[str, _Traceback] = {}
        self._before: dict[str, deque[str]] = {}

    def feed(self, chunk: Lines) -> list[LogEvent]:
        """The events in the next lines of one file."""
        found: list[LogEvent] = []
        before = self._before.setdefault(chunk.path, deque(maxlen=CONTEXT_LINES))
        opened = self._open.get(chunk.path)
        for index, raw in enumerate(chunk.lines):
            text = raw.decode("utf-8", "replace")
            number = chunk.first + index
            if opened is None and "Traceback (most recent call last)" in text:
                opened = _Traceback(number, list(before))
            elif opened is not None:
                done = opened.add(text, number, self._decide(text, number))
                if done is not None:
                    found.append(replace(done, context=tuple(clean(line, 512) for line in opened.tail())))
                    opened = None
            elif (event := self._decide(text, number)) is not None:
                found.append(replace(event, context=tuple(clean(line, 512) for line in (*before, text))))
            before.append(text[:1024])
        if opened is None:
            self._open.pop(chunk.path, None)
        else:
            self._open[chunk.path] = opened
        return found

    def forget(self, path: str) -> list[LogEvent]:
        """The file has ended: what was still open is all there will be."""
        self._before.pop(path, None)
        opened = self._open.pop(path, None)
        return [opened.event()] if opened is not None else []

    def _decide(self, text: str, number: int) -> LogEvent | None:
        hits = self._any.Match(text)
        if not hits:
            return None
        pattern = self._patterns[min(hits)]
        match = self._single[min(hits)].search(text)
        groups = {name: value for name, value in match.groupdict().items() if value} if match else {}
        fields = {name: _number(value) if name in _NUMBERS else clean(value, 256) for name, value in groups.items()}
        return LogEvent(pattern.kind, clean(text), number, pattern.retryable, pattern.framework, fields, pattern.name)


class _Traceback:
    """A traceback being read: its best event so far, and its lines."""

    LONGEST = 400

    def __init__(self, number: int, before: list[str]) -> None:
        self._lines = deque(before, maxlen=12)
        self._best: LogEvent | None = None
        self._last = ("", number)
        self._count = 0

    def add(self, text: str, number: int, event: LogEvent | None) -> LogEvent | None:
        """Take one more line; the event, once the traceback is over."""
        self._lines.append(text)
        self._count += 1
        if event is not None and self._best is None:
            self._best = event
        stripped = text.strip()
        if text[:1] in {" ", "\t"} or not stripped or stripped.startswith("File ") or self._count == 0:
            return self.event() if self._count > self.LONGEST else None
        self._last = (text, number)
        return self.event()

    def event(self) -> LogEvent:
        """What it was."""
        text, number = self._last
        return self._best or LogEvent(LogKind.TRACEBACK, clean(text), number, None, "python", {}, "traceback")

    def tail(self) -> list[str]:
        """Its last lines."""
        return list(self._lines)


def _number(text: str) -> object:
    try:
        return float(text) if "." in text else int(text)
    except ValueError:
        return clean(text, 256)
