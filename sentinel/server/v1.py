"""`/v1/`: the overview, events, alerts, silences, rules, SQL and the daemon's own health."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from sentinel import __version__
from sentinel.errors import UsageError
from sentinel.model.alerts import Alert, AlertState
from sentinel.model.events import Event, new_id
from sentinel.model.silences import LabelMatcher, Silence
from sentinel.model.wire import encode
from sentinel.promql.regex import BadPattern, compiled
from sentinel.server.access import Viewer
from sentinel.server.core import Core, GroupStatus, RuleStatus
from sentinel.server.jobs import job_object
from sentinel.server.respond import HttpError, Parameters, answer, field, object_of, viewer_of, written

HEARTBEAT_S = 15.0
MOST_EVENTS = 10_000
_LONGEST_SILENCE_S = 365 * 86400.0
_SQL_ROWS = 1_000
_SQL_MOST_ROWS = 100_000
_SQL_DEADLINE_S = 30.0
_LONGEST_BACKTEST_S = 1800.0

Handler = Callable[[Request], Awaitable[Response]]


def routes(core: Core) -> list[Route]:
    """Of everything but jobs and requests."""
    here = _V1(core)
    return [
        Route("/v1/overview", here.overview),
        Route("/v1/events", here.events),
        Route("/v1/alerts", here.alerts),
        Route("/v1/alerts/{alert}/ack", here.acknowledge, methods=["POST"]),
        Route("/v1/silences", here.silences),
        Route("/v1/silences", here.silence, methods=["POST"]),
        Route("/v1/silences/{silence}", here.unsilence, methods=["DELETE"]),
        Route("/v1/rules", here.rules),
        Route("/v1/rules/backtest", here.backtest, methods=["POST"]),
        Route("/v1/sql", here.sql, methods=["POST"]),
        Route("/v1/health", here.health),
        Route("/v1/reload", here.reload, methods=["POST"]),
        Route("/v1/notify/test", here.test_receiver, methods=["POST"]),
        Route("/v1/outbox", here.outbox),
    ]


def event_object(event: Event) -> dict[str, Any]:
    """An event as the API shows it."""
    made: dict[str, Any] = encode(event)
    del made["uid"]
    return made


def alert_object(alert: Alert) -> dict[str, Any]:
    """An alert as the API shows it: its fields, and what is read from its labels."""
    made: dict[str, Any] = encode(alert)
    made.update(job=alert.job, severity=alert.severity, annotations=dict(alert.annotations))
    return made


class _V1:
    def __init__(self, core: Core) -> None:
        self._core = core

    async def overview(self, request: Request) -> Response:
        """One snapshot, for `status` and the TUI."""
        core, viewer = self._core, viewer_of(request)
        return answer(
            {
                "time": core.now(),
                "version": __version__,
                "mode": core.mode,
                "host": encode(dict(core.host())),
                "gpus": encode(list(core.gpus())),
                "jobs": [job_object(core, job) for job in core.jobs() if viewer.sees(job)],
                "alerts": [alert_object(alert) for alert in core.alerts() if viewer.sees_alert(alert, core)],
                "health": encode(dict(core.health())),
            }
        )

    async def events(self, request: Request) -> Response:
        """What happened, oldest first; with `follow=1` also what happens from now on."""
        viewer, parameters = viewer_of(request), await Parameters.of(request)
        limit = int(parameters.number("limit", 200))
        if not 0 <= limit <= MOST_EVENTS:
            raise HttpError(400, f"`limit` must be from 0 to {MOST_EVENTS}")
        since = parameters.number("since", 0.0)
        keep = _wanted(viewer, parameters)
        if not parameters.flag("follow"):
            found = await self._core.events(since=since, limit=limit, keep=keep)
            return answer([event_object(event) for event in found])
        replay = limit if parameters.get("since") or parameters.get("limit") else 0
        return StreamingResponse(
            self._lines(since, replay, keep),
            media_type="application/x-ndjson",
            headers={"cache-control": "no-store", "x-accel-buffering": "no"},
        )

    async def _lines(self, since: float, replay: int, keep: Callable[[Event], bool]) -> AsyncIterator[bytes]:
        """First what is remembered, then what happens; each event once, and an empty line now and then."""
        following = self._core.follow()
        coming: asyncio.Future[Event | None] = asyncio.ensure_future(anext(following, None))
        try:
            await asyncio.sleep(0)  # from here on nothing can happen unheard
            said: set[str] = set()
            if replay:
                for event in await self._core.events(since=since, limit=replay, keep=keep):
                    said.add(event.id)
                    yield _line(event)
            while True:
                done, _ = await asyncio.wait([coming], timeout=HEARTBEAT_S)
                if not done:
                    yield b"\n"
                    continue
                heard = coming.result()
                if heard is None:
                    return
                coming = asyncio.ensure_future(anext(following, None))
                if heard.id not in said and keep(heard):
                    yield _line(heard)
        finally:
            coming.cancel()
            await asyncio.gather(coming, return_exceptions=True)
            if (close := getattr(following, "aclose", None)) is not None:
                await close()

    async def alerts(self, request: Request) -> Response:
        """Open alerts; with `all=1` also those resolved lately."""
        viewer, parameters = viewer_of(request), await Parameters.of(request)
        found = self._core.alerts(resolved=parameters.flag("all"))
        return answer([alert_object(alert) for alert in found if viewer.sees_alert(alert, self._core)])

    async def acknowledge(self, request: Request) -> Response:
        """Somebody has seen an alert."""
        viewer = viewer_of(request)
        wanted = request.path_params["alert"]
        visible = [alert for alert in self._core.alerts() if viewer.sees_alert(alert, self._core)]
        found = [alert for alert in visible if alert.id == wanted] or [
            alert for alert in visible if len(wanted) >= 4 and alert.id.startswith(wanted)
        ]
        if len(found) != 1:
            raise HttpError(404, f"no open alert {wanted!r}", hint="`sentinel alerts` lists them")
        if found[0].job is None and not viewer.everything:
            raise HttpError(403, "an alert about the host is acknowledged by root or the group `sentinel`")
        return answer(alert_object(await self._core.acknowledge(found[0], by=viewer.by)))

    async def silences(self, request: Request) -> Response:
        """Those in force."""
        viewer = viewer_of(request)
        return answer([encode(each) for each in self._core.silences() if _concerns(viewer, each)])

    async def silence(self, request: Request) -> Response:
        """Put one in force: `{"matchers": ["job=train"], "seconds": 7200, "comment": ""}`."""
        viewer, data = viewer_of(request), await object_of(request)
        texts = field(data, "matchers", list, [])
        if not texts or not all(isinstance(text, str) for text in texts):
            raise UsageError("a silence needs at least one condition", hint='"matchers": ["job=train"]')
        matchers = tuple(LabelMatcher.parse(text) for text in texts)
        for matcher in matchers:
            if matcher.op in {"=~", "!~"}:
                _check_expression(matcher)
        seconds = field(data, "seconds", float, 3600.0)
        if not 0 < seconds <= _LONGEST_SILENCE_S:
            raise UsageError("a silence lasts more than nothing and a year at most")
        now = self._core.now()
        made = Silence(
            id=new_id("s"),
            matchers=matchers,
            starts=now,
            ends=now + seconds,
            by=viewer.by,
            comment=field(data, "comment", str, "")[:1000],
            uid=None if viewer.everything else viewer.uid,
        )
        await self._core.silence(made)
        return answer(encode(made), 201)

    async def unsilence(self, request: Request) -> Response:
        """End one."""
        viewer, wanted = viewer_of(request), request.path_params["silence"]
        found = next((each for each in self._core.silences() if each.id == wanted), None)
        if found is None or not _concerns(viewer, found):
            raise HttpError(404, f"no silence {wanted!r}", hint="`sentinel silence` lists them")
        if found.uid is None and not viewer.everything:
            raise HttpError(403, "this silence is not yours to end")
        await self._core.unsilence(found, by=viewer.by)
        return answer(encode(found))

    async def rules(self, request: Request) -> Response:
        """The rules in force, each with its state and its last evaluation."""
        viewer = viewer_of(request)
        alerts = [alert for alert in self._core.alerts() if viewer.sees_alert(alert, self._core)]
        return answer(
            [
                _rule_object(group, status, alerts)
                for group in self._core.rules()
                for status in group.rules
                if sees_rule(viewer, status)
            ]
        )

    async def backtest(self, request: Request) -> Response:
        """Replay history through rules: `{"files": [{"name", "text"}], "since": seconds, "step", "timeout"}`."""
        viewer, data = viewer_of(request), await object_of(request)
        since, step = field(data, "since", float, 0.0), field(data, "step", float, 0.0)
        timeout = field(data, "timeout", float, _LONGEST_BACKTEST_S)
        if not since > 0 or not step >= 0 or not 0 < timeout <= _LONGEST_BACKTEST_S:
            raise UsageError("`since` and `step` are seconds", hint='{"since": 604800, "files": []}')
        files = []
        for each in field(data, "files", list, []):
            if not isinstance(each, dict) or not isinstance(each.get("text"), str):
                raise UsageError(
                    "`files` is a list of rule files", hint='[{"name": "rules.yaml", "text": "groups: …"}]'
                )
            files.append((str(each.get("name", "rules.yaml")), each["text"]))
        found = await self._core.backtest(
            files,
            since_s=since,
            step_s=step or None,
            budget_s=timeout,
            reader=viewer.reader(self._core),
            keep=lambda rule: viewer.everything or rule.uid is None or rule.uid == viewer.uid,
        )
        return answer(encode(dict(found)))

    async def sql(self, request: Request) -> Response:
        """One reading statement: `{"statement", "limit"}`."""
        viewer, data = viewer_of(request), await object_of(request)
        if not viewer.everything:
            raise HttpError(403, "on a daemon of the system only root and the group `sentinel` use SQL")
        statement = field(data, "statement", str, "")
        if not statement.strip():
            raise UsageError("there is no statement", hint='{"statement": "SELECT …"}')
        limit = field(data, "limit", int, _SQL_ROWS)
        if not 0 < limit <= _SQL_MOST_ROWS:
            raise UsageError(f"`limit` must be from 1 to {_SQL_MOST_ROWS}")
        table = await self._core.sql(statement, limit=limit, deadline_s=_SQL_DEADLINE_S)
        return answer(
            {
                "columns": list(table.columns),
                "types": list(table.types),
                "rows": encode([list(row) for row in table.rows]),
                "truncated": table.truncated,
            }
        )

    async def health(self, request: Request) -> Response:  # noqa: ARG002 - a handler's shape
        """How the daemon itself is."""
        core = self._core
        return answer(
            {
                "ready": core.ready,
                "version": __version__,
                "mode": core.mode,
                "started": core.started,
                "time": core.now(),
                **encode(dict(core.health())),
            }
        )

    async def reload(self, request: Request) -> Response:
        """Read rules and notification settings again."""
        self._everything(request, "reload the configuration")
        return answer(encode(dict(await self._core.reload())))

    async def test_receiver(self, request: Request) -> Response:
        """Send a test message: `{"receiver": NAME}`."""
        self._everything(request, "send test messages")
        data = await object_of(request)
        return answer(encode(dict(await self._core.test_receiver(field(data, "receiver", str, "")))))

    async def outbox(self, request: Request) -> Response:
        """Messages not yet delivered."""
        self._everything(request, "see the outbox")
        return answer(encode(list(self._core.outbox())))

    @staticmethod
    def _everything(request: Request, what: str) -> None:
        if not viewer_of(request).everything:
            raise HttpError(403, f"on a daemon of the system only root and the group `sentinel` {what}")


def sees_rule(viewer: Viewer, status: RuleStatus) -> bool:
    """A user's own rules are that user's business."""
    return viewer.everything or status.rule.uid is None or status.rule.uid == viewer.uid


def _wanted(viewer: Viewer, parameters: Parameters) -> Callable[[Event], bool]:
    job = parameters.get("job")
    kinds = [kind for kind in parameters.get("kind").split(",") if kind]

    def keep(event: Event) -> bool:
        return (
            viewer.sees_event(event)
            and (not job or event.job == job)
            and (not kinds or any(event.kind == kind or event.kind.startswith(f"{kind}.") for kind in kinds))
        )

    return keep


def _line(event: Event) -> bytes:
    return written(event_object(event)) + b"\n"


def _concerns(viewer: Viewer, silence: Silence) -> bool:
    return viewer.everything or silence.uid is None or silence.uid == viewer.uid


def _check_expression(matcher: LabelMatcher) -> None:
    try:
        compiled(matcher.value)
    except BadPattern as fault:
        raise UsageError(f"bad regular expression in {matcher}: {fault}") from None


def _rule_object(group: GroupStatus, status: RuleStatus, alerts: list[Alert]) -> dict[str, Any]:
    rule = status.rule
    own = [alert for alert in alerts if alert.rule == rule.name and alert.group == rule.group]
    states = {alert.state for alert in own}
    state = next((s for s in (AlertState.FIRING, AlertState.PENDING) if s in states), AlertState.INACTIVE)
    return {
        "group": group.name,
        "interval_seconds": group.interval_s,
        "name": rule.name,
        "type": "record" if rule.recording else "alert",
        "expr": rule.expr,
        "for_seconds": rule.for_s,
        "severity": rule.labels.get("severity"),
        "state": None if rule.recording else state.value,
        "value": own[0].value if own else None,
        "evaluated": status.evaluated,
        "seconds": status.seconds,
        "fault": status.fault or None,
        "actions": [str(action.request.value if action.request else "run") for action in rule.actions],
        "file": rule.file,
        "line": rule.line,
        "alerts": [alert_object(alert) for alert in own],
    }
