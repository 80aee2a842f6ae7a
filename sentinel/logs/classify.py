"""What the lines of a log mean: one set scan over a line, single patterns only on a hit."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import re2

from sentinel.logs.fields import captured
from sentinel.logs.masking import clean
from sentinel.logs.patterns import Pattern, compiled
from sentinel.logs.structure import plain
from sentinel.logs.tail import Lines
from sentinel.model.logs import LogEvent, LogKind

CONTEXT_LINES = 4
LONGEST_JUDGED = 16 * 1024
QUIETLY = 35
HARDLY = 60
"""A line that calls itself information needs a better pattern than the first, one for debugging than the second."""

# Of two kinds that match equally well, the one that says more about what to do.
_TELLING = {kind: -place for place, kind in enumerate((
    LogKind.DISK_FULL, LogKind.GPU_OOM, LogKind.GPU_FAULT, LogKind.HOST_OOM, LogKind.CONTEXT_LENGTH,
    LogKind.QUOTA_EXHAUSTED, LogKind.RATE_LIMITED, LogKind.OVERLOADED, LogKind.NUMERIC_ANOMALY,
    LogKind.CHECKPOINT_FAILED, LogKind.NCCL_FAILURE, LogKind.PREEMPTED, LogKind.TIMEOUT, LogKind.CONNECTION_LOST,
    LogKind.CHECKPOINT_SAVED, LogKind.TRACEBACK,
))}  # fmt: skip
_INFORMS = re.compile(
    rb"(?:^|[\s\[|:(\"'])(?:INFO|DEBUG|TRACE|NOTICE)\b|"
    rb"^(?i:info|debug|trace)\b|(?i:\"?level\"?[=:] ?\"?(?:info|debug|trace)\b)"
)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What one line means, and how sure its pattern is."""

    pattern: Pattern
    fields: Mapping[str, object]
    text: bytes

    @property
    def weight(self) -> tuple[int, int]:
        """The heavier of two verdicts on one record decides."""
        assert self.pattern.kind is not None
        return (self.pattern.rank, _TELLING[self.pattern.kind])

    def event(self, number: int) -> LogEvent:
        """As an event, cleaned and masked."""
        found = self.pattern
        assert found.kind is not None
        line = clean(self.text.decode("utf-8", "replace"))
        return LogEvent(found.kind, line, number, found.retryable, found.framework, self.fields, found.name)


class Classifier:
    """Recognises records by patterns.

    A record is a line, or a traceback: from `Traceback (most recent call last)`
    to the line that names the exception. It counts once, as what its weightiest
    line says.

    Args:
        patterns: Of those that match a line, the highest rank decides; see `Pattern`.
    """

    def __init__(self, patterns: Sequence[Pattern]) -> None:
        self._patterns = tuple(patterns)
        self._any = _set(self._patterns)
        self._single = [compiled(pattern.regex) for pattern in self._patterns]
        self._open: dict[str, _Traceback] = {}
        self._before: dict[str, deque[str]] = {}

    def record(self, data: bytes) -> LogEvent | None:
        """What one record of one or many lines means, or None: nothing."""
        best: tuple[Verdict, int] | None = None
        for number, line in enumerate(data.split(b"\n"), 1):
            found = self.judge(line.rpartition(b"\r")[2] if b"\r" in line.rstrip(b"\r") else line)
            if found is not None and (best is None or found.weight > best[0].weight):
                best = (found, number)
        return best[0].event(best[1]) if best is not None else None

    def judge(self, raw: bytes) -> Verdict | None:
        """What one line means, or None: nothing."""
        text = plain(raw[:LONGEST_JUDGED])
        hits = self._any.Match(text)
        if not hits:
            return None
        said = _INFORMS.search(text)
        least = -1 if said is None else HARDLY if b"D" in said[0].upper() else QUIETLY
        against = [self._patterns[hit] for hit in hits if self._patterns[hit].kind is None]
        standing = [hit for hit in hits if _stands(self._patterns[hit], against, least)]
        if not standing:
            return None
        best = max(standing, key=lambda hit: Verdict(self._patterns[hit], {}, b"").weight)
        return Verdict(self._patterns[best], captured(self._patterns[best], self._single[best], text), text)

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
                done = opened.add(text, number, self.judge(raw))
                if done is not None:
                    found.append(replace(done, context=tuple(clean(line, 512) for line in opened.tail())))
                    opened = None
            elif (verdict := self.judge(raw)) is not None:
                context = tuple(clean(line, 512) for line in (*before, text))
                found.append(replace(verdict.event(number), context=context))
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


class _Traceback:
    """A traceback being read: its best event so far, and its lines."""

    LONGEST = 400

    def __init__(self, number: int, before: list[str]) -> None:
        self._lines = deque(before, maxlen=12)
        self._best: tuple[Verdict, int] | None = None
        self._last = ("", number)
        self._count = 0

    def add(self, text: str, number: int, found: Verdict | None) -> LogEvent | None:
        """Take one more line; the event, once the traceback is over."""
        self._lines.append(text)
        self._count += 1
        if found is not None and (self._best is None or found.weight > self._best[0].weight):
            self._best = (found, number)
        stripped = text.strip()
        if text[:1] in {" ", "\t"} or not stripped or stripped.startswith("File ") or self._count == 0:
            return self.event() if self._count > self.LONGEST else None
        self._last = (text, number)
        return self.event()

    def event(self) -> LogEvent:
        """What it was."""
        if self._best is not None:
            return self._best[0].event(self._best[1])
        text, number = self._last
        return LogEvent(LogKind.TRACEBACK, clean(text), number, None, "python", {}, "traceback")

    def tail(self) -> list[str]:
        """Its last lines."""
        return list(self._lines)


def _stands(pattern: Pattern, against: Sequence[Pattern], least: int) -> bool:
    if pattern.kind is None or pattern.rank <= least:
        return False
    return not any(
        other.rank >= pattern.rank and (not other.against or pattern.kind in other.against) for other in against
    )


def _set(patterns: Sequence[Pattern]) -> re2.Set:
    options = re2.Options()
    options.max_mem = 256 << 20
    options.log_errors = False
    options.encoding = re2.Options.Encoding.LATIN1
    found = re2.Set.SearchSet(options)
    for pattern in patterns:
        found.Add(pattern.regex.encode())
    found.Compile()
    return found
