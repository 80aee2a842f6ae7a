"""Starting the job: a place for its output, its environment, its process."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import stat
from collections.abc import Mapping
from pathlib import Path

from sentinel import paths
from sentinel.errors import UsageError
from sentinel.jobs.link import Registration
from sentinel.jobs.program import Program
from sentinel.jobs.streams import Streams
from sentinel.model.jobs import JobSpec

_DEFAULT_AGAIN = [signal.SIGPIPE, signal.SIGXFSZ]
"""Ignored by Python, not by whoever started us."""
_LEAST_ROOM = 8 << 20
_PROBE = 64 << 10


def place_for_logs(met: Registration, attempt: int, environ: Mapping[str, str]) -> str:
    """The attempt's directory, made: where the daemon says, in our state, or in /tmp; empty where none can be."""
    uid = os.getuid()
    for base in (
        met.directory,
        f"{paths.state_directory(environ)}/jobs/{met.id}",
        _private(f"/tmp/sentinel-{uid}") and f"/tmp/sentinel-{uid}/jobs/{met.id}",
    ):
        if not base:
            continue
        made = f"{base}/attempt-{attempt}"
        with contextlib.suppress(OSError):
            os.makedirs(made, mode=0o700, exist_ok=True)
            found = os.lstat(os.path.dirname(base))
            if found.st_uid in {uid, 0} and not found.st_mode & stat.S_IWOTH and os.access(made, os.W_OK):
                if _has_room(made):
                    return made
                os.rmdir(made)
    return ""


def _has_room(directory: str) -> bool:
    """Whether a job may say something there without dying of it: a write to a full disk is an error of the job's."""
    space = os.statvfs(directory)
    if space.f_bavail * space.f_frsize < _LEAST_ROOM:
        return False
    probe = f"{directory}/.room"
    try:
        with open(probe, "wb", buffering=0) as file:
            file.write(b"\1" * _PROBE)  # a quota is not in statvfs
    except OSError:
        return False
    finally:
        with contextlib.suppress(OSError):
            os.unlink(probe)
    return True


def spawn(
    spec: JobSpec, program: Program, met: Registration, attempt: int, streams: Streams, environ: Mapping[str, str]
) -> int:
    """Start the command; its pid.

    Raises:
        OSError: It cannot be run.
    """
    argv = [word.replace("{checkpoint}", met.resume_from) for word in spec.argv]
    given = {
        **environ,
        "SENTINEL_JOB_ID": met.id,
        "SENTINEL_JOB_NAME": met.name,
        "SENTINEL_SOCKET": met.socket,
        "SENTINEL_ATTEMPT": str(attempt),
        "SENTINEL_RESUME_FROM": met.resume_from,
        "SENTINEL_DEGRADE_LEVEL": str(met.degrade_level),
    }
    if streams.pty is None or not os.isatty(1):
        given.setdefault("PYTHONUNBUFFERED", "1")

    def start(path: str, words: list[str]) -> int:
        return os.posix_spawn(
            path,
            words,
            given,
            file_actions=streams.actions,
            setsid=streams.own_session,
            setsigdef=_DEFAULT_AGAIN,
        )

    try:
        return start(program.path, argv)
    except OSError as fault:
        if fault.errno != errno.ENOEXEC:
            raise
        return start("/bin/sh", ["/bin/sh", program.path, *argv[1:]])  # a script without #!, as shells run it


def _private(directory: str) -> bool:
    """Whether it is a directory of ours that nobody else can write to, made if need be."""
    try:
        paths.socket_directory(Path(directory, "here"))
    except (OSError, UsageError):
        return False
    return True
