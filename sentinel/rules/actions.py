"""Reads the `actions` of a rule."""

from __future__ import annotations

import os
import shutil

from sentinel.documents import Fields, Kind, Node
from sentinel.model.alerts import ActionSpec, After, On
from sentinel.model.requests import RequestKind

_KINDS = tuple(kind.value for kind in RequestKind)
_KEYS = ("request", "run", "on", "timeout", "after", "cooldown", "restore", "jobs")


def read_actions(node: Node) -> tuple[ActionSpec, ...]:
    """The chain of a rule, in order; what is wrong is reported to the node's document."""
    steps: list[ActionSpec] = []
    asked = False
    for item in node.sequence():
        if item.kind is not Kind.MAPPING:
            item.mapping()
            continue
        fields = item.fields(*_KEYS)
        if ("request" in fields) == ("run" in fields):
            item.report("an action has either `request` or `run`", "request: checkpoint")
            continue
        if "run" in fields:
            steps.append(_hook(fields))
            continue
        steps.append(_request(fields, first=not asked))
        asked = True
    return tuple(steps)


def _request(fields: Fields, *, first: bool) -> ActionSpec:
    kind = fields.choice("request", _KINDS, "checkpoint")
    on = fields.choice("on", tuple(each.value for each in On), "firing")
    after = fields.choice("after", tuple(each.value for each in After), "acknowledged")
    if first and (node := fields.get("after")) is not None:
        node.report("`after` needs a request before it in the chain", "remove it, or put a request above")
    jobs, owner = _addressees(fields)
    restore = _restore(fields, kind)
    return ActionSpec(
        request=RequestKind(kind),
        on=On(on),
        timeout_s=fields.duration("timeout", 60.0, above=0.0),
        after=After(after),
        cooldown_s=fields.duration("cooldown", 300.0, least=0.0),
        restore_after_s=restore,
        jobs=jobs,
        owner=owner,
    )


def _hook(fields: Fields) -> ActionSpec:
    for name in ("after", "restore", "jobs"):
        if (node := fields.get(name)) is not None:
            node.report(f"`{name}` belongs to a request, not to `run`")
    node = fields.get("run")
    argv: tuple[str, ...] = ()
    if node is not None:
        if node.kind is Kind.SEQUENCE:
            argv = node.texts()
            if not argv:
                node.report("`run` is empty", "run: [/etc/sentinel/hooks/page, memory]")
            else:
                _program(node.items[0], argv[0])
        else:
            node.report("`run` is a list of words, never a shell line", "run: [/etc/sentinel/hooks/page, memory]")
    return ActionSpec(
        run=argv,
        on=On(fields.choice("on", tuple(each.value for each in On), "firing")),
        timeout_s=fields.duration("timeout", 30.0, above=0.0),
        cooldown_s=fields.duration("cooldown", 0.0, least=0.0),
    )


def _program(node: Node, program: str) -> None:
    """A hook is started by its path, from `/`; whether it is there is known only on the machine it will run on."""
    if not os.path.isabs(program):
        found = shutil.which(program) if "/" not in program else None
        node.report(f"{program!r} is no absolute path", f"`{found or '/etc/sentinel/hooks/' + program.lstrip('./')}`")
    elif not os.path.exists(program):
        node.report(f"{program} does not exist on this machine", _words(program), severity="warning")
    elif os.path.isdir(program):
        node.report(f"{program} is a directory, not a program")
    elif not os.access(program, os.X_OK):
        node.report(f"{program} is not executable", f"chmod +x {program}")


def _words(program: str) -> str | None:
    return f"each word for itself: [{', '.join(program.split())}]" if " " in program else None


def _restore(fields: Fields, kind: str) -> float | None:
    node = fields.get("restore")
    if node is None:
        return None
    if kind != RequestKind.DEGRADE:
        node.report("`restore` takes back a degrade, so it stands with `request: degrade` only")
    inner = node.fields("after", required=("after",))
    return inner.duration("after", above=0.0)


def _addressees(fields: Fields) -> tuple[tuple[str, ...], str]:
    node = fields.get("jobs")
    if node is None:
        return (), ""
    if node.kind is Kind.MAPPING:
        return ("all",), node.fields("owner", required=("owner",)).text("owner", "")
    if node.kind is Kind.SEQUENCE:
        return node.texts(), ""
    if node.text() != "all":
        node.report(f"`jobs` must be `all`, a list of names or {{owner: NAME}}, not {node.value!r}", f"[{node.value}]")
    return ("all",), ""
