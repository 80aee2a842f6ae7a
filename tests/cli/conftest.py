"""Commands, against a small daemon behind a real socket."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from sentinel.cli.main import main
from sentinel.server.listen import UnixListener
from tests.server.small import Running, SmallDaemon


class Said(NamedTuple):
    """What a command did."""

    code: int
    out: str
    err: str


Sentinel = Callable[..., Said]


@pytest.fixture
def directory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="s-") as made:
        yield Path(made)


@pytest.fixture
def daemon() -> SmallDaemon:
    return SmallDaemon()


@pytest.fixture
def running(daemon: SmallDaemon, directory: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Running]:
    path = directory / "s.sock"
    monkeypatch.setenv("SENTINEL_SOCKET", str(path))
    with Running(daemon, [UnixListener(path)]) as running:
        yield running


@pytest.fixture
def sentinel(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Sentinel:
    """Runs one command line."""
    for name in ("COLUMNS", "NO_COLOR", "SENTINEL_CONFIG"):
        monkeypatch.delenv(name, raising=False)

    def run(*words: str) -> Said:
        code = main(words)
        return Said(code, *capsys.readouterr())

    return run
