"""The overview as the dashboard reads it: absent stays None, unknown keys are ignored."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from sentinel.model.requests import in_words
from sentinel.tui.text import count, words

ENDED = frozenset({"succeeded", "failed", "preempted", "stopped", "lost"})

Data = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Memory:
    """A job's memory against the limit that kills it (bytes; seconds)."""

    used: float | None = None
    limit: float | None = None
    headroom: float | None = None
    rss: float | None = None
    growth: float | None = None
    full_in: float | None = None

    @property
    def ratio(self) -> float | None:
        """Used over limit."""
        return self.used / self.limit if self.used is not None and self.limit else None


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The newest whole one."""

    path: str
    finished: float | None
    size: float | None
    step: float | None


@dataclass(frozen=True, slots=True)
class Request:
    """What was asked of a job and what came of it (Unix seconds)."""

    id: str
    kind: str
    state: str
    answer: str
    effect: str
    created: float | None
    closed: float | None
    level: float | None
    by: str
    reason: str
    detail: str
    via: str

    @property
    def outcome(self) -> str:
        """The one word that says how it stands."""
        return self.answer or self.state


@dataclass(frozen=True, slots=True)
class Job:
    """One job, with what the overview says beside its own fields."""

    id: str
    name: str
    state: str
    owner: str
    attempt: int
    started: float | None
    ended: float | None
    pid: int | None
    level: int
    levels: int
    memory: Memory
    gpu_memory: float | None
    processes: float | None
    cpu: float | None
    step: float | None
    checkpoint: Checkpoint | None
    last_output: float | None
    last_progress: float | None
    alerts: tuple[str, ...]
    requests: tuple[Request, ...]
    channels: Mapping[str, str]
    checkpoint_dirs: tuple[tuple[str, float | None], ...]
    declared_limit: float | None
    timeouts: tuple[str, ...]
    argv: tuple[str, ...]
    output: tuple[str, ...]
    notify: int
    price: float | None
    dry_run: bool
    adopted: bool
    cause: str
    exit_code: int | None
    exit_signal: int | None

    @property
    def alive(self) -> bool:
        """Whether it may still have processes."""
        return self.state not in ENDED


@dataclass(frozen=True, slots=True)
class Gpu:
    """One board or MIG instance."""

    index: str
    uuid: str
    model: str
    mig: str
    used: float | None
    total: float | None
    busy: float | None
    celsius: float | None
    watts: float | None
    watts_limit: float | None
    up: bool


@dataclass(frozen=True, slots=True)
class Alert:
    """One alert that is pending, firing or lately resolved."""

    id: str
    rule: str
    job: str
    severity: str
    state: str
    value: float | None
    began: float | None
    fired: float | None
    summary: str
    acknowledged_by: str

    @property
    def since(self) -> float | None:
        """Since when it fires, or holds."""
        return self.fired if self.fired is not None else self.began


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened."""

    id: str
    time: float
    kind: str
    job: str
    severity: str
    message: str
    checkpoint: Checkpoint | None = None
    """What it is about, where it is about one."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything at one moment."""

    time: float
    version: str = ""
    mode: str = ""
    host: Mapping[str, float] = field(default_factory=dict)
    gpus: tuple[Gpu, ...] = ()
    jobs: tuple[Job, ...] = ()
    alerts: tuple[Alert, ...] = ()
    faults: tuple[str, ...] = ()
    receivers: tuple[str, ...] = ()
    unheard: tuple[str, ...] = ()
    """Who could not be told, in words."""
    rules: int = 0

    @property
    def firing(self) -> tuple[Alert, ...]:
        """The alerts that fire now."""
        return tuple(alert for alert in self.alerts if alert.state == "firing")

    def job(self, job_id: str) -> Job | None:
        """By id."""
        return next((job for job in self.jobs if job.id == job_id), None)

    def alerts_of(self, job: Job) -> tuple[Alert, ...]:
        """Those about one job, firing or pending."""
        return tuple(alert for alert in self.alerts if alert.job == job.name or alert.id in job.alerts)


