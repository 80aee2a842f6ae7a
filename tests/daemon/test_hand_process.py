"""A real hand, and a daemon that asks more of it than the job's owner ever declared."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socketserver
import sys
import tempfile
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from sentinel.daemon.handwire import Errand, Habits, Orders, Report
from sentinel.jobs import ownhand
from sentinel.jobs.ownhand import Charge
from sentinel.model.jobs import Channel, How, Job, JobSpec, JobState, ProcessId
from sentinel.model.requests import Outcome, RequestKind
from sentinel.model.wire import decode, encode
from sentinel.notify.ports import Parcel
from sentinel.system import processes

from .machine import Sink, until


class Master:
    """A daemon that gives what orders it likes."""

    def __init__(self, socket: Path) -> None:
        self.orders: Orders | None = None
        self.reports: list[Report] = []
        master = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                master.reports.append(decode(Report, json.loads(self.rfile.read(int(self.headers["Content-Length"])))))
                content = json.dumps(encode(master.orders)).encode()
                self.send_response(200 if master.orders is not None else 404)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def address_string(self) -> str:
                return "here"

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
                return

        class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
            daemon_threads = True

        self._server = Server(str(socket), Handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def results(self) -> dict[str, tuple[Outcome, str]]:
        """What came of errands, so far."""
        return {
            result.id: (result.delivery.outcome, result.delivery.detail)
            for report in list(self.reports)
            for result in report.results
        }

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def place() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="h-", dir="/tmp", ignore_cleanup_errors=True) as made:
        yield Path(made)


@pytest.fixture
def master(place: Path) -> Iterator[Master]:
    made = Master(place / "s.sock")
    yield made
    made.close()


def test_a_hand_does_what_its_owner_declared_and_nothing_else_whoever_asks(
    place: Path, master: Master, sink: Sink
) -> None:
    ourselves = processes.identify(os.getpid())
    declared = JobSpec(
        ("train",), str(place), notify=(f"json://127.0.0.1:{sink.port}/",),
        channels=(
            Channel(RequestKind.CHECKPOINT, How.EXEC, f"/usr/bin/touch {place}/declared"),
            Channel(RequestKind.DEGRADE, How.FILE, f"{place}/ask"),
        ),
    )  # fmt: skip
    log = place / "job" / "attempt-1" / "output.log"
    log.parent.mkdir(parents=True)
    log.write_text("HTTP 429 Too Many Requests\n")
    secret = place / "secret.log"
    secret.write_text("CUDA out of memory\n")
    forged = JobSpec(("x",), "/", logs=(str(secret),), notify=("json://127.0.0.1:1/",))
    message = {"id": "r", "request": "checkpoint", "job": "train", "level": None}
    job = Job("j1", "train", os.getuid(), "me", forged, JobState.RUNNING, root=ourselves, output=(str(secret),))
    master.orders = Orders(
        job,
        errands=(
            Errand("good", How.EXEC, f"/usr/bin/touch '{place}/declared'", message, 10.0),
            Errand("bad-exec", How.EXEC, f"/usr/bin/touch {place}/evil", message, 10.0),
            Errand("bad-file", How.FILE, f"{place}/evil", message, 1.0),
            Errand("bad-http", How.HTTP, f"http://127.0.0.1:{sink.port}/evil", message, 1.0),
        ),
        parcels=(
            Parcel("p-good", declared.notify[0], "good", "body", "info", "j1"),
            Parcel("p-bad", f"json://127.0.0.1:{sink.port}/evil", "evil", "body", "info", "j1"),
        ),
        habits=Habits(),
    )
    pid = ownhand.start(Charge("j1", str(place / "s.sock"), declared, (str(log),), str(place / "job")))
    try:
        results: Any = until(lambda: found if len(found := master.results()) == 4 else None, 30, master.results)
        until(lambda: sink.got, 30)
        until(lambda: [e for report in list(master.reports) for e in report.events], 10)
    finally:
        master.orders = None  # nobody knows this job: it goes by itself
        ended, status = until(lambda: found if (found := os.waitpid(pid, os.WNOHANG))[0] else None, 30)

    assert (ended, status) == (pid, 0)
    assert results["good"][0] is Outcome.DONE
    assert [results[name][0] for name in ("bad-exec", "bad-file", "bad-http")] == [Outcome.REFUSED] * 3
    assert "the owner never declared" in results["bad-exec"][1]
    assert (place / "declared").exists()
    assert not (place / "evil").exists()
    assert {body["title"] for _, body in sink.got} == {"good"}
    events = [event for report in master.reports for event in report.events]
    assert [event.kind.value for event in events] == ["rate_limited"]  # of its own log, not of the one it was told of


def test_a_charge_is_in_nobodys_command_line(place: Path, master: Master) -> None:
    del master
    spec = JobSpec(("train",), "/", notify=("slack://secret/",))
    pid = ownhand.start(Charge("j1", str(place / "none.sock"), spec))
    try:
        until(lambda: b"sentinel.daemon.hand" in Path(f"/proc/{pid}/cmdline").read_bytes())
        line = Path(f"/proc/{pid}/cmdline").read_bytes()
        assert b"secret" not in line
        assert os.getsid(pid) == pid
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    assert sys.executable.encode() in line
    assert decode(Charge, encode(Charge("j", "s", spec, supervisor=ProcessId(1, 2, "b")))).supervisor is not None
