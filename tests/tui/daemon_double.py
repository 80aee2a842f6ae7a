"""A real HTTP server on a Unix socket that says what a test wants the daemon to say."""

from __future__ import annotations

import contextlib
import json
import queue
import socket
import socketserver
import threading
import time
import urllib.parse
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from types import TracebackType
from typing import Any, Self

MIB = 1024.0 * 1024.0
GIB = 1024.0 * MIB


class _Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True
    request_queue_size = 64


class DaemonDouble:
    """Serves `overview`, `jobs`, `events`, `requests` and curves; keeps what it was asked to do.

    Attributes:
        overview: The answer of /v1/overview, as plain data; change it at will.
        asked: Path and body of each POST, in order.
        answer: What becomes of a request to a job.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.overview: dict[str, Any] = overview()
        self.requests: list[dict[str, Any]] = []
        self.ended: list[dict[str, Any]] = []
        self.past: list[dict[str, Any]] = []
        self.asked: list[tuple[str, Any]] = []
        self.queries: list[dict[str, str]] = []
        self.answer: Callable[[dict[str, Any]], tuple[int, Any]] = lambda body: (
            200,
            request(body["request"], answer="done", effect="observed", detail="step-000130.safetensors"),
        )
        self.curve: Callable[[float], float | None] = lambda moment: 400 * MIB
        self._followers: list[queue.Queue[dict[str, Any] | None]] = []
        self._connections: set[socket.socket] = set()
        self._server: _Server | None = None
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        self.path.unlink(missing_ok=True)
        self._server = _Server(str(self.path), _handler(self))
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    def stop(self) -> None:
        if self._server is None or self._thread is None:
            return
        self.path.unlink(missing_ok=True)
        for follower in self._followers:
            follower.put(None)
        self._server.shutdown()
        for connection in list(self._connections):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self._server.server_close()
        self._thread.join()
        self._server = None

    def happen(self, kind: str, message: str, *, job: str | None = None, severity: str = "info") -> None:
        """An event, now, to all who follow."""
        made = event(kind, message, job=job, severity=severity)
        self.past.append(made)
        for follower in list(self._followers):
            follower.put(made)


def _handler(daemon: DaemonDouble) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def setup(self) -> None:
            super().setup()
            daemon._connections.add(self.connection)

        def finish(self) -> None:
            daemon._connections.discard(self.connection)
            with contextlib.suppress(OSError):
                super().finish()

        def do_GET(self) -> None:
            parts = urllib.parse.urlsplit(self.path)
            query = dict(urllib.parse.parse_qsl(parts.query))
            if parts.path == "/v1/overview":
                self._say(200, {**daemon.overview, "time": time.time()})
            elif parts.path == "/v1/jobs":
                self._say(200, [*daemon.overview["jobs"], *daemon.ended])
            elif parts.path == "/v1/requests":
                self._say(200, daemon.requests)
            elif parts.path == "/v1/events":
                self._follow()
            elif parts.path == "/api/v1/query_range":
                daemon.queries.append(query)
                self._say(200, self._matrix(query))
            else:
                self._say(404, {"error": {"message": f"no {parts.path}", "hint": None, "kind": "not_found"}})

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"null")
            daemon.asked.append((self.path, body))
            if self.path.endswith("/requests"):
                self._say(*daemon.answer(body))
            else:
                self._say(200, {})

        def _matrix(self, query: dict[str, str]) -> dict[str, Any]:
            start, end, step = (float(query[name]) for name in ("start", "end", "step"))
            values = []
            while start <= end:
                if (value := daemon.curve(start)) is not None:
                    values.append([start, repr(value)])
                start += step
            return {"status": "success", "data": {"resultType": "matrix", "result": [{"metric": {}, "values": values}]}}

        def _follow(self) -> None:
            events: queue.Queue[dict[str, Any] | None] = queue.Queue()
            daemon._followers.append(events)
            for one in daemon.past:
                events.put(one)
            self.send_response(200)
            self.send_header("Content-Type", "application/x-ndjson")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            self.wfile.flush()
            try:
                while (one_ := events.get()) is not None:
                    line = json.dumps(one_).encode() + b"\n"
                    self.wfile.write(f"{len(line):x}\r\n".encode() + line + b"\r\n")
                    self.wfile.flush()
                self.wfile.write(b"0\r\n\r\n")
            except OSError:
                pass
            self.close_connection = True

        def _say(self, status: int, data: Any) -> None:
            content = json.dumps(data).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            if daemon._server is None:
                self.close_connection = True
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_words: object) -> None:
            pass

    return Handler


def job(name: str, **more: Any) -> dict[str, Any]:
    """A job of the overview, healthy unless said otherwise."""
    now = time.time()
    made: dict[str, Any] = {
        "id": f"j-{name}",
        "name": name,
        "uid": 1000,
        "owner": "alice",
        "state": "running",
        "since": now - 300,
        "created": now - 301,
        "attempt": 1,
        "attempt_started": now - 300,
        "root": {"pid": 4242, "start_ticks": 1, "boot_id": "b"},
        "degrade_level": 0,
        "adopted": False,
        "output": ["/home/alice/.local/state/sentinel/box/jobs/j1/attempt-1.log"],
        "exit_code": None,
        "exit_signal": None,
        "cause": "",
        "ended": None,
        "spec": {
            "argv": ["python", "train.py", "--config", "llama.yaml"],
            "cwd": "/home/alice",
            "checkpoints": [{"path": "/data/ckpt", "interval_s": 1800.0}],
            "channels": [
                {"request": "checkpoint", "how": "signal", "target": "USR1", "pattern": ""},
                {"request": "degrade", "how": "signal", "target": "USR2", "pattern": ""},
            ],
            "degrade_levels": 1,
            "memory_limit_bytes": int(600 * MIB),
            "notify": [],
            "dry_run": False,
        },
        "memory": {
            "used_bytes": 212 * MIB,
            "limit_bytes": 600 * MIB,
            "headroom_bytes": 388 * MIB,
            "rss_bytes": 230 * MIB,
            "growth_bytes_per_second": 120.0,
            "full_in_seconds": None,
        },
        "gpu_memory_bytes": None,
        "processes": 3.0,
        "cpu_cores": 1.2,
        "step": None,
        "checkpoint": {
            "path": "/data/ckpt/step-000120.safetensors",
            "finished": now - 95,
            "size_bytes": 4 * MIB,
            "step": 120,
            "age_seconds": 95.0,
        },
        "last_output": now - 1,
        "last_progress": now - 1,
        "alerts": [],
        "open_requests": [],
    }
    made.update(more)
    return made


def alert(rule: str, *, job: str, severity: str = "critical", summary: str = "", **more: Any) -> dict[str, Any]:
    """A firing alert."""
    now = time.time()
    made: dict[str, Any] = {
        "id": f"a-{rule}-{job}",
        "rule": rule,
        "group": "memory",
        "labels": {"alertname": rule, "job": job, "severity": severity},
        "job": job,
        "severity": severity,
        "state": "firing",
        "value": 50.0,
        "began": now - 16,
        "fired": now - 12,
        "annotations": {"summary": summary or f"{job} runs out of memory in 50s"},
        "acknowledged_by": "",
    }
    made.update(more)
    return made


def gpu(index: int, *, used: float = 84.2 * GIB, busy: float = 0.98, **more: Any) -> dict[str, Any]:
    """A board of the overview."""
    made: dict[str, Any] = {
        "gpu": str(index),
        "uuid": f"GPU-{index}",
        "model": "NVIDIA H200",
        "mig": "",
        "memory_used_bytes": used,
        "memory_total_bytes": 140 * GIB,
        "utilization_ratio": busy,
        "temperature_celsius": 61.0 + 3 * index,
        "power_watts": 640.0 - 20 * index,
        "power_limit_watts": 700.0,
        "up": 1.0,
    }
    made.update(more)
    return made


def request(kind: str, **more: Any) -> dict[str, Any]:
    """A request as the API shows it."""
    now = time.time()
    made: dict[str, Any] = {
        "id": f"r-{kind}-{now}",
        "kind": kind,
        "state": "closed",
        "answer": None,
        "effect": None,
        "created": now - 10,
        "closed": now - 8,
        "level": None,
        "by": "rule:MemoryExhaustionImminent",
        "reason": "leaky runs out of memory in 50s",
        "detail": "",
        "via": "signal:USR1",
    }
    made.update(more)
    return made


def event(kind: str, message: str, *, job: str | None = None, severity: str = "info", ago: float = 0) -> dict[str, Any]:
    """An event as the API shows it."""
    at = time.time() - ago
    return {"id": f"e{time.monotonic_ns()}", "time": at, "kind": kind, "job": job, "severity": severity,
            "message": message, "data": {}}  # fmt: skip


def overview(**more: Any) -> dict[str, Any]:
    """An overview with nothing in it but a host."""
    made: dict[str, Any] = {
        "time": time.time(),
        "version": "0.1.0",
        "mode": "act",
        "host": {
            "memory_total_bytes": 251.5 * GIB,
            "memory_available_bytes": 180.0 * GIB,
            "swap_used_bytes": 0.0,
            "cpu_utilization_ratio": 0.34,
            "load1": 5.2,
            "shm_used_ratio": 0.02,
            "oom_kills_total": 0.0,
            "boot_time_seconds": time.time() - 9 * 86400,
        },
        "gpus": [],
        "jobs": [],
        "alerts": [],
        "health": {
            "collectors": [{"name": "host", "up": 1, "seconds": 0.002, "reason": ""}],
            "store": {"lag_seconds": 0.4, "size_bytes": 1000},
            "rules": {"count": 12, "unhealthy": []},
            "receivers": ["oncall"],
            "undelivered": 0,
        },
    }
    made.update(more)
    return made


def bad_night() -> dict[str, Any]:
    """Four jobs, one of them about to be full."""
    leaky = job(
        "leaky",
        memory={
            "used_bytes": 412 * MIB, "limit_bytes": 600 * MIB, "headroom_bytes": 188 * MIB, "rss_bytes": 430 * MIB,
            "growth_bytes_per_second": 20 * MIB, "full_in_seconds": 9.4,
        },
        alerts=["a-MemoryExhaustionImminent-leaky"],
        gpu_memory_bytes=12.4 * GIB,
        open_requests=[request("checkpoint", state="sent", answer=None, closed=None)],
    )  # fmt: skip
    agent = job("agent", gpu_memory_bytes=None, checkpoint=None, degrade_level=1)
    agent["spec"] = {**agent["spec"], "checkpoints": [], "channels": [
        {"request": "degrade", "how": "file", "target": "/tmp/agent/degrade", "pattern": ""}]}  # fmt: skip
    agent["memory"] = {**agent["memory"], "used_bytes": 38 * MIB, "limit_bytes": 251 * GIB}
    forgetful = job("forgetful", gpu_memory_bytes=71.8 * GIB)
    forgetful["spec"] = {**forgetful["spec"], "checkpoints": [{"path": "/data/f", "interval_s": 30.0}]}
    happy = job("happy-llama-3-70b-finetune", processes=5.0)
    happy["memory"] = {**happy["memory"], "rss_bytes": 1100 * MIB}
    return overview(
        gpus=[gpu(0), gpu(1, used=12.4 * GIB, busy=0.41)],
        jobs=[leaky, agent, forgetful, happy],
        alerts=[
            alert("CheckpointOverdue", job="forgetful", severity="warning", summary="forgetful has not saved for 95s, one is wanted every 30s"),
            alert("MemoryExhaustionImminent", job="leaky"),
            alert("RateLimited", job="agent", severity="warning", state="pending", fired=None, summary="agent gets 4.1 refusals a second"),
        ],
    )  # fmt: skip
