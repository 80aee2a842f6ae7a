"""Patterns: what a line must look like to mean something. They are data, in YAML packs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import re2

from sentinel import documents
from sentinel.errors import Problem, Problems
from sentinel.model.logs import LogKind

_KEYS = ("name", "kind", "retryable", "regex", "framework", "example", "counterexample", "source")


@dataclass(frozen=True, slots=True)
class Pattern:
    """One way to recognise a kind of log record.

    Attributes:
        name: Unique; a later pack replaces a pattern by its name.
        kind: What it means.
        regex: In google-re2's syntax; named groups become fields.
        retryable: Would the same again plausibly succeed? None: cannot be said.
        framework: Provider or framework, or "".
        example: Must match.
        counterexample: Must not match, or "".
        source: Where the wording was seen.
    """

    name: str
    kind: LogKind
    regex: str
    retryable: bool | None
    framework: str = ""
    example: str = ""
    counterexample: str = ""
    source: str = ""


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


def _read(node: documents.Node) -> Pattern | None:
    fields = node.fields(*_KEYS, required=("name", "kind", "regex"))
    name, regex = fields.text("name"), fields.get("regex")
    kind_node = fields.get("kind")
    kind = kind_node.choice([kind.value for kind in LogKind]) if kind_node is not None else None
    if name is None or regex is None or kind is None:
        return None
    options = re2.Options()
    options.log_errors = False
    try:
        compiled = re2.compile(regex.value, options)
    except re2.error as fault:
        words = fault.args[0].decode() if isinstance(fault.args[0], bytes) else str(fault.args[0])
        regex.report(f"bad regular expression: {words}", "google-re2 syntax: no lookaround, no backreferences")
        return None
    pattern = Pattern(
        name,
        LogKind(kind),
        regex.value,
        fields.boolean("retryable"),
        fields.text("framework", ""),
        fields.text("example", ""),
        fields.text("counterexample", ""),
        fields.text("source", ""),
    )
    for key, wanted in (("example", True), ("counterexample", False)):
        text = fields.get(key)
        if text is not None and (compiled.search(text.value) is not None) is not wanted:
            text.report(f"the {key} {'does not match' if wanted else 'matches'} the pattern `{name}`")
    return pattern
