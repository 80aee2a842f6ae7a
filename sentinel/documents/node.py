"""A value in a document: what it is, where it stands, and reading it as the type that is wanted."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, TypeVar

from sentinel.documents.source import Source
from sentinel.errors import Problem, UsageError, nearest
from sentinel.units import format_bytes, format_duration, parse_duration, parse_size

if TYPE_CHECKING:
    from sentinel.documents.fields import Fields

T = TypeVar("T")

_NUMBER = re.compile(
    r"[-+]?(?:0x[0-9a-fA-F]+|0o[0-7]+|(?:\d[\d_]*\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)"
)
_TRUE = frozenset({"true", "yes", "on"})
_FALSE = frozenset({"false", "no", "off"})
_NULL = frozenset({"", "~", "null", "Null", "NULL"})


class Kind(StrEnum):
    """What a value looks like. A number or boolean may still be read as text, as written."""

    MAPPING = "mapping"
    SEQUENCE = "sequence"
    TEXT = "text"
    NUMBER = "number"
    BOOLEAN = "boolean"
    NULL = "null"

    @property
    def words(self) -> str:
        """As a message says it: "not a list"."""
        return {"mapping": "a mapping", "sequence": "a list", "number": "a number", "boolean": "true or false"}.get(
            self.value, "empty" if self is Kind.NULL else "text"
        )


def kind_of(value: str, style: str) -> Kind:
    """What a scalar looks like; quotes and blocks make it text."""
    if style:
        return Kind.TEXT
    if value in _NULL:
        return Kind.NULL
    if value.lower() in _TRUE or value.lower() in _FALSE:
        return Kind.BOOLEAN
    return Kind.NUMBER if _NUMBER.fullmatch(value) else Kind.TEXT


@dataclass(slots=True, eq=False)
class Node:
    """One value and where it stands.

    Accessors named for a type answer with that type, or report a problem and
    answer None (an empty mapping or tuple for collections).

    Attributes:
        kind: What it looks like.
        source: The document it stands in.
        start: Line and column of its first character, from 1.
        end: Line and column after its last.
        name: Its path for messages: `groups[0].rules[1].for`.
        value: A scalar's text, as YAML reads it; "" for collections.
        style: A scalar's style: `|`, `>`, `'`, `"`, or "" for plain.
        items: Of a list.
        entries: Of a mapping: key and value by the key's text, in order.
        weight: Itself and all below it, aliases counted in full.
    """

    kind: Kind
    source: Source
    start: tuple[int, int]
    end: tuple[int, int]
    name: str
    value: str = ""
    style: str = ""
    items: tuple[Node, ...] = ()
    entries: dict[str, tuple[Node, Node]] = field(default_factory=dict)
    weight: int = 1
    _places: list[tuple[int, int]] | None = None

    def __repr__(self) -> str:
        return f"<{self.kind} {self.name} at {self.line}:{self.column}>"

    @property
    def file(self) -> str | None:
        """The path of its document, as the user gave it."""
        return self.source.file

    @property
    def line(self) -> int:
        """Of its first character, from 1."""
        return self.start[0]

    @property
    def column(self) -> int:
        """Of its first character, from 1."""
        return self.start[1]

    # Problems

    def position_of(self, offset: int) -> tuple[int, int]:
        """Line and column in the file of the character at `offset` of a scalar's value."""
        if self._places is None:
            from sentinel.documents.positions import align

            self._places = align(self.value, self.style, self.source, self.start, self.end)
        return self._places[max(0, min(offset, len(self._places) - 1))]

    def problem(
        self,
        message: str,
        hint: str | None = None,
        *,
        start: int | None = None,
        end: int | None = None,
        severity: str = "error",
    ) -> Problem:
        """A problem with this value, or with the characters from `start` to `end` (offsets into its value)."""
        if start is None:
            width = self.end[1] - self.start[1] if self.end[0] == self.start[0] else self._rest_of_line()
            return self.source.problem(*self.start, message, hint, width=max(1, width), severity=severity)
        line, column = self.position_of(start)
        last = self.position_of(max(start, (start if end is None else end) - 1))
        width = last[1] - column + 1 if last[0] == line else 1_000_000
        return self.source.problem(line, column, message, hint, width=width, severity=severity)

    def report(
        self,
        message: str,
        hint: str | None = None,
        *,
        start: int | None = None,
        end: int | None = None,
        severity: str = "error",
    ) -> None:
        """Add such a problem to the document's list."""
        self.source.report(self.problem(message, hint, start=start, end=end, severity=severity))

    def _rest_of_line(self) -> int:
        return 1 if self.kind in (Kind.MAPPING, Kind.SEQUENCE) or self.style in ("|", ">") else 1_000_000

    def _expected(self, what: str, hint: str | None = None) -> None:
        found = self.kind.words if self.kind is not Kind.TEXT or self.style else f"{_clipped(self.value)}"
        self.report(f"`{self.name}` must be {what}, not {found}", hint)

    # Collections

    def mapping(self) -> Mapping[str, tuple[Node, Node]]:
        """Key and value by the key's text."""
        if self.kind is not Kind.MAPPING:
            self._expected("a mapping", "`key: value` lines, indented below it")
        return self.entries

    def sequence(self) -> tuple[Node, ...]:
        """The items of a list."""
        if self.kind is not Kind.SEQUENCE:
            self._expected("a list", "lines that begin with `- `, or [a, b]")
        return self.items

    def fields(self, *known: str, required: Collection[str] = ()) -> Fields:
        """A mapping with known keys. Unknown ones and missing required ones are reported."""
        entries = self.mapping()
        for name, (key, _) in entries.items():
            if name not in known:
                near = nearest(name, set(known))
                hint = f"`{near}`" if near else "known here: " + ", ".join(f"`{each}`" for each in known)
                key.report(f"unknown key `{_clipped(name, quote=False)}`", hint)
        if self.kind is Kind.MAPPING:
            for name in required:
                if name not in entries:
                    self.report(f"`{name}` is missing")
        from sentinel.documents.fields import Fields

        return Fields(self, {name: value for name, (_, value) in entries.items() if name in known})

    def texts(self, *, single: bool = False) -> tuple[str, ...]:
        """A list of text; with `single` one text alone will do."""
        if single and self.kind not in (Kind.SEQUENCE, Kind.MAPPING, Kind.NULL):
            return (self.value,)
        return tuple(text for item in self.sequence() if (text := item.text()) is not None)

    def text_mapping(self) -> dict[str, str]:
        """A mapping of text to text, as labels and annotations are."""
        pairs = ((name, value.text()) for name, (_, value) in self.mapping().items())
        return {name: text for name, text in pairs if text is not None}

    # Scalars

    def text(self) -> str | None:
        """A scalar exactly as written: `1.10` stays "1.10"."""
        if self.kind in (Kind.MAPPING, Kind.SEQUENCE, Kind.NULL):
            self._expected("text", 'for an empty text write ""' if self.kind is Kind.NULL else None)
            return None
        return self.value

    def number(
        self, *, least: float | None = None, most: float | None = None, above: float | None = None
    ) -> float | None:
        """A finite number within bounds."""
        if self.kind is not Kind.NUMBER:
            self._expected("a number", "remove the quotes" if kind_of(self.value, "") is Kind.NUMBER else None)
            return None
        return self._bounded(_parsed(self.value), least, most, above)

    def integer(self, *, least: int | None = None, most: int | None = None) -> int | None:
        """A whole number within bounds."""
        found = self.number(least=least, most=most)
        if found is None:
            return None
        if found != int(found) or abs(found) > 2**53:
            self.report(f"`{self.name}` must be a whole number, not {_clipped(self.value)}")
            return None
        return int(found)

    def boolean(self) -> bool | None:
        """True or false; also yes, no, on, off."""
        if self.kind is not Kind.BOOLEAN:
            self._expected("true or false", "remove the quotes" if kind_of(self.value, "") is Kind.BOOLEAN else None)
            return None
        return self.value.lower() in _TRUE

    def duration(
        self, *, least: float | None = None, most: float | None = None, above: float | None = None
    ) -> float | None:
        """Seconds, of `30s`, `1h30m` or a bare number of seconds."""
        found = self._converted("a duration", "30s, 5m, 1h30m, 7d", parse_duration)
        return None if found is None else self._bounded(found, least, most, above, format_duration)

    def size(self, *, least: int | None = None) -> int | None:
        """Bytes, of `600MiB`, `2GiB`, `10GB`."""
        found = self._converted("a size", "600MiB, 2GiB, 10GB", parse_size)
        return None if found is None or self._bounded(found, least, None, None, format_bytes) is None else found

    def choice(self, options: Collection[str]) -> str | None:
        """One of a few words."""
        if self.kind in (Kind.MAPPING, Kind.SEQUENCE, Kind.NULL) or self.value not in options:
            near = nearest(self.value, set(options))
            self._expected("one of " + ", ".join(f"`{each}`" for each in options), f"`{near}`" if near else None)
            return None
        return self.value

    def _converted(self, what: str, hint: str, convert: Callable[[str], T]) -> T | None:
        if self.kind in (Kind.TEXT, Kind.NUMBER):
            try:
                return convert(self.value)
            except (UsageError, ValueError, OverflowError):
                pass
        self._expected(what, hint)
        return None

    def _bounded(
        self,
        found: float,
        least: float | None,
        most: float | None,
        above: float | None = None,
        show: Callable[[float], str] = "{:g}".format,
    ) -> float | None:
        wrong = None
        if not math.isfinite(found):
            wrong = "finite"
        elif above is not None and found <= above:
            wrong = f"more than {show(above) if above else 0}"
        elif least is not None and found < least:
            wrong = f"at least {show(least)}"
        elif most is not None and found > most:
            wrong = f"at most {show(most)}"
        if wrong is None:
            return found
        self.report(f"`{self.name}` must be {wrong}, not {_clipped(self.value, quote=False)}")
        return None

    # The tree

    def plain(self) -> object:
        """The value as plain data: dict, list, str, int, float, bool or None."""
        match self.kind:
            case Kind.MAPPING:
                return {name: value.plain() for name, (_, value) in self.entries.items()}
            case Kind.SEQUENCE:
                return [item.plain() for item in self.items]
            case Kind.NUMBER:
                number = _parsed(self.value)
                return (
                    int(number) if math.isfinite(number) and number == int(number) and "." not in self.value else number
                )
            case Kind.BOOLEAN:
                return self.value.lower() in _TRUE
            case Kind.NULL:
                return None
        return self.value

    def scalars(self) -> Iterator[Node]:
        """All scalars at and below it, keys left out."""
        below = self.items or tuple(value for _, value in self.entries.values())
        if self.kind not in (Kind.MAPPING, Kind.SEQUENCE):
            yield self
        for node in below:
            yield from node.scalars()

    def replaced(self, change: Callable[[Node], str | None]) -> Node:
        """The tree with some scalars' values replaced (interpolation); positions stay where they were.

        Args:
            change: Given a scalar, its new text, or None to leave it. What is written
                unquoted is looked at anew: `${PORT}` may become a number.
        """
        return self._replaced(change, {})

    def _replaced(self, change: Callable[[Node], str | None], done: dict[int, Node]) -> Node:
        if (found := done.get(id(self))) is not None:
            return found
        made = self
        if self.kind is Kind.SEQUENCE:
            made = self._copy(items=tuple(item._replaced(change, done) for item in self.items))
        elif self.kind is Kind.MAPPING:
            pairs = self.entries.items()
            made = self._copy(entries={name: (key, value._replaced(change, done)) for name, (key, value) in pairs})
        elif (text := change(self)) is not None:
            made = self._copy(value=text, kind=kind_of(text, self.style))
        done[id(self)] = made
        return made

    def _copy(
        self,
        *,
        kind: Kind | None = None,
        value: str | None = None,
        items: tuple[Node, ...] = (),
        entries: dict[str, tuple[Node, Node]] | None = None,
    ) -> Node:
        return Node(
            kind or self.kind,
            self.source,
            self.start,
            self.end,
            self.name,
            self.value if value is None else value,
            self.style,
            items,
            entries or {},
            self.weight,
            [self.start] if value is not None else None,
        )


def _parsed(text: str) -> float:
    plain = text.replace("_", "").lower()
    sign = -1.0 if plain.startswith("-") else 1.0
    digits = plain.lstrip("+-")
    try:
        if digits.startswith(("0x", "0o")):
            return sign * int(digits, 0)
        return sign * float({".inf": "inf", ".nan": "nan"}.get(digits, digits))
    except (OverflowError, ValueError):
        return math.inf


def _clipped(text: str, *, quote: bool = True) -> str:
    short = text if len(text) <= 60 else text[:59] + "…"
    return repr(short) if quote else short
