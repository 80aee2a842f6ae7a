"""A machine with a system's daemon and several users, as far as one test can have that: real uids, real processes."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, TypeVar

import pytest

from sentinel.api.client import ApiError, Client

T = TypeVar("T")
ALICE, BOB = 12345, 23456
_PROBE = "import os, sys, sentinel.daemon.hand; sys.exit(not os.path.exists(sys.executable))"
_AMBIENT = ("--inh-caps", "+dac_read_search", "--ambient-caps", "+dac_read_search")


def until(what: Callable[[], T | None], seconds: float = 20.0, said: object = "") -> T:
    """Wait for something to become true, with a deadline."""
    deadline = time.monotonic() + seconds
    while not (found := what()):
        if time.monotonic() > deadline:
            pytest.fail(f"not within {seconds} s: {said or what}")
        time.sleep(0.05)
    return found


@functools.cache
def becoming(uid: int) -> tuple[str, ...] | None:
    """The command that runs another as `uid`; None where that cannot be.

    Where the interpreter lies in a directory that only root can enter, the user gets
    the one capability that lets it look in there. The kernel's answer to who it is
    stays the same.
    """
    setpriv = shutil.which("setpriv")
    if os.getuid() != 0 or setpriv is None:
        return None
    plain = (setpriv, "--reuid", str(uid), "--regid", str(uid), "--clear-groups")
    for command in (plain, (*plain, *_AMBIENT)):
        probe = [*command, sys.executable, "-c", _PROBE]
        if subprocess.run(probe, capture_output=True, check=False, env=_environ(), timeout=30).returncode == 0:
            return command
    return None


@functools.cache
def python_for_jobs() -> str:
    """An interpreter that a user without any capability can run."""
    command = becoming(ALICE)
    assert command is not None
    plain = command[: command.index("--clear-groups") + 1]
    for path in (sys.executable, "/usr/bin/python3", "/usr/local/bin/python3"):
        with contextlib.suppress(OSError):
            probe = [*plain, "/bin/sh", "-c", f'test -x {path} && {path} -c ""']
            if subprocess.run(probe, capture_output=True, check=False, timeout=30).returncode == 0:
                return path
    pytest.skip("no python here that an unprivileged user can run")


def _environ(**more: str) -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("SENTINEL_", "XDG_"))}
    path = os.pathsep.join(filter(None, [os.getcwd(), os.environ.get("PYTHONPATH", "")]))
    return {**kept, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1", **more}


class User:
    """Somebody on the machine, with a home that nobody else may enter."""

    def __init__(self, machine: Machine, uid: int) -> None:
        self.uid = uid
        self.home = machine.root / f"home-{uid}"
        self.home.mkdir(mode=0o700)
        os.chown(self.home, uid, uid)
        self._machine = machine
        command = becoming(uid)
        assert command is not None
        self._become = command
        self.environ = _environ(
            HOME=str(self.home), SENTINEL_STATE_DIR=str(self.home / "state"), SENTINEL_SOCKET=str(machine.socket)
        )

    def begin(self, *args: str, **more: Any) -> subprocess.Popen[Any]:
        """Start a sentinel command and leave it running."""
        kept = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, **more}
        started = subprocess.Popen(
            [*self._become, sys.executable, "-m", "sentinel", *args], env=self.environ, cwd=self.home, **kept
        )
        self._machine.started.append(started)
        return started

    def spawn(self, *argv: str, **more: Any) -> subprocess.Popen[bytes]:
        """Any command, without any capability."""
        plain = self._become[: self._become.index("--clear-groups") + 1]
        started = subprocess.Popen([*plain, *argv], env=self.environ, cwd=self.home, stdin=subprocess.DEVNULL, **more)
        self._machine.started.append(started)
        return started

    def sentinel(self, *args: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run one command to its end."""
        done = subprocess.run(
            [*self._become, sys.executable, "-m", "sentinel", *args],
            env=self.environ, cwd=self.home, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        if check and done.returncode != 0:
            pytest.fail(f"sentinel {' '.join(args)} ended with {done.returncode}\n{done.stdout}\n{done.stderr}")
        return done

    def posts(self, path: str, body: Mapping[str, object]) -> int:
        """The HTTP status of a request of this user's."""
        code = (
            "import json, sys\nfrom sentinel.api.client import ApiError, Client\n"
            "try:\n    Client(sys.argv[1]).post(sys.argv[2], json.loads(sys.argv[3]))\n    print(200)\n"
            "except ApiError as fault:\n    print(fault.status)\n"
        )
        done = subprocess.run(
            [*self._become, sys.executable, "-c", code, str(self._machine.socket), path, json.dumps(body)],
            env=self.environ, cwd=self.home, capture_output=True, text=True, timeout=30, check=True,
        )  # fmt: skip
        return int(done.stdout)

    def write(self, name: str, text: str = "") -> Path:
        """A file of this user's in its home, there as a whole or not at all."""
        path, made = self.home / name, self.home / f".{name}.made"
        made.write_text(text)
        os.chown(made, self.uid, self.uid)
        return made.rename(path)

    def make(self, name: str) -> Path:
        """A directory of this user's in its home."""
        path = self.home / name
        path.mkdir(mode=0o700)
        os.chown(path, self.uid, self.uid)
        return path


class Machine:
    """A system's daemon and its users. We are root."""

    def __init__(self) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="snh-", dir="/tmp"))  # short, for the socket's path
        self.root.chmod(0o755)
        self.socket = self.root / "run" / "s.sock"
        self.audit = self.root / "audit.jsonl"
        self.log = self.root / "daemon.out"
        self.started: list[subprocess.Popen[Any]] = []
        self.client = Client(self.socket, 10.0)
        self._daemon: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the daemon and wait until it answers."""
        program = Path(__file__).with_name("audited.py")
        arguments = ["daemon", "--system", "--state-dir", str(self.root / "state"), "--socket", str(self.socket)]
        with self.log.open("ab") as out:
            self._daemon = subprocess.Popen(
                [sys.executable, str(program), str(self.audit), *arguments],
                env=_environ(SENTINEL_CONFIG=str(self._configuration())), stdout=out, stderr=out,
            )  # fmt: skip
        until(self._answers, 30, self.log)

    def _configuration(self) -> Path:
        path = self.root / "sentinel.yaml"
        path.write_text("mode: act\n")
        return path

    def _answers(self) -> bool:
        assert self._daemon is not None
        if self._daemon.poll() is not None:
            pytest.fail(f"the daemon ended: {self.log.read_text()[-3000:]}")
        try:
            return bool(self.client.get("/-/ready") or True)
        except ApiError:
            return False

    def kill(self) -> None:
        """SIGKILL the daemon."""
        assert self._daemon is not None
        self._daemon.kill()
        self._daemon.wait()
        self.client.close()

    def job(self, name: str) -> dict[str, Any]:
        """One job, ended ones included; empty where there is none."""
        found = [job for job in self.client.get("/v1/jobs?all=1") if job["name"] == name]
        return dict(found[-1]) if found else {}

    def events(self, kind: str = "") -> list[dict[str, Any]]:
        """What happened so far, as root sees it."""
        found: list[dict[str, Any]] = self.client.get("/v1/events?limit=5000")
        return [event for event in found if event["kind"].startswith(kind)]

    def ask(self, job: str, request: str, wait_s: float = 20.0) -> dict[str, Any]:
        """Ask a job as root does; the request as it then stands."""
        body = {"request": request, "reason": "a test", "timeout_seconds": 10.0, "wait": wait_s}
        return dict(self.client.post(f"/v1/jobs/{job}/requests", body, timeout_s=wait_s + 10))

    def values(self, expression: str) -> list[float]:
        """The values of an expression."""
        found = self.client.get("/api/v1/query?" + urllib.parse.urlencode({"query": expression}))
        return [float(sample["value"][1]) for sample in found["data"]["result"]]

    def audited(self) -> list[str]:
        """What the daemon has opened, listed, called and run, as Python knows it."""
        return self.audit.read_text().splitlines()

    def end(self) -> None:
        """Stop everything, and remove it."""
        jobs: list[dict[str, Any]] = []
        with contextlib.suppress(ApiError):
            jobs = self.client.get("/v1/jobs")
        for job in jobs:
            if job["root"]:
                kill_tree(job["root"]["pid"])
        for started in self.started:
            for pid in [*hands_of(started.pid), started.pid]:
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
            started.wait()
        if self._daemon is not None and self._daemon.poll() is None:
            self._daemon.terminate()
            try:
                self._daemon.wait(15)
            except subprocess.TimeoutExpired:
                self._daemon.kill()
                self._daemon.wait()
        self.client.close()
        for pid in strays(self.root):
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        shutil.rmtree(self.root, ignore_errors=True)


def children(pid: int) -> list[int]:
    """The children of a process."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            found += [int(child) for child in (thread / "children").read_text().split()]
    return found


