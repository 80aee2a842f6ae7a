"""`/api/v1/`: what Prometheus's own HTTP API answers, so that its clients work unchanged."""

from __future__ import annotations

import datetime as dt
import json
import math
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import numpy as np
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from sentinel import __version__, promql
from sentinel.api.numbers import sample
from sentinel.errors import SentinelError
from sentinel.model.alerts import Alert, AlertState
from sentinel.model.families import METRICS
from sentinel.model.labels import Labels
from sentinel.promql.errors import EvaluationError
from sentinel.promql.notes import Level, Note
from sentinel.promql.regex import matches
from sentinel.promql.series import Matcher, Matrix, Scalar, SeriesReader, Text, Value
from sentinel.promql.tree import Selector, Type
from sentinel.server.access import Viewer, known
from sentinel.server.core import Core, GroupStatus, RuleStatus
from sentinel.server.parameters import (
    bad,
    duration,
    expression,
    limit,
    moment,
    selectors_of,
    steps,
)
from sentinel.server.queries import Queries
from sentinel.server.respond import HttpError, Parameters, answer, raw, viewer_of
from sentinel.server.v1 import sees_rule

T = TypeVar("T")

LOOKBACK_S = 300.0
CATALOGUE_S = 3600.0
"""Which series there are is read from the last so many seconds where no time is asked for."""

_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_TRUNCATED = "results truncated due to limit"
_BOTH = ["GET", "POST"]


def routes(core: Core, queries: Queries) -> list[Route]:
    """Of Prometheus's reading endpoints."""
    here = _Prometheus(core, queries)
    return [
        Route("/api/v1/query", here.query, methods=_BOTH),
        Route("/api/v1/query_range", here.query_range, methods=_BOTH),
        Route("/api/v1/series", here.series, methods=_BOTH),
        Route("/api/v1/labels", here.labels, methods=_BOTH),
        Route("/api/v1/label/{name}/values", here.label_values),
        Route("/api/v1/metadata", here.metadata),
        Route("/api/v1/format_query", here.format_query, methods=_BOTH),
        Route("/api/v1/rules", here.rules),
        Route("/api/v1/alerts", here.alerts),
        Route("/api/v1/targets", here.targets),
        Route("/api/v1/status/buildinfo", here.buildinfo),
    ]


