"""The log of one attempt: appended to by several, capped by giving the oldest part back to the disk."""

from __future__ import annotations

import contextlib
import os

from sentinel.system import holes

_MARGIN = 8 * 1024 * 1024
"""How much too long it may get before something is given back, so that this happens now and then only."""

_AHEAD = 256 * 1024
"""Room on the disk that is kept for what the job says next: a full disk is no reason for it to die of its own words."""
_SCARCE = 64 * 1024
_PAGE = 4096


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
        self._room_upto: int | None = 0
        self.dropped = 0
        self._keep_room()

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
        """Give the oldest part back, if it has grown too long, by whoever. Cheap enough to be called often.

        Where the disk is full, the oldest part is given for what comes next.
        """
        self._keep_room()
        if self._capped and self.size - self.dropped > self._limit + min(_MARGIN, self._limit):
            begins = holes.drop_oldest(self.descriptor, self._limit)
            self._capped = begins is not None
            self.dropped = max(self.dropped, begins or 0)

    def _keep_room(self) -> None:
        size = self.size
        if self._room_upto is None or self._room_upto - size >= _SCARCE:
            return
        room, got = _AHEAD, holes.reserve(self.descriptor, _AHEAD)
        if got is False:
            oldest = max(self.dropped, holes.first_data(self.descriptor))
            room = min(2 * _SCARCE, (size - oldest) // 2)
            begins = holes.drop_oldest(self.descriptor, size - oldest - room, _PAGE)
            self.dropped = max(self.dropped, begins or 0)
            got = holes.reserve(self.descriptor, room)
        # Without any room we look again once something more was written.
        self._room_upto = None if got is None else size + max(room if got else 0, _SCARCE)

    def close(self) -> None:
        """Close it."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    def __enter__(self) -> LogFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
