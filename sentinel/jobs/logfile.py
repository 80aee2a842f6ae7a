"""The log of one attempt: appended to by several, capped by giving the oldest part back to the disk."""

from __future__ import annotations

import contextlib
import os

from sentinel.system import holes

_MARGIN = 8 * 1024 * 1024
"""How much too long it may get before something is given back, so that this happens now and then only."""


class LogFile:
    """One output file.

    Args:
        path: Made, with its directory, if it is not there; only its owner can read it.
        limit: How many bytes are kept, about. What is older reads as zeros; offsets stay.

    Attributes:
        dropped: Where what is left begins, as far as this one has given something back.
    """

    def __init__(self, path: str, limit: int) -> None:
        self.path = path
        self._limit = limit
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        self.descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._capped = True
        self.dropped = 0

    @property
    def size(self) -> int:
        """Bytes, the given-back ones included."""
        return os.fstat(self.descriptor).st_size

    def write(self, data: bytes) -> bool:
        """Append all of it, or nothing where the disk has no room: the job must not wait for it."""
        before = self.size
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(self.descriptor, view) :]
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(self.descriptor, before)
            return False
        return True

    def read_at(self, offset: int, size: int) -> bytes:
        """Up to `size` bytes from `offset`; empty at the end."""
        return os.pread(self.descriptor, size, offset)

    def cap(self) -> None:
        """Give the oldest part back, if it has grown too long, by whoever. Cheap enough to be called often."""
        if self._capped and self.size - self.dropped > self._limit + min(_MARGIN, self._limit):
            begins = holes.drop_oldest(self.descriptor, self._limit)
            self._capped = begins is not None
            self.dropped = max(self.dropped, begins or 0)

    def close(self) -> None:
        """Close it."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    def __enter__(self) -> LogFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
