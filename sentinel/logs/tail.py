"""Following files that grow: rotated by rename or copytruncate, created late, written in pieces.

A tail reads bytes and hands out whole lines. It never blocks and never keeps
more than one partial line (bounded); the caller decides when to look.
"""

from __future__ import annotations

import glob
import os
import sys
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

CHUNK_BYTES = 256 * 1024
LONGEST_LINE_BYTES = 64 * 1024
FINGERPRINT_BYTES = 1024


@dataclass(frozen=True, slots=True)
class Position:
    """Where a reader stands in a file, so that a restart neither loses nor repeats a line.

    Attributes:
        device: Of the file.
        inode: Of the file.
        offset: Of the first byte not yet handed out, the start of a line.
        head: CRC of the first `head_bytes` bytes: an inode that was reused has another.
        head_bytes: How many bytes `head` covers, at most 1,024.
        lines: How many lines were handed out, for line numbers.
    """

    device: int
    inode: int
    offset: int
    head: int = 0
    head_bytes: int = 0
    lines: int = 0


class Lines:
    """What one look at one file brought: whole lines, split only when somebody asks.

    Attributes:
        path: The file.
        first: The number of the first line, from 1.
        data: The lines, joined by line feeds, as they stand in the file.
        count: How many they are.
        size_bytes: How many bytes they took in the file.
        skipped_bytes: Bytes of overlong lines that were passed over.
    """

    __slots__ = ("count", "data", "first", "path", "size_bytes", "skipped_bytes")

    def __init__(
        self, path: str, first: int, lines: tuple[bytes, ...] | None, size_bytes: int, skipped_bytes: int = 0, *,
        data: bytes = b"",
    ) -> None:  # fmt: skip
        self.path = path
        self.first = first
        self.data = data if lines is None else b"\n".join(lines)
        self.count = self.data.count(b"\n") + 1 if lines is None else len(lines)
        self.size_bytes = size_bytes
        self.skipped_bytes = skipped_bytes

    @property
    def lines(self) -> tuple[bytes, ...]:
        """The lines without their line ends, as a terminal would show them in the end, bounded."""
        return tuple(map(shown, self.data.split(b"\n"))) if self.count else ()


class Splitter:
    """Makes whole lines of bytes that come in pieces; keeps no more than one partial line, bounded.

    Attributes:
        partial: The line that has not ended yet.
        lines: How many lines were handed out.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.partial = b""
        self.lines = 0
        self._skipping = False

    def begin(self, lines: int = 0) -> None:
        """Another file, or another place in it: nothing is open."""
        self.partial, self.lines, self._skipping = b"", lines, False

    def take(self, data: bytes) -> Lines | None:
        """The lines that `data` completes."""
        skipped = 0
        if self._skipping:
            end = data.find(b"\n")
            if end < 0:
                return Lines(self.path, self.lines + 1, (), len(data), len(data))
            skipped, data, self._skipping = end + 1, data[end + 1 :], False
            self.lines += 1
        size = len(data) + skipped
        data = self.partial + data
        end = data.rfind(b"\n")
        body, self.partial = (data[:end], data[end + 1 :]) if end >= 0 else (b"", data)
        whole = [body] if end >= 0 else []
        overlong = 0
        if len(self.partial) > LONGEST_LINE_BYTES:
            # A progress bar that only ever returns its carriage is one line: keep its latest state.
            cut = self.partial.rfind(b"\r")
            if cut > 0:
                self.partial = self.partial[cut + 1 :]
            if len(self.partial) > LONGEST_LINE_BYTES:
                whole.append(self.partial[:LONGEST_LINE_BYTES])
                skipped += len(self.partial) - LONGEST_LINE_BYTES
                self.partial, self._skipping, overlong = b"", True, 1
        first = self.lines + 1
        if not whole:
            return Lines(self.path, first, (), size, skipped)
        found = Lines(self.path, first, None, size, skipped, data=b"\n".join(whole))
        self.lines += found.count - overlong
        return found

    def last_words(self) -> Lines | None:
        """What stood without a line end, once there will be no more."""
        if not self.partial:
            return None
        line, self.partial = shown(self.partial), b""
        self.lines += 1
        return Lines(self.path, self.lines, (line,), 0)


class Tail:
    """Follows one path.

    Args:
        path: The file; it need not exist yet.
        position: Where to go on; None reads from the start (`from_end` False) or skips what is there.
        from_end: Whether a file that exists at the first look is read only from its end.
    """

    def __init__(self, path: str, position: Position | None = None, *, from_end: bool = False) -> None:
        self.path = path
        self._position = position
        self._from_end = from_end
        self._fd = -1
        self._device = self._inode = 0
        self._offset = 0  # of the next byte to read
        self._split = Splitter(path)
        self._head: tuple[int, int] | None = None

    def close(self) -> None:
        """Give the descriptor back."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    @property
    def open_line(self) -> bytes:
        """What it wrote after its last line end."""
        return self._split.partial

    def position(self) -> Position | None:
        """Where it stands, or None while there is no file."""
        if self._fd < 0:
            return self._position
        if self._head is None or self._head[1] < FINGERPRINT_BYTES:
            self._head = _head(self._fd)
        return Position(
            self._device, self._inode, self._offset - len(self._split.partial), *self._head, lines=self._split.lines
        )

    def read(self, budget_bytes: int = 8 * 1024 * 1024) -> Iterator[Lines]:
        """What came since the last look, in pieces of up to 256 KiB, `budget_bytes` in all."""
        left = budget_bytes
        while left > 0:
            if self._fd < 0 and not self._open():
                return
            try:
                size = os.fstat(self._fd).st_size
                if size < self._offset:  # truncated in place: begin again
                    self._offset, self._head = 0, None
                    self._split.begin()
                data = os.pread(self._fd, min(CHUNK_BYTES, left), self._offset)
            except OSError:
                self.close()
                return
            if data:
                self._offset += len(data)
                left -= len(data)
                if (found := self._split.take(data)) is not None:
                    yield found
                continue
            if not self._replaced():
                return
            # The old file is read to its end and its path now names another one.
            if (last := self._split.last_words()) is not None:
                yield last
            self.close()
            self._position, self._from_end = None, False

    def _open(self) -> bool:
        try:
            fd = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
        except OSError:
            self._from_end = False  # what is created later is read from its start
            return False
        found = os.fstat(fd)
        self._fd, self._device, self._inode = fd, found.st_dev, found.st_ino
        self._split.begin()
        self._head, self._offset = None, 0
        known, self._position = self._position, None
        if known and (known.device, known.inode) == (found.st_dev, found.st_ino) and found.st_size >= known.offset:
            if _head(fd, known.head_bytes) == (known.head, known.head_bytes):
                self._offset = known.offset
                self._split.begin(known.lines)
        elif self._from_end:
            self._offset = found.st_size
        self._from_end = False
        return True

    def _replaced(self) -> bool:
        try:
            found = os.stat(self.path)
        except OSError:
            return False  # deleted or being rotated: keep reading what is open
        return (found.st_dev, found.st_ino) != (self._device, self._inode)


