"""A household: a daemon in a temporary directory, real jobs, a real mail server, a real HTTP sink."""

from __future__ import annotations

import contextlib
import email
import email.policy
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
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, TypeVar

import pytest
from aiosmtpd.controller import Controller

from sentinel.api.client import Client

T = TypeVar("T")


def until(what: Callable[[], T], seconds: float = 20.0, said: str = "") -> T:
    """Wait for something to become true, with a deadline."""
    deadline = time.monotonic() + seconds
    while True:
        found = what()
        if found:
            return found
        if time.monotonic() > deadline:
            pytest.fail(f"not within {seconds} s: {said or what}")
        time.sleep(0.05)


class Household:
    """Everything of one user, under one directory."""

    def __init__(self) -> None:
        # A short path: a Unix socket's has 107 bytes at most.
        self.root = Path(tempfile.mkdtemp(prefix="snt-", dir="/tmp"))
        self.socket = self.root / "run" / "s.sock"
        self.state = self.root / "state"
        self.environ = {
            **{key: value for key, value in os.environ.items() if not key.startswith("SENTINEL_")},
            "SENTINEL_SOCKET": str(self.socket),
            "SENTINEL_STATE_DIR": str(self.state),
            "XDG_CONFIG_HOME": str(self.root / "config"),
            "PYTHONPATH": os.pathsep.join(filter(None, [os.getcwd(), os.environ.get("PYTHONPATH", "")])),
        }
        self._client = Client(self.socket, 10.0)
        self._daemon: subprocess.Popen[bytes] | None = None
        self._started: list[subprocess.Popen[Any]] = []
        self.log = self.root / "daemon.out"

    def configure(self, text: str) -> None:
        """Write the configuration file."""
        path = self.root / "config" / "sentinel" / "sentinel.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def start(self) -> Client:
        """Start the daemon and wait until it answers."""
        with self.log.open("ab") as out:
            self._daemon = subprocess.Popen(
                [sys.executable, "-m", "sentinel", "daemon"], env=self.environ, stdout=out, stderr=out
            )
        until(self.answers, 20, f"the daemon answers; it said: {self.said()}")
        return self.client()

    def answers(self) -> bool:
        """Whether the daemon is up and ready."""
        if self._daemon is not None and self._daemon.poll() is not None:
            pytest.fail(f"the daemon ended with {self._daemon.returncode}: {self.said()}")
        try:
            return bool(self.client().get("/-/ready") or True)
        except Exception:
            return False

    def said(self) -> str:
        """What the daemon printed."""
        return self.log.read_text(errors="replace")[-4000:] if self.log.exists() else ""

    def client(self) -> Client:
        """A client of the daemon."""
        return self._client

    def kill_daemon(self) -> None:
        """SIGKILL it, as the kernel's OOM killer would."""
        assert self._daemon is not None
        self._daemon.kill()
        self._daemon.wait()

    @property
    def daemon_pid(self) -> int:
        """Of the daemon started here."""
        assert self._daemon is not None
        return self._daemon.pid

    def sentinel(
        self, *args: str, check: bool = True, timeout: float = 30, **more: Any
    ) -> subprocess.CompletedProcess[str]:
        """Run one command to its end."""
        done = subprocess.run(
            [sys.executable, "-m", "sentinel", *args],
            env=self.environ,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
            **more,
        )
        if check and done.returncode != 0:
            pytest.fail(f"sentinel {' '.join(args)} ended with {done.returncode}\n{done.stdout}\n{done.stderr}")
        return done

    def json(self, *args: str) -> Any:
        """What a reading command answers."""
        return json.loads(self.sentinel(*args, "--json").stdout)

    def begin(self, *args: str, **more: Any) -> subprocess.Popen[str]:
        """Start a command and leave it running."""
        started = subprocess.Popen(
            [sys.executable, "-m", "sentinel", *args],
            env=self.environ,
            text=True,
            stdin=subprocess.DEVNULL,
            **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **more},
        )
        self._started.append(started)
        return started

    def job(self, name: str) -> dict[str, Any] | None:
        """One job, ended ones included."""
        found = [job for job in self.client().get("/v1/jobs?all=1") if job["name"] == name]
        return found[-1] if found else None

    def events(self, kind: str = "") -> list[dict[str, Any]]:
        """What happened so far."""
        found: list[dict[str, Any]] = self.client().get("/v1/events?limit=5000")
        return [event for event in found if event["kind"].startswith(kind)]

    def requests(self, job: str) -> list[dict[str, Any]]:
        """What was asked of a job."""
        if self.job(job) is None:
            return []
        found: list[dict[str, Any]] = self.client().get(f"/v1/requests?job={job}")
        return found

    def value(self, expression: str) -> float:
        """The value of an expression that yields one."""
        found = self.client().get("/api/v1/query?" + urllib.parse.urlencode({"query": expression}))
        (sample,) = found["data"]["result"]
        return float(sample["value"][1])

    def end(self) -> None:
        """Stop everything and remove the directory."""
        jobs = []
        with contextlib.suppress(Exception):
            jobs = self.client().get("/v1/jobs")
        for job in jobs:
            if job["root"]:
                _kill_tree(job["root"]["pid"])
        for started in self._started:
            if started.poll() is None:
                started.kill()
            started.wait()
            for stream in (started.stdout, started.stderr, started.stdin):
                if stream:
                    stream.close()
        if self._daemon is not None and self._daemon.poll() is None:
            self._daemon.terminate()
            try:
                self._daemon.wait(15)
            except subprocess.TimeoutExpired:
                self._daemon.kill()
                self._daemon.wait()
        self._client.close()
        shutil.rmtree(self.root, ignore_errors=True)


def _kill_tree(pid: int) -> None:
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        os.kill(pid, signal.SIGKILL)
    except OSError:
        return
    for child in children:
        _kill_tree(int(child))


class Mailbox:
    """A real SMTP server on loopback that keeps what it gets."""

    def __init__(self) -> None:
        self.letters: list[Any] = []
        self._controller = Controller(self, hostname="127.0.0.1", port=0)
        self._controller.port = _free_port()
        self._controller.start()

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:
        self.letters.append(email.message_from_bytes(envelope.content, policy=email.policy.default))
        return "250 kept"

    @property
    def url(self) -> str:
        """For apprise."""
        return (
            f"mailto://127.0.0.1:{self._controller.port}/?from=sentinel@example.com&to=alice@example.com&mode=insecure"
        )

    def subjects(self) -> list[str]:
        """Of the letters, in the order in which they came."""
        return [str(letter["subject"]) for letter in self.letters]

    def text(self, index: int) -> str:
        """The text of one letter."""
        body = self.letters[index].get_body(("plain", "html"))
        return str(body.get_content())

    def close(self) -> None:
        """Stop serving."""
        self._controller.stop()


class Sink:
    """An HTTP server that takes what apprise's json:// posts."""

    def __init__(self) -> None:
        self.got: list[dict[str, Any]] = []
        sink = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                sink.got.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                self.send_response(200)
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
                return

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        """For apprise."""
        return f"json://127.0.0.1:{self._server.server_address[1]}/"

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()


def _free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def household() -> Iterator[Household]:
    """One user's daemon and jobs; everything is ended afterwards."""
    made = Household()
    yield made
    made.end()


@pytest.fixture
def mailbox() -> Iterator[Mailbox]:
    """A mail server."""
    made = Mailbox()
    yield made
    made.close()


@pytest.fixture
def sink() -> Iterator[Sink]:
    """An HTTP sink."""
    made = Sink()
    yield made
    made.close()
