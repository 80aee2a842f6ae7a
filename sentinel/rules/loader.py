"""Reads rule files: Prometheus's format plus `actions` and `dark_after`, all problems at once."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from sentinel import documents
from sentinel.documents import Fields, Kind, Node
from sentinel.errors import Problem, Problems
from sentinel.model.alerts import ActionSpec, RuleSpec
from sentinel.model.labels import Labels
from sentinel.rules.actions import read_actions
from sentinel.rules.ruleset import Group, Rule, RuleSet
from sentinel.rules.templates import Template, TemplateError, compile_template

_DURATION = re.compile(r"0|(?=\d)(\d+y)?(\d+w)?(\d+d)?(\d+h)?(\d+m)?(\d+s)?(\d+ms)?")
_METRIC = re.compile(r"[A-Za-z_:][A-Za-z0-9_:]*")
_LABEL = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True)
class Options:
    """What a rule file does not say itself.

    Attributes:
        interval_s: Of groups without one.
        dark_after_s: Of rules without one; 0 is Prometheus's behaviour.
        uid: Whose rules they are; None for the daemon's own and the shipped ones.
        job_id: For rules given by `run --rules`: the only job they are about.
    """

    interval_s: float = 15.0
    dark_after_s: float = 300.0
    uid: int | None = None
    job_id: str | None = None


DEFAULTS = Options()


def load(paths: Iterable[Path | str], options: Options = DEFAULTS) -> RuleSet:
    """All rules of these files and of the rule files in these directories.

    Raises:
        Problems: Everything that is wrong, in all of them.
    """
    problems: list[Problem] = []
    groups = [group for path in expand(paths) for group in read(path, problems, options).groups]
    return _sound(groups, problems)


def load_text(text: str, file: str | None = None, options: Options = DEFAULTS) -> RuleSet:
    """The rules in a text that stands in no file, or was read from `file` already.

    Raises:
        Problems: Everything that is wrong.
    """
    problems: list[Problem] = []
    root = documents.load(text, file, problems)
    return _sound(_File(problems, options).groups(root), problems)


def read(path: Path | str, problems: list[Problem], options: Options = DEFAULTS) -> RuleSet:
    """What can be read of one file; everything that is wrong is added to `problems`."""
    root = documents.read(path, problems)
    return RuleSet(tuple(_File(problems, options).groups(root)))


def expand(paths: Iterable[Path | str]) -> list[Path | str]:
    """Files as they are given, directories as the rule files right inside them, sorted."""
    found: list[Path | str] = []
    for path in paths:
        if Path(path).is_dir():
            found += sorted(each for each in Path(path).iterdir() if each.suffix in (".yaml", ".yml"))
        else:
            found.append(path)
    return found


def _sound(groups: Sequence[Group], problems: list[Problem]) -> RuleSet:
    errors = [problem for problem in problems if problem.severity == "error"]
    if errors:
        raise Problems(errors)
    return RuleSet().with_(RuleSet(tuple(groups)))


class _File:
    """Reading one file."""

    def __init__(self, problems: list[Problem], options: Options) -> None:
        self._problems = problems
        self._options = options

    def groups(self, root: Node | None) -> list[Group]:
        if root is None:
            return []
        before = len(self._problems)
        groups: list[Group] = []
        # An empty file is a file without rules, as for Prometheus.
        if root.kind is not Kind.NULL:
            nodes = root.fields("groups").sequence("groups")
            groups = [group for node in nodes if (group := self._group(node)) is not None]
            self._unrepeated(nodes)
        fresh = self._problems[before:]
        self._problems[before:] = sorted(fresh, key=lambda problem: (problem.line, problem.column))
        return groups

    def _unrepeated(self, nodes: Sequence[Node]) -> None:
        seen: set[str] = set()
        for node in nodes:
            name = node.mapping().get("name") if node.kind is Kind.MAPPING else None
            if name is None:
                continue
            if name[1].value in seen:
                name[1].report(f"a second group `{name[1].value}` in this file", "give it another name")
            seen.add(name[1].value)

    def _group(self, node: Node) -> Group | None:
        if node.kind is not Kind.MAPPING:
            node.mapping()
            return None
        fields = node.fields("name", "interval", "query_offset", "limit", "labels", "rules", required=("name",))
        name = fields.text("name", "")
        if "name" in fields and not name:
            node.report("the name of a group must not be empty")
        if self._options.job_id is not None:
            # Two jobs may bring the same file along; their alerts must not share an identity.
            name = f"{name}@{self._options.job_id}"
        interval = _duration(fields, "interval")
        shared = self._labels(fields)
        rules = tuple(rule for each in fields.sequence("rules") if (rule := self._rule(each, name, shared)) is not None)
        return Group(
            name,
            node.file or "",
            interval or self._options.interval_s,
            rules,
            fields.integer("limit", 0, least=0),
            _duration(fields, "query_offset"),
        )

    def _rule(self, node: Node, group: str, shared: tuple[tuple[str, Template], ...]) -> Rule | None:
        if node.kind is not Kind.MAPPING:
            node.mapping()
            return None
        fields = node.fields(
            "record", "alert", "expr", "for", "keep_firing_for", "labels", "annotations", "actions", "dark_after",
            required=("expr",),
        )  # fmt: skip
        if "record" in fields and "alert" in fields:
            node.report("a rule has either `record` or `alert`, not both")
        recording = "record" in fields
        name = fields.text("record" if recording else "alert", "")
        if not name:
            node.report("a rule needs a name: `alert` or `record`")
        if recording:
            self._recorded(fields, name)
        labels = tuple({**dict(shared), **dict(self._labels(fields))}.items())
        annotations = self._templates(fields, "annotations")
        held = _duration(fields, "for")
        kept = _duration(fields, "keep_firing_for")
        actions = () if recording else self._actions(fields)
        dark_after = fields.duration("dark_after", self._options.dark_after_s, least=0.0)
        expression = fields.get("expr")
        text = expression.text() if expression is not None else None
        if expression is None or text is None:
            return None
        spec = RuleSpec(
            group=group,
            name=name,
            expr=text,
            recording=recording,
            for_s=held,
            keep_firing_for_s=kept,
            dark_after_s=dark_after,
            labels=Labels((key, template.text) for key, template in labels),
            annotations=tuple((key, template.text) for key, template in annotations),
            actions=actions,
            file=node.file or "",
            line=expression.line,
            uid=self._options.uid,
            job_id=self._options.job_id,
        )
        return self._parsed(spec, expression, labels, annotations, _places(fields))

    def _parsed(
        self,
        spec: RuleSpec,
        expression: Node,
        labels: tuple[tuple[str, Template], ...],
        annotations: tuple[tuple[str, Template], ...],
        texts: dict[str, Node],
    ) -> Rule | None:
        from sentinel.promql import PromQLError, metric_names, parse, type_of

        try:
            expr = parse(spec.expr)
        except PromQLError as error:
            expression.report(error.message, error.hint, start=error.start, end=error.end)
            return None
        if (kind := type_of(expr)) not in ("scalar", "instant vector"):
            # Prometheus loads it too, and cannot evaluate it.
            expression.report(
                f"a rule needs an instant vector or a scalar, and this is a {kind.value}: it will always fail",
                severity="warning",
            )
        return Rule(spec, expr, metric_names(expr), labels, annotations, expression, texts)

    def _recorded(self, fields: Fields, name: str) -> None:
        node = fields.get("record")
        if node is not None and name and not _METRIC.fullmatch(name):
            hint = re.sub(r"[^A-Za-z0-9_:]", "_", name)
            node.report(f"`{name}` is no metric name", f"`{hint}`" if _METRIC.fullmatch(hint) else None)
        for key in ("for", "keep_firing_for", "annotations", "actions", "dark_after"):
            if (wrong := fields.get(key)) is not None:
                wrong.report(f"a recording rule has no `{key}`")

    def _labels(self, fields: Fields) -> tuple[tuple[str, Template], ...]:
        found = self._templates(fields, "labels")
        node = fields.get("labels")
        if node is not None and "__name__" in node.entries:
            node.entries["__name__"][0].report("the label `__name__` is set by sentinel itself")
        if node is not None and "alertname" in node.entries and fields.get("record") is None:
            node.entries["alertname"][0].report(
                "the label `alertname` is the alert's name, whatever is written here", severity="warning"
            )
            found = tuple(label for label in found if label[0] != "alertname")
        return found

    def _templates(self, fields: Fields, key: str) -> tuple[tuple[str, Template], ...]:
        found: list[tuple[str, Template]] = []
        node = fields.get(key)
        for name, (key_node, value) in (node.mapping() if node is not None else {}).items():
            if not _LABEL.fullmatch(name):
                key_node.report(f"`{name}` is no label name", "letters, digits and _, not beginning with a digit")
            text = "" if value.kind is Kind.NULL else value.text()
            if text is None:
                continue
            try:
                found.append((name, compile_template(text)))
            except TemplateError as error:
                value.report(error.message, error.hint, start=error.start, end=error.end)
        return tuple(found)

    def _actions(self, fields: Fields) -> tuple[ActionSpec, ...]:
        node = fields.get("actions")
        return () if node is None else read_actions(node)


def _places(fields: Fields) -> dict[str, Node]:
    """Where labels and annotations stand, by name; an annotation hides a label of the same name."""
    found: dict[str, Node] = {}
    for key in ("labels", "annotations"):
        if (node := fields.get(key)) is not None:
            found.update({name: value for name, (_, value) in node.entries.items()})
    return found


def _duration(fields: Fields, name: str) -> float:
    """Seconds; 0 where absent. Only what Prometheus accepts too: a file must mean the same to both."""
    node = fields.get(name)
    if node is None:
        return 0.0
    if node.kind in (Kind.TEXT, Kind.NUMBER) and not _DURATION.fullmatch(node.value):
        hint = f"`{node.value}s`" if node.kind is Kind.NUMBER and node.value.isdigit() else "30s, 5m, 1h30m"
        node.report(f"`{node.value}` is no duration as Prometheus writes them", hint)
        return 0.0
    return node.duration() or 0.0