def snapshot(data: Data, ended: list[Data] | None = None) -> Snapshot:
    """The answer of /v1/overview, then, the newest first, the jobs of /v1/jobs?all=1 that are no longer in it."""
    jobs = [job(item) for item in _objects(data, "jobs")]
    living = {one.id for one in jobs}
    over = [one for one in map(job, ended or []) if one.id not in living and not one.alive]
    jobs += sorted(over, key=lambda one: -(one.ended or 0.0))
    health = _object(data, "health")
    return Snapshot(
        time=_number(data, "time") or 0.0,
        version=_text(data, "version"),
        mode=_text(data, "mode"),
        host={name: float(value) for name, value in _object(data, "host").items() if _is_number(value)},
        gpus=tuple(_gpu(item) for item in _objects(data, "gpus")),
        jobs=tuple(jobs),
        alerts=tuple(
            sorted(
                (alert(item) for item in _objects(data, "alerts")),
                key=lambda one: (_RANK.get(one.state, 9), _RANK.get(one.severity, 5), -(one.since or 0.0)),
            )
        ),
        faults=tuple(_faults(health)),
        receivers=tuple(str(name) for name in _list(health, "receivers")),
        unheard=tuple(_unheard(health)),
        rules=int(_number(_object(health, "rules"), "count") or 0),
    )


_RANK = {"firing": 0, "pending": 1, "resolved": 2, "critical": 0, "warning": 1, "info": 2}


def job(data: Data) -> Job:
    """One job of the overview or of /v1/jobs."""
    spec, memory, root = _object(data, "spec"), _object(data, "memory"), _object(data, "root")
    return Job(
        id=_text(data, "id"),
        name=_text(data, "name"),
        state=_text(data, "state"),
        owner=_text(data, "owner"),
        attempt=int(_number(data, "attempt") or 1),
        started=_number(data, "attempt_started"),
        ended=_number(data, "ended"),
        pid=_whole(root, "pid"),
        level=int(_number(data, "degrade_level") or 0),
        levels=int(_number(spec, "degrade_levels") or 0),
        memory=Memory(
            used=_number(memory, "used_bytes"),
            limit=_number(memory, "limit_bytes"),
            headroom=_number(memory, "headroom_bytes"),
            rss=_number(memory, "rss_bytes"),
            growth=_number(memory, "growth_bytes_per_second"),
            full_in=_number(memory, "full_in_seconds"),
        ),
        gpu_memory=_number(data, "gpu_memory_bytes"),
        processes=_number(data, "processes"),
        cpu=_number(data, "cpu_cores"),
        step=_number(data, "step"),
        checkpoint=_checkpoint(_object(data, "checkpoint")),
        last_output=_number(data, "last_output"),
        last_progress=_number(data, "last_progress"),
        alerts=tuple(str(item) for item in _list(data, "alerts")),
        requests=tuple(request(item) for item in _objects(data, "open_requests")),
        channels=_channels(spec),
        checkpoint_dirs=tuple(
            (_text(item, "path"), _number(item, "interval_s")) for item in _objects(spec, "checkpoints")
        ),
        declared_limit=_number(spec, "memory_limit_bytes"),
        timeouts=tuple(_timeouts(data, spec)),
        argv=tuple(str(item) for item in _list(spec, "argv")),
        output=tuple(str(item) for item in _list(data, "output")),
        notify=len(_list(spec, "notify")),
        price=_number(spec, "cost_per_hour"),
        dry_run=bool(spec.get("dry_run")),
        adopted=bool(data.get("adopted")),
        cause=_text(data, "cause"),
        exit_code=_whole(data, "exit_code"),
        exit_signal=_whole(data, "exit_signal"),
    )


def request(data: Data) -> Request:
    """One request of /v1/requests."""
    return Request(
        id=_text(data, "id"),
        kind=_text(data, "kind"),
        state=_text(data, "state"),
        answer=_text(data, "answer"),
        effect=_text(data, "effect"),
        created=_number(data, "created"),
        closed=_number(data, "closed"),
        level=_number(data, "level"),
        by=_text(data, "by"),
        reason=_text(data, "reason"),
        detail=in_words(_text(data, "detail"), sent=_number(data, "sent") is not None),
        via=_text(data, "via"),
    )


def alert(data: Data) -> Alert:
    """One alert of the overview."""
    labels, notes = _object(data, "labels"), _notes(data)
    return Alert(
        id=_text(data, "id"),
        rule=_text(data, "rule"),
        job=_text(data, "job") or _text(labels, "job"),
        severity=_text(data, "severity") or _text(labels, "severity") or "warning",
        state=_text(data, "state"),
        value=_number(data, "value"),
        began=_number(data, "began"),
        fired=_number(data, "fired"),
        summary=notes.get("summary") or notes.get("description") or "",
        acknowledged_by=_text(data, "acknowledged_by"),
    )


