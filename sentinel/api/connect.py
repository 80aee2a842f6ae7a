"""Finding the daemon, and starting one of one's own where there is none."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from sentinel import paths
from sentinel.api.client import Client, Unreachable

START_DEADLINE_S = 10.0
_LONGEST_WORDS = 8192
_SAYS = "sentinel: "
"""What the last message of a command to its user begins with."""
_LAUNCHER = """
import os, sys
if os.fork():
    os._exit(0)
os.setsid()
os.execv(sys.argv[1], sys.argv[1:])
"""
"""A parent that ends at once, so that the daemon is nobody's child and leaves no zombie to a long-lived supervisor."""


def connect(
    *, start: bool = True, environ: Mapping[str, str] = os.environ, timeout_s: float = 10.0, quiet: bool = False
) -> Client:
    """A client of the daemon in charge here: the system's, else this user's.

    Args:
        start: Whether to start a per-user daemon where none is reachable.
        environ: Says where to look.
        timeout_s: For the client's calls.
        quiet: Whether to keep to oneself that a daemon was started.

    Raises:
        Unreachable: There is none, and none could be started.
    """
    found = reachable(environ, timeout_s)
    if isinstance(found, Client):
        return found
    if not start:
        raise found
    return _started(environ, timeout_s, quiet=quiet)


def reachable(environ: Mapping[str, str] = os.environ, timeout_s: float = 10.0) -> Client | Unreachable:
    """A client with an open connection, or why there is none."""
    refusal: Unreachable | None = None
    for path in paths.candidate_sockets(environ):
        if path != paths.SYSTEM_SOCKET and "SENTINEL_SOCKET" not in environ and not _private(path.parent):
            refusal = Unreachable(
                f"{path.parent} is not a directory that only you can write to, so who listens there is unknown",
                hint="remove it, or set SENTINEL_SOCKET to a path in a directory of your own",
            )
            continue
        client = Client(path, timeout_s)
        try:
            client.connect()
        except Unreachable as fault:
            refusal = fault
        else:
            return client
    assert refusal is not None  # there is always a candidate
    return refusal


def _started(environ: Mapping[str, str], timeout_s: float, *, quiet: bool) -> Client:
    state = paths.state_directory(environ)
    log = state / "daemon.log"
    said_before = _size(log)
    _launch(environ, state, log)
    began = time.monotonic()
    pause = 0.02
    while True:
        found = reachable(environ, timeout_s)
        if isinstance(found, Client):
            if not quiet:
                print(f"sentinel: started a daemon for you (log: {log})", file=sys.stderr)
            return found
        waited = time.monotonic() - began
        ended = not _starting(state) and (waited > 2.0 or _last_words(log, said_before))
        if waited > START_DEADLINE_S or ended:
            break
        time.sleep(pause)
        pause = min(pause * 1.5, 0.2)
    said = _last_words(log, said_before)
    raise Unreachable(
        "a daemon was started for you and did not come up" + (f". It said:\n{said}" if said else ""),
        hint=None if said else f"read {log}, or run `sentinel daemon` in another terminal",
    )


def _launch(environ: Mapping[str, str], state: Path, log: Path) -> None:
    import subprocess

    try:
        state.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as fault:
        raise Unreachable(
            f"cannot start a daemon: {fault.filename}: {fault.strerror}",
            hint="set SENTINEL_STATE_DIR to a directory that you can write to",
        ) from None
    try:
        subprocess.run(
            [sys.executable, "-ISc", _LAUNCHER, sys.executable, "-P", "-m", "sentinel", "daemon", "--auto"],
            stdin=subprocess.DEVNULL,
            stdout=descriptor,
            stderr=descriptor,
            cwd="/",
            env=_environment(environ),
            close_fds=True,
            check=True,
        )
    except (OSError, subprocess.SubprocessError) as fault:
        raise Unreachable(f"cannot start a daemon: {fault}") from None
    finally:
        os.close(descriptor)


def _environment(environ: Mapping[str, str]) -> dict[str, str]:
    """What the daemon gets: the same, with paths that hold from `/` too."""
    made = dict(environ)
    for name in ("SENTINEL_SOCKET", "SENTINEL_STATE_DIR", "SENTINEL_CONFIG"):
        if made.get(name):
            made[name] = os.path.abspath(made[name])
    home = Path(__file__).resolve().parents[2]
    if not {"site-packages", "dist-packages"} & set(home.parts):  # a checkout: importable only because we stand in it
        made["PYTHONPATH"] = os.pathsep.join(filter(None, (str(home), made.get("PYTHONPATH"))))
    return made


def _starting(state: Path) -> bool:
    """Whether some daemon holds the lock on the state directory."""
    import fcntl

    try:
        descriptor = os.open(state / "daemon.lock", os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False


def _private(directory: Path) -> bool:
    """Whether nobody else can have put a socket there. A directory that does not exist holds none."""
    try:
        found = directory.lstat()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return found.st_uid == os.getuid() and not found.st_mode & 0o022


def _size(log: Path) -> int:
    try:
        return log.stat().st_size
    except OSError:
        return 0


def _last_words(log: Path, since: int) -> str:
    """What a daemon said to its user before it ended, whole: file, line and column are in its first line."""
    try:
        with log.open("rb") as file:
            file.seek(max(since, file.seek(0, os.SEEK_END) - _LONGEST_WORDS))
            text = file.read().decode("utf-8", "replace")
    except OSError:
        return ""
    _, said, words = f"\n{text}".rpartition(f"\n{_SAYS}")
    if not said:
        return ""
    return "\n".join(
        "".join(char if char.isprintable() or char == "\t" else "�" for char in line)
        for line in words.strip("\n").split("\n")
    )
