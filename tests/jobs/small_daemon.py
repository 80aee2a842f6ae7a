"""A daemon with nothing but the jobs room: the register, the monitor, the handover and three routes.

`python small_daemon.py SOCKET STATE_DIRECTORY` runs it until it is killed. It keeps its journal in
STATE/journal.jsonl and its events in STATE/events.jsonl, one JSON object a line.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sentinel.clock import SystemClock
from sentinel.errors import SentinelError
from sentinel.jobs.control import Control
from sentinel.jobs.hand import LocalHand
from sentinel.jobs.handover import Handover
from sentinel.jobs.monitor import Monitor
from sentinel.jobs.register import Register
from sentinel.jobs.settings import Settings
from sentinel.jobs.trees import Forest
from sentinel.model.events import Event, new_id
from sentinel.model.jobs import JobSpec, JobState, ProcessId
from sentinel.model.journal import Record
from sentinel.model.requests import Request, RequestKind
from sentinel.model.wire import decode, encode


class LinesFile:
    """The journal and the event stream of a test: JSON lines."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, kind: str, data: Mapping[str, object]) -> None:
        with self.path.open("a") as file:
            file.write(json.dumps({"kind": kind, "data": data}) + "\n")

    def publish(self, event: Event) -> None:
        self.append(event.kind, encode(event))

    def lines(self) -> list[dict[str, Any]]:
        if not self.path.exists():
            return []
        return [json.loads(line) for line in self.path.read_text().splitlines()]


class SmallDaemon:
    def __init__(self, socket: Path, state: Path, settings: Settings | None = None) -> None:
        state.mkdir(parents=True, exist_ok=True)
        self.socket = socket
        self.state = state
        journal, events = LinesFile(state / "journal.jsonl"), LinesFile(state / "events.jsonl")
        settings = settings or Settings(report_grace_s=1.0, stop_grace_s=2.0)
        self.register = Register(journal, events.publish, SystemClock(), directory=state)
        for seq, line in enumerate(journal.lines()):
            self.register.fold(Record(seq, 0.0, line["kind"], line["data"]))
        self.forest = Forest()
        self.handover = Handover(socket.parent / "handover.sock", self.register, settings)
        self.monitor = Monitor(self.register, self.forest, SystemClock(), settings, self.handover)
        self.control = Control(self.register, self.forest, lambda _: LocalHand(settings), settings)
        self.resume_from: str | None = os.environ.get("SMALL_RESUME_FROM")

    async def run(self) -> None:
        self.handover.open()
        with contextlib.suppress(FileNotFoundError):
            self.socket.unlink()
        server = await asyncio.start_unix_server(self._serve, str(self.socket))
        async with server:
            while True:
                self.monitor.tick()
                await asyncio.sleep(0.1)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
                path = head.split(" ")[1]
                lengths = [int(line.split(":")[1]) for line in head.split("\r\n") if line.startswith("content-length")]
                body = json.loads(await reader.readexactly(lengths[0] if lengths else 0) or b"{}")
                answer: dict[str, Any]
                try:
                    status, answer = 200, await self._answer(path.split("/")[2:], body)
                except SentinelError as fault:
                    status, answer = 400, {"error": {"message": fault.message, "hint": fault.hint, "kind": "bad_data"}}
                content = json.dumps(answer).encode()
                start = f"HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {len(content)}"
                writer.write(f"{start}\r\n\r\n".encode() + content)
                await writer.drain()
        writer.close()

    async def _answer(self, path: list[str], body: dict[str, Any]) -> dict[str, Any]:
        match path:
            case ["jobs"] if not body:
                return [encode(job) for job in self.register.living()]  # type: ignore[return-value]
            case ["jobs"]:
                given = body["supervisor"] and decode(ProcessId, body["supervisor"])
                adopt = body["adopt"] and decode(ProcessId, body["adopt"])
                spec = decode(JobSpec, body["spec"])
                if spec.name == "unwelcome":
                    raise SentinelError("rules.yaml:1:1: that is no rule file", hint="another one")
                made = self.register.register(spec, uid=os.getuid(), owner="me", supervisor=given, adopt=adopt)
                self.monitor.tick()
                return {
                    "job": encode(made.job),
                    "renamed_from": made.renamed_from,
                    "directory": made.directory,
                    "resume_from": self.resume_from,
                    "socket": str(self.socket),
                    "handover": str(self.handover.path),
                    "facts": {},
                }
            case ["jobs", job_id] if not body:
                job = self.register.find(job_id)
                assert job is not None
                return dict(encode(job))
            case ["jobs", job_id, "room"]:
                return {"free": not (self.state / "full").exists(), "reason": "GPU-1 still holds 71 GiB"}
            case ["jobs", job_id, "waiting"]:
                self.register.waits(job_id, body["until"], body["reason"])
                return {}
            case ["jobs", job_id, "said"]:
                LinesFile(self.state / "said.jsonl").append(body["kind"], body)
                return {}
            case ["jobs", job_id, "requests"]:
                job = self.register.find(job_id)
                assert job is not None
                now = time.time()
                asked = Request(
                    new_id("r"), job.id, job.name, job.attempt, RequestKind(body["request"]), None, body["reason"], None,
                    "user:me", now, now + body["timeout_seconds"],
                )  # fmt: skip
                delivery = await self.control.deliver(job, asked)
                LinesFile(self.state / "asked.jsonl").append(body["request"], encode(delivery))
                return {"answer": delivery.outcome.value, "detail": delivery.detail, "effect": None}
            case ["jobs", job_id, "attempts"]:
                self.register.attempt_started(
                    job_id,
                    attempt=body["attempt"],
                    root=decode(ProcessId, body["root"]),
                    pgid=body["pgid"],
                    output=tuple(body["output"]),
                    degrade_level=body.get("degrade_level"),
                )
                self.monitor.tick()
                return {}
            case ["jobs", job_id, "end"]:
                ended = self.register.attempt_ended(job_id, **body)
                judged = self.register.judgement(job_id)
                following: dict[str, Any] | None = None
                if ended.state is JobState.WAITING:
                    following = {
                        **(encode(judged) if judged else {}),
                        "retry_after_seconds": judged.retry_after_s if judged else None,
                        "restart": ended.restarting,
                        "progressed": (self.state / "progressed").exists(),
                        "resume_from": self.resume_from,
                        "degrade_level": ended.degrade_level,
                    }
                return {**encode(ended), "next": following}
            case ["deliver"]:
                request = decode(Request, body)
                job = self.register.find(request.job_id)
                assert job is not None
                return dict(encode(await self.control.deliver(job, request)))
        raise SentinelError(f"no route {path}")


if __name__ == "__main__":
    asyncio.run(SmallDaemon(Path(sys.argv[1]), Path(sys.argv[2])).run())
