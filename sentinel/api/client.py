"""A small HTTP/1.1 client over a Unix socket: standard library only, quick to import."""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any

from sentinel.errors import SentinelError

_IDLE_S = 20.0
"""A kept connection older than this is not used again: the server may be about to close it."""
_LARGEST_HEAD = 64 * 1024
_SILENCE_S = 45.0
"""A stream without even a heartbeat for so long is dead (the server sends one every 15 s)."""


class ApiError(SentinelError):
    """The daemon answered, and the answer is no.

    Attributes:
        status: The HTTP status; 0 where there was no answer.
        kind: The machine-readable name of the error ("not_found", "bad_data", …).
    """

    def __init__(self, message: str, *, status: int = 0, kind: str = "", hint: str | None = None) -> None:
        super().__init__(message, hint=hint, exit_code=2 if status == 400 else 1)
        self.status = status
        self.kind = kind


class Unreachable(ApiError):
    """No daemon, or it went away before it answered."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message, status=0, kind="unreachable", hint=hint)


class _Lost(Unreachable):
    """The connection was closed before the answer came."""


class Client:
    """Talks to one daemon. Keeps one connection; safe to use from several threads, one request at a time.

    Args:
        socket_path: Of the daemon's API.
        timeout_s: How long one answer may take. Each call may say otherwise.
    """

    def __init__(self, socket_path: str | os.PathLike[str], timeout_s: float = 10.0) -> None:
        self.socket_path = os.fspath(socket_path)
        self.timeout_s = timeout_s
        self._kept: _Connection | None = None
        self._lock = threading.Lock()

    def get(self, path: str, *, timeout_s: float | None = None) -> Any:
        """The JSON at `path`; a string where the answer is no JSON.

        Raises:
            ApiError: The daemon refused; Unreachable: it did not answer.
        """
        return self._call("GET", path, None, timeout_s)

    def post(self, path: str, body: Any = None, *, timeout_s: float | None = None) -> Any:
        """Send `body` as JSON and return the JSON that comes back. Never sent twice."""
        return self._call("POST", path, body, timeout_s)

    def delete(self, path: str, *, timeout_s: float | None = None) -> Any:
        """Remove what is at `path`."""
        return self._call("DELETE", path, None, timeout_s)

    def stream(self, path: str, *, silence_s: float = _SILENCE_S) -> Stream:
        """A stream of JSON lines, on a connection of its own. The answer's head has come when this returns.

        Args:
            path: What to follow.
            silence_s: With neither a line nor a heartbeat for so long, the stream raises Unreachable.
        """
        connection = _Connection(self.socket_path, self.timeout_s)
        try:
            connection.send("GET", path, None, self.timeout_s)
            status, headers = connection.head()
            if status != 200:
                raise _refusal(status, headers, connection.body(headers))
            connection.wait(silence_s)
        except BaseException:
            connection.close()
            raise
        return Stream(connection, headers)

    def connect(self) -> None:
        """Open the connection now, to see whether anybody is there.

        Raises:
            Unreachable: Nobody is.
        """
        with self._lock:
            if self._kept is None:
                self._kept = _Connection(self.socket_path, self.timeout_s)

    def close(self) -> None:
        """Give the connection back. The client can still be used."""
        with self._lock:
            self._drop()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _call(self, method: str, path: str, body: Any, timeout_s: float | None) -> Any:
        allowed = self.timeout_s if timeout_s is None else timeout_s
        with self._lock:
            if self._kept is not None and not self._kept.usable():
                self._drop()
            reused = self._kept is not None
            try:
                connection, status, headers, content = self._exchange(method, path, body, allowed)
            except _Lost:
                # The server closed a kept connection just as we spoke. What changes nothing may be said again.
                if not reused or method == "POST":
                    raise
                connection, status, headers, content = self._exchange(method, path, body, allowed)
            if headers.get("connection", "").lower() == "close":
                self._drop()
        if status >= 400:
            raise _refusal(status, headers, content)
        try:
            return _decoded(headers, content)
        except ValueError:
            raise connection.nonsense() from None

    def _exchange(
        self, method: str, path: str, body: Any, allowed_s: float
    ) -> tuple[_Connection, int, dict[str, str], bytes]:
        if self._kept is None:
            self._kept = _Connection(self.socket_path, min(allowed_s, self.timeout_s))
        connection = self._kept
        try:
            connection.send(method, path, body, allowed_s)
            status, headers = connection.head()
            return connection, status, headers, connection.body(headers)
        except BaseException:
            self._drop()
            raise

    def _drop(self) -> None:
        if self._kept is not None:
            self._kept.close()
            self._kept = None


class Stream(Iterator[dict[str, Any]]):
    """The lines of a stream, as objects. Ends when the daemon ends it; `close` may be called from any thread."""

    def __init__(self, connection: _Connection, headers: Mapping[str, str]) -> None:
        self._connection = connection
        self._parts = connection.parts(headers)
        self._rest = b""
        self._closed = False

    def __next__(self) -> dict[str, Any]:
        while True:
            line, newline, rest = self._rest.partition(b"\n")
            if newline:
                self._rest = rest
                if line.strip():  # an empty line is a heartbeat
                    return self._read(line)
                continue
            try:
                self._rest += next(self._parts)
            except StopIteration:
                self.close()
                raise
            except ApiError:
                if self._closed:
                    raise StopIteration from None
                self.close()
                raise

    def _read(self, line: bytes) -> dict[str, Any]:
        try:
            return dict(json.loads(line))
        except ValueError:
            self.close()
            raise self._connection.nonsense() from None

    def close(self) -> None:
        """End it; a reader waiting in another thread stops."""
        self._closed = True
        self._connection.close()

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Connection:
    """One connection and its buffer."""

    def __init__(self, path: str, timeout_s: float) -> None:
        self._path = path
        self._buffer = b""
        self._deadline: float | None = None
        self._silence_s: float | None = None
        self._last = time.monotonic()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        self._socket.settimeout(timeout_s)
        try:
            self._socket.connect(path)
        except OSError as fault:
            self._socket.close()
            raise unreachable(path, fault) from None

    def usable(self) -> bool:
        """Whether it is young and the other side has neither closed it nor said anything unasked."""
        if time.monotonic() - self._last > _IDLE_S or self._buffer:
            return False
        poller = select.poll()  # not select(): descriptors may be above 1024
        poller.register(self._socket, select.POLLIN)
        return not poller.poll(0)

    def send(self, method: str, path: str, body: Any, timeout_s: float) -> None:
        self._deadline = time.monotonic() + timeout_s
        content = b"" if body is None else json.dumps(body, separators=(",", ":")).encode()
        head = f"{method} {path} HTTP/1.1\r\nHost: sentinel\r\nAccept: application/json\r\n"
        if body is not None:
            head += f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n"
        elif method == "POST":
            head += "Content-Length: 0\r\n"
        try:
            self._socket.settimeout(timeout_s)
            self._socket.sendall(head.encode("ascii", "replace") + b"\r\n" + content)
        except ConnectionError:
            raise self._lost() from None
        except OSError as fault:
            raise unreachable(self._path, fault) from None

    def wait(self, silence_s: float) -> None:
        """From now on each piece may take this long, without an end to the whole."""
        self._deadline, self._silence_s = None, silence_s

    def head(self) -> tuple[int, dict[str, str]]:
        """The status and the headers, names in lower case."""
        while (end := self._buffer.find(b"\r\n\r\n")) < 0:
            if len(self._buffer) > _LARGEST_HEAD:
                raise self.nonsense()
            self._fill()
        first, *lines = self._buffer[:end].decode("latin-1").split("\r\n")
        self._buffer = self._buffer[end + 4 :]
        words = first.split(" ", 2)
        if len(words) < 2 or not words[0].startswith("HTTP/1.") or not words[1].isdigit():
            raise self.nonsense()
        pairs = (line.partition(":") for line in lines)
        return int(words[1]), {name.strip().lower(): value.strip() for name, _, value in pairs}

    def body(self, headers: Mapping[str, str]) -> bytes:
        """The whole body."""
        content = b"".join(self.parts(headers))
        self._last = time.monotonic()
        return content

    def parts(self, headers: Mapping[str, str]) -> Iterator[bytes]:
        """The body as it comes."""
        if headers.get("transfer-encoding", "").lower() == "chunked":
            while size := self._number(self._line().split(b";")[0], 16):
                yield self._exactly(size)
                self._exactly(2)
            while self._line():  # trailers
                pass
            return
        left = self._number(headers.get("content-length", "0").encode(), 10)
        if left:
            yield self._exactly(left)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes a reader in another thread
        self._socket.close()

    def _number(self, text: bytes, base: int) -> int:
        try:
            return int(text, base)
        except ValueError:
            raise self.nonsense() from None

    def nonsense(self) -> Unreachable:
        """The error for an answer that is none."""
        return Unreachable(f"what listens at {self._path} does not speak HTTP as sentinel does")

    def _lost(self) -> _Lost:
        return _Lost(
            f"the daemon at {self._path} closed the connection before it had answered",
            hint="`sentinel status` says whether it is back",
        )

    def _line(self) -> bytes:
        while (end := self._buffer.find(b"\r\n")) < 0:
            self._fill()
        line, self._buffer = self._buffer[:end], self._buffer[end + 2 :]
        return line

    def _exactly(self, count: int) -> bytes:
        if len(self._buffer) < count:
            pieces, have = [self._buffer], len(self._buffer)
            while have < count:
                self._buffer = b""
                self._fill()
                pieces.append(self._buffer)
                have += len(self._buffer)
            self._buffer = b"".join(pieces)
        content, self._buffer = self._buffer[:count], self._buffer[count:]
        return content

    def _fill(self) -> None:
        left = self._silence_s if self._deadline is None else self._deadline - time.monotonic()
        try:
            if left is not None and left <= 0:
                raise TimeoutError
            self._socket.settimeout(left)
            got = self._socket.recv(256 * 1024)
        except ConnectionError:
            raise self._lost() from None
        except OSError as fault:
            raise unreachable(self._path, fault) from None
        if not got:
            raise self._lost()
        self._buffer += got


def unreachable(path: str, fault: OSError) -> Unreachable:
    """The error for a socket at which nobody answers, in words."""
    if isinstance(fault, TimeoutError):
        return Unreachable(
            f"the daemon at {path} does not answer in time", hint="`sentinel doctor` says what it is busy with"
        )
    reason = {
        FileNotFoundError: "no such file",
        ConnectionRefusedError: "nobody listens there",
        PermissionError: "it is not yours to use",
    }.get(type(fault), fault.strerror or str(fault))
    return Unreachable(
        f"cannot reach the daemon at {path}: {reason}",
        hint="`systemctl status sentinel`, or `sentinel daemon` in another terminal",
    )


def path_with(path: str, /, **parameters: object) -> str:
    """`path` with a query string; None is left out, a list is repeated."""
    pairs: list[str] = []
    for name, value in parameters.items():
        items = value if isinstance(value, list | tuple) else [value]
        pairs += [f"{quote(name)}={quote(str(item))}" for item in items if item is not None]
    return f"{path}?{'&'.join(pairs)}" if pairs else path


def quote(text: str) -> str:
    """`text` as one segment of a path or one value of a query string."""
    return "".join(
        chr(byte) if byte in _UNRESERVED else f"%{byte:02X}" for byte in text.encode("utf-8", "surrogateescape")
    )


_UNRESERVED = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")


def _decoded(headers: Mapping[str, str], content: bytes) -> Any:
    if "json" in headers.get("content-type", ""):
        return json.loads(content) if content else None
    return content.decode("utf-8", "replace")


def _refusal(status: int, headers: Mapping[str, str], content: bytes) -> ApiError:
    try:
        data = _decoded(headers, content)
    except ValueError:
        data = None
    if isinstance(data, dict):
        error = data.get("error")
        if isinstance(error, dict):
            return ApiError(
                str(error.get("message", status)),
                status=status,
                kind=str(error.get("kind", "")),
                hint=error.get("hint"),
            )
        if isinstance(error, str):  # Prometheus's form
            return ApiError(error, status=status, kind=str(data.get("errorType", "")))
    text = data.strip() if isinstance(data, str) and data.strip() else "no reason given"
    return ApiError(f"the daemon answered {status}: {text}", status=status)
