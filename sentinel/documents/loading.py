"""From text to a tree of nodes, safely: bounded in size, depth and aliases, one document, no foreign tags."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from sentinel.documents.node import Kind, Node, kind_of
from sentinel.documents.source import Source
from sentinel.errors import Problem

LARGEST_BYTES = 4 << 20
DEEPEST = 64
MOST_NODES = 200_000

_TAG = "tag:yaml.org,2002:"
_TAGS = {
    "str": Kind.TEXT,
    "int": Kind.NUMBER,
    "float": Kind.NUMBER,
    "bool": Kind.BOOLEAN,
    "null": Kind.NULL,
    "map": Kind.MAPPING,
    "seq": Kind.SEQUENCE,
}
_FORBIDDEN = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]")


class _Refused(Exception):
    """The rest of the document cannot be read; the problem has been reported."""


def read(path: Path | str, problems: list[Problem]) -> Node | None:
    """The document in a file; None where it cannot be read, and `problems` says why."""
    file = str(path)
    try:
        # O_NONBLOCK, so that a FIFO in the place of a file cannot hold us.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as stream:
            raw = stream.read(LARGEST_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        problems.append(Problem(file, 0, 0, f"cannot be read: {reason}"))
        return None
    text = _decoded(raw, file, problems)
    return None if text is None else load(text, file, problems)


def load(text: str, file: str | None, problems: list[Problem]) -> Node | None:
    """The one document in `text`; None where it is no YAML, and `problems` says why.

    An empty text is a node of kind `null`.
    """
    text = text.removeprefix("\ufeff")
    source = Source(text, file, problems)
    try:
        return _load(text, source)
    except _Refused:
        return None


def _decoded(raw: bytes, file: str, problems: list[Problem]) -> str | None:
    if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        problems.append(Problem(file, 1, 1, "is UTF-16; sentinel reads UTF-8", "save it as UTF-8"))
        return None
    try:
        return raw[:LARGEST_BYTES].decode() if len(raw) <= LARGEST_BYTES else raw.decode("utf-8", "replace")
    except UnicodeDecodeError as error:
        before = Source(raw[: error.start].decode(), file, problems)
        shown = Source(raw.decode("utf-8", "replace"), file, problems)
        line, column = len(before.lines), len(before.lines[-1]) + 1
        byte = raw[error.start]
        shown.report(shown.problem(line, column, f"byte 0x{byte:02x} is not UTF-8", "save the file as UTF-8"))
        return None


def _load(text: str, source: Source) -> Node:
    import yaml  # only by whoever reads a file

    if len(text) > LARGEST_BYTES:
        _refuse(source, 0, 0, f"is larger than {LARGEST_BYTES >> 20} MiB")
    if found := _FORBIDDEN.search(text):
        before = Source(text[: found.start()], None, [])
        line, column = len(before.lines), len(before.lines[-1]) + 1
        _refuse(source, line, column, f"the character U+{ord(found[0]):04X} is not allowed in YAML", "remove it")
    parser = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        return _Builder(source).build(yaml.parse(text, Loader=parser))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (0, 0)
        here = source.lines[line - 1][column - 1 : column] if 0 < line <= len(source.lines) else ""
        message, hint = _explained(error.problem or "", error.context or "", here)
        if hint is None and error.context_mark and mark and error.context_mark.line != mark.line:
            hint = f"what is not finished begins in line {error.context_mark.line + 1}"
        _refuse(source, line, column, message, hint)
    except (yaml.YAMLError, ValueError, RecursionError, OverflowError) as error:
        _refuse(source, 0, 0, f"is no YAML: {str(error).splitlines()[0] if str(error) else type(error).__name__}")


def _refuse(source: Source, line: int, column: int, message: str, hint: str | None = None) -> NoReturn:
    source.report(source.problem(line, column, message, hint))
    raise _Refused


def _explained(problem: str, context: str, here: str) -> tuple[str, str | None]:
    """The parser's words, and a hint for the mistakes that people make most."""
    message = f"{problem} {context}".strip() or "is no YAML"
    if here == "\t" or " tab" in problem:
        return "a tab cannot indent YAML", "use spaces"
    if "cannot start any token" in problem:
        return message, "put the value in quotes"
    if "mapping values are not allowed" in problem:
        return message, "a `: ` inside a value needs quotes around it, or the indentation is off"
    if "nesting depth" in problem:
        return f"is nested deeper than {DEEPEST} levels", None
    return message, None


@dataclass(slots=True)
class _Frame:
    """A mapping or list whose end has not been seen."""

    event: Any
    kind: Kind
    anchor: str | None
    name: str
    children: list[Node] = field(default_factory=list)
    weight: int = 1


