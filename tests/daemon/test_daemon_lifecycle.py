"""Where a daemon lives, and how long it stays."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from sentinel.daemon.lifecycle import live_directory
from sentinel.system.mounts import Mount


def mount(point: str, kind: str) -> Mount:
    return Mount(point, "/", "0:1", kind, "x", frozenset({"rw"}))


def test_a_home_on_nfs_keeps_the_live_database_on_a_local_disk() -> None:
    mounts = [mount("/", "ext4"), mount("/home", "nfs4")]

    live = live_directory(Path("/home/alice/.local/state/sentinel/node1"), mounts)

    assert live.is_relative_to(f"/var/tmp/sentinel-{os.getuid()}")
    assert live_directory(Path("/homework/state"), mounts) == Path("/homework/state")


@pytest.fixture
def environ() -> dict[str, str]:
    place = tempfile.mkdtemp(prefix="snt-", dir="/tmp")
    known = {key: value for key, value in os.environ.items() if not key.startswith("SENTINEL_")}
    source = str(Path(sys.modules["sentinel"].__file__ or "").parents[1])
    return {
        **known,
        "SENTINEL_SOCKET": f"{place}/r/s.sock",
        "SENTINEL_STATE_DIR": f"{place}/state",
        "PYTHONPATH": source,
    }


def daemon(environ: dict[str, str], *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "sentinel", "daemon", *options],
        env=environ,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.slow
def test_a_daemon_that_nobody_asked_for_ends_when_there_is_nothing_to_do(environ: dict[str, str]) -> None:
    ended = daemon(environ, "--auto", "1s")

    assert ended.returncode == 0
    assert "nothing to do" in ended.stderr
    assert not Path(environ["SENTINEL_SOCKET"]).exists()


@pytest.mark.slow
def test_a_second_daemon_says_who_was_first(environ: dict[str, str]) -> None:
    first = subprocess.Popen(
        [sys.executable, "-m", "sentinel", "daemon"], env=environ, stderr=subprocess.PIPE, text=True
    )
    try:
        assert first.stderr is not None
        assert "listening" in first.stderr.readline()

        second = daemon(environ)

        assert second.returncode == 2
        assert f"process {first.pid}" in second.stderr
        assert daemon(environ, "--auto").returncode == 0
    finally:
        first.terminate()
        first.communicate()
    assert first.returncode == 0
