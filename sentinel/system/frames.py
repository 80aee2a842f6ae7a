"""Work that may hang or leak, done by a child process that can be killed for it.

Both sides speak frames over the child's stdin and stdout: four bytes of length,
big end first, then JSON. The child answers each frame with one frame. A call
that misses its deadline costs the child its life; the next call starts a new one.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from sentinel.errors import SentinelError

LARGEST_FRAME = 16 << 20
_LENGTH = struct.Struct(">I")
Handler = Callable[[Any], Any]


class Overdue(SentinelError):
    """The child did not answer in time and was killed, or still has not died of it."""


class Gone(SentinelError):
    """The child ended, or spoke something else than frames."""


class Refused(SentinelError):
    """The child answered with an error of its own."""


def python(module: str) -> list[str]:
    """The command that runs `main()` of one of our modules as a child, whatever the directory it starts in.

    The package's home goes to the end of the path, so that neither the directory
    the daemon was started in nor anything beside the package hides another module.
    """
    home = str(Path(__file__).resolve().parents[2])
    return [
        sys.executable,
        "-P",
        "-c",
        f"import sys; sys.path.append({home!r}); from {module} import main; sys.exit(main())",
    ]


class Child:
    """A child process that answers calls, started when it is first needed.

    Calls from several threads wait for each other. The child runs in a session
    of its own, so that Ctrl-C in the daemon's terminal is the daemon's affair.

    Args:
        argv: What to start; see `python`.
        name: What messages call it.
        deadline_s: For calls that do not say.
        env: Its environment; None for ours.
        stderr: Where its narration goes; None for our own.
    """

    def __init__(
        self,
        argv: Sequence[str],
        *,
        name: str = "the child",
        deadline_s: float = 10.0,
        env: Mapping[str, str] | None = None,
        stderr: int | IO[bytes] | None = None,
    ) -> None:
        self._argv = list(argv)
        self._name = name
        self._deadline_s = deadline_s
        self._env = env
        self._stderr = stderr
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._dying: list[subprocess.Popen[bytes]] = []

    @property
    def pid(self) -> int | None:
        """Of the child that runs now, or None."""
        process = self._process
        return process.pid if process and process.poll() is None else None

    def call(self, request: object, *, deadline_s: float | None = None) -> Any:
        """What the child answers.

        Raises:
            Overdue: No answer in time. The child was killed.
            Gone: The child ended before it answered.
            Refused: It answered with an error.
        """
        body = json.dumps(request, separators=(",", ":")).encode()
        until = time.monotonic() + (self._deadline_s if deadline_s is None else deadline_s)
        with self._lock:
            fresh = self.pid is None
            answer = self._attempt(body, until)
            if answer is None and not fresh:
                # It had ended by itself (idle children do) before it read the frame: one more try, with a new one.
                answer = self._attempt(body, until)
        if answer is None:
            raise Gone(f"{self._name} ended without an answer")
        if "error" in answer:
            raise Refused(str(answer["error"]))
        return answer.get("ok")

    def close(self, grace_s: float = 1.0) -> None:
        """End the child: its stdin closes, and if it does not go, it is killed. A call under way is cut short."""
        if not self._lock.acquire(timeout=grace_s):
            if process := self._process:
                process.kill()  # the call that holds the lock ends with it
            return
        try:
            process, self._process = self._process, None
            if process is not None:
                _close_pipes(process)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(grace_s)
                self._kill(process)
            self._reap()
        finally:
            self._lock.release()

    def _attempt(self, body: bytes, until: float) -> dict[str, Any] | None:
        """The decoded answer; None when the child ended in peace instead."""
        if self._process is not None and self._process.poll() is not None:
            self._discard(self._process)
        process = self._process or self._start()
        try:
            _write(process, _LENGTH.pack(len(body)) + body, until)
            (length,) = _LENGTH.unpack(_read(process, _LENGTH.size, until))
            if length > LARGEST_FRAME:
                raise Gone(f"{self._name} wrote something that is no frame")
            answer = json.loads(_read(process, length, until))
            if not isinstance(answer, dict):
                raise Gone(f"{self._name} wrote something that is no frame")
            return answer
        except TimeoutError:
            self._discard(process)
            raise Overdue(f"{self._name} did not answer in time and was killed") from None
        except (EOFError, BrokenPipeError):
            code = self._discard(process)
            if code == 0:
                return None
            how = f"exit code {code}" if code is None or code >= 0 else f"signal {-code}"
            raise Gone(f"{self._name} ended without an answer ({how})") from None
        except ValueError:
            self._discard(process)
            raise Gone(f"{self._name} wrote something that is no frame") from None
        except Gone:
            self._discard(process)
            raise

    def _start(self) -> subprocess.Popen[bytes]:
        self._reap()
        if self._dying:
            raise Overdue(f"{self._name} (process {self._dying[0].pid}) was killed and has not died yet")
        try:
            self._process = subprocess.Popen(
                self._argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._stderr,
                env=self._env,
                bufsize=0,
                start_new_session=True,
            )
        except OSError as fault:
            raise Gone(f"{self._name} cannot be started: {fault}") from None
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            os.set_blocking(pipe.fileno(), False)
        return self._process

    def _discard(self, process: subprocess.Popen[bytes]) -> int | None:
        """Let go of a child; its exit code if it ended by itself, None if it had to be killed."""
        self._process = None
        _close_pipes(process)
        code = None
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = process.wait(0.05)
        self._kill(process)
        return code

    def _kill(self, process: subprocess.Popen[bytes]) -> None:
        if process.poll() is None:
            process.kill()
            try:
                process.wait(0.2)
            except subprocess.TimeoutExpired:  # in the driver, in uninterruptible sleep
                self._dying.append(process)

    def _reap(self) -> None:
        self._dying = [process for process in self._dying if process.poll() is None]


def serve(handler: Handler, *, idle_s: float | None = None) -> int:
    """Answer frames with `handler` until stdin closes; the exit code for `sys.exit`.

    What `handler` raises becomes the error of its answer. Anything that prints to
    stdout meanwhile goes to stderr, so that no library breaks the frames. A thread
    ends the process when the parent is gone, even while `handler` hangs in a
    library (a parent-death signal would come when the parent's thread ends).

    Args:
        handler: Gets the decoded frame.
        idle_s: End after so long without a frame; the parent starts a new one when needed.
    """
    stdin, stdout = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    os.dup2(2, 1)
    threading.Thread(target=_end_with_parent, args=(stdin,), name="parent", daemon=True).start()
    ready = select.poll()
    ready.register(stdin, select.POLLIN)
    while ready.poll(None if idle_s is None else idle_s * 1000):
        if (head := _read_whole(stdin, _LENGTH.size)) is None:
            return 0
        if (body := _read_whole(stdin, _LENGTH.unpack(head)[0])) is None:
            return 0
        try:
            answer = {"ok": handler(json.loads(body))}
            data = json.dumps(answer, separators=(",", ":")).encode()
        except Exception as fault:
            said = str(fault) or type(fault).__name__
            data = json.dumps({"error": said}, separators=(",", ":")).encode()
        try:
            view = memoryview(_LENGTH.pack(len(data)) + data)
            while view:
                view = view[os.write(stdout, view) :]
        except BrokenPipeError:
            return 0
    return 0


def _end_with_parent(stdin: int) -> None:
    hung_up = select.poll()
    hung_up.register(stdin, 0)
    hung_up.poll()
    time.sleep(2)  # the usual way out is the end of the loop; this is for a handler that hangs
    os._exit(1)


def _read_whole(descriptor: int, size: int) -> bytes | None:
    data = b""
    while len(data) < size:
        part = os.read(descriptor, size - len(data))
        if not part:
            return None
        data += part
    return data


def _write(process: subprocess.Popen[bytes], data: bytes, until: float) -> None:
    assert process.stdin is not None
    descriptor = process.stdin.fileno()
    view = memoryview(data)
    while view:
        _wait(descriptor, select.POLLOUT, until)
        with contextlib.suppress(BlockingIOError):
            view = view[os.write(descriptor, view) :]


def _read(process: subprocess.Popen[bytes], size: int, until: float) -> bytes:
    assert process.stdout is not None
    descriptor = process.stdout.fileno()
    data = bytearray()
    while len(data) < size:
        _wait(descriptor, select.POLLIN, until)
        with contextlib.suppress(BlockingIOError):
            part = os.read(descriptor, size - len(data))
            if not part:
                raise EOFError
            data += part
    return bytes(data)


def _wait(descriptor: int, event: int, until: float) -> None:
    left = until - time.monotonic()
    ready = select.poll()
    ready.register(descriptor, event)
    if left <= 0 or not ready.poll(left * 1000):
        raise TimeoutError


def _close_pipes(process: subprocess.Popen[bytes]) -> None:
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()
