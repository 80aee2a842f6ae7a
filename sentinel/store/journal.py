"""The journal: what must survive a crash is written here, durably, before it is done.

One file of lines, each a checksum and a JSON object:

    8d2f11c0 {"seq":17,"at":1800000000.0,"kind":"request","data":{…}}

The space ahead is filled with zeros in advance, so that a record costs one
write and one fdatasync, and so that the next records still fit when the disk
has just become full.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import threading
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from sentinel.clock import Clock
from sentinel.model.journal import JournalUnavailable, Record
from sentinel.model.wire import encode

_CHUNK = 256 << 10
"""Filled with zeros at a time."""
_AHEAD = 128 << 10
"""Kept ready: what can still be written on a full disk."""
_SMALLEST_TO_COMPACT = 2 << 20


class JournalFile:
    """An append-only file that survives SIGKILL, power loss and a full disk.

    Opening never fails: a journal that cannot be opened refuses each record
    until it can. One process at a time has it open (`daemon.lock` sees to that);
    any thread of it may append.

    Args:
        path: The file; made, mode 0600, when it does not exist.
        clock: For the time of each record.

    Attributes:
        damaged: Lines found that could not be read; a torn last one counts.
    """

    def __init__(self, path: Path, clock: Clock) -> None:
        self.damaged = 0
        self._path = path
        self._clock = clock
        self._lock = threading.Lock()
        self._descriptor: int | None = None
        self._offset = 0
        self._filled = 0
        self._seq = 0
        self._compacted = 0
        with contextlib.suppress(OSError):
            self._open()

    @property
    def size_bytes(self) -> int:
        """Of all records, without the space ahead."""
        return self._offset

    @property
    def wants_compaction(self) -> bool:
        """Whether it has grown to several times what it was after the last one, or was removed."""
        return self.removed or self._offset > max(_SMALLEST_TO_COMPACT, 4 * self._compacted)

    @property
    def removed(self) -> bool:
        """Whether somebody removed it while we had it open: what is written there now is lost with our process."""
        return self._descriptor is not None and not self._path.exists()

    def append(self, kind: str, data: Mapping[str, object], *, synced: bool = True) -> None:
        """Make one record durable. When this returns it is on the disk.

        Args:
            kind: Which room it belongs to.
            data: Plain JSON.
            synced: False leaves it to the next record to take it to the disk: it survives
                our own death, though not the machine's.

        Raises:
            JournalUnavailable: It is not; nothing of it will be replayed, unless the
                disk keeps what it said it could not.
        """
        with self._lock:
            try:
                if self.removed:
                    raise FileNotFoundError(errno.ENOENT, "it was removed")  # until it is begun anew
                if self._descriptor is None:
                    self._open()
                self._write(_line(self._seq + 1, self._clock.now(), kind, data), synced=synced)
            except OSError as error:
                raise _unavailable(self._path, error) from error
            self._seq += 1

    def replay(self) -> Iterator[Record]:
        """All records, in the order in which they were written.

        Raises:
            JournalUnavailable: The file is there and cannot be read.
        """
        with self._lock:
            try:
                raw = self._path.read_bytes()
            except FileNotFoundError:
                raw = b""
            except OSError as error:
                raise _unavailable(self._path, error) from error
        records = [record for record, _ in self._scan(raw)]
        return iter(records)

    def compact(self, records: Iterable[tuple[str, Mapping[str, object]]]) -> None:
        """Begin anew with the records that describe the present state (kind and data).

        The new file takes the old one's place in one step; sequence numbers go on. Where
        the directory is gone it is made again.

        Raises:
            JournalUnavailable: The old file stays in use.
        """
        with self._lock:
            at, seq = self._clock.now(), self._seq
            lines: list[bytes] = []
            for kind, data in records:
                seq += 1
                lines.append(_line(seq, at, kind, data))
            if not lines:  # so that the numbers go on after a restart too
                seq += 1
                lines.append(_line(seq, at, "journal.compacted", {}))
            content = b"".join(lines)
            beside = self._path.with_name(self._path.name + ".new")
            descriptor = -1
            try:
                self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                descriptor = os.open(beside, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
                _write_all(descriptor, content + bytes(_CHUNK), 0)
                os.fsync(descriptor)
                os.rename(beside, self._path)
            except OSError as error:
                if descriptor >= 0:
                    os.close(descriptor)
                with contextlib.suppress(OSError):
                    beside.unlink()
                raise _unavailable(self._path, error) from error
            if self._descriptor is not None:
                os.close(self._descriptor)
            self._descriptor, self._seq = descriptor, seq
            self._offset = self._compacted = len(content)
            self._filled = len(content) + _CHUNK
            with contextlib.suppress(OSError):
                _sync_directory(self._path.parent)

    def close(self) -> None:
        """Give the file back. Everything in it is durable already."""
        with self._lock:
            if self._descriptor is not None:
                os.close(self._descriptor)
                self._descriptor = None

    def _open(self) -> None:
        """Find the end of what was written, and clear what was torn behind it."""
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            size = os.fstat(descriptor).st_size
            raw = _read_all(descriptor, size)
            found = list(self._scan(raw))
            self._offset = found[-1][1] if found else 0
            self._seq = max(self._seq, found[-1][0].seq if found else 0)
            self._filled = size
            if torn := len(raw[self._offset :].rstrip(b"\0")):
                _write_all(descriptor, bytes(torn), self._offset)
                os.fdatasync(descriptor)
            _sync_directory(self._path.parent)
        except OSError:
            os.close(descriptor)
            raise
        self._descriptor = descriptor
        with contextlib.suppress(OSError):
            self._fill(_AHEAD)

    def _write(self, line: bytes, *, synced: bool) -> None:
        assert self._descriptor is not None
        if self._filled - self._offset < len(line):
            self._fill(len(line))
        try:
            _write_all(self._descriptor, line, self._offset)
            if synced:
                os.fdatasync(self._descriptor)
        except OSError:
            with contextlib.suppress(OSError):
                _write_all(self._descriptor, bytes(len(line)), self._offset)
            raise
        self._offset += len(line)
        if self._filled - self._offset < _AHEAD:
            with contextlib.suppress(OSError):  # the next record may still fit
                self._fill(_AHEAD)

    def _fill(self, needed: int) -> None:
        """Have at least `needed` bytes of zeros behind the last record."""
        assert self._descriptor is not None
        while self._filled - self._offset < needed:
            _write_all(self._descriptor, bytes(_CHUNK), self._filled)
            os.fsync(self._descriptor)
            self._filled += _CHUNK

    def _scan(self, raw: bytes) -> Iterator[tuple[Record, int]]:
        """Each whole record and where it ends. Damage costs the lines it is in, no more."""
        damaged = position = last = 0
        while (stop := raw.find(b"\n", position)) >= 0:
            record = _record(raw[position:stop].lstrip(b"\0"))
            if record is None or record.seq <= last:
                damaged += 1
            else:
                last = record.seq
                yield record, stop + 1
            position = stop + 1
        if raw[position:].strip(b"\0"):
            damaged += 1
        self.damaged = max(self.damaged, damaged)


def _line(seq: int, at: float, kind: str, data: Mapping[str, object]) -> bytes:
    content = {"seq": seq, "at": at, "kind": kind, "data": encode(data)}
    text = json.dumps(content, separators=(",", ":")).encode()
    return b"%08x %s\n" % (zlib.crc32(text), text)


def _record(line: bytes) -> Record | None:
    checksum, _, text = line.partition(b" ")
    try:
        if int(checksum, 16) != zlib.crc32(text):
            return None
        content: dict[str, Any] = json.loads(text)
        return Record(content["seq"], content["at"], content["kind"], content["data"])
    except (ValueError, KeyError, TypeError):
        return None


def _write_all(descriptor: int, content: bytes, offset: int) -> None:
    view = memoryview(content)
    while view:
        written = os.pwrite(descriptor, view, offset)
        view, offset = view[written:], offset + written


def _read_all(descriptor: int, size: int) -> bytes:
    parts: list[bytes] = []
    offset = 0
    while offset < size and (part := os.pread(descriptor, min(size - offset, 1 << 20), offset)):
        parts.append(part)
        offset += len(part)
    return b"".join(parts)


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _unavailable(path: Path, error: OSError) -> JournalUnavailable:
    reason = error.strerror or str(error)
    return JournalUnavailable(
        f"the journal {path} cannot be written: {reason}", hint="free space there; sentinel goes on by itself"
    )