class Tailer:
    """Follows every file that a set of paths and globs names, those that appear later included.

    Args:
        patterns: Paths and globs; `**` crosses directories.
        positions: Where to go on, by path.
        from_end: Whether files that exist at the first look are read only from their end.
    """

    def __init__(
        self, patterns: Iterable[str], positions: dict[str, Position] | None = None, *, from_end: bool = False
    ) -> None:
        self._patterns = tuple(patterns)
        self._positions = dict(positions or {})
        self._from_end = from_end
        self._tails: dict[str, Tail] = {}

    def look_for_files(self) -> None:
        """Resolve the globs again. Not cheap: call it every few seconds, not at each look."""
        for pattern in self._patterns:
            for path in glob.glob(pattern, recursive=True) if glob.has_magic(pattern) else [pattern]:
                if path not in self._tails and not os.path.isdir(path):
                    self._tails[path] = Tail(path, self._positions.pop(path, None), from_end=self._from_end)
        self._from_end = False

    def read(self) -> Iterator[Lines]:
        """What came since the last look, over all files."""
        for tail in list(self._tails.values()):
            yield from tail.read()

    def read_all(self) -> Iterator[Lines]:
        """Everything there is, however much."""
        for tail in list(self._tails.values()):
            yield from tail.read(sys.maxsize)

    def open_lines(self) -> Iterator[bytes]:
        """The lines that have not ended: a progress bar that only returns its carriage stays one for hours."""
        return (tail.open_line for tail in self._tails.values() if tail.open_line)

    def positions(self) -> dict[str, Position]:
        """Where it stands in each file."""
        found = {path: tail.position() for path, tail in self._tails.items()}
        return self._positions | {path: position for path, position in found.items() if position is not None}

    def close(self) -> None:
        """Give all descriptors back."""
        for tail in self._tails.values():
            tail.close()


def _head(fd: int, limit: int = FINGERPRINT_BYTES) -> tuple[int, int]:
    data = os.pread(fd, limit, 0) if limit else b""
    return zlib.crc32(data), len(data)


def shown(line: bytes) -> bytes:
    """What a terminal shows of a line in the end, bounded: what follows its last carriage return but one at the end."""
    if b"\r" in line:
        line = line.removesuffix(b"\r")
        line = line[line.rfind(b"\r") + 1 :]
    return line if len(line) <= LONGEST_LINE_BYTES else line[:LONGEST_LINE_BYTES]
