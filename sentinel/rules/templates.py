"""Templates of labels and annotations: the Go subset that rule files use.

`compile_template` reads one once and refuses it with its place; `fill` writes
it for one alert. Behaviour, down to the digits of a number, is Prometheus's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from sentinel.rules.goformat import plain
from sentinel.rules.template_functions import FUNCTIONS, FunctionError, truth
from sentinel.rules.template_parser import parse
from sentinel.rules.template_tree import (
    Assign,
    Call,
    Dot,
    Field,
    If,
    Leave,
    Literal,
    Node,
    Operand,
    Print,
    Range,
    TemplateError,
    Variable,
    With,
    Words,
)

__all__ = ["Facts", "Template", "TemplateError", "compile_template", "fill"]

Query = Callable[[str], Sequence[tuple[Mapping[str, str], float]]]
"""Answers an instant query with labels and values."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What a template can speak of.

    Attributes:
        labels: Of the expression's result, without those that the rule adds.
        value: Of the expression.
        external_labels: Of this instance.
        external_url: Where this instance can be reached, or "".
        query: Answers `query`; None where there is nothing to ask.
    """

    labels: Mapping[str, str]
    value: float
    external_labels: Mapping[str, str] = field(default_factory=dict)
    external_url: str = ""
    query: Query | None = None


@dataclass(frozen=True, slots=True)
class Template:
    """A template that has been read.

    Attributes:
        text: As written.
        nodes: Its parts; a plain text is one `Words`, or none.
    """

    text: str
    nodes: tuple[Node, ...]

    @property
    def constant(self) -> bool:
        """Whether it says the same for every alert."""
        return all(isinstance(node, Words) for node in self.nodes)


def compile_template(text: str) -> Template:
    """Read a template.

    Raises:
        TemplateError: With the offsets of what is wrong.
    """
    return Template(text, parse(text))


def fill(template: Template, facts: Facts) -> str:
    """The text for one alert. A template that fails says so in the text, as in Prometheus."""
    try:
        return render(template, facts)
    except TemplateError as fault:
        return f"<error expanding template: {fault.message}>"


def render(template: Template, facts: Facts) -> str:
    """The text for one alert.

    Raises:
        TemplateError: It fails with these values.
    """
    if template.constant:
        return "".join(node.text for node in template.nodes if isinstance(node, Words))
    writing = _Writing(facts)
    writing.body(template.nodes, writing.data)
    return "".join(writing.out)


class _Left(Exception):
    """`break` or `continue`."""

    def __init__(self, next_item: bool) -> None:
        super().__init__()
        self.next_item = next_item


_LONGEST = 65536


class _Writing:
    """One pass over one template."""

    def __init__(self, facts: Facts) -> None:
        labels = dict(facts.labels)
        external = dict(facts.external_labels)
        self.facts = facts
        self.data: dict[str, object] = {
            "Labels": labels,
            "Value": facts.value,
            "ExternalLabels": external,
            "ExternalURL": facts.external_url,
        }
        self.scopes: list[dict[str, object]] = [
            {
                "$": self.data,
                "$labels": labels,
                "$value": facts.value,
                "$externalLabels": external,
                "$externalURL": facts.external_url,
            }
        ]
        self.out: list[str] = []
        self.length = 0

    def body(self, nodes: tuple[Node, ...], dot: object) -> None:
        for node in nodes:
            match node:
                case Words(text):
                    self._write(text)
                case Print(value):
                    self._write(plain(self.value(value, dot)))
                case Assign(name, value, declares):
                    self._assign(name, self.value(value, dot), declares)
                case If(condition, then, other, declared):
                    held = self.value(condition, dot)
                    self._scoped(then if truth(held) else other, dot, {declared: held})
                case With(value, then, other, declared):
                    held = self.value(value, dot)
                    holds = truth(held)
                    self._scoped(then if holds else other, held if holds else dot, {declared: held})
                case Range():
                    self._range(node, dot)
                case Leave(next_item):
                    raise _Left(next_item)

    def value(self, operand: Operand, dot: object) -> object:
        match operand:
            case Literal(value):
                return value
            case Dot():
                return dot
            case Variable(name):
                return next(scope[name] for scope in reversed(self.scopes) if name in scope)
            case Field(of, name, start, end):
                holder = self.value(of, dot)
                if isinstance(holder, Mapping):
                    # A label that is not there is the empty text; so is a field of a text that is not there.
                    return holder.get(name, "")
                raise TemplateError(f"{plain(holder)} has no field `{name}`", start, end)
            case Call(name, arguments, start, end):
                try:
                    return self._call(name, arguments, dot)
                except FunctionError as fault:
                    raise TemplateError(f"{name}: {fault}", start, end) from None

    def _call(self, name: str, arguments: tuple[Operand, ...], dot: object) -> object:
        match name:
            case "and" | "or":
                result: object = None
                for argument in arguments:
                    result = self.value(argument, dot)
                    if truth(result) is (name == "or"):
                        break
                return result
            case "externalURL":
                return self.facts.external_url
            case "pathPrefix":
                return ""
            case "query":
                text = self.value(arguments[0], dot)
                if self.facts.query is None or not isinstance(text, str):
                    raise FunctionError("nothing can be asked here")
                return [{"Labels": dict(labels), "Value": value} for labels, value in self.facts.query(text)]
        return FUNCTIONS[name][2](*(self.value(argument, dot) for argument in arguments))

    def _range(self, node: Range, dot: object) -> None:
        over = self.value(node.over, dot)
        if isinstance(over, Mapping):
            items = [(key, over[key]) for key in sorted(over)]
        elif isinstance(over, int) and not isinstance(over, bool):
            items = [(index, index) for index in range(min(over, _LONGEST))]
        elif isinstance(over, Sequence) and not isinstance(over, str):
            items = list(enumerate(over))
        elif over is None:
            items = []
        else:
            raise TemplateError(f"cannot range over {plain(over)}", 0, 1)
        if not items:
            self._scoped(node.other, dot, {})
        for key, item in items:
            try:
                self._scoped(node.then, item, {node.key: key, node.item: item})
            except _Left as left:
                if not left.next_item:
                    break

    def _scoped(self, nodes: tuple[Node, ...], dot: object, names: Mapping[str, object]) -> None:
        depth = len(self.scopes)
        self.scopes.append({name: value for name, value in names.items() if name})
        try:
            self.body(nodes, dot)
        finally:
            del self.scopes[depth:]

    def _assign(self, name: str, value: object, declares: bool) -> None:
        scope = self.scopes[-1] if declares else next(one for one in reversed(self.scopes) if name in one)
        scope[name] = value

    def _write(self, text: str) -> None:
        self.length += len(text)
        if self.length > _LONGEST:
            raise TemplateError(f"the text is longer than {_LONGEST} characters", 0, 1)
        self.out.append(text)
