"""From the command line to a command, and from an error to two lines and an exit code."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sentinel.cli.main import COMMANDS, main, overview, parser_for
from sentinel.errors import SentinelError
from sentinel.server.listen import UnixListener
from tests.cli.conftest import Sentinel
from tests.server.small import Running, SmallDaemon

PYTHON = [sys.executable, "-m", "sentinel"]


def test_help_lists_every_command_in_eighty_columns(sentinel: Sentinel) -> None:
    said = sentinel("--help")

    assert said.code == 0
    assert all(f"\n  {name} " in said.out for name in COMMANDS)
    assert max(map(len, said.out.splitlines())) <= 100
    assert sentinel().out == said.out == overview() + "\n"


def test_help_imports_no_command() -> None:
    code = (
        "import sys; from sentinel.cli.main import main; main(['--help']); print(*sorted(sys.modules), file=sys.stderr)"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stderr.split()

    assert [name for name in loaded if name.startswith("sentinel")] == [
        "sentinel", "sentinel.cli", "sentinel.cli.main",
    ]  # fmt: skip
    assert not {"argparse", "asyncio", "numpy", "socket", "subprocess"} & set(loaded)


def test_closed_standard_streams_are_no_fault() -> None:
    line = f"{sys.executable} -m sentinel --version >&- 2>&- <&-"

    assert subprocess.run(["sh", "-c", line], check=False).returncode == 0


def test_status_imports_nothing_heavy(running: Running) -> None:
    code = (
        "import sys; from sentinel.cli.main import main; main(['status']); print(*sorted(sys.modules), file=sys.stderr)"
    )
    loaded = set(
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stderr.split()
    )

    assert not loaded & {"asyncio", "numpy", "subprocess", "shutil", "duckdb", "starlette", "urllib.request", "yaml"}


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself(name: str) -> None:
    try:
        parser = parser_for(name)
    except SentinelError as missing:
        pytest.skip(str(missing))

    text = parser.format_help()
    assert text.startswith(f"usage: sentinel {name}")
    assert COMMANDS[name][1][1:] in " ".join(text.split())


def test_the_version(sentinel: Sentinel) -> None:
    assert sentinel("--version").out.startswith("sentinel 0.")


@pytest.mark.parametrize(
    ("word", "words"),
    [
        ("jbos", "unknown command `jbos`\n  try: `sentinel jobs`"),
        ("--jobs", "unknown option `--jobs`"),
        ("qqq", "--help"),
    ],
)
def test_an_unknown_command_is_said_with_the_nearest(sentinel: Sentinel, word: str, words: str) -> None:
    said = sentinel(word)

    assert (said.code, said.out) == (2, "")
    assert words in said.err


def test_an_unknown_option_is_bad_usage(sentinel: Sentinel) -> None:
    said = sentinel("jobs", "--nonsense")

    assert said.code == 2
    assert said.err == "sentinel: unrecognized arguments: --nonsense\n  try: `sentinel jobs --help`\n"


def test_without_a_daemon_a_reading_command_says_how_to_start_one(
    sentinel: Sentinel, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SENTINEL_SOCKET", str(directory / "none.sock"))

    for command in ("jobs", "alerts", "events", "silence", "ack x", "checkpoint train", "query up", "sql x"):
        said = sentinel(*command.split())

        assert (said.code, said.out) == (1, "")
        assert "no daemon is running: cannot reach the daemon at" in said.err
        assert "try: `sentinel status` or `sentinel run -- CMD` starts one" in said.err
    assert sentinel("status", "--no-daemon").code == 1
    assert not (directory / "none.sock").exists()


def test_a_fault_of_ours_is_no_traceback(sentinel: Sentinel, running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sentinel.cli.jobs.reach", lambda: 1 / 0)

    said = sentinel("jobs")

    assert said.code == 70
    assert said.err.startswith("sentinel: a fault of sentinel itself: ZeroDivisionError: division by zero\n  try: ")


def test_interrupting_is_quiet_and_ends_with_130(daemon: SmallDaemon, directory: Path) -> None:
    path = directory / "s.sock"
    with Running(daemon, [UnixListener(path)]):
        following = subprocess.Popen(
            [*PYTHON, "events", "--follow"],
            env={**os.environ, "SENTINEL_SOCKET": str(path)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        deadline = time.monotonic() + 20
        while not daemon.hub.listeners:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        following.send_signal(signal.SIGINT)
        out, err = following.communicate(timeout=20)

    assert (following.returncode, out, err) == (130, b"", b"")


def test_a_reader_that_goes_away_is_no_fault(running: Running, daemon: SmallDaemon) -> None:
    for number in range(3000):
        daemon.add_job(f"a-rather-long-name-for-a-job-number-{number}")
    with subprocess.Popen([*PYTHON, "jobs", "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as writing:
        assert writing.stdout is not None
        assert writing.stderr is not None
        writing.stdout.read(10)
        writing.stdout.close()
        err = writing.stderr.read()

    assert (writing.returncode, err) == (141, b"")


def test_main_takes_its_words_from_the_command_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["sentinel", "--version"])

    assert main() == 0
    assert capsys.readouterr().out.startswith("sentinel ")
