"""The only place in sentinel that sends a signal.

A pid is a number that the kernel gives away again; a process is held by a pidfd.
Every signal goes this way: open the pidfd, then read again who the process is
(start time, boot, state) and what it catches, then send through the pidfd. If
the process died in between and its number was given to another, the pidfd
still means the dead one, and the kernel refuses.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from sentinel.errors import SentinelError
from sentinel.model.jobs import ProcessId
from sentinel.system import processes

_TO_GROUP = 4  # PIDFD_SIGNAL_PROCESS_GROUP, since Linux 6.9


class NotSent(SentinelError):
    """A signal was not sent. The message says why, in words."""


@dataclass(frozen=True, slots=True)
class Sent:
    """What came of signalling several processes at once.

    Attributes:
        pids: Those that got it.
        refused: Why the others did not, by pid.
    """

    pids: tuple[int, ...]
    refused: dict[int, str] = field(default_factory=dict)

    @property
    def reasons(self) -> str:
        """The refusals in one line."""
        return "; ".join(self.refused.values())


class Held:
    """A process held by a pidfd: the number cannot come to mean another one.

    Args:
        process: Whom to hold.
        proc: Where /proc is.

    Raises:
        NotSent: It is gone, it is another process by now, or there are no pidfds here.
    """

    def __init__(self, process: ProcessId, proc: str = processes.PROC) -> None:
        self.process = process
        self._proc = proc
        try:
            self.descriptor = os.pidfd_open(process.pid)
        except ProcessLookupError:
            raise NotSent(f"process {process.pid} is gone") from None
        except (OSError, AttributeError) as fault:
            raise NotSent(f"process {process.pid} cannot be held by a pidfd ({fault}), so nothing is sent") from None
        try:
            self.check()
        except BaseException:
            self.close()
            raise

    @classmethod
    def own_child(cls, process: ProcessId) -> Held:
        """A child of ours that has not been waited for, even if it has ended already.

        Its number is its own until then, so where there are no pidfds it is held all the same.
        """
        made = cls.__new__(cls)
        made.process, made._proc, made.descriptor = process, processes.PROC, -1
        with contextlib.suppress(OSError, AttributeError):
            made.descriptor = os.pidfd_open(process.pid)
        return made

    def has_ended(self) -> bool:
        """Whether it is a zombie or gone."""
        stat = processes.read_stat(self.process.pid, self._proc)
        return stat is None or stat.start_ticks != self.process.start_ticks or not stat.alive

    def check(self, catching: int | None = None) -> None:
        """Read again who it is, and whether it catches the signal `catching`.

        Raises:
            NotSent: Not the registered process, not alive, or not caught.
        """
        pid = self.process.pid
        stat = processes.read_stat(pid, self._proc)
        if stat is None:
            raise NotSent(f"process {pid} is gone")
        if processes.boot_id(self._proc) != self.process.boot_id:
            raise NotSent(f"process {pid} was registered before the machine was started again")
        if stat.start_ticks != self.process.start_ticks:
            raise NotSent(f"pid {pid} belongs to another process by now: the registered one is gone")
        if not stat.alive:
            raise NotSent(f"process {pid} has ended")
        if catching is not None and not processes.catches(processes.signals_caught(pid, self._proc), catching):
            raise NotSent(f"process {pid} does not catch {name_of(catching)}, which would end it")

    def send(self, signum: int) -> None:
        """Send it. Check first.

        Raises:
            NotSent: It ended in this moment, or it is not ours to signal.
        """
        try:
            if self.descriptor >= 0:
                signal.pidfd_send_signal(self.descriptor, signum)
            else:  # our own child, not waited for
                os.kill(self.process.pid, signum)
        except ProcessLookupError:
            raise NotSent(f"process {self.process.pid} is gone") from None
        except OSError as fault:
            raise NotSent(f"process {self.process.pid} cannot be signalled: {fault.strerror}") from None

    def send_to_group(self, signum: int) -> None:
        """Send it to the whole process group that this process leads.

        Only for a child of ours that has not been waited for: its number, and so the
        group's, cannot be given away meanwhile.

        Raises:
            NotSent: It leads no group, or the group is gone.
        """
        pid = self.process.pid
        stat = processes.read_stat(pid, self._proc)
        if stat is None or stat.pgrp != pid or stat.start_ticks != self.process.start_ticks:
            raise NotSent(f"process {pid} does not lead a process group")
        try:
            signal.pidfd_send_signal(self.descriptor, signum, None, _TO_GROUP)
        except ProcessLookupError:
            raise NotSent(f"the group of process {pid} is gone") from None
        except OSError:  # an older kernel
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signum)

    def close(self) -> None:
        """Let go of it."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    def __enter__(self) -> Held:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def request(targets: Sequence[ProcessId], signum: int) -> Sent:
    """Send a signal that asks for something: only to processes that catch it, to all of them in one go."""
    return _all(targets, signum, catching=signum)


def control(targets: Sequence[ProcessId], signum: int) -> Sent:
    """Send STOP, CONT, TERM or KILL, which need no handler but an owner's word. To all in one go."""
    if signum not in CONTROLS:
        raise ValueError(f"{name_of(signum)} is a request, not a control")
    return _all(targets, signum, catching=None)


CONTROLS = frozenset({signal.SIGSTOP, signal.SIGCONT, signal.SIGTERM, signal.SIGKILL})


def _all(targets: Sequence[ProcessId], signum: int, catching: int | None) -> Sent:
    refused: dict[int, str] = {}
    sent: list[int] = []
    with contextlib.ExitStack() as stack:
        ready: list[Held] = []
        for process in targets:
            try:
                if process.pid == os.getpid():
                    raise NotSent(f"process {process.pid} is sentinel itself")
                held = stack.enter_context(Held(process))
                held.check(catching)
                ready.append(held)
            except NotSent as reason:
                refused[process.pid] = reason.message
        for held in ready:
            try:
                held.send(signum)
                sent.append(held.process.pid)
            except NotSent as reason:
                refused[held.process.pid] = reason.message
    return Sent(tuple(sent), refused)


def suspend_ourselves(*, group: bool) -> None:
    """Stop as Ctrl-Z stops, alone or with our whole process group; returns once continued.

    Where nobody could continue us (an orphaned group) the kernel does nothing.
    """
    before = signal.signal(signal.SIGTSTP, signal.SIG_DFL)
    try:
        os.kill(0 if group else os.getpid(), signal.SIGTSTP)
    finally:
        signal.signal(signal.SIGTSTP, before)


def kill_own_group(child: int) -> None:
    """Kill the process group of a child of ours that has not been waited for: its number is still its own."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child, signal.SIGKILL)


def name_of(signum: int) -> str:
    """`SIGUSR1` for 10; `signal 64` for one without a name."""
    try:
        return signal.Signals(signum).name
    except ValueError:
        return f"signal {signum}"


def number_of(name: str) -> int:
    """10 for `USR1`, as channels write it."""
    return int(signal.Signals[f"SIG{name}"])


@contextlib.contextmanager
def passed_on(signals: Sequence[int], handler: Callable[[int], None]) -> Iterator[None]:
    """Call `handler` for each of `signals` that comes, except those that were ignored when we started."""
    before: dict[int, object] = {}
    for signum in signals:
        with contextlib.suppress(OSError, ValueError):
            if signal.getsignal(signum) is signal.SIG_IGN:
                continue  # nohup: the job ignores it too
            before[signum] = signal.signal(signum, lambda number, _frame: handler(number))
    try:
        yield
    finally:
        for signum, was in before.items():
            if was is not None:
                signal.signal(signum, was)  # type: ignore[arg-type]
