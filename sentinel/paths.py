"""Where things are: the socket, the state, the configuration, the data that ships with us."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Mapping
from pathlib import Path

from sentinel.errors import UsageError

SYSTEM_SOCKET = Path("/run/sentinel/sentinel.sock")
SYSTEM_STATE = Path("/var/lib/sentinel")
SYSTEM_CONFIG = Path("/etc/sentinel/sentinel.yaml")
LONGEST_SOCKET_PATH = 107
"""Bytes of a path in sockaddr_un, less the terminating zero."""


def here(environ: Mapping[str, str] = os.environ) -> str:
    """The working directory; where it was removed under us, what it was called."""
    try:
        return os.getcwd()
    except FileNotFoundError:
        return environ.get("PWD", "/")


def user_socket(environ: Mapping[str, str] = os.environ, uid: int | None = None) -> Path:
    """Where a per-user daemon listens when nothing else is said.

    `$XDG_RUNTIME_DIR/sentinel/` if that directory is ours, else `/tmp/sentinel-UID/`.
    """
    uid = os.getuid() if uid is None else uid
    runtime = environ.get("XDG_RUNTIME_DIR", "")
    if runtime and _ours(Path(runtime), uid):
        candidate = Path(runtime) / "sentinel" / "sentinel.sock"
        if len(os.fsencode(candidate)) <= LONGEST_SOCKET_PATH:
            return candidate
    return Path(f"/tmp/sentinel-{uid}/sentinel.sock")


def candidate_sockets(environ: Mapping[str, str] = os.environ) -> list[Path]:
    """Where a client looks for a daemon, in order. `SENTINEL_SOCKET` excludes all others."""
    if said := environ.get("SENTINEL_SOCKET"):
        return [checked_socket(Path(said))]
    return [SYSTEM_SOCKET, user_socket(environ)]


def checked_socket(path: Path) -> Path:
    """`path`, absolute.

    Raises:
        UsageError: It is too long for a Unix socket.
    """
    absolute = path.absolute()
    if len(os.fsencode(absolute)) > LONGEST_SOCKET_PATH:
        raise UsageError(
            f"the socket path {absolute} is longer than {LONGEST_SOCKET_PATH} bytes",
            hint="set SENTINEL_SOCKET to a shorter path",
        )
    return absolute


def socket_directory(path: Path, *, uid: int | None = None) -> None:
    """Make the directory of a per-user socket, mode 0700, and check whose it is.

    Raises:
        UsageError: It belongs to somebody else, or others may write to it.
    """
    private_directory(path.parent, uid=uid, hint="set SENTINEL_SOCKET to a path in a directory of your own")


def private_directory(
    directory: Path, *, uid: int | None = None, hint: str = "set SENTINEL_STATE_DIR to a directory of your own"
) -> None:
    """Make a directory that only we can write to, mode 0700, and check that it is one.

    Raises:
        UsageError: It belongs to somebody else, or others may write to it.
    """
    uid = os.getuid() if uid is None else uid
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = directory.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != uid or found.st_mode & 0o022:
        raise UsageError(
            f"{directory} is not a directory of yours that only you can write to",
            hint=hint,
        )


def state_directory(environ: Mapping[str, str] = os.environ) -> Path:
    """Where a per-user daemon keeps its state; `SENTINEL_STATE_DIR` wins."""
    if said := environ.get("SENTINEL_STATE_DIR"):
        return Path(said).absolute()
    home = environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(home) / "sentinel" / socket.gethostname()


def configuration_file(environ: Mapping[str, str] = os.environ) -> Path | None:
    """The configuration file in force without `--config`, or None.

    `SENTINEL_CONFIG`, else the user's, else (for root) the system's.
    """
    if said := environ.get("SENTINEL_CONFIG"):
        return Path(said)
    home = environ.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
    own = Path(home) / "sentinel" / "sentinel.yaml"
    if own.is_file():
        return own
    return SYSTEM_CONFIG if os.getuid() == 0 and SYSTEM_CONFIG.is_file() else None


def shipped(name: str) -> Path:
    """A directory that ships with sentinel: `rules`, `dashboards` or `systemd`.

    In a wheel it lies inside the package, in a checkout beside it.
    """
    package = Path(__file__).resolve().parent
    inside = package / "data" / name
    return inside if inside.is_dir() else package.parent / name


def _ours(directory: Path, uid: int) -> bool:
    try:
        found = directory.stat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == uid
