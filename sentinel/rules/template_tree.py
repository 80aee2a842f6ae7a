"""What a template is made of, after parsing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from sentinel.errors import SentinelError


class TemplateError(SentinelError):
    """A template that cannot be read, or that fails when it is filled.

    Attributes:
        start: Offset into the template of what is wrong.
        end: Offset behind it.
    """

    def __init__(self, message: str, start: int, end: int, *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.start = start
        self.end = max(end, start + 1)


@dataclass(frozen=True, slots=True)
class Literal:
    """A text, a number, true, false or nil."""

    value: object


@dataclass(frozen=True, slots=True)
class Dot:
    """The cursor: `.`."""


@dataclass(frozen=True, slots=True)
class Variable:
    """`$name`; `$` alone is the data the template was given."""

    name: str


@dataclass(frozen=True, slots=True)
class Field:
    """`of.name`."""

    of: Operand
    name: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Call:
    """A function with its arguments, the one from the pipe last."""

    name: str
    arguments: tuple[Operand, ...]
    start: int
    end: int


Operand: TypeAlias = Literal | Dot | Variable | Field | Call


@dataclass(frozen=True, slots=True)
class Words:
    """Text that stands as it is."""

    text: str


@dataclass(frozen=True, slots=True)
class Print:
    """`{{ pipeline }}`."""

    value: Operand


@dataclass(frozen=True, slots=True)
class Assign:
    """`{{ $name := pipeline }}`, or `=` for a name that is there already."""

    name: str
    value: Operand
    declares: bool


@dataclass(frozen=True, slots=True)
class If:
    """`{{ if }} … {{ else }} … {{ end }}`; `declared` names a variable set by the condition."""

    condition: Operand
    then: tuple[Node, ...]
    other: tuple[Node, ...]
    declared: str = ""


@dataclass(frozen=True, slots=True)
class With:
    """`{{ with }} … {{ else }} … {{ end }}`: moves the cursor where the value is not empty."""

    value: Operand
    then: tuple[Node, ...]
    other: tuple[Node, ...]
    declared: str = ""


@dataclass(frozen=True, slots=True)
class Range:
    """`{{ range }} … {{ else }} … {{ end }}` over a list or the values of a map, by key."""

    over: Operand
    then: tuple[Node, ...]
    other: tuple[Node, ...]
    key: str = ""
    item: str = ""


@dataclass(frozen=True, slots=True)
class Leave:
    """`{{ break }}`, or `{{ continue }}` where `next_item`."""

    next_item: bool


Node: TypeAlias = Words | Print | Assign | If | With | Range | Leave


def fields_in(nodes: tuple[Node, ...]) -> Iterator[Field]:
    """Every field that is looked up anywhere in a template."""
    for node in nodes:
        match node:
            case Print(value) | Assign(value=value):
                yield from _fields_of(value)
            case If(head, then, other) | With(head, then, other) | Range(head, then, other):
                yield from _fields_of(head)
                yield from fields_in(then)
                yield from fields_in(other)


def _fields_of(operand: Operand) -> Iterator[Field]:
    match operand:
        case Field(of):
            yield operand
            yield from _fields_of(of)
        case Call(arguments=arguments):
            for argument in arguments:
                yield from _fields_of(argument)
