"""Patterns: what a line must look like to mean something. They are data, in YAML packs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import re2

from sentinel import documents
from sentinel.errors import Problem, Problems
from sentinel.model.logs import LogKind

NORMAL = "normal"
_KEYS = (
    "name", "kind", "retryable", "rank", "against", "regex", "framework", "fields", "example", "counterexample",
    "source",
)  # fmt: skip
_MIDDLE = 50


@dataclass(frozen=True, slots=True)
class Pattern:
    """One way to recognise a kind of log record.

    Attributes:
        name: Unique; a later pack replaces a pattern by its name.
        kind: What it means; None: nothing, whatever weaker patterns say of the line.
        regex: In google-re2's syntax; named groups become fields.
        retryable: Would the same again plausibly succeed? None: cannot be said.
        rank: Of several that match, the highest decides: 20 for a loose wording,
            50 for a usual one, 80 for the exact words of a program.
        against: Of a pattern without a kind: the kinds it speaks against; empty: all.
        framework: Provider or framework, or "".
        fields: What else to capture once the pattern has matched: a name, and a
            regular expression with one group.
        example: Must match.
        counterexample: Must not match, or "".
        source: Where the wording was seen.
        alternatives: What `regex` is made of.
    """

    name: str
    kind: LogKind | None
    regex: str
    retryable: bool | None = None
    rank: int = _MIDDLE
    against: frozenset[LogKind] = frozenset()
    framework: str = ""
    fields: Mapping[str, str] = field(default_factory=dict)
    example: str = ""
    counterexample: str = ""
    source: str = ""
    alternatives: tuple[str, ...] = ()


def load(files: Iterable[Path]) -> tuple[Pattern, ...]:
    """The patterns of some packs, in order; one of a later file takes the place of one of the same name.

    Raises:
        Problems: A file has mistakes; all of them, with their places.
    """
    problems: list[Problem] = []
    found: dict[str, Pattern] = {}
    for file in files:
        root = documents.read(file, problems)
        listed = root.fields("patterns", required=("patterns",)).get("patterns") if root is not None else None
        for node in listed.sequence() if listed is not None else ():
            pattern = _read(node)
            if pattern is not None:
                found[pattern.name] = pattern
    if problems:
        raise Problems(problems)
    return tuple(found.values())


def compiled(regex: str) -> Any:
    """`regex` over bytes: UTF-8 is matched byte by byte, which is exact for literals and twice as fast.

    Raises:
        re2.error: It is no expression of google-re2.
    """
    options = re2.Options()
    options.log_errors = False
    options.encoding = re2.Options.Encoding.LATIN1
    options.max_mem = 64 << 20
    return re2.compile(regex.encode(), options)


def _read(node: documents.Node) -> Pattern | None:
    fields = node.fields(*_KEYS, required=("name", "kind", "regex"))
    name, regex = fields.text("name"), fields.get("regex")
    kind_node = fields.get("kind")
    kind = kind_node.choice([NORMAL, *(kind.value for kind in LogKind)]) if kind_node is not None else None
    if name is None or regex is None or kind is None:
        return None
    alternatives = fields.texts("regex", single=True)
    against = fields.get("against")
    spoken = (
        [node.choice([kind.value for kind in LogKind]) for node in against.sequence()] if against is not None else []
    )
    captured = fields.text_mapping("fields")
    together = "|".join(f"(?:{one})" for one in alternatives) if len(alternatives) > 1 else "".join(alternatives)
    together = f"(?m){together}"
    places = [*regex.sequence()] if len(alternatives) > 1 else [regex]
    for place, one in [
        *zip(places, alternatives, strict=False),
        *((fields.get("fields"), one) for one in captured.values()),
    ]:
        try:
            compiled(one)
        except re2.error as fault:
            words = fault.args[0].decode() if isinstance(fault.args[0], bytes) else str(fault.args[0])
            if place is not None:
                place.report(f"bad regular expression: {words}", "google-re2 syntax: no lookaround, no backreferences")
            return None
    search = compiled(together).search
    pattern = Pattern(
        name,
        LogKind(kind) if kind != NORMAL else None,
        together,
        fields.boolean("retryable"),
        fields.integer("rank", _MIDDLE, least=0, most=100),
        frozenset(LogKind(one) for one in spoken if one is not None),
        fields.text("framework", ""),
        captured,
        fields.text("example", ""),
        fields.text("counterexample", ""),
        fields.text("source", ""),
        alternatives,
    )
    for key, wanted in (("example", True), ("counterexample", False)):
        text = fields.get(key)
        if text is not None and (search(str(text.value).encode()) is not None) is not wanted:
            text.report(f"the {key} {'does not match' if wanted else 'matches'} the pattern `{name}`")
    return pattern