class _Builder:
    """Turns the parser's events into nodes with a stack of our own, so that depth cannot break it."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._anchors: dict[str, Node] = {}
        self._open: list[_Frame] = []
        self._root: Node | None = None

    def build(self, events: Iterable[Any]) -> Node:
        """The root, or a `null` for an empty stream."""
        for event in events:
            name = type(event).__name__
            if name == "DocumentStartEvent" and self._root is not None:
                line, column = event.start_mark.line + 1, event.start_mark.column + 1
                self._source.report(
                    self._source.problem(line, column, "a second document begins here", "one document per file")
                )
                break
            if name == "ScalarEvent":
                self._add(self._scalar(event), event.anchor)
            elif name == "AliasEvent":
                self._add(self._alias(event), None)
            elif name in ("MappingStartEvent", "SequenceStartEvent"):
                self._start(event, Kind.MAPPING if name == "MappingStartEvent" else Kind.SEQUENCE)
            elif name in ("MappingEndEvent", "SequenceEndEvent"):
                self._end(event)
        return self._root or Node(Kind.NULL, self._source, (1, 1), (1, 1), "document")

    def _start(self, event: Any, kind: Kind) -> None:
        start = event.start_mark.line + 1, event.start_mark.column + 1
        if len(self._open) >= DEEPEST:
            _refuse(self._source, *start, f"is nested deeper than {DEEPEST} levels")
        self._tag(event, start, kind)
        self._open.append(_Frame(event, kind, event.anchor, self._name()))

    def _end(self, event: Any) -> None:
        frame = self._open.pop()
        mark = frame.event.start_mark
        start, end = (mark.line + 1, mark.column + 1), (event.end_mark.line + 1, event.end_mark.column + 1)
        node = Node(frame.kind, self._source, start, end, frame.name, weight=frame.weight)
        if frame.kind is Kind.SEQUENCE:
            node.items = tuple(frame.children)
        else:
            node.entries = self._entries(frame.children)
        self._add(node, frame.anchor)

    def _add(self, node: Node, anchor: str | None) -> None:
        if anchor:
            self._anchors[anchor] = node
        if not self._open:
            self._root = node
            return
        frame = self._open[-1]
        frame.weight += node.weight
        if frame.weight > MOST_NODES:
            _refuse(
                self._source, node.line, node.column, f"holds more than {MOST_NODES} values, aliases counted in full"
            )
        frame.children.append(node)

    def _name(self) -> str:
        if not self._open:
            return "document"
        frame = self._open[-1]
        if frame.kind is Kind.SEQUENCE:
            return f"{frame.name}[{len(frame.children)}]"
        if len(frame.children) % 2 == 0:
            return "key"
        key = frame.children[-1].value
        return key if frame.name == "document" else f"{frame.name}.{key}"

    def _scalar(self, event: Any) -> Node:
        start = event.start_mark.line + 1, event.start_mark.column + 1
        end = event.end_mark.line + 1, event.end_mark.column + 1
        style = event.style or ""
        kind = self._tag(event, start, None) or kind_of(event.value, style)
        return Node(kind, self._source, start, end, self._name(), value=event.value, style=style)

    def _alias(self, event: Any) -> Node:
        start = event.start_mark.line + 1, event.start_mark.column + 1
        found = self._anchors.get(event.anchor)
        if found is None:
            inside = any(frame.anchor == event.anchor for frame in self._open)
            _refuse(
                self._source,
                *start,
                f"*{event.anchor} contains itself" if inside else f"*{event.anchor} is not defined",
                None if inside else "define it with & before it is used",
            )
        return found

    def _tag(self, event: Any, start: tuple[int, int], default: Kind | None) -> Kind | None:
        tag = event.tag
        if not tag or tag == "!":
            return default or (Kind.TEXT if tag == "!" else None)
        known = _TAGS.get(tag.removeprefix(_TAG)) if tag.startswith(_TAG) else None
        collection = known in (Kind.MAPPING, Kind.SEQUENCE)
        if known is None or collection != (default is not None) or (default is not None and known is not default):
            shown = "!!" + tag.removeprefix(_TAG) if tag.startswith(_TAG) else tag
            self._source.report(self._source.problem(*start, f"the tag `{shown}` is not understood here", "remove it"))
            return default
        return known

    def _entries(self, children: list[Node]) -> dict[str, tuple[Node, Node]]:
        """Key and value by the key's text. A merge (`<<`) fills in what is not said here."""
        entries: dict[str, tuple[Node, Node]] = {}
        merges: list[Node] = []
        for key, value in zip(children[::2], children[1::2], strict=True):
            if key.kind in (Kind.MAPPING, Kind.SEQUENCE):
                key.report(f"a key must be text, not {key.kind.words}")
            elif key.value == "<<" and not key.style:
                merges += value.items if value.kind is Kind.SEQUENCE else [value]
            elif key.value in entries:
                before = entries[key.value][0]
                key.report(f"`{key.value}` stands here twice", f"the first is in line {before.line}; remove one")
            else:
                entries[key.value] = key, value
        for merged in merges:
            if merged.kind is not Kind.MAPPING:
                merged.report(f"`<<` takes a mapping, not {merged.kind.words}")
            for name, entry in merged.entries.items():
                entries.setdefault(name, entry)
        return entries
