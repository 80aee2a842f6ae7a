"""Listening: our own sockets, who is at their other end, and clients that are slow, silent or too many."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import socket
import stat
import time
from collections import Counter
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from sentinel import paths
from sentinel.errors import SentinelError
from sentinel.server.access import Peer, peer_of
from sentinel.server.settings import address

_log = logging.getLogger(__name__)

KEEP_ALIVE_S = 75
"""Longer than any client of ours keeps a connection, so that it is never closed under a request."""
HEAD_DEADLINE_S = 10.0
"""A connection that has not sent a request's head by then is closed."""
STALLED_S = 30.0
"""A client that reads nothing for so long while there is something for it is let go."""
REBIND_S = 2.0
_SHARE = 4
GRACE_S = 2.0

Scope = MutableMapping[str, Any]
App = Callable[
    [Scope, Callable[[], Awaitable[Any]], Callable[[MutableMapping[str, Any]], Awaitable[None]]], Awaitable[None]
]


@dataclass(frozen=True, slots=True)
class UnixListener:
    """The API's socket in the file system.

    Attributes:
        path: Where.
        shared: Whether all users of the machine may connect (and are judged one by one).
    """

    path: Path
    shared: bool = False


@dataclass(frozen=True, slots=True)
class TcpListener:
    """A reading port, for whoever has the token."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> TcpListener:
        """Read `HOST:PORT`. Raises UsageError where it is none."""
        return cls(*address(text))


Listener = UnixListener | TcpListener


class Listening:
    """A running server. It lives in the event loop that opened it and installs no signal handler.

    Args:
        app: The ASGI application.
        listeners: Where to listen.
        most_clients: Connections at once; one more is closed as soon as it is made.
    """

    def __init__(self, app: App, listeners: Sequence[Listener], *, most_clients: int = 256) -> None:
        self._listeners = listeners
        self._most = most_clients
        self._config = uvicorn.Config(
            app,
            http=PeerProtocol,
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=False,
            timeout_keep_alive=KEEP_ALIVE_S,
        )
        self._config.load()
        self._state = ServerState()
        self._servers: dict[Listener, asyncio.Server] = {}
        self._bound: dict[UnixListener, tuple[int, int]] = {}
        self._watch: asyncio.Task[None] | None = None
        self._of_users: Counter[int] = Counter()
        self.last_request = time.monotonic()
        """When somebody last asked something (monotonic seconds)."""

    @property
    def clients(self) -> int:
        """Connections open now."""
        return len(self._state.connections)

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """Of the TCP listeners, with the port that a port of 0 became."""
        found = [server.sockets[0].getsockname() for at, server in self._servers.items() if isinstance(at, TcpListener)]
        return [(name[0], name[1]) for name in found]

    async def open(self) -> None:
        """Bind and listen.

        Raises:
            SentinelError: An address is taken or not ours to take.
        """
        try:
            for listener in self._listeners:
                await self._listen(listener)
        except BaseException:
            await self.close()
            raise
        self._watch = asyncio.create_task(self._rebind())

    async def close(self) -> None:
        """Stop listening, let answers under way finish for a moment, and leave no socket behind."""
        if self._watch is not None:
            self._watch.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._watch
            self._watch = None
        for listener, identity in self._bound.items():
            if _identity(listener.path) == identity:
                with contextlib.suppress(OSError):
                    listener.path.unlink()
        self._bound.clear()
        for server in self._servers.values():
            server.close()
        self._servers.clear()
        for connection in list(self._state.connections):
            connection.shutdown()
        deadline = time.monotonic() + GRACE_S
        while self._state.tasks and time.monotonic() < deadline:
            await asyncio.wait(list(self._state.tasks), timeout=0.1)
        for task in list(self._state.tasks):
            task.cancel()
        if self._state.tasks:
            await asyncio.wait(list(self._state.tasks), timeout=1.0)
        for connection in list(self._state.connections):
            if connection.transport is not None:
                connection.transport.abort()
        await asyncio.sleep(0)  # lets the transports close their sockets

    async def _listen(self, listener: Listener) -> None:
        bound = _bind_unix(listener) if isinstance(listener, UnixListener) else _bind_tcp(listener)
        loop = asyncio.get_running_loop()
        local = isinstance(listener, UnixListener)
        self._servers[listener] = await loop.create_server(lambda: self._protocol(local=local), sock=bound, backlog=128)
        if isinstance(listener, UnixListener):
            identity = _identity(listener.path)
            self._bound[listener] = identity or (0, 0)

    def _protocol(self, *, local: bool) -> PeerProtocol:
        return PeerProtocol(self._config, self._state, {}, listening=self, local=local)

    def admits(self, peer: Peer | None) -> bool:
        """Whether there is room for one more connection, by this peer; no user can take all the room."""
        if len(self._state.connections) > self._most:
            return False
        if peer is None or peer.uid == 0:
            return True
        return self._of_users[peer.uid] < max(1, self._most // _SHARE)

    def came(self, peer: Peer | None) -> None:
        """Count a connection."""
        if peer is not None:
            self._of_users[peer.uid] += 1

    def went(self, peer: Peer | None) -> None:
        """It is closed."""
        if peer is not None:
            self._of_users[peer.uid] -= 1
            self._of_users += Counter()  # forgets those at nothing

    async def _rebind(self) -> None:
        """Bind again a path that somebody removed or replaced: a cleaner of /tmp, most likely."""
        while True:
            await asyncio.sleep(REBIND_S)
            for listener in self._listeners:
                if not isinstance(listener, UnixListener) or _identity(listener.path) == self._bound.get(listener):
                    continue
                self._bound.pop(listener, None)
                if (server := self._servers.pop(listener, None)) is not None:
                    server.close()
                try:
                    await self._listen(listener)
                except (OSError, SentinelError) as fault:  # tried again in a moment
                    _log.warning("the API's socket is gone and cannot be bound again: %s", fault)


class PeerProtocol(H11Protocol):
    """uvicorn's protocol, with the peer in the scope and deadlines for clients that do not do their part."""

    def __init__(
        self,
        config: uvicorn.Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        listening: Listening,
        local: bool,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._listening = listening
        self._local = local
        self._peer: Peer | None = None
        self._counted = False
        self._impatience: asyncio.TimerHandle | None = None
        self._stall: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Ask the kernel who it is, and begin to wait for a request."""
        super().connection_made(transport)
        if self._local:
            try:
                self._peer = peer_of(transport.get_extra_info("socket"))
            except OSError:
                transport.abort()
                return
            self.app_state = {"peer": self._peer}
        if not self._listening.admits(self._peer):
            transport.abort()
            return
        self._listening.came(self._peer)
        self._counted = True
        self._impatience = self.loop.call_later(HEAD_DEADLINE_S, self._no_head)

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing is left to wait for."""
        for timer in (self._impatience, self._stall):
            if timer is not None:
                timer.cancel()
        self._impatience = self._stall = None
        if self._counted:
            self._listening.went(self._peer)
            self._counted = False
        super().connection_lost(exc)

    def handle_events(self) -> None:
        """Note that a request's head has come."""
        before = self.cycle
        super().handle_events()
        if self.cycle is not before:
            self._listening.last_request = time.monotonic()
            if self._impatience is not None:
                self._impatience.cancel()
                self._impatience = None

    def pause_writing(self) -> None:
        """The client does not read: it has a while to begin."""
        super().pause_writing()
        if self._stall is None:
            self._stall = self.loop.call_later(STALLED_S, self.transport.abort)

    def resume_writing(self) -> None:
        """It reads."""
        super().resume_writing()
        if self._stall is not None:
            self._stall.cancel()
            self._stall = None

    def _no_head(self) -> None:
        self._impatience = None
        self.transport.abort()


def _bind_unix(listener: UnixListener) -> socket.socket:
    path = paths.checked_socket(listener.path)
    if listener.shared:
        path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    else:
        paths.socket_directory(path)
    _remove_stale(path)
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        made.setblocking(False)
        # The mode is right from the first moment: fchmod before bind is what the new file gets on Linux.
        os.fchmod(made.fileno(), 0o666 if listener.shared else 0o600)
        made.bind(os.fspath(path))
        if listener.shared:
            path.chmod(0o666)  # the umask has taken from it
    except OSError as fault:
        made.close()
        raise SentinelError(
            f"cannot listen at {path}: {fault.strerror}", hint="set SENTINEL_SOCKET to a path of your own"
        ) from None
    return made


def _remove_stale(path: Path) -> None:
    """Make way where a socket of a dead daemon lies; never where one answers, or where something else lies."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(found.st_mode):
        raise SentinelError(f"{path} is in the way and is no socket", hint="remove it, or set SENTINEL_SOCKET")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as probe:
        probe.settimeout(1.0)
        code = probe.connect_ex(os.fspath(path))
    if code in {0, errno.EAGAIN, errno.ETIMEDOUT}:
        raise SentinelError(f"another daemon listens at {path}", hint="`sentinel status` asks it; stop it first")
    path.unlink(missing_ok=True)


def _bind_tcp(listener: TcpListener) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            listener.host, listener.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        made = socket.socket(family, kind | socket.SOCK_CLOEXEC, protocol)
    except OSError as fault:
        raise SentinelError(f"cannot listen at {listener.host}:{listener.port}: {fault.strerror}") from None
    try:
        made.setblocking(False)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(address)
    except OSError as fault:
        made.close()
        raise SentinelError(
            f"cannot listen at {listener.host}:{listener.port}: {fault.strerror}", hint="choose another `api.listen`"
        ) from None
    return made


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = path.lstat()
    except OSError:
        return None
    return (found.st_dev, found.st_ino) if stat.S_ISSOCK(found.st_mode) else None