class _Prometheus:
    def __init__(self, core: Core, queries: Queries) -> None:
        self._core = core
        self._queries = queries

    async def query(self, request: Request) -> Response:
        """One expression at one moment."""
        parameters = await Parameters.of(request)
        at = moment(parameters, "time", self._core.now())
        most, lookback = limit(parameters), duration(parameters, "lookback_delta") or LOOKBACK_S
        expr = expression(parameters)

        def work(reader: SeriesReader) -> bytes:
            notes: list[Note] = []
            value = promql.evaluate(expr, reader, at, lookback_s=lookback, notes=notes)
            return _written(value, at, most, notes)

        return await self._answer(work, request, parameters)

    async def query_range(self, request: Request) -> Response:
        """One expression over a range, step by step."""
        parameters = await Parameters.of(request)
        start, end, step = steps(parameters, self._core.now())
        most, lookback = limit(parameters), duration(parameters, "lookback_delta") or LOOKBACK_S
        expr = expression(parameters)
        kind = promql.type_of(expr)
        if kind in {Type.RANGE, Type.STRING}:
            raise bad("query", f'invalid expression type "{kind}" for range query, must be Scalar or instant Vector')

        def work(reader: SeriesReader) -> bytes:
            notes: list[Note] = []
            matrix = promql.evaluate_range(expr, reader, start, end, step, lookback_s=lookback, notes=notes)
            return _written(matrix, end, most, notes)

        return await self._answer(work, request, parameters)

    async def series(self, request: Request) -> Response:
        """The label sets that one of `match[]` selects."""
        parameters = await Parameters.of(request)
        selectors = selectors_of(parameters)
        return await self._catalogue(request, parameters, selectors, lambda found: [each.as_dict() for each in found])

    async def labels(self, request: Request) -> Response:
        """The names of labels in use."""
        parameters = await Parameters.of(request)
        return await self._catalogue(
            request,
            parameters,
            selectors_of(parameters, required=False),
            lambda found: sorted({name for labels in found for name in labels}),
        )

    async def label_values(self, request: Request) -> Response:
        """The values of one label."""
        parameters = await Parameters.of(request)
        name = _label_name(request.path_params["name"])
        return await self._catalogue(
            request,
            parameters,
            selectors_of(parameters, required=False),
            lambda found: sorted({labels[name] for labels in found if name in labels}),
        )

    async def metadata(self, request: Request) -> Response:
        """What each metric is."""
        parameters = await Parameters.of(request)
        wanted, most = parameters.get("metric"), limit(parameters)
        names = [name for name in sorted(METRICS) if not wanted or name == wanted]
        names = names[:most] if most else names
        return _success(
            {name: [{"type": METRICS[name].kind.value, "help": METRICS[name].help, "unit": ""}] for name in names}
        )

    async def format_query(self, request: Request) -> Response:
        """The expression as we would write it."""
        return _success(promql.canonical(expression(await Parameters.of(request))))

    async def rules(self, request: Request) -> Response:
        """The rules in force, by group."""
        viewer, parameters = viewer_of(request), await Parameters.of(request)
        kind = parameters.get("type")
        if kind not in {"", "alert", "record"}:
            raise bad("type", f'not supported value "{kind}"')
        alerts = [alert for alert in self._core.alerts() if viewer.sees_alert(alert, self._core)]
        selectors = selectors_of(parameters, required=False)
        names, groups, files = (set(parameters.all(f"{name}[]")) for name in ("rule_name", "rule_group", "file"))
        made: list[dict[str, Any]] = []
        for group in self._core.rules():
            if (groups and group.name not in groups) or (files and group.file not in files):
                continue
            rules = [
                _rule(status, [] if parameters.flag("exclude_alerts") else alerts)
                for status in group.rules
                if sees_rule(viewer, status)
                and kind in {"", "record" if status.rule.recording else "alert"}
                and (not names or status.rule.name in names)
                and (not selectors or any(_selects(selector, status.rule.labels) for selector in selectors))
            ]
            if rules:
                made.append(_group(group, rules))
        return _success({"groups": made})

    async def alerts(self, request: Request) -> Response:
        """Pending and firing alerts."""
        viewer = viewer_of(request)
        return _success(
            {"alerts": [_alert(each) for each in self._core.alerts() if viewer.sees_alert(each, self._core)]}
        )

    async def targets(self, request: Request) -> Response:  # noqa: ARG002 - a handler's shape
        """We measure ourselves, so there is nothing that we scrape."""
        return _success({"activeTargets": [], "droppedTargets": [], "droppedTargetCounts": {}})

    async def buildinfo(self, request: Request) -> Response:  # noqa: ARG002 - a handler's shape
        """Which Prometheus's API this is; clients look at the version to know what they may ask."""
        return _success(
            {
                "version": f"3.0.0+sentinel-{__version__}",
                "revision": "",
                "branch": "",
                "buildUser": "",
                "buildDate": "",
                "goVersion": "",
            }
        )

    async def _catalogue(
        self,
        request: Request,
        parameters: Parameters,
        selectors: Sequence[Selector],
        form: Callable[[Iterable[Labels]], list[Any]],
    ) -> Response:
        now = self._core.now()
        start, end = moment(parameters, "start", now - CATALOGUE_S), moment(parameters, "end", now)
        if end < start:
            raise bad("end", "end timestamp must not be before start time")
        end = max(min(end, now), start)
        most = limit(parameters)
        wanted = [selector.matchers for selector in selectors] or [()]

        def work(reader: SeriesReader) -> bytes:
            found = sorted(_known(reader, wanted, start, end), key=lambda labels: tuple(labels.items()))
            data = form(found)
            cut = most and len(data) > most
            return _body(data[:most] if cut else data, warnings=[_TRUNCATED] if cut else [])

        return await self._answer(work, request, parameters)

    async def _answer(
        self, work: Callable[[SeriesReader], bytes], request: Request, parameters: Parameters
    ) -> Response:
        viewer: Viewer = viewer_of(request)
        timeout = duration(parameters, "timeout")
        try:
            return raw(await self._queries.run(work, viewer.reader(self._core), timeout))
        except EvaluationError as fault:
            raise HttpError(422, fault.message, kind="execution") from None
        except HttpError:
            raise
        except SentinelError as fault:
            raise HttpError(422, fault.message, hint=fault.hint, kind="execution") from None


def _known(reader: SeriesReader, wanted: Sequence[tuple[Matcher, ...]], start: float, end: float) -> set[Labels]:
    """The label sets with at least one sample in the time."""
    return set().union(*(known(reader, matchers, start, end) for matchers in wanted))