def event(data: Data) -> Event:
    """One event of /v1/events."""
    return Event(
        id=_text(data, "id"),
        time=_number(data, "time") or 0.0,
        kind=_text(data, "kind"),
        job=_text(data, "job"),
        severity=_text(data, "severity"),
        message=_text(data, "message"),
        checkpoint=_checkpoint(_object(_object(data, "data"), "checkpoint")),
    )


def _checkpoint(data: Data) -> Checkpoint | None:
    if not data:
        return None
    return Checkpoint(
        _text(data, "path"), _number(data, "finished"), _number(data, "size_bytes"), _number(data, "step")
    )


def _gpu(data: Data) -> Gpu:
    return Gpu(
        index=_text(data, "gpu"),
        uuid=_text(data, "uuid"),
        model=_text(data, "model"),
        mig=_text(data, "mig"),
        used=_number(data, "memory_used_bytes"),
        total=_number(data, "memory_total_bytes"),
        busy=_number(data, "utilization_ratio"),
        celsius=_number(data, "temperature_celsius"),
        watts=_number(data, "power_watts"),
        watts_limit=_number(data, "power_limit_watts"),
        up=data.get("up") not in (0, 0.0, False),
    )


def _timeouts(data: Data, spec: Data) -> Iterator[str]:
    """The limits on time that hold for a job, in words."""
    limit = _number(data, "timeout_s") or _number(spec, "timeout_s")
    if limit is not None:
        yield f"an attempt may run {words(limit)}"
    elif spec.get("timeout_auto"):
        yield "the limit of an attempt is learnt from past runs"
    stall = _number(spec, "stall_timeout_s")
    if stall is not None:
        yield f"{words(stall)} without progress end it"


def _channels(spec: Data) -> dict[str, str]:
    found: dict[str, str] = {}
    for item in _objects(spec, "channels"):
        target = _text(item, "target")
        words = target if "://" in target else f"{_text(item, 'how')}:{target}"
        found.setdefault(_text(item, "request"), words)
    return found


def _faults(health: Data) -> Iterator[str]:
    """What is wrong with sentinel itself, in words. A collector that cannot run here is no fault."""
    for item in _objects(health, "collectors"):
        if item.get("up") in (0, 0.0, False) and item.get("supported", True):
            reason = _text(item, "reason")
            yield f"collector {_text(item, 'name')} is down" + (f": {reason}" if reason else "")
    for item in _list(_object(health, "rules"), "unhealthy"):
        yield f"rule {item.get('rule', item) if isinstance(item, Mapping) else item} cannot be evaluated"
    lag = _number(_object(health, "store"), "lag_seconds")
    if lag is not None and lag > 60:
        yield f"the store is {lag:.0f} s behind"
    if failed := _text(health, "reload_failed"):
        yield f"the last change of its files is not in force: {failed}"


def _unheard(health: Data) -> Iterator[str]:
    """Messages that wait for a receiver: no fault of sentinel's."""
    for item in _objects(health, "waiting"):
        number = int(_number(item, "messages") or 0)
        yield f"{count(number, 'message waits', 'messages wait')} for receiver {_text(item, 'receiver')}: " + _text(
            item, "error"
        )


def _notes(data: Data) -> dict[str, str]:
    raw = data.get("annotations")
    if isinstance(raw, Mapping):
        return {str(name): str(value) for name, value in raw.items()}
    if isinstance(raw, list):
        return {str(pair[0]): str(pair[1]) for pair in raw if isinstance(pair, list) and len(pair) == 2}
    return {}


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _number(data: Data, key: str) -> float | None:
    value = data.get(key)
    return float(value) if value is not None and _is_number(value) else None


def _whole(data: Data, key: str) -> int | None:
    value = _number(data, key)
    return None if value is None else int(value)


def _text(data: Data, key: str) -> str:
    value = data.get(key)
    return "" if value is None else str(value)


def _object(data: Data, key: str) -> Data:
    value = data.get(key)
    return value if isinstance(value, Mapping) else {}


def _list(data: Data, key: str) -> list[Any]:
    value = data.get(key)
    return value if isinstance(value, list) else []


def _objects(data: Data, key: str) -> list[Data]:
    return [item for item in _list(data, key) if isinstance(item, Mapping)]
