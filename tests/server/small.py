"""A daemon small enough to read at once: real window, real hub, lists for the rest."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from sentinel.clock import ManualClock
from sentinel.daemon.hub import Hub
from sentinel.errors import SentinelError
from sentinel.exporters.prometheus import exposition
from sentinel.model.alerts import Alert, AlertState, RuleSpec, fingerprint
from sentinel.model.events import Event, Severity, new_id
from sentinel.model.families import BY_NAME
from sentinel.model.jobs import Job, JobSpec, JobState, ProcessId
from sentinel.model.labels import Labels
from sentinel.model.requests import Answer, Effect, Request, RequestKind, RequestState
from sentinel.model.silences import Silence
from sentinel.promql.series import SeriesReader
from sentinel.server.app import Server, serve
from sentinel.server.core import GroupStatus, Owner, Registration, RuleStatus, Table
from sentinel.server.listen import Listener, UnixListener
from sentinel.server.settings import Settings
from sentinel.store.window import Window

NOW = 1_800_000_000.0
ME = os.getuid()

RULE = RuleSpec(
    group="memory",
    name="MemoryExhaustionImminent",
    expr="job_memory_headroom_bytes < 100",
    for_s=4.0,
    labels=Labels({"severity": "critical"}),
    file="memory.yaml",
    line=4,
)


class SmallDaemon:
    """Implements `sentinel.server.core.Core`."""

    def __init__(self) -> None:
        self.clock = ManualClock(NOW)
        self.window = Window()
        self.hub = Hub(lambda event: None)
        self.mode = "act"
        self.system = False
        self.started = NOW - 60
        self.ready = True
        self.all_jobs: list[Job] = []
        self.all_requests: list[Request] = []
        self.all_alerts: list[Alert] = []
        self.all_silences: list[Silence] = []
        self.words: list[tuple[str, Any]] = []
        self.outcome = Answer.DONE
        self.closes_after = 0
        self.barred = ""

    # What a test prepares

    def add_job(self, name: str, *, uid: int = ME, state: JobState = JobState.RUNNING, **spec: Any) -> Job:
        """A job that runs."""
        job = Job(
            id=new_id("j"),
            name=name,
            uid=uid,
            owner=str(uid),
            spec=JobSpec(argv=("python", "train.py"), cwd="/tmp", **spec),
            state=state,
            since=NOW - 30,
            created=NOW - 30,
        )
        self.all_jobs.append(job)
        return job

    def add_alert(self, job: str | None, state: AlertState = AlertState.FIRING) -> Alert:
        """An alert that is open."""
        labels = Labels({"alertname": RULE.name, "severity": "critical", **({"job": job} if job else {})})
        summary = f"{job} runs out of memory in 45s"
        alert = Alert(
            fingerprint(RULE.group, labels), RULE.name, RULE.group, labels, state, 45.0, NOW - 10, fired=NOW - 6,
            seen=NOW, annotations=(("summary", summary),),
        )  # fmt: skip
        self.all_alerts.append(alert)
        return alert

    def measure(self, name: str, rows: Mapping[tuple[str, ...], Mapping[str, float]], at: float = NOW) -> None:
        """One pass of a collector."""
        family = BY_NAME[name]
        self.window.append(
            family.batch(at, {entity: [values.get(m.name) for m in family.metrics] for entity, values in rows.items()})
        )

    def happen(
        self, kind: str, message: str, *, job: str | None = None, uid: int | None = None, at: float = NOW
    ) -> Event:
        """Something happens."""
        made = Event(new_id("e"), at, kind, job, Severity.INFO, message, {}, uid)
        self.hub.publish(made)
        return made

    # Core

    def now(self) -> float:
        return self.clock.now()

    def reader(self) -> SeriesReader:
        return self.window.detached()

    def host(self) -> Mapping[str, Any]:
        return {"memory_total_bytes": 1000.0, "memory_available_bytes": 400.0}

    def gpus(self) -> Sequence[Mapping[str, Any]]:
        return []

    def health(self) -> Mapping[str, Any]:
        return {
            "collectors": [{"name": "host", "up": True, "seconds": 0.01, "reason": None}],
            "store": {"lag_seconds": 0.0, "size_bytes": 0},
            "rules": {"count": 1, "unhealthy": []},
            "receivers": [],
            "undelivered": 0,
        }

    def jobs(self, *, ended: bool = False) -> Sequence[Job]:
        return [job for job in self.all_jobs if ended or job.alive]

    def find_job(self, name_or_id: str) -> Job | None:
        for job in self.all_jobs:
            if job.id == name_or_id:
                return job
        named = [job for job in self.all_jobs if job.name == name_or_id]
        return next((job for job in named if job.alive), named[-1] if named else None)

    def job_view(self, job: Job) -> Mapping[str, Any]:
        return {
            "memory": {
                "used_bytes": 450.0 * 2**20,
                "limit_bytes": 600.0 * 2**20,
                "headroom_bytes": 150.0 * 2**20,
                "rss_bytes": 460.0 * 2**20,
                "growth_bytes_per_second": 3.0 * 2**20,
                "full_in_seconds": 50.0,
            },
            "gpu_memory_bytes": None,
            "processes": 3,
            "cpu_cores": 1.5,
            "checkpoint": {"path": "/ckpt/step-10", "finished": NOW - 120, "size_bytes": 10, "step": 10, "age_seconds": 120},
            "last_output": NOW - 1,
            "last_progress": None,
            "alerts": [alert.id for alert in self.all_alerts if alert.job == job.name],
            "open_requests": [],
        }  # fmt: skip

    def requests(self, job_id: str | None = None) -> Sequence[Request]:
        return [request for request in self.all_requests if job_id in (None, request.job_id)]

    def find_request(self, request_id: str) -> Request | None:
        self.closes_after -= 1
        found = next((request for request in self.all_requests if request.id == request_id), None)
        if found is not None and found.state is RequestState.SENT and self.closes_after <= 0:
            found = replace(found, state=RequestState.CLOSED, closed=NOW + 2, answer=self.outcome)
        return found

    def alerts(self, *, resolved: bool = False) -> Sequence[Alert]:
        return [alert for alert in self.all_alerts if resolved or alert.state is not AlertState.RESOLVED]

    def rules(self) -> Sequence[GroupStatus]:
        return [GroupStatus("memory", "memory.yaml", 2.0, (RuleStatus(RULE, NOW - 1, 0.001),), NOW - 1, 0.001)]

    def silences(self) -> Sequence[Silence]:
        return self.all_silences

    def outbox(self) -> Sequence[Mapping[str, Any]]:
        return []

    async def events(self, *, since: float, limit: int, keep: Callable[[Event], bool]) -> Sequence[Event]:
        found = [event for event in self.hub.recent(since) if keep(event)]
        return found[-limit:] if limit else []

    def follow(self) -> AsyncIterator[Event]:
        return self.hub.listen()

    async def sql(self, statement: str, *, limit: int, deadline_s: float) -> Table:
        if not statement.upper().startswith("SELECT"):
            raise SentinelError("only SELECT is allowed")
        rows: list[list[Any]] = [[1, "a"], [2, None]]
        return Table(("n", "name"), ("BIGINT", "VARCHAR"), rows[:limit], truncated=limit < 2)

    async def backtest(
        self,
        files: Sequence[tuple[str, str]],
        *,
        since_s: float,
        step_s: float | None,
        budget_s: float,
        reader: SeriesReader,
        keep: Callable[[RuleSpec], bool],
    ) -> Mapping[str, Any]:
        return {"files": [name for name, _ in files], "since": since_s, "step": step_s, "budget": budget_s}

    async def register(
        self, spec: JobSpec, *, owner: Owner, supervisor: ProcessId | None, adopt: ProcessId | None
    ) -> Registration:
        wanted = spec.name or "job"
        taken = {job.name for job in self.jobs()}
        name = next(n for n in (wanted, *(f"{wanted}-{i}" for i in range(2, 99))) if n not in taken)
        job = Job(new_id("j"), name, owner.uid, owner.name, spec, created=NOW, root=adopt, supervisor=supervisor)
        self.all_jobs.append(job)
        return Registration(job, wanted if name != wanted else None, "/state/jobs/x", None, facts={"receivers": []})

    async def attempt_started(
        self,
        job: Job,
        *,
        attempt: int,
        root: ProcessId,
        pgid: int,
        output: tuple[str, ...],
        degrade_level: int | None = None,
    ) -> Job:
        level = job.degrade_level if degrade_level is None else degrade_level
        return self._change(
            job, state=JobState.RUNNING, attempt=attempt, root=root, pgid=pgid, output=output, degrade_level=level
        )

    async def attempt_ended(
        self,
        job: Job,
        *,
        attempt: int,
        exit_code: int | None,
        exit_signal: int | None,
        at: float,
        outcome: str = "",
        reason: str = "",
        more: bool = False,
        last_lines: tuple[str, ...] = (),
    ) -> Job:
        state = JobState.SUCCEEDED if exit_code == 0 else JobState.WAITING if more else JobState.FAILED
        said = "; ".join(part for part in (outcome, reason, *last_lines) if part)
        return self._change(job, state=state, exit_code=exit_code, exit_signal=exit_signal, ended=at, cause=said)

    async def what_follows(self, job: Job) -> Mapping[str, Any] | None:
        return {"verdict": "unknown"} if job.state is JobState.WAITING else None

    def waits(self, job: Job, *, until: float, reason: str) -> Job:
        return self._change(job, next_attempt=until, cause=reason)

    def room(self, job: Job) -> str:
        return "GPU-1 still holds 71 GiB" if job.state is JobState.WAITING else ""

    def said(self, job: Job, *, kind: str, message: str) -> None:
        self._change(job, cause=f"{kind}: {message}")

    async def report(self, *, since: float, sees: Callable[[int], bool]) -> Mapping[str, Any]:
        return {"since": since, "jobs": [{"job": job.name} for job in self.all_jobs if sees(job.uid)]}

    async def hand(self, job: Job, report: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"job": job.id, "heard": dict(report)}

    async def ask(
        self, job: Job, kind: RequestKind, *, by: str, reason: str, timeout_s: float, wait_s: float
    ) -> Request:
        made = Request(
            new_id("r"), job.id, job.name, job.attempt, kind, 1 if kind is RequestKind.DEGRADE else None, reason, None,
            by, NOW, NOW + timeout_s,
        )  # fmt: skip
        if self.barred:
            made = replace(made, state=RequestState.CLOSED, closed=NOW, answer=Answer.REFUSED, detail=self.barred)
        elif self.closes_after:
            made = replace(made, state=RequestState.SENT, sent=NOW, via="signal:USR1", detail="SIGUSR1 to 1 process")
        elif wait_s:
            made = replace(
                made, state=RequestState.CLOSED, sent=NOW, acknowledged=NOW + 1, closed=NOW + 2, answer=self.outcome,
                effect=Effect.OBSERVED, via="signal:USR1", detail="SIGUSR1 to 1 process",
            )  # fmt: skip
        self.all_requests.append(made)
        return made

    async def answer(self, request: Request, answer: str, detail: str) -> Request:
        changed = replace(request, state=RequestState.CLOSED, answer=Answer(answer), detail=detail)
        self.all_requests[self.all_requests.index(request)] = changed
        return changed

    async def acknowledge(self, alert: Alert, *, by: str) -> Alert:
        changed = replace(alert, acknowledged_by=by)
        self.all_alerts[self.all_alerts.index(alert)] = changed
        return changed

    async def silence(self, silence: Silence) -> None:
        self.all_silences.append(silence)

    async def unsilence(self, silence: Silence, *, by: str) -> None:
        self.words.append(("unsilence", by))
        self.all_silences.remove(silence)

    async def reload(self) -> Mapping[str, Any]:
        return {"rules": 1}

    async def test_receiver(self, receiver: str) -> Mapping[str, Any]:
        if receiver != "oncall":
            raise SentinelError(f"no receiver {receiver!r}", hint="`oncall`")
        return {"ok": True, "receiver": receiver, "deliveries": []}

    def _change(self, job: Job, **changes: Any) -> Job:
        changed = replace(job, **changes)
        self.all_jobs[self.all_jobs.index(job)] = changed
        return changed


def until(what: Callable[[], object], seconds: float = 10.0) -> None:
    """Wait for something to become true."""
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, f"not within {seconds} s"
        time.sleep(0.005)


class Running:
    """The API of a small daemon, served from an event loop in a thread of its own."""

    def __init__(self, daemon: SmallDaemon, listeners: Iterable[Listener], settings: Settings | None = None) -> None:
        self.daemon = daemon
        self.listeners = list(listeners)
        self._settings = settings or Settings()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="api")
        self.server: Server

    def __enter__(self) -> Running:
        self._thread.start()
        self.server = self.call(serve(self.daemon, self.listeners, settings=self._settings, expose=exposition))
        return self

    def __exit__(self, *_: object) -> None:
        self.daemon_call(self.daemon.hub.close)
        self.call(self.server.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def call(self, coroutine: Any) -> Any:
        """Run a coroutine in the loop."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(20)

    def daemon_call(self, function: Callable[[], object]) -> None:
        """Call a function in the loop's thread."""

        async def call() -> None:
            function()

        self.call(call())

    @property
    def socket_path(self) -> Path:
        """Of the first Unix listener."""
        return next(each.path for each in self.listeners if isinstance(each, UnixListener))
