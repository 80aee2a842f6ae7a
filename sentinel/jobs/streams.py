"""What the job's stdin, stdout and stderr are: decided before it starts."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from sentinel.jobs.logfile import LogFile
from sentinel.jobs.output import Sink, Tail
from sentinel.jobs.terminal import Pty, Terminal

Action = tuple[int, int] | tuple[int, int, int] | tuple[int, int, str, int, int]


@dataclass(slots=True)
class Streams:
    """The job's three descriptors, and our ends of them.

    Attributes:
        actions: For posix_spawn.
        own_session: Whether the job gets a session of its own. Without a log it
            runs in our process group on our descriptors, as if we were not there.
        keys: Whether what is typed goes to the job through the pty.
        pty: Stands in for the terminal, where there is one.
        shown: The log that the pty is drained into.
        tails: All logs, as they are shown on our own stdout and stderr.
    """

    actions: list[Action] = field(default_factory=list)
    own_session: bool = True
    keys: bool = False
    pty: Pty | None = None
    shown: Tail | None = None
    tails: list[Tail] = field(default_factory=list)

    @property
    def logs(self) -> tuple[str, ...]:
        """The log files, stdout's first."""
        return tuple(tail.log.path for tail in self.tails)

    @property
    def followed(self) -> list[Tail]:
        """The logs that the job writes itself."""
        return [tail for tail in self.tails if tail is not self.shown]


def connect(terminal: Terminal | None, directory: str, limit: int, gone: Callable[[int, str], None]) -> Streams:
    """Decide, descriptor by descriptor.

    A terminal becomes a pty. Anything else becomes the log itself, one for both
    where our stdout and stderr are the same, two where they differ, so that
    `2>err` still works. stdin passes, unless stdin and stdout are the terminal:
    then keys go through the pty.

    Args:
        terminal: Ours, if there is one.
        directory: Where the logs go; empty: there is no place for them.
        limit: How many bytes of each are kept.
        gone: Told the descriptor and the log when nobody reads our output any more.
    """
    if not directory:
        return Streams(own_session=False)
    on_terminal = [number for number in (1, 2) if terminal is not None and os.isatty(number)]
    streams = Streams(keys=terminal is not None and os.isatty(0) and 1 in on_terminal)

    def tail(numbers: Sequence[int]) -> Tail:
        name = {(1, 2): "output.log", (1,): "stdout.log", (2,): "stderr.log"}[tuple(numbers)]
        log = LogFile(os.path.join(directory, name), limit)
        made = Tail(log, Sink(numbers[0], lambda: gone(numbers[0], log.path)))
        streams.tails.append(made)
        return made

    try:
        if on_terminal:
            streams.pty = Pty(terminal, through=not streams.keys)
            streams.shown = tail(on_terminal)
            numbers = [0, *on_terminal] if streams.keys else on_terminal
            control = 0 if streams.keys else os.O_NOCTTY
            streams.actions.append((os.POSIX_SPAWN_OPEN, numbers[0], streams.pty.name, os.O_RDWR | control, 0))
            streams.actions += [(os.POSIX_SPAWN_DUP2, numbers[0], number) for number in numbers[1:]]
        rest = [number for number in (1, 2) if number not in on_terminal]
        for numbers in [rest] if rest == [1, 2] and _same(1, 2) else [[number] for number in rest]:
            descriptor = tail(numbers).log.descriptor
            streams.actions += [(os.POSIX_SPAWN_DUP2, descriptor, number) for number in numbers]
    except OSError:
        if streams.pty is not None:
            streams.pty.close()
        return Streams(own_session=False)
    streams.tails.sort(key=lambda made: made.log.path.endswith("stderr.log"))
    return streams


def _same(one: int, other: int) -> bool:
    """Whether two descriptors lead to the same place."""
    try:
        return os.path.samestat(os.fstat(one), os.fstat(other))
    except OSError:
        return False
