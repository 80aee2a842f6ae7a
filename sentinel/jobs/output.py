"""The job's output: into its own log first, then to wherever ours goes."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable

from sentinel.jobs.logfile import LogFile

_CHUNK = 64 * 1024
_FULL = 128 * 1024
_PIPE_ATOMIC = 4096
"""A pipe that polls as writable takes this much without blocking."""


class Sink:
    """Our own stdout or stderr, written without ever blocking on a slow reader.

    Args:
        descriptor: 1 or 2.
        gone: Told once when nobody reads any more.
    """

    def __init__(self, descriptor: int, gone: Callable[[], None] = lambda: None) -> None:
        self._gone = gone
        self._pending = bytearray()
        self._start = 0
        self._own = -1
        self.broken = False
        self._target = descriptor
        self._piece = _CHUNK
        self._waits = True
        try:
            kind = os.fstat(descriptor).st_mode
        except OSError:
            self.broken = True
            return
        if os.isatty(descriptor) or stat.S_ISFIFO(kind):
            # A description of our own can be non-blocking without making the shell's or the reader's so.
            name = os.ttyname(descriptor) if os.isatty(descriptor) else f"/proc/self/fd/{descriptor}"
            try:
                self._own = os.open(name, os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC)
                self._target = self._own
            except OSError:
                self._piece = 256 if os.isatty(descriptor) else _PIPE_ATOMIC
        elif stat.S_ISSOCK(kind):
            self._piece = _PIPE_ATOMIC
        self._waits = not stat.S_ISREG(kind)

    @property
    def target(self) -> int:
        """The descriptor to poll for room."""
        return self._target

    @property
    def pending(self) -> bool:
        """Whether something waits for room."""
        return len(self._pending) > self._start and not self.broken

    @property
    def full(self) -> bool:
        """Whether more should not be offered now."""
        return len(self._pending) - self._start >= _FULL

    def offer(self, data: bytes) -> None:
        """Write what has room now, keep the rest."""
        if self.broken:
            return
        if self._start > _FULL:  # seldom: what was written is let go of in one piece
            del self._pending[: self._start]
            self._start = 0
        self._pending += data
        while self.pending and not self._waits:
            self.flush()

    def flush(self) -> None:
        """Write one piece: call it when the descriptor polls as writable."""
        if not self.pending:
            return
        try:
            with memoryview(self._pending) as whole:
                self._start += os.write(self._target, whole[self._start : self._start + self._piece])
            if self._start == len(self._pending):
                self._pending.clear()
                self._start = 0
        except BlockingIOError:
            return
        except OSError as fault:
            if fault.errno == errno.EINTR:
                return
            self.hang_up()

    def hang_up(self) -> None:
        """Nobody reads any more."""
        if not self.broken:
            self.broken = True
            self._pending.clear()
            self._start = 0
            self._gone()

    def close(self) -> None:
        """Let go of our own description."""
        if self._own >= 0:
            os.close(self._own)
            self._own = -1


class Tail:
    """Follows one log of the job and offers what is new to a sink. The file is the buffer: nothing piles up here.

    Attributes:
        held_back: Whether there is more that had no room yet.
        lost_bytes: What was given back to the disk before there was room for it.
    """

    def __init__(self, log: LogFile, sink: Sink) -> None:
        self.log = log
        self.sink = sink
        self._offset = log.size
        self.held_back = False
        self.lost_bytes = 0

    def pump(self) -> bool:
        """Move what is there and what has room; whether something was moved."""
        moved = False
        self.log.cap()
        if self._offset < self.log.dropped:  # the reader was too slow for what the job says
            self.lost_bytes += self.log.dropped - self._offset
            self._offset = self.log.dropped
        self.held_back = True
        while not self.sink.full:
            data = self.log.read_at(self._offset, _CHUNK)
            if not data:
                if self.log.size < self._offset:  # truncated by somebody
                    self._offset = 0
                    continue
                self.held_back = False
                return moved
            self._offset += len(data)
            self.sink.offer(data)
            moved = True
        return moved

    def take(self, data: bytes) -> None:
        """New output that is in no file yet (from the pty): into the log first, so that none is lost, then on."""
        if not self.log.write(data):
            self.sink.offer(data)  # the disk is full; the user sees it all the same
            return
        self.pump()

    @property
    def behind(self) -> bool:
        """Whether there is more to show."""
        return self.log.size > self._offset or self.sink.pending