def hands_of(supervisor: int) -> list[int]:
    """The hands that a supervisor has started."""
    return [pid for pid in children(supervisor) if _is_hand(pid)]


def strays(root: Path) -> list[int]:
    """Hands whose home is in this machine's directory: those that have outlived their supervisors."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and _is_hand(int(entry.name)):
            with contextlib.suppress(OSError):
                if f"HOME={root}/".encode() in (entry / "environ").read_bytes():
                    found.append(int(entry.name))
    return found


def _is_hand(pid: int) -> bool:
    try:
        return b"sentinel.daemon.hand" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False


def kill_tree(pid: int) -> None:
    """A process and all below it."""
    below = children(pid)
    with contextlib.suppress(OSError):
        os.kill(pid, signal.SIGKILL)
    for child in below:
        kill_tree(child)


class Sink:
    """An HTTP server on loopback that keeps what is posted, and the uid of the process that posted it."""

    def __init__(self, status: int = 200) -> None:
        self.got: list[tuple[int, dict[str, Any]]] = []
        sink = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                sink.got.append((_uid_at(self.client_address[1], sink.port), body))
                self.send_response(status)
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
                return

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = int(self._server.server_address[1])
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def uids(self) -> set[int]:
        """Who has posted."""
        return {uid for uid, _ in self.got}

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()


def _uid_at(local: int, remote: int) -> int:
    """Whose end of a loopback connection has this port, as the kernel's table says."""
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        words = line.split()
        if (int(words[1].split(":")[1], 16), int(words[2].split(":")[1], 16)) == (local, remote):
            return int(words[7])
    return -1
