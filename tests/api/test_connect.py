"""Finding the daemon, and starting one."""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from sentinel.api import connect as door
from sentinel.api.client import Client, Unreachable
from sentinel.api.connect import connect, reachable


@pytest.fixture
def directory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="s-") as made:
        yield Path(made)


@pytest.fixture
def environ(directory: Path) -> dict[str, str]:
    """An environment in which nothing of the real user's is found."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    return {**kept, "XDG_RUNTIME_DIR": str(directory), "SENTINEL_STATE_DIR": str(directory / "state")}


def listening(path: Path) -> socket.socket:
    path.parent.mkdir(mode=0o700, exist_ok=True)
    made = socket.socket(socket.AF_UNIX)
    made.bind(str(path))
    made.listen(1)
    return made


def test_the_socket_that_is_said_is_the_only_one_looked_at(directory: Path, environ: dict[str, str]) -> None:
    said = directory / "said.sock"
    with listening(directory / "sentinel" / "sentinel.sock"):
        with pytest.raises(Unreachable, match=r"said\.sock: no such file"):
            connect(start=False, environ={**environ, "SENTINEL_SOCKET": str(said)})
        with listening(said):
            found = connect(start=False, environ={**environ, "SENTINEL_SOCKET": str(said)})
            assert found.socket_path == str(said)
            found.close()


@pytest.mark.skipif(Path("/run/sentinel/sentinel.sock").exists(), reason="a system daemon runs here")
def test_the_users_own_is_found_in_the_runtime_directory(directory: Path, environ: dict[str, str]) -> None:
    path = directory / "sentinel" / "sentinel.sock"
    with listening(path):
        found = reachable(environ)
        assert isinstance(found, Client)
        assert found.socket_path == str(path)
        found.close()


def test_a_directory_that_others_can_write_to_is_not_trusted(directory: Path, environ: dict[str, str]) -> None:
    path = directory / "sentinel" / "sentinel.sock"
    with listening(path):
        path.parent.chmod(0o777)
        found = reachable(environ)

    assert isinstance(found, Unreachable)
    assert "only you can write to" in found.message


def test_without_a_daemon_and_without_starting_one_it_says_so(environ: dict[str, str]) -> None:
    with pytest.raises(Unreachable, match="cannot reach the daemon"):
        connect(start=False, environ=environ)


def test_a_daemon_that_cannot_start_is_said_with_its_last_words(
    directory: Path, environ: dict[str, str], capfd: pytest.CaptureFixture[str]
) -> None:
    bad = directory / "bad.yaml"
    bad.write_text("mode: [")
    environ |= {"SENTINEL_SOCKET": str(directory / "s.sock"), "SENTINEL_CONFIG": str(bad)}
    (directory / "state").mkdir()
    (directory / "state" / "daemon.lock").mkdir()  # neither can it be locked

    with pytest.raises(Unreachable, match="did not come up") as refused:
        connect(environ=environ)

    assert "cannot keep state in" in refused.value.message
    assert capfd.readouterr().err == ""


def test_a_daemon_that_cannot_read_its_settings_is_quoted_whole(directory: Path, environ: dict[str, str]) -> None:
    bad = directory / "bad.yaml"
    bad.write_text("mode: x\nsamplng: {}\n")
    environ |= {"SENTINEL_SOCKET": str(directory / "s.sock"), "SENTINEL_CONFIG": str(bad)}

    with pytest.raises(Unreachable) as refused:
        connect(environ=environ)

    said = str(refused.value)
    assert f"{bad}:1:7: `mode` must be one of" in said
    assert f"{bad}:2:1: unknown key `samplng`" in said
    assert said.endswith("  try: `sampling`")


def test_a_state_directory_that_cannot_be_made_is_said(directory: Path, environ: dict[str, str]) -> None:
    (directory / "file").write_text("")
    environ["SENTINEL_STATE_DIR"] = str(directory / "file" / "state")

    with pytest.raises(Unreachable, match="cannot start a daemon"):
        connect(environ=environ)


def test_paths_given_to_a_daemon_hold_from_everywhere(environ: dict[str, str]) -> None:
    made = door._environment({**environ, "SENTINEL_SOCKET": "here/s.sock", "SENTINEL_CONFIG": ""})

    assert made["SENTINEL_SOCKET"] == str(Path.cwd() / "here" / "s.sock")
    assert made["SENTINEL_CONFIG"] == ""
