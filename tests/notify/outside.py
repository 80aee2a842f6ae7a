"""The outside, for real: a mail server and an HTTP sink on loopback, and a notifier with its parts."""

from __future__ import annotations

import asyncio
import email
import email.policy
import json
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from email.message import EmailMessage
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from aiosmtpd.controller import Controller

from sentinel.clock import Clock, ManualClock, SystemClock
from sentinel.model.alerts import Alert, AlertState, Reason, RuleSpec, Transition, fingerprint
from sentinel.model.checkpoints import Checkpoint
from sentinel.model.events import Event
from sentinel.model.jobs import Job, JobSpec, JobState
from sentinel.model.journal import JournalUnavailable, Record
from sentinel.model.labels import Labels
from sentinel.model.requests import Request
from sentinel.notify.notifier import Notifier
from sentinel.notify.ports import Courier, Parcel, Receipt
from sentinel.notify.settings import Receiver, Route, Settings

NOW = 1_800_000_000.0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def until(what: Callable[[], Any], seconds: float = 15.0) -> Any:
    deadline = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < deadline, "not in time"
        time.sleep(0.02)
    return found


class Mailbox:
    """A real SMTP server that keeps what it gets."""

    def __init__(self) -> None:
        self.letters: list[EmailMessage] = []
        self.port = free_port()
        self._controller: Any = None

    @property
    def url(self) -> str:
        return f"mailto://127.0.0.1:{self.port}/?from=sentinel@example.com&to=alice@example.com&mode=insecure"

    def open(self) -> None:
        self._controller = Controller(self, hostname="127.0.0.1", port=self.port)
        self._controller.start()

    def close(self) -> None:
        if self._controller is not None:
            self._controller.stop()
            self._controller = None

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:
        self.letters.append(email.message_from_bytes(envelope.content, policy=email.policy.default))
        return "250 kept"

    def subjects(self) -> list[str]:
        return [str(letter["subject"]) for letter in self.letters]

    def text(self, index: int) -> str:
        body = self.letters[index].get_body(("plain", "html"))
        assert body is not None
        return str(body.get_content())


class Sink:
    """A real HTTP server that keeps JSON, and answers as told."""

    def __init__(self) -> None:
        self.got: list[dict[str, Any]] = []
        self.tries = 0
        self.status = 200
        self.headers: dict[str, str] = {}
        self.hold = threading.Event()
        self.hold.set()
        sink = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                sink.tries += 1
                sink.hold.wait(20)
                if sink.status == 200:
                    sink.got.append(json.loads(body))
                self.send_response(sink.status)
                for name, value in sink.headers.items():
                    self.send_header(name, value)
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as inherited
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"json://127.0.0.1:{self._server.server_address[1]}/hook"

    def close(self) -> None:
        self.hold.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class Carrier:
    """A courier of ours: keeps what it was given, answers as told."""

    def __init__(self) -> None:
        self.parcels: list[Parcel] = []
        self.answer: Callable[[Parcel], Receipt] = lambda parcel: Receipt(parcel.id, delivered=True)

    def exchange(self, parcels: Sequence[Parcel], wait_s: float) -> list[Receipt]:
        self.parcels += parcels
        return [self.answer(parcel) for parcel in parcels]

    def check(self, urls: Sequence[str]) -> list[str | None]:
        return ["no such scheme" if url.startswith("nope") else None for url in urls]

    def close(self) -> None:
        pass

    def titles(self) -> list[str]:
        return [parcel.title for parcel in self.parcels]


class MemoryJournal:
    def __init__(self) -> None:
        self.lines: list[str] = []
        self.full = False

    def append(self, kind: str, data: Mapping[str, object]) -> None:
        if self.full:
            raise JournalUnavailable("no space left on device")
        self.lines.append(json.dumps([kind, data]))

    def replay(self) -> list[Record]:
        return [Record(seq, NOW, *json.loads(line)) for seq, line in enumerate(self.lines)]


