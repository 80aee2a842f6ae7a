"""One daemon per state directory."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from sentinel.errors import UsageError


class Locked(Exception):
    """Another daemon has the state directory.

    Attributes:
        pid: Its pid, as it wrote it down; 0 where it did not.
    """

    def __init__(self, pid: int) -> None:
        super().__init__(f"held by process {pid}")
        self.pid = pid


class StateLock:
    """An flock on `daemon.lock`. The kernel gives it back when its holder dies, however it dies."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "daemon.lock"
        self._fd = -1

    def acquire(self) -> None:
        """Take it.

        Raises:
            Locked: Another process has it.
            UsageError: The directory cannot be written to.
        """
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as fault:
            raise UsageError(
                f"cannot keep state in {self.path.parent}: {fault.strerror}",
                hint="set SENTINEL_STATE_DIR to a directory that you can write to",
            ) from None
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            text = os.pread(fd, 32, 0).decode("ascii", "replace").strip()
            os.close(fd)
            raise Locked(int(text) if text.isdigit() else 0) from None
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
        self._fd = fd

    def release(self) -> None:
        """Give it back."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
