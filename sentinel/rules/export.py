"""Rule files as Prometheus reads them: without the keys that only sentinel knows."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from sentinel import documents
from sentinel.documents import Kind, Node
from sentinel.errors import Problem, Problems
from sentinel.rules.loader import DEFAULTS, read

OURS = frozenset({"actions", "dark_after"})


def for_prometheus(paths: Iterable[Path | str]) -> str:
    """All groups of these files in one, less `actions` and `dark_after`.

    Two groups that share a name get their file's name in front, since in one
    file names must differ.

    Raises:
        Problems: A file is no rule file.
    """
    import yaml  # only where a file is written

    problems: list[Problem] = []
    groups: list[dict[str, object]] = []
    names: set[str] = set()
    for path in paths:
        read(path, problems, DEFAULTS)
        root = documents.read(path, [])
        if root is None or root.kind is not Kind.MAPPING or "groups" not in root.entries:
            continue
        for node in root.entries["groups"][1].items:
            group = _plain(node)
            if group.get("name") in names:
                group["name"] = f"{Path(path).stem}-{group['name']}"
            names.add(str(group.get("name")))
            groups.append(group)
    if errors := [problem for problem in problems if problem.severity == "error"]:
        raise Problems(errors)
    return str(yaml.dump({"groups": groups}, Dumper=_dumper(), sort_keys=False, allow_unicode=True, width=100))


def _plain(group: Node) -> dict[str, object]:
    made: dict[str, object] = {}
    for name, (_, value) in group.entries.items():
        if name == "rules":
            made[name] = [
                {key: _value(inner) for key, (_, inner) in rule.entries.items() if key not in OURS}
                for rule in value.items
            ]
        else:
            made[name] = _value(value)
    return made


def _value(node: Node) -> object:
    """As written: label values and durations are text to Prometheus, whatever they look like."""
    if node.kind is Kind.MAPPING:
        return {name: _value(value) for name, (_, value) in node.entries.items()}
    if node.kind is Kind.NUMBER and node.name.endswith("limit"):
        return node.plain()
    return "" if node.kind is Kind.NULL else node.value


def _dumper() -> type:
    import yaml

    class Blocks(yaml.SafeDumper):
        """Texts of several lines as blocks, and no anchors."""

        def ignore_aliases(self, _data: object) -> bool:
            return True

    def text(dumper: yaml.SafeDumper, data: str) -> yaml.ScalarNode:
        return dumper.represent_scalar("tag:yaml.org,2002:str", data, style="|" if "\n" in data else None)

    Blocks.add_representer(str, text)
    return Blocks
