"""Sockets of our own, and clients that do not do their part."""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path

import pytest

from sentinel.api.client import Client
from sentinel.errors import SentinelError, UsageError
from sentinel.server import listen
from sentinel.server.access import Peer
from sentinel.server.listen import TcpListener, UnixListener
from sentinel.server.settings import Settings
from tests.server.small import Running, SmallDaemon, until


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_socket_of_ones_own_is_closed_to_others(running: Running) -> None:
    assert mode(running.socket_path) == 0o600


def test_a_shared_socket_is_open_to_all(daemon: SmallDaemon, directory: Path) -> None:
    with Running(daemon, [UnixListener(directory / "s.sock", shared=True)]) as running:
        assert mode(running.socket_path) == 0o666


def test_the_socket_is_gone_after_closing_and_can_be_bound_again(daemon: SmallDaemon, directory: Path) -> None:
    path = directory / "s.sock"
    for _ in range(2):
        with Running(daemon, [UnixListener(path)]), Client(path) as client:
            client.get("/-/healthy")
        assert not path.exists()


def test_the_socket_of_a_successor_is_left_to_it(daemon: SmallDaemon, directory: Path) -> None:
    path = directory / "s.sock"
    with Running(daemon, [UnixListener(path)]), socket.socket(socket.AF_UNIX) as successor:
        path.unlink()
        successor.bind(str(path))
    assert path.exists()


def test_a_socket_that_a_dead_daemon_left_is_replaced(daemon: SmallDaemon, directory: Path) -> None:
    path = directory / "s.sock"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))

    with Running(daemon, [UnixListener(path)]), Client(path) as client:
        assert "healthy" in client.get("/-/healthy")


def test_a_socket_at_which_somebody_answers_is_left_alone(running: Running, daemon: SmallDaemon) -> None:
    second = Running(daemon, [UnixListener(running.socket_path)])

    with pytest.raises(SentinelError, match="another daemon listens"):
        listen._remove_stale(running.socket_path)
    assert running.socket_path.exists()
    second._loop.close()


def test_something_else_in_the_way_is_never_removed(directory: Path) -> None:
    path = directory / "s.sock"
    path.write_text("mine")

    with pytest.raises(SentinelError, match="is no socket"):
        listen._remove_stale(path)
    assert path.read_text() == "mine"


def test_a_path_that_vanished_is_bound_again(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    path = running.socket_path
    path.unlink()

    until(path.exists)

    assert mode(path) == 0o600
    with Client(path) as client:
        assert "healthy" in client.get("/-/healthy")


def test_a_client_that_says_nothing_is_let_go(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listen, "HEAD_DEADLINE_S", 0.2)
    with socket.socket(socket.AF_UNIX) as silent:
        silent.settimeout(10)
        silent.connect(str(running.socket_path))
        silent.sendall(b"GET /-/hea")

        assert silent.recv(100) == b""
    until(lambda: running.server.listening.clients == 0)


def test_a_client_that_does_not_read_is_let_go_and_harms_nobody(
    running: Running, daemon: SmallDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listen, "STALLED_S", 0.3)
    with socket.socket(socket.AF_UNIX) as deaf, Client(running.socket_path) as client:
        deaf.connect(str(running.socket_path))
        deaf.sendall(b"GET /v1/events?follow=1 HTTP/1.1\r\nHost: x\r\n\r\n")
        until(lambda: daemon.hub.listeners)

        for _ in range(900):
            running.daemon_call(lambda: daemon.happen("job.running", "x" * 4000))

        until(lambda: not daemon.hub.listeners)
        assert "healthy" in client.get("/-/healthy")


def test_too_many_clients_are_turned_away_and_those_inside_stay(daemon: SmallDaemon, directory: Path) -> None:
    listeners = [UnixListener(directory / "s.sock")]
    with Running(daemon, listeners, Settings(most_clients=3)) as running, Client(running.socket_path) as client:
        client.get("/-/healthy")
        crowd = [socket.socket(socket.AF_UNIX) for _ in range(6)]
        for one in crowd:
            one.connect(str(running.socket_path))
        until(lambda: running.server.listening.clients == 3)

        assert "healthy" in client.get("/-/healthy")
        for one in crowd:
            one.close()
        until(lambda: running.server.listening.clients == 1)


@pytest.mark.parametrize(
    "nonsense", [b"\x00\x01\x02\r\n\r\n", b"HELO\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n", b"x" * 200_000]
)
def test_what_is_no_http_is_answered_400(running: Running, nonsense: bytes) -> None:
    with socket.socket(socket.AF_UNIX) as odd:
        odd.settimeout(10)
        odd.connect(str(running.socket_path))
        odd.sendall(nonsense)

        assert odd.recv(100).startswith(b"HTTP/1.1 400 ")


def test_no_user_can_take_all_the_room() -> None:
    async def nothing(scope: object, receive: object, send: object) -> None: ...

    listening = listen.Listening(nothing, [], most_clients=8)
    alice, bob = Peer(40_001, 1), Peer(40_002, 1)
    for _ in range(2):
        assert listening.admits(alice)
        listening.came(alice)

    assert not listening.admits(alice)
    assert listening.admits(bob)
    assert listening.admits(Peer(0, 0))
    listening.went(alice)
    assert listening.admits(alice)


def test_no_descriptor_is_left_behind(daemon: SmallDaemon, directory: Path) -> None:
    with Running(daemon, [UnixListener(directory / "s.sock")]) as running:
        with Client(running.socket_path) as client:
            client.get("/-/healthy")
        until(lambda: running.server.listening.clients == 0)
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(20):
            with Client(running.socket_path) as client:
                client.get("/-/healthy")
                client.stream("/v1/events?follow=1").close()
        until(lambda: running.server.listening.clients == 0)
        assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("127.0.0.1:9464", TcpListener("127.0.0.1", 9464)),
        ("[::1]:9464", TcpListener("::1", 9464)),
        (":9464", TcpListener("0.0.0.0", 9464)),
    ],
)
def test_addresses(text: str, expected: TcpListener) -> None:
    assert TcpListener.parse(text) == expected


@pytest.mark.parametrize("text", ["9464", "host", "host:", "host:99999", "host:x"])
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(UsageError):
        TcpListener.parse(text)


def test_a_port_that_is_taken_is_said(daemon: SmallDaemon, directory: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(SentinelError, match=f"cannot listen at 127.0.0.1:{port}"):
            listen._bind_tcp(TcpListener("127.0.0.1", port))
