"""`sentinel run`: starts the job, stands beside it, and is never in its way.

Everything is imported before the job starts, nothing blocks but the one poll,
and all that the job needs to live on without us (its session, its log, the
other end of its terminal) is in other hands before it has said much.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import select
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from sentinel import paths
from sentinel.jobs import endfile, launch, schedulers, streams
from sentinel.jobs.afterwards import Afterwards
from sentinel.jobs.banner import banner
from sentinel.jobs.ending import Grove
from sentinel.jobs.errands import Errands
from sentinel.jobs.following import End, Following, Next
from sentinel.jobs.limits import AUTO_DEFAULT_S
from sentinel.jobs.link import Attempt, Link, Registration
from sentinel.jobs.output import Tail
from sentinel.jobs.program import NOT_EXECUTABLE, NOT_FOUND, Program
from sentinel.jobs.resume import newest_checkpoint
from sentinel.jobs.settings import Settings
from sentinel.jobs.streams import Streams
from sentinel.jobs.terminal import Terminal
from sentinel.jobs.voice import Voice
from sentinel.jobs.watchman import Limits, Watchman
from sentinel.logs.masking import clean
from sentinel.model.events import new_id
from sentinel.model.jobs import JobSpec
from sentinel.system import processes, signals
from sentinel.units import format_bytes

_PASSED_ON = [
    signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM,
    *range(signal.SIGRTMIN, signal.SIGRTMAX + 1),
]  # fmt: skip
_OURS = [signal.SIGCHLD, signal.SIGWINCH, signal.SIGTSTP, signal.SIGCONT, signal.SIGIO]
_KEYBOARD = frozenset({signal.SIGINT, signal.SIGQUIT})
_ENOUGH = frozenset({signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM})

_BUSY_S, _BUSIEST_S = 0.02, 0.1
"""How long to let output gather between two looks while it flows, at first and in the end."""
_IDLE_S = 1.0
_BLIND_S = 0.1
"""How often to look for output where the kernel does not tell (no dnotify)."""
_LINGER_S = 0.1
"""How long to read on from a pty that a child of the ended job still has open."""
_SHOW_S = 10.0
"""How long the next attempt waits for a slow reader of what the one before has said."""
_CLEAR_S = 5.0
"""How long the children that a failed leader leaves behind have between TERM and KILL."""
_LAST_LINES, _LAST_BYTES = 20, 8192
_CHUNK = 64 * 1024
_MOST_TYPED = 64 * 1024


class Supervisor:
    """Runs a job: one attempt, and those that may follow it.

    Args:
        spec: What the owner declared.
        program: What `spec.argv[0]` is.
        link: The talk with the daemon.
        errands: What is asked of it now and then.
        voice: Our words for the user.
        terminal: The user's terminal, if there is one.
        environ: Ours, which the job gets too.
        settings: How much output is kept.
        met: Told the job's name and its log once it runs.
    """

    def __init__(
        self,
        spec: JobSpec,
        program: Program,
        link: Link,
        errands: Errands,
        voice: Voice,
        terminal: Terminal | None,
        environ: Mapping[str, str],
        settings: Settings | None = None,
        met: Callable[[Registration, Sequence[str]], None] = lambda _registration, _logs: None,
    ) -> None:
        self._spec = spec
        self._program = program
        self._link = link
        self._errands = errands
        self._met = met
        self._watchman: Watchman | None = None
        self._limits = Limits()
        self._preempting = {signal.SIGTERM} | (
            {signals.number_of(spec.preempt_signal)} if spec.preempt_signal else set()
        )
        self._voice = voice
        self._terminal = terminal
        self._environ = environ
        self._settings = settings or Settings()
        self._attempt = 1
        self._directory = ""
        self._streams = Streams()
        self._held: signals.Held | None = None
        self._typed = bytearray()
        self._hung_up_until = 0.0
        self._notify = -1
        self._armed = False
        self._pause_s = _BUSY_S
        self._next_look = 0.0
        self._enough = False
        self._wake_in, self._wake_out = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)

    def run(self) -> int:
        """From the registration to the exit code: the job's own, 128+n for signal n."""
        registration = self._link.register()
        before = signal.set_wakeup_fd(self._wake_out, warn_on_full_buffer=False)
        try:
            with signals.passed_on([*_PASSED_ON, *_OURS], lambda _: None):
                return self._run(registration)
        finally:
            signal.set_wakeup_fd(before)
            if self._terminal is not None:
                self._terminal.restore()

    def _run(self, registration: Registration | None) -> int:
        met = registration or Registration(new_id("j"), self._spec.name, socket=str(paths.candidate_sockets()[-1]))
        if registration is None and self._spec.checkpoints and (found := newest_checkpoint(self._spec)) is not None:
            met = replace(met, resume_from=found.path)
        self._limits = _limits(self._spec, met, self._environ)
        following = Following(
            self._spec, self._link, self._errands, self._voice.say, self._pause,
            level=met.degrade_level, resume_from=met.resume_from,
        )  # fmt: skip
        while True:
            end = self._attempt_once(met)
            then = following.after(end)
            if then is None:
                break
            self._let_go()
            self._attempt += 1
            met = _for(then, met)
        if end.outcome == "preempted" and self._spec.requeue:
            self._requeue()
        code = end.exit_code if end.exit_code is not None else 128 + (end.exit_signal or 0)
        if self._spec.on_exit:
            afterwards = Afterwards(self._spec, self._errands, self._voice.say, self._pause, self._environ)
            afterwards.see_to(following.outcome, code, following.resume_from)
        return code

    def _attempt_once(self, met: Registration) -> End:
        """From its place for logs to its end, which nobody has been told yet."""
        first = self._attempt == 1
        self._directory = launch.place_for_logs(met, self._attempt, self._environ)
        self._streams = streams.connect(
            self._terminal, self._directory, self._settings.log_limit_bytes, self._output_gone
        )
        if first:
            self._greet(met)
        if not self._streams.own_session:
            self._voice.say("there is no place for a log, so the output is not kept")
        began = time.monotonic()
        try:
            pid = launch.spawn(self._spec, self._program, met, self._attempt, self._streams, self._environ)
        except OSError as fault:
            return self._could_not_start(fault)
        root = processes.identify(pid)
        assert root is not None  # our child: it stays until we wait for it
        self._held = signals.Held.own_child(root)
        master = -1
        if self._streams.pty is not None:
            self._streams.pty.started()
            master = self._streams.pty.master
        pgid = pid if self._streams.own_session else 0
        self._link.started(Attempt(self._attempt, root, pgid, self._streams.logs, master, met.degrade_level))
        if first:
            self._met(met, self._streams.logs)
        if self._streams.keys and self._terminal is not None and self._terminal.in_front():
            self._terminal.make_raw()
        self._watchman = watchman = Watchman(
            self._spec, self._limits, self._errands, self._voice.say, self._held, Grove(root, pgid), self._written,
            self._wake,
        )  # fmt: skip
        watchman.begin()
        self._stand_by(self._held)
        return self._ended(pid, watchman, time.monotonic() - began)

    def _greet(self, met: Registration) -> None:
        if not self._spec.quiet:
            colours = os.isatty(2) and "NO_COLOR" not in self._environ
            home, trouble = self._environ.get("HOME", ""), self._link.trouble
            self._voice.write(
                banner(
                    self._spec,
                    met,
                    self._streams.logs,
                    trouble=trouble,
                    colours=colours,
                    home=home,
                    deadline_s=None if self._limits.deadline is None else self._limits.deadline - time.time(),
                )
            )
        elif self._link.trouble:
            self._voice.say(f"the job goes on without a daemon: {self._link.trouble}")

    # Starting

    def _could_not_start(self, fault: OSError) -> End:
        code = NOT_FOUND if fault.errno == errno.ENOENT else NOT_EXECUTABLE
        self._voice.say(f"cannot run {self._spec.argv[0]}: {fault.strerror}")
        self._link.started(None)
        self._met(Registration("", self._spec.name), ())
        return End(self._attempt, code, None, time.time(), 0.0)

    # While it runs

    def _stand_by(self, held: signals.Held) -> None:
        """Until the job's leader has ended."""
        while True:
            wait_s = self._show()
            poller = select.poll()
            if held.descriptor >= 0:
                poller.register(held.descriptor, select.POLLIN)
            poller.register(self._wake_in, select.POLLIN)
            master = self._register_pty(poller)
            keys = self._register_keys(poller)
            self._register_sinks(poller)
            if self._terminal is not None and not self._terminal.gone and (self._streams.keys and keys < 0):
                wait_s = min(wait_s, _IDLE_S)  # in the background: look whether we have come to the front
            if self._terminal is not None and not self._terminal.controlling:
                wait_s = min(wait_s, _IDLE_S)  # the kernel does not tell us of its size
                if self._streams.pty is not None:
                    self._streams.pty.resize(self._terminal)
            if self._watchman is not None:
                wait_s = min(wait_s, self._watchman.tick())
            ready = dict(poller.poll(None if wait_s == float("inf") else wait_s * 1000))
            if self._wake_in in ready:
                self._on_signals(held)
            if keys in ready:
                self._on_keys(held)
            if master in ready:
                self._on_pty(ready[master])
            self._flush(ready)
            if held.descriptor in ready or (self._wake_in in ready and held.has_ended()):
                return

    def _show(self) -> float:
        """Move what there is to show; how long to sleep if nothing else happens (seconds)."""
        if self._streams.shown is not None:
            self._streams.shown.pump()
        followed = self._streams.followed
        if not followed:
            return float("inf")
        now = time.monotonic()
        if now < self._next_look and not any(tail.held_back for tail in followed):
            return self._next_look - now
        wait_s = self._look(followed)
        self._next_look = now + wait_s
        return wait_s

    def _look(self, followed: Sequence[Tail]) -> float:
        if _pump(followed):
            self._pause_s = min(self._pause_s * 1.5, _BUSIEST_S)
            return self._pause_s
        self._pause_s = _BUSY_S
        if not self._armed and not self._arm():
            return _BLIND_S
        return self._pause_s if _pump(followed) else _IDLE_S  # written while we were arming

    def _arm(self) -> bool:
        """Have the kernel send SIGIO at the next write into the log's directory."""
        try:
            if self._notify < 0:
                self._notify = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            fcntl.fcntl(self._notify, fcntl.F_NOTIFY, fcntl.DN_MODIFY)
        except OSError:
            return False
        self._armed = True
        return True

    def _register_pty(self, poller: select.poll) -> int:
        pty = self._streams.pty
        if pty is None or time.monotonic() < self._hung_up_until:
            return -1
        poller.register(pty.master, select.POLLIN | (select.POLLOUT if self._typed else 0))
        return pty.master

    def _register_keys(self, poller: select.poll) -> int:
        terminal = self._terminal
        if not self._streams.keys or terminal is None or not terminal.in_front():
            return -1
        if not terminal.raw:
            terminal.make_raw()
        poller.register(terminal.descriptor, select.POLLIN)
        return terminal.descriptor

    def _register_sinks(self, poller: select.poll) -> None:
        for tail in self._streams.tails:
            if tail.sink.pending:
                poller.register(tail.sink.target, select.POLLOUT)

    def _flush(self, ready: Mapping[int, int]) -> None:
        for tail in self._streams.tails:
            if tail.sink.target in ready and tail.sink.pending:
                tail.sink.flush()

    def _on_pty(self, what: int) -> None:
        pty, shown = self._streams.pty, self._streams.shown
        assert pty is not None
        assert shown is not None
        if what & select.POLLOUT:
            self._type(b"")
        if not what & (select.POLLIN | select.POLLHUP):
            return
        try:
            data = os.read(pty.master, _CHUNK)
        except BlockingIOError:
            return
        except OSError:
            # Nobody has it open now; somebody may open it again.
            self._hung_up_until = time.monotonic() + _LINGER_S
            return
        shown.take(data)

    def _output_gone(self, number: int, path: str) -> None:
        if self._terminal is None or not self._terminal.hung_up():
            name = "stdout" if number == 1 else "stderr"
            self._voice.say(f"nobody reads {name} any more; the job goes on, its output goes to {path}")

    # Keys and signals

    def _on_keys(self, held: signals.Held) -> None:
        terminal, pty = self._terminal, self._streams.pty
        assert terminal is not None
        assert pty is not None
        try:
            data = os.read(terminal.descriptor, _CHUNK)
        except OSError:
            data = b""
        if not data:
            terminal.gone = True  # the window was closed: the job goes on, and so do we
            return
        at = pty.suspend_key(data, held.process.pid)
        if at >= 0:
            self._type(data[: at + 1])
            self._suspend(held, group=True)
            data = data[at + 1 :]
        self._type(data)

    def _type(self, data: bytes) -> None:
        """Keys for the job. What it does not read yet waits here, within bounds."""
        pty = self._streams.pty
        assert pty is not None
        if pty.interrupts(data):
            self._typed.clear()  # Ctrl-C is not kept waiting by what was pasted before it
        self._typed += data[: _MOST_TYPED - len(self._typed)]
        with contextlib.suppress(OSError):
            while self._typed:
                del self._typed[: os.write(pty.master, self._typed)]

    def _on_signals(self, held: signals.Held) -> None:
        with contextlib.suppress(BlockingIOError):
            for number in dict.fromkeys(os.read(self._wake_in, 4096)):
                self._on_signal(held, number)

    def _on_signal(self, held: signals.Held, number: int) -> None:
        match number:
            case signal.SIGCHLD:
                pass
            case signal.SIGIO:
                self._armed, self._next_look = False, 0.0
            case signal.SIGWINCH:
                self._resize(held)
            case signal.SIGTSTP:
                self._suspend(held, group=False)
            case signal.SIGCONT:
                self._refresh()
            case signal.SIGHUP if self._terminal is not None and self._terminal.hung_up():
                pass  # a closed window ends nothing
            case _ if number in self._preempting and self._watchman is not None:
                self._watchman.preempt(number)
            case _:
                self._pass_on(held, number)

    def _pass_on(self, held: signals.Held, number: int) -> None:
        from_keyboard = number in _KEYBOARD and self._terminal is not None and self._terminal.in_front()
        with contextlib.suppress(signals.NotSent):
            if not from_keyboard:
                held.check()
                held.send(number)
            elif self._streams.own_session:  # else the terminal has told it already
                held.send_to_group(number)

    def _resize(self, held: signals.Held) -> None:
        if self._streams.pty is None:
            return
        self._streams.pty.resize(self._terminal)
        if not self._streams.keys:  # the pty is not the job's controlling terminal: the kernel tells it nothing
            with contextlib.suppress(signals.NotSent):
                held.send_to_group(signal.SIGWINCH)

    def _suspend(self, held: signals.Held, *, group: bool) -> None:
        """Ctrl-Z: stop the job, then ourselves; when we are continued, so is the job."""
        if not self._streams.own_session:
            signals.suspend_ourselves(group=False)
            return
        if processes.catches(processes.signals_caught(held.process.pid), signal.SIGTSTP):
            with contextlib.suppress(signals.NotSent):
                if not group:  # typed, the pty has told it already
                    held.send_to_group(signal.SIGTSTP)
            time.sleep(_BUSY_S)  # for its handler to tidy the screen
        with contextlib.suppress(signals.NotSent):
            held.send_to_group(signal.SIGSTOP)
        self._drain_pty(0.0)
        if self._terminal is not None:
            self._terminal.restore()
        signals.suspend_ourselves(group=group)
        self._refresh()
        with contextlib.suppress(signals.NotSent):
            held.send_to_group(signal.SIGCONT)

    def _refresh(self) -> None:
        """Continued: the terminal may be another one by now, in size and settings."""
        if self._streams.keys and self._terminal is not None and self._terminal.in_front():
            self._terminal.make_raw()
        if self._streams.pty is not None:
            self._streams.pty.resize(self._terminal)

    # The end

    def _ended(self, pid: int, watchman: Watchman, ran_s: float) -> End:
        self._drain_pty(_LINGER_S)
        _, status = os.waitpid(pid, 0)
        code = os.waitstatus_to_exitcode(status)
        at = time.time()
        exit_code, exit_signal = (code, None) if code >= 0 else (None, -code)
        if self._directory:
            endfile.write(self._directory, self._attempt, exit_code, exit_signal, at)
        end = End(self._attempt, exit_code, exit_signal, at, ran_s, watchman.outcome, self._last_lines())
        self._watchman = None
        if end.failed and self._streams.own_session and (left := watchman.grove.clear(_CLEAR_S, time.sleep)):
            self._voice.say(f"{left} processes that it left behind were ended")
        self._show_the_rest()
        if self._terminal is not None:
            self._terminal.restore()
        if lost := sum(tail.lost_bytes for tail in self._streams.tails):
            self._voice.say(
                f"{format_bytes(lost)} of output were not shown: the reader was too slow, and a log is capped"
            )
        return end

    def _last_lines(self) -> tuple[str, ...]:
        """The last of its output: text of a job, so it is cleaned."""
        if not self._streams.tails:
            return ()
        log = self._streams.tails[-1].log
        text = log.read_at(max(0, log.size - _LAST_BYTES), _LAST_BYTES).decode("utf-8", "replace")
        return tuple(clean(line, 400) for line in text.splitlines()[-_LAST_LINES:] if line.strip())

    def _let_go(self) -> None:
        """Of everything that belonged to the attempt that is over."""
        for tail in self._streams.tails:
            tail.log.close()
            tail.sink.close()
        if self._streams.pty is not None:
            self._streams.pty.close()
        if self._held is not None:
            self._held.close()
        if self._notify >= 0:
            os.close(self._notify)
        self._notify, self._armed, self._next_look, self._hung_up_until = -1, False, 0.0, 0.0
        self._typed.clear()

    def _pause(self, seconds: float) -> int:
        """Wait between two attempts, or for a command that follows; the signal that ended it, or 0."""
        deadline = time.monotonic() + seconds
        poller = select.poll()
        poller.register(self._wake_in, select.POLLIN)
        while True:
            if poller.poll(max(0.0, deadline - time.monotonic()) * 1000):
                with contextlib.suppress(BlockingIOError):
                    for number in os.read(self._wake_in, 4096):
                        if number == signal.SIGHUP and self._terminal is not None and self._terminal.hung_up():
                            continue
                        if number in _ENOUGH or number in self._preempting:
                            return int(number)
                        if number == signal.SIGTSTP:
                            signals.suspend_ourselves(group=False)
            if time.monotonic() >= deadline:
                return 0

    def _requeue(self) -> None:
        argv = schedulers.requeue_command(self._environ)
        if not argv:
            self._voice.say("--requeue: this is no Slurm job, so there is no queue to go back to")
            return
        self._voice.say(f"goes back into the queue: {' '.join(argv)}")
        schedulers.say(argv)

    def _written(self) -> int:
        return sum(tail.log.size for tail in self._streams.tails)

    def _wake(self) -> None:
        """From any thread: have the supervisor look again. SIGCHLD's number means nothing more than that."""
        with contextlib.suppress(OSError):
            os.write(self._wake_out, bytes([signal.SIGCHLD]))

    def _drain_pty(self, linger_s: float) -> None:
        """Read what the pty still holds, and a moment longer where somebody else has it open."""
        pty, shown = self._streams.pty, self._streams.shown
        if pty is None or shown is None:
            return
        poller = select.poll()
        poller.register(pty.master, select.POLLIN)
        with contextlib.suppress(OSError):
            while poller.poll(linger_s * 1000):
                shown.take(os.read(pty.master, _CHUNK))
                self._flush_what_has_room()
        self._flush_what_has_room()

    def _flush_what_has_room(self) -> None:
        poller = select.poll()
        self._register_sinks(poller)
        self._flush(dict(poller.poll(0)))

    def _show_the_rest(self) -> None:
        """What the job has said is shown to its end, however slow the reader; a signal that ends is enough.

        Where another attempt may follow, it does not wait for a slow reader for ever.
        """
        deadline = time.monotonic() + _SHOW_S if self._spec.retries else float("inf")
        while not self._enough and time.monotonic() < deadline:
            for tail in self._streams.tails:
                tail.pump()
            if not any(tail.behind for tail in self._streams.tails):
                return
            poller = select.poll()
            poller.register(self._wake_in, select.POLLIN)
            self._register_sinks(poller)
            ready = dict(poller.poll(_SHOW_S * 1000 if self._spec.retries else None))
            self._flush(ready)
            if self._wake_in in ready:
                with contextlib.suppress(BlockingIOError):
                    self._enough = bool(_ENOUGH & set(os.read(self._wake_in, 4096)))


def _pump(tails: Sequence[Tail]) -> bool:
    """All of them, none left out; whether one moved something."""
    moved = [tail.pump() for tail in tails]
    return any(moved)


def _limits(spec: JobSpec, met: Registration, environ: Mapping[str, str]) -> Limits:
    """What holds for each attempt, from what was declared, learnt and given by a scheduler."""
    facts = met.facts
    learnt = facts.get("timeout_seconds") if spec.timeout_auto else None
    write = facts.get("checkpoint_write_seconds")
    return Limits(
        spec.timeout_s if not spec.timeout_auto else float(learnt) if learnt else AUTO_DEFAULT_S,
        spec.stall_timeout_s,
        schedulers.end_time(environ),
        float(write) if isinstance(write, int | float) else None,
    )


def _for(following: Next, met: Registration) -> Registration:
    """What the next attempt is told."""
    return replace(met, degrade_level=following.level, resume_from=following.resume_from)
