"""What the lines of a log mean: one set scan over a line, single patterns only on a hit."""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import re2

from sentinel.logs.fields import captured
from sentinel.logs.masking import clean
from sentinel.logs.patterns import Pattern, compiled
from sentinel.logs.structure import plain
from sentinel.logs.tail import Lines, shown
from sentinel.model.logs import LogEvent, LogKind

CONTEXT_LINES = 4
CONTEXT_BYTES = 512
BEFORE_BYTES = 2048
MANY = 64
"""Hits in one chunk, from which on it is a storm."""
REMEMBERED = 4096
MEMORY_BYTES = 64 << 20
"""What the automata may take, each; what does not fit is made again."""
TRACEBACK = b"Traceback (most recent call last)"
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
_STAMP = b"0123456789:-., TZ[]/+"
_SHAPE = re.compile(rb"\[?rank ?:?\d+\]?:?|0x[0-9a-f]+|\d+|\s+")
_PREFIX = re.compile(rb"^(?:\[?rank ?:?\d+\]?:? ?|\S+ \| )")
_COUNTED = re.compile(r"(?:\(\?:\\[wS][+*] \)|(?<!\\)\.)\{\d+,\d+\}\??")
_NAMES = re.compile(r"\(\?P<\w+>")


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
    line says. What several ranks say in the same words in one chunk, and what is
    said again and again, is one event with a count.

    A chunk is searched as a whole, by one automaton made of all patterns; only
    the lines in which it stops are looked at.

    Args:
        patterns: Of those that match a line, the highest rank decides; see `Pattern`.
    """

    def __init__(self, patterns: Sequence[Pattern]) -> None:
        self._patterns = tuple(patterns)
        self._made: _Automata | None = None
        self._open: dict[str, _Traceback] = {}
        self._before: dict[str, bytes] = {}
        self._known: dict[bytes, Verdict | None] = {}

    def prepare(self) -> _Automata:
        """Compile the patterns, which the first use does otherwise (half a second)."""
        if self._made is None:
            self._made = _Automata(self._patterns)
        return self._made

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
        made = self.prepare()
        hits = made.each.Match(text)
        if not hits:
            return None
        said = _INFORMS.search(text)
        least = -1 if said is None else HARDLY if b"D" in said[0].upper() else QUIETLY
        against = [self._patterns[hit] for hit in hits if self._patterns[hit].kind is None]
        standing = [hit for hit in hits if _stands(self._patterns[hit], against, least)]
        if not standing:
            return None
        best = max(standing, key=lambda hit: Verdict(self._patterns[hit], {}, b"").weight)
        return Verdict(self._patterns[best], captured(self._patterns[best], made.single(best), text), text)

    def feed(self, chunk: Lines) -> list[LogEvent]:
        """The events in the next lines of one file, in order."""
        data, path = chunk.data, chunk.path
        if not chunk.count:
            return []
        gathered = _Gathered(self._before.get(path, b""), data)
        search = self.prepare().anything.search
        opened = self._open.pop(path, None)
        at, number, hits = 0, chunk.first, 0
        while at <= len(data):
            if opened is None:
                if hits > MANY and TRACEBACK not in data:
                    self._count_all(data, at, number, gathered)
                    break
                found = search(data, at)
                if found is None:
                    break
                start = data.rfind(b"\n", 0, found.start()) + 1
                start = max(start, at)
                number += data.count(b"\n", at, start)
                at, hits = start, hits + 1
            end = data.find(b"\n", at)
            end = len(data) if end < 0 else end
            line = shown(data[at:end])
            if opened is not None:
                event = opened.add(line, number, self._again(line))
                if event is not None:
                    gathered.add_event(event)
                    opened = None
            elif TRACEBACK in line:
                opened = _Traceback(number, gathered.lines_before(at))
            elif (verdict := self._again(line)) is not None:
                gathered.add(verdict, number, at, end)
            at, number = end + 1, number + 1
        if opened is not None:
            self._open[path] = opened
        self._before[path] = data[-BEFORE_BYTES:]
        return gathered.events()

    def forget(self, path: str) -> list[LogEvent]:
        """The file has ended: what was still open is all there will be."""
        self._before.pop(path, None)
        opened = self._open.pop(path, None)
        return [opened.event()] if opened is not None else []

    def _count_all(self, data: bytes, at: int, number: int, gathered: _Gathered) -> None:
        """A storm: each wording is judged once, wherever it stands, and counted."""
        lines = data[at:].split(b"\n")
        keys = [line.lstrip(_STAMP) for line in lines]
        first: dict[bytes, int] = {}
        for place in range(len(keys) - 1, -1, -1):
            first[keys[place]] = place
        for key, count in Counter(keys).items():
            place = first[key]
            if (verdict := self._again(shown(lines[place]))) is not None:
                begin = data.find(lines[place], at)
                gathered.add(verdict, number + place, begin, begin + len(lines[place]), count)

    def _again(self, line: bytes) -> Verdict | None:
        """`judge`, remembering what was judged: storms repeat themselves but for their time stamps."""
        key = line.lstrip(_STAMP)
        if key in self._known:
            return self._known[key]
        if len(self._known) >= REMEMBERED:
            self._known.clear()
        found = self._known[key] = self.judge(line)
        return found


class _Automata:
    """The compiled patterns: all at once over a chunk, all over a line, and one by one."""

    def __init__(self, patterns: Sequence[Pattern]) -> None:
        self._patterns = patterns
        self._single: dict[int, Any] = {}
        options = re2.Options()
        options.max_mem = MEMORY_BYTES
        options.log_errors = False
        options.encoding = re2.Options.Encoding.LATIN1
        self.each = re2.Set.SearchSet(options)
        for pattern in patterns:
            self.each.Add(pattern.regex.encode())
        self.each.Compile()
        together = [f"(?:{_loosened(pattern.regex)})" for pattern in patterns if pattern.kind is not None]
        options.never_capture = True
        self.anything = re2.compile("|".join([r"Traceback \(most recent call last\)", *together]).encode(), options)

    def single(self, place: int) -> Any:
        """One pattern, for what it captures."""
        if place not in self._single:
            self._single[place] = compiled(self._patterns[place].regex)
        return self._single[place]


class _Gathered:
    """The events of one chunk: those that say the same become one."""

    def __init__(self, before: bytes, data: bytes) -> None:
        self._before = before
        self._data = data
        self._events: dict[object, LogEvent] = {}

    def add(self, verdict: Verdict, number: int, at: int, end: int, count: int = 1) -> None:
        """One line that means something."""
        key = (verdict.pattern.name, _SHAPE.sub(b"", verdict.text[:256]))
        known = self._events.get(key)
        if known is not None:
            self._events[key] = replace(known, count=known.count + count)
            return
        context = [*self.lines_before(at), _decoded(shown(self._data[at:end]))]
        said = tuple(clean(line, CONTEXT_BYTES) for line in context)
        self._events[key] = replace(verdict.event(number), count=count, context=said)

    def add_event(self, event: LogEvent) -> None:
        """A traceback that has ended."""
        key = (event.pattern, _SHAPE.sub(b"", event.line[:256].encode()))
        known = self._events.get(key)
        self._events[key] = event if known is None else replace(known, count=known.count + event.count)

    def lines_before(self, at: int) -> list[str]:
        """A few lines before an offset, those of the chunk before included."""
        head = self._data[max(0, at - BEFORE_BYTES) : at]
        if len(head) < BEFORE_BYTES and at < BEFORE_BYTES:
            head = self._before + b"\n" + head if self._before else head
        lines = head.removesuffix(b"\n").split(b"\n")[-CONTEXT_LINES:]
        return [_decoded(shown(line)) for line in lines if line]

    def events(self) -> list[LogEvent]:
        """Each once, in the order in which it was first said."""
        return list(self._events.values())


class _Traceback:
    """A traceback being read: its weightiest line so far, and its last lines."""

    LONGEST = 400

    def __init__(self, number: int, before: list[str]) -> None:
        self._lines = deque(before, maxlen=12)
        self._best: tuple[Verdict, int] | None = None
        self._last = (b"", number)
        self._count = 0

    def add(self, line: bytes, number: int, found: Verdict | None) -> LogEvent | None:
        """Take one more line; the event, once the traceback is over."""
        self._lines.append(_decoded(line))
        self._count += 1
        if found is not None and (self._best is None or found.weight > self._best[0].weight):
            self._best = (found, number)
        bare = _PREFIX.sub(b"", line)
        stripped = bare.strip()
        if bare[:1] in {b" ", b"\t"} or not stripped or stripped.startswith(b"File "):
            return self.event() if self._count > self.LONGEST else None
        self._last = (line, number)
        return self.event()

    def event(self) -> LogEvent:
        """What it was."""
        context = tuple(clean(line, CONTEXT_BYTES) for line in self._lines)
        if self._best is not None:
            return replace(self._best[0].event(self._best[1]), context=context)
        line, number = self._last
        return LogEvent(
            LogKind.TRACEBACK, clean(_decoded(line)), number, None, "python", {}, "traceback", context=context
        )


def _decoded(line: bytes) -> str:
    return line[:1024].decode("utf-8", "replace")


def _loosened(regex: str) -> str:
    """What matches wherever `regex` does, and more: counted gaps need a state for each count, open ones need one.

    Without the names of groups, too, which may occur only once in an expression.
    """
    return _COUNTED.sub(".*", _NAMES.sub("(?:", regex))


def _stands(pattern: Pattern, against: Sequence[Pattern], least: int) -> bool:
    if pattern.kind is None or pattern.rank <= least:
        return False
    return not any(
        other.rank >= pattern.rank and (not other.against or pattern.kind in other.against) for other in against
    )
