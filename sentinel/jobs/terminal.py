"""The user's terminal, and the pty that stands in for it before the job."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import termios
import tty
from collections.abc import Iterator

_SIZE_BYTES = 8  # struct winsize
_OFLAG, _LFLAG, _CC = 1, 3, 6
_KEYSTROKE = 16


class Terminal:
    """The terminal that we were started from, by a descriptor of our own.

    Args:
        descriptor: Open on the terminal; closed with this object.
    """

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self._before: list[object] | None = None
        self.gone = False
        try:
            os.tcgetpgrp(descriptor)
            self.controlling = True
        except OSError:
            self.controlling = False

    @classmethod
    def ours(cls) -> Terminal | None:
        """The terminal on stdin, stdout or stderr, else the controlling one; None under cron and the like."""
        names = [os.ttyname(number) for number in (0, 1, 2) if os.isatty(number)]
        for name in [*names[:1], "/dev/tty"]:
            with contextlib.suppress(OSError):
                return cls(os.open(name, os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC))
        return None

    @property
    def raw(self) -> bool:
        """Whether its own line discipline is out of the way."""
        return self._before is not None

    def in_front(self) -> bool:
        """Whether its keys are meant for us: we are its foreground process group, or it has no such thing."""
        if self.gone:
            return False
        if not self.controlling:
            return True
        try:
            return os.tcgetpgrp(self.descriptor) == os.getpgrp()
        except OSError:
            self.hung_up()
            return False

    def hung_up(self) -> bool:
        """Whether the window was closed or the connection was cut."""
        if not self.gone:
            try:
                termios.tcgetattr(self.descriptor)
            except termios.error:
                self.gone = True
        return self.gone

    def size(self) -> bytes:
        """Its window size as the kernel packs it."""
        return fcntl.ioctl(self.descriptor, termios.TIOCGWINSZ, b"\0" * _SIZE_BYTES)

    def modes(self) -> list[object]:
        """Its settings before we touched them."""
        return self._before or termios.tcgetattr(self.descriptor)

    def make_raw(self) -> None:
        """Every key as it comes: the pty's line discipline does the rest, Ctrl-C included. Again is harmless."""
        if self.hung_up():
            return
        with _unbothered(), contextlib.suppress(termios.error):
            before = self._before or termios.tcgetattr(self.descriptor)
            tty.setraw(self.descriptor, termios.TCSADRAIN)
            self._before = before

    def restore(self) -> None:
        """As it was."""
        if self._before is None:
            return
        before, self._before = self._before, None
        with _unbothered(), contextlib.suppress(termios.error):
            termios.tcsetattr(self.descriptor, termios.TCSADRAIN, before)  # type: ignore[arg-type]

    def close(self) -> None:
        """Restore and let go."""
        self.restore()
        os.close(self.descriptor)


class Pty:
    """A pty like the user's terminal: the same settings, the same size.

    Args:
        like: The terminal to resemble, or None.
        through: Only for output: bytes pass as they are, the real terminal ends the lines.
    """

    def __init__(self, like: Terminal | None, *, through: bool = False) -> None:
        self.master, slave = os.openpty()
        try:
            self.name = os.ttyname(slave)
            if like is not None:
                with contextlib.suppress(termios.error):
                    termios.tcsetattr(slave, termios.TCSANOW, like.modes())  # type: ignore[arg-type]
            if through:
                modes = termios.tcgetattr(slave)
                modes[_OFLAG] &= ~termios.OPOST
                termios.tcsetattr(slave, termios.TCSANOW, modes)
            self.resize(like)
            os.set_blocking(self.master, False)
        except BaseException:
            os.close(self.master)
            raise
        finally:
            # The job opens it by name. Until then we keep it open, or the master would read as hung up.
            self._slave = slave

    def started(self) -> None:
        """The job has it open: let go of our side."""
        if self._slave >= 0:
            os.close(self._slave)
            self._slave = -1

    def resize(self, like: Terminal | None) -> None:
        """Take over the window size; the kernel tells the job with SIGWINCH."""
        if like is not None:
            with contextlib.suppress(OSError):
                fcntl.ioctl(self.master, termios.TIOCSWINSZ, like.size())

    def suspend_key(self, data: bytes, leader_group: int) -> int:
        """Where in `data` Ctrl-Z was pressed, with nobody inside to handle it; -1 if it was not.

        The leader of a session has no parent in it that could take the terminal
        back, so the kernel ignores its SIGTSTP: suspending is up to us. A shell
        inside that has put a child of its own in front needs no help.
        """
        try:
            modes = termios.tcgetattr(self.master)
            if not modes[_LFLAG] & termios.ISIG or os.tcgetpgrp(self.master) != leader_group:
                return -1
        except (OSError, termios.error):
            return -1
        key = modes[_CC][termios.VSUSP]
        return data.find(key) if key != b"\0" else -1

    def interrupts(self, data: bytes) -> bool:
        """Whether `data` holds a key that the job should hear of at once, whatever else was typed."""
        if len(data) > _KEYSTROKE:
            return False  # pasted
        try:
            modes = termios.tcgetattr(self.master)
        except termios.error:
            return False
        keys = {modes[_CC][termios.VINTR], modes[_CC][termios.VQUIT]} - {b"\0"}
        return bool(modes[_LFLAG] & termios.ISIG) and any(key in data for key in keys)

    def close(self) -> None:
        """Hang up."""
        self.started()
        if self.master >= 0:
            os.close(self.master)
            self.master = -1


@contextlib.contextmanager
def _unbothered() -> Iterator[None]:
    """Without being stopped for setting the terminal from the background."""
    before = signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGTTOU, before)