ONCALL = Settings(
    receivers=(Receiver("oncall", ("json://oncall.example/a",)),),
    route=Route("oncall", group_wait_s=30, group_interval_s=300, repeat_interval_s=14400),
)


class Desk:
    """A notifier, its journal, its clock and its jobs."""

    def __init__(self, settings: Settings = ONCALL, courier: Courier | None = None, *, real_time: bool = False) -> None:
        self.settings = settings
        self.carrier = Carrier()
        self.courier: Courier = courier or self.carrier
        self.journal = MemoryJournal()
        self.clock: Clock = SystemClock() if real_time else ManualClock(NOW)
        self.events: list[Event] = []
        self.jobs: dict[str, Job] = {}
        self.requests: list[Request] = []
        self.checkpoint: Checkpoint | None = None
        self.silenced: set[str] = set()
        self.notifier = self._new()

    def _new(self) -> Notifier:
        return Notifier(
            self.journal,
            self.events.append,
            self.courier,
            clock=self.clock,
            settings=self.settings,
            find=self.find,
            jobs_of=lambda alert: [job] if (job := self.find(alert.job or "")) else [],
            requests_of=lambda alert: [r for r in self.requests if r.alert == alert.id],
            requests_to=lambda job_id: [r for r in self.requests if r.job_id == job_id],
            newest=lambda _job_id: self.checkpoint,
            silences=self,
            mask=lambda text: text.replace("sk-secret", "***"),
            uid=1000,
            jitter=lambda: 0.5,
        )

    def find(self, name_or_id: str) -> Job | None:
        return self.jobs.get(name_or_id) or next((j for j in self.jobs.values() if j.name == name_or_id), None)

    def covering(self, alert: Alert) -> str | None:
        return "s1" if alert.id in self.silenced else None

    def restart(self, alerts: Sequence[Transition] = (), ended: Sequence[Job] = ()) -> None:
        self.notifier = self._new()
        for record in self.journal.replay():
            self.notifier.fold(record)
        self.notifier.recover(alerts, ended)

    async def tick(self) -> None:
        await self.notifier.tick(self.clock.now())
        await self.notifier.settle()

    async def after(self, seconds: float) -> None:
        assert isinstance(self.clock, ManualClock)
        self.clock.advance(seconds)
        await self.tick()

    async def ticking(self, what: Callable[[], Any], seconds: float = 20.0) -> None:
        """Let real time pass until something is true."""
        deadline = time.monotonic() + seconds
        while not what():
            assert time.monotonic() < deadline, "not in time"
            await self.notifier.tick(self.clock.now())
            await asyncio.sleep(0.05)


def a_job(name: str = "llama", *, job_id: str = "j1", notify: tuple[str, ...] = (), **changes: Any) -> Job:
    spec = JobSpec(argv=("python", "train.py"), cwd="/", name=name, notify=notify)
    job = Job(job_id, name, 1000, "alice", spec, JobState.RUNNING, NOW - 7200, NOW - 7200, 1, NOW - 7200)
    return replace(job, **changes)


RULE = RuleSpec("memory", "MemoryLow", "job_memory_headroom_bytes / 1e9 < 60")


def firing(
    at: float = NOW, *, rule: RuleSpec = RULE, severity: str = "critical", summary: str = "", **labels: str
) -> Transition:
    full = Labels({"alertname": rule.name, "severity": severity, **(labels or {"job": "llama"})})
    notes = (("summary", summary or "llama runs out of memory"),)
    alert = Alert(
        fingerprint("memory", full),
        rule.name,
        "memory",
        full,
        AlertState.FIRING,
        42.0,
        at - 4,
        at,
        None,
        at,
        annotations=notes,
    )
    return Transition(alert, AlertState.PENDING, Reason.HELD, at, rule)


def resolving(change: Transition, at: float, reason: Reason = Reason.ENDED) -> Transition:
    over = replace(change.alert, state=AlertState.RESOLVED, resolved=at)
    return Transition(over, AlertState.FIRING, reason, at, change.rule)
