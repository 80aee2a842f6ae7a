"""A small daemon behind a real socket."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from sentinel.api.client import Client
from sentinel.server.listen import UnixListener
from tests.server.small import Running, SmallDaemon


@pytest.fixture
def directory() -> Iterator[Path]:
    """A directory with a short path, for sockets."""
    with tempfile.TemporaryDirectory(prefix="s-") as made:
        yield Path(made)


@pytest.fixture
def daemon() -> SmallDaemon:
    return SmallDaemon()


@pytest.fixture
def running(daemon: SmallDaemon, directory: Path) -> Iterator[Running]:
    with Running(daemon, [UnixListener(directory / "s.sock")]) as running:
        yield running


@pytest.fixture
def client(running: Running) -> Iterator[Client]:
    with Client(running.socket_path, timeout_s=10) as client:
        yield client
