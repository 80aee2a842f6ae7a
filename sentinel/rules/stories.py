"""Reads files of unit tests: promtool's format, and `expect_alerts`, `expect_silence`, `expect_requests`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

from sentinel import documents
from sentinel.documents import Fields, Kind, Node
from sentinel.errors import Problem
from sentinel.model.labels import Labels
from sentinel.model.requests import RequestKind
from sentinel.rules.notation import NotationError, Point, read_series, read_values

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Series:
    """One input series, a point per interval."""

    labels: Labels
    points: tuple[Point, ...]


@dataclass(frozen=True, slots=True)
class Sample:
    """One expected result."""

    labels: Labels
    value: float


@dataclass(frozen=True, slots=True)
class Expected:
    """The firing alerts of one rule at one time: labels and annotations of each."""

    at: float
    alert: str
    alerts: tuple[tuple[Labels, dict[str, str]], ...]


@dataclass(frozen=True, slots=True)
class Question:
    """An expression and what it yields at one time."""

    at: float
    expr: str
    samples: tuple[Sample, ...]


@dataclass(frozen=True, slots=True)
class ExpectedRequests:
    """All requests, in order, that were asked up to one time: of a job ("" any), by a rule ("" any)."""

    at: float
    job: str
    alert: str
    requests: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ExpectedAlerts:
    """The firing alerts of a rule ("" any) at one time, by some of their labels; a summary where it is given."""

    at: float
    alert: str
    firing: tuple[Labels, ...]
    summary: str | None


@dataclass(frozen=True, slots=True)
class ExpectedSilence:
    """No alert of a rule ("" any) fires at any moment up to a time."""

    until: float
    alert: str


@dataclass(frozen=True, slots=True)
class Story:
    """One test. Times are seconds after its start."""

    name: str
    interval_s: float
    series: tuple[Series, ...]
    alerts: tuple[Expected, ...]
    questions: tuple[Question, ...]
    requests: tuple[ExpectedRequests, ...]
    firing: tuple[ExpectedAlerts, ...]
    silences: tuple[ExpectedSilence, ...]
    external_labels: Labels
    external_url: str
    start: float

    @property
    def last(self) -> float:
        """When the last expectation is due."""
        times = [*(each.at for each in self.alerts), *(each.at for each in self.questions)]
        times += [*(each.at for each in self.requests), *(each.at for each in self.firing)]
        return max([*times, *(each.until for each in self.silences)], default=0.0)


@dataclass(frozen=True, slots=True)
class StoryFile:
    """A file of tests."""

    rule_files: tuple[str, ...]
    interval_s: float
    group_order: tuple[str, ...]
    stories: tuple[Story, ...]


def read_story_file(path: Path | str, problems: list[Problem]) -> StoryFile | None:
    """What a test file says; what is wrong with it is added to `problems`."""
    root = documents.read(path, problems)
    if root is None:
        return None
    fields = root.fields("rule_files", "evaluation_interval", "group_eval_order", "fuzzy_compare", "tests")
    interval = fields.duration("evaluation_interval", 60.0, above=0.0)
    order = fields.texts("group_eval_order")
    for name in {name for name in order if order.count(name) > 1}:
        root.report(f"the group `{name}` stands twice in group_eval_order")
    stories = tuple(_story(node, interval) for node in fields.sequence("tests") if node.kind is Kind.MAPPING)
    return StoryFile(fields.texts("rule_files"), interval, order, stories)


def _story(node: Node, interval: float) -> Story:
    fields = node.fields(
        "name", "interval", "input_series", "alert_rule_test", "promql_expr_test", "external_labels", "external_url",
        "start_timestamp", "expect_requests", "expect_alerts", "expect_silence",
    )  # fmt: skip
    return Story(
        name=fields.text("name", ""),
        interval_s=fields.duration("interval", interval, above=0.0),
        series=tuple(_series(each) for each in fields.sequence("input_series")),
        alerts=tuple(_expected(each) for each in fields.sequence("alert_rule_test")),
        questions=tuple(_question(each) for each in fields.sequence("promql_expr_test")),
        requests=tuple(_requests(each) for each in fields.sequence("expect_requests")),
        firing=tuple(_firing(each) for each in fields.sequence("expect_alerts")),
        silences=tuple(_silence(each) for each in fields.sequence("expect_silence")),
        external_labels=Labels(fields.text_mapping("external_labels")),
        external_url=fields.text("external_url", ""),
        start=_moment(fields.get("start_timestamp")),
    )


def _series(node: Node) -> Series:
    fields = node.fields("series", "values", required=("series", "values"))
    labels = _noted(fields.get("series"), read_series) or Labels()
    points = _noted(fields.get("values"), read_values) or []
    return Series(labels, tuple(points))


def _noted(node: Node | None, read: Callable[[str], T]) -> T | None:
    text = None if node is None else node.text()
    if node is None or text is None:
        return None
    try:
        return read(text)
    except NotationError as error:
        node.report(error.message, error.hint, start=error.start, end=error.end)
        return None


def _expected(node: Node) -> Expected:
    fields = node.fields("eval_time", "alertname", "exp_alerts", required=("alertname",))
    alerts: list[tuple[Labels, dict[str, str]]] = []
    for each in fields.sequence("exp_alerts"):
        inner = each.fields("exp_labels", "exp_annotations")
        alerts.append((Labels(inner.text_mapping("exp_labels")), inner.text_mapping("exp_annotations")))
    return Expected(_at(fields), fields.text("alertname", ""), tuple(alerts))


def _question(node: Node) -> Question:
    from sentinel.promql import PromQLError, parse

    fields = node.fields("expr", "eval_time", "exp_samples", required=("expr",))
    expr = fields.get("expr")
    if expr is not None:
        try:
            parse(expr.value)
        except PromQLError as error:
            expr.report(error.message, error.hint, start=error.start, end=error.end)
    samples: list[Sample] = []
    for each in fields.sequence("exp_samples"):
        inner = each.fields("labels", "value", "histogram", required=("value",))
        if (histogram := inner.get("histogram")) is not None:
            histogram.report("native histograms are not supported")
        labels = Labels()
        if (noted := inner.get("labels")) is not None:
            labels = _noted(noted, read_series) or labels
        samples.append(Sample(labels, _value(inner)))
    return Question(_at(fields), fields.text("expr", ""), tuple(samples))


def _value(fields: Fields) -> float:
    node = fields.get("value")
    if node is None:
        return 0.0
    try:
        return float(node.value.lower().replace("_", "").replace(".inf", "inf").replace(".nan", "nan"))
    except ValueError:
        node.report(f"`{node.value}` is no number")
        return 0.0


def _requests(node: Node) -> ExpectedRequests:
    fields = node.fields("eval_time", "job", "alertname", "exp_requests")
    kinds = tuple(kind.value for kind in RequestKind)
    found = tuple(each.choice(kinds) or "" for each in fields.sequence("exp_requests"))
    return ExpectedRequests(_at(fields), fields.text("job", ""), fields.text("alertname", ""), found)


def _firing(node: Node) -> ExpectedAlerts:
    fields = node.fields("eval_time", "alertname", "firing", "summary", required=("firing",))
    labels = tuple(Labels(each.text_mapping()) for each in fields.sequence("firing"))
    return ExpectedAlerts(_at(fields), fields.text("alertname", ""), labels, fields.text("summary"))


def _silence(node: Node) -> ExpectedSilence:
    fields = node.fields("until", "alertname", required=("until",))
    return ExpectedSilence(fields.duration("until", 0.0, above=0.0), fields.text("alertname", ""))


def _at(fields: Fields) -> float:
    return fields.duration("eval_time", 0.0, least=0.0)


def _moment(node: Node | None) -> float:
    """Unix seconds, as a number or as RFC 3339."""
    if node is None:
        return 0.0
    if node.kind is Kind.NUMBER:
        return node.number() or 0.0
    try:
        found = datetime.fromisoformat(node.value)
    except ValueError:
        node.report(f"`{node.value}` is no time", "2026-01-02T03:04:05Z, or Unix seconds")
        return 0.0
    return found.replace(tzinfo=found.tzinfo or UTC).timestamp()
