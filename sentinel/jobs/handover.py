"""The daemon's side of the handover: it keeps the masters of the jobs' ptys, for the day a supervisor dies.

A supervisor holds one connection to this socket for as long as its job runs.
With a pty it sends the master along. While the supervisor lives nobody reads
here; when it is dead, a small process of its own drains the pty into the log,
so that not even the daemon's end takes the terminal away from the job.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path

from sentinel.jobs.register import Register
from sentinel.jobs.settings import Settings
from sentinel.model.jobs import Job
from sentinel.system import handover as wire

_BACKLOG = 64
_HELLO_S = 5.0


class Handover:
    """Listens at `handover.sock` beside the API's socket.

    Args:
        path: Where to listen; an old socket there is replaced.
        register: Whose job it is decides who may hand something over.
        settings: How much output is kept.
        shared: Whether other users than ours may connect (the system's daemon).
    """

    def __init__(
        self, path: Path, register: Register, settings: Settings | None = None, *, shared: bool = False
    ) -> None:
        self.path = path
        self._register = register
        self._settings = settings or Settings()
        self._shared = shared
        self._server: socket.socket | None = None
        self._connections: dict[int, socket.socket] = {}
        self._masters: dict[str, int] = {}
        self._keepers: dict[str, subprocess.Popen[bytes]] = {}

    def open(self) -> None:
        """Listen."""
        with contextlib.suppress(FileNotFoundError):
            self.path.unlink()
        server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        try:
            server.bind(str(self.path))
            self.path.chmod(0o666 if self._shared else 0o600)
            server.listen(_BACKLOG)
            server.setblocking(False)
            asyncio.get_running_loop().add_reader(server.fileno(), self._accept)
        except BaseException:
            server.close()
            raise
        self._server = server

    def close(self) -> None:
        """Let go of everything. Supervisors notice and look for the next daemon."""
        loop = asyncio.get_running_loop()
        if self._server is not None:
            loop.remove_reader(self._server.fileno())
            self._server.close()
            self._server = None
            with contextlib.suppress(OSError):
                self.path.unlink()
        for connection in list(self._connections.values()):
            self._drop(connection)
        for job_id in list(self._masters):
            os.close(self._masters.pop(job_id))
        for keeper in self._keepers.values():
            keeper.poll()
            keeper.returncode = keeper.returncode or 0  # it outlives us on purpose
        self._keepers.clear()

    def orphaned(self, job: Job) -> None:
        """The supervisor of this job is dead: from now on its pty is drained into its log."""
        master = self._masters.pop(job.id, None)
        if master is None:
            return
        try:
            self._keepers[job.id] = subprocess.Popen(
                [
                    sys.executable,
                    "-P",
                    "-m",
                    "sentinel.jobs.keeper",
                    str(master),
                    str(self._settings.log_limit_bytes),
                    job.output[0],
                ],
                pass_fds=[master],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                env=_environment(),
                start_new_session=True,
            )
        finally:
            os.close(master)

    def tidy(self, living: Collection[str]) -> None:
        """Let go of what belongs to jobs that have ended."""
        for job_id in self._masters.keys() - set(living):
            os.close(self._masters.pop(job_id))
        for job_id, keeper in list(self._keepers.items()):
            if keeper.poll() is not None:
                del self._keepers[job_id]

    def holds(self, job_id: str) -> bool:
        """Whether the pty of this job is held here, drained or not."""
        return job_id in self._masters or job_id in self._keepers

    def _accept(self) -> None:
        assert self._server is not None
        try:
            connection, _ = self._server.accept()
        except OSError:
            return
        connection.settimeout(_HELLO_S)
        self._connections[connection.fileno()] = connection
        connection.setblocking(False)
        asyncio.get_running_loop().add_reader(connection.fileno(), self._on_message, connection)

    def _on_message(self, connection: socket.socket) -> None:
        try:
            message, descriptors = wire.receive(connection)
        except BlockingIOError:
            return
        except (OSError, EOFError, ValueError):
            self._drop(connection)
            return
        job = self._register.find(str(message.get("job", "")))
        uid = wire.peer_of(connection).uid
        welcome = job is not None and job.alive and uid in {job.uid, 0}
        if job is not None and descriptors and job.uid != os.getuid():
            welcome = False  # whoever drains it writes to the owner's log, which is not for us to open
        if job is not None and welcome and descriptors:
            if (old := self._masters.pop(job.id, None)) is not None:
                os.close(old)
            self._masters[job.id] = descriptors.pop(0)
        for number in descriptors:
            os.close(number)
        with contextlib.suppress(OSError):
            wire.send(connection, {"ok": welcome})
        if not welcome:
            self._drop(connection)

    def _drop(self, connection: socket.socket) -> None:
        number = connection.fileno()
        if number >= 0:
            asyncio.get_running_loop().remove_reader(number)
            self._connections.pop(number, None)
        connection.close()


def _environment() -> dict[str, str]:
    """For our own child: it must find the same sentinel, and needs nothing else."""
    package_home = str(Path(__file__).resolve().parents[2])
    return {"PATH": os.environ.get("PATH", os.defpath), "PYTHONPATH": package_home}