def _written(value: Value, at: float, most: int, notes: Sequence[Note]) -> bytes:
    """The `data` of a query, and the remarks on it."""
    warnings = [note.message for note in notes if note.level is Level.WARNING]
    infos = [note.message for note in notes if note.level is Level.INFO]
    result: Any
    if isinstance(value, Matrix):
        kind, result = "matrix", _matrix(value)
    elif isinstance(value, Scalar):
        kind, result = "scalar", [_time(at), sample(value.value)]
    elif isinstance(value, Text):
        kind, result = "string", [_time(at), value.value]
    else:
        time = _time(at)
        kind = "vector"
        result = [{"metric": labels.as_dict(), "value": [time, sample(v)]} for labels, v in value.samples()]
    if most and kind in {"vector", "matrix"} and len(result) > most:
        result = result[:most]
        warnings.append(_TRUNCATED)
    return _body({"resultType": kind, "result": result}, warnings, infos)


def _matrix(matrix: Matrix) -> list[dict[str, Any]]:
    times = [_time(at) for at in matrix.times.tolist()]
    made: list[dict[str, Any]] = []
    for row in sorted(range(len(matrix.labels)), key=lambda row: tuple(matrix.labels[row].items())):
        columns = np.flatnonzero(matrix.present[row])
        if len(columns):
            values = matrix.values[row, columns].tolist()
            pairs = [[times[column], sample(value)] for column, value in zip(columns.tolist(), values, strict=True)]
            made.append({"metric": matrix.labels[row].as_dict(), "values": pairs})
    return made


def _time(at: float) -> float | int:
    """Seconds with three decimals at most, whole ones without any."""
    rounded = round(at, 3)
    return int(rounded) if rounded == math.floor(rounded) else rounded


def _body(data: Any, warnings: Sequence[str] = (), infos: Sequence[str] = ()) -> bytes:
    made: dict[str, Any] = {"status": "success", "data": data}
    if warnings:
        made["warnings"] = list(warnings)
    if infos:
        made["infos"] = list(infos)
    return json.dumps(made, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "replace")


def _success(data: Any) -> Response:
    return answer({"status": "success", "data": data})


def _label_name(text: str) -> str:
    """A label's name; `U__` spells names that are no identifiers, as Prometheus does."""
    if text.startswith("U__"):
        text = re.sub(r"_([0-9a-fA-F]{1,6})_", lambda found: chr(min(int(found[1], 16), 0x10FFFF)), text[3:])
        return text.replace("__", "_")
    if not _LABEL.fullmatch(text):
        raise HttpError(400, f'invalid label name: "{text}"', kind="bad_data")
    return text


def _selects(selector: Selector, labels: Labels) -> bool:
    return all(matches(matcher, labels.get(matcher.name, "")) for matcher in selector.matchers)


def _group(group: GroupStatus, rules: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "name": group.name,
        "file": group.file,
        "interval": group.interval_s,
        "limit": 0,
        "rules": rules,
        "evaluationTime": group.seconds,
        "lastEvaluation": _iso(group.evaluated),
    }


def _rule(status: RuleStatus, alerts: Sequence[Alert]) -> dict[str, Any]:
    rule = status.rule
    made: dict[str, Any] = {
        "name": rule.name,
        "query": rule.expr,
        "labels": rule.labels.as_dict(),
        "health": "err" if status.fault else "ok" if status.evaluated is not None else "unknown",
        "evaluationTime": status.seconds,
        "lastEvaluation": _iso(status.evaluated),
        "type": "recording" if rule.recording else "alerting",
    }
    if status.fault:
        made["lastError"] = status.fault
    if not rule.recording:
        own = [alert for alert in alerts if alert.rule == rule.name and alert.group == rule.group]
        states = {alert.state for alert in own}
        state = next((each for each in (AlertState.FIRING, AlertState.PENDING) if each in states), AlertState.INACTIVE)
        made |= {
            "state": state.value,
            "duration": rule.for_s,
            "keepFiringFor": rule.keep_firing_for_s,
            "annotations": dict(rule.annotations),
            "alerts": [_alert(alert) for alert in own],
        }
    return made


def _alert(alert: Alert) -> dict[str, Any]:
    made: dict[str, Any] = {
        "labels": alert.labels.as_dict(),
        "annotations": dict(alert.annotations),
        "state": alert.state.value,
        "activeAt": _iso(alert.began),
        "value": f"{alert.value:e}" if math.isfinite(alert.value) else sample(alert.value),
    }
    if alert.quiet_since is not None:
        made["keepFiringSince"] = _iso(alert.quiet_since)
    return made


def _iso(at: float | None) -> str:
    """A time as Go writes it in JSON; the year 1 where there is none."""
    if at is None:
        return "0001-01-01T00:00:00Z"
    text = dt.datetime.fromtimestamp(at, dt.UTC).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")
