"""From a YAML file to settings: every mistake is collected, none stops the reading."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from sentinel import documents, paths
from sentinel.config.secrets import Interpolation, distrust, secret
from sentinel.config.settings import Adoption, Settings
from sentinel.documents import Fields, Kind, Node
from sentinel.errors import Problem, Problems, UsageError, nearest
from sentinel.jobs.program import check_words, missing_program
from sentinel.model.jobs import Channel, CheckpointDir, JobSpec
from sentinel.model.requests import RequestKind
from sentinel.notify.settings import Receiver, Route
from sentinel.notify.settings import Settings as Notify
from sentinel.server.settings import Settings as Api
from sentinel.server.settings import address
from sentinel.store.settings import Settings as Store

_TOP = ("mode", "sampling", "rules", "shipped_rules", "patterns", "jobs", "notify", "store", "api")
_JOB = (
    "name", "match", "logs", "checkpoints", "checkpoint_size", "requests", "degrade_levels", "notify",
    "memory_limit", "cost_per_hour", "rules", "dry_run",
)  # fmt: skip
_FASTEST_S, _SLOWEST_S = 0.25, 60.0
_MARKER = re.compile(r"marker:[^/]+")

TryOn = Callable[[Sequence[str]], Sequence[str | None]]
"""For each address what is wrong with it, or None; nothing is sent."""


def load(
    path: Path | None = None,
    *,
    system: bool = False,
    environ: Mapping[str, str] = os.environ,
    trusted_only: bool | None = None,
) -> Settings:
    """The settings in force: of `path`, else of the file in the usual place, else the defaults.

    Args:
        path: The configuration file, or None for the usual places.
        system: Whether it is for the daemon of the whole machine, which looks in /etc only.
        environ: Where `${NAME}` and the usual places are looked up.
        trusted_only: Whether files must be root's and writable by nobody else. Default: when we are root.

    Raises:
        Problems: Everything that is wrong with it.
    """
    problems: list[Problem] = []
    settings = read(path or _usual(environ, system=system), problems, environ=environ, trusted_only=trusted_only)
    if any(problem.severity == "error" for problem in problems):
        raise Problems(problems)
    return settings


def read(
    path: Path | None,
    problems: list[Problem],
    *,
    environ: Mapping[str, str] = os.environ,
    trusted_only: bool | None = None,
    try_on: TryOn | None = None,
) -> Settings:
    """What can be read of a file; everything that is wrong with it is added to `problems`, by line.

    Args:
        path: The file, or None for the defaults.
        problems: Takes what is wrong.
        environ: Where `${NAME}` is looked up.
        trusted_only: Whether files must be root's. Default: when we are root.
        try_on: Says of each address what is wrong with it; None: they are not looked at.
    """
    if path is None:
        return Settings()
    trusted_only = os.geteuid() == 0 if trusted_only is None else trusted_only
    if trusted_only and (reason := _distrusted(path)):
        problems.append(Problem(str(path), 0, 0, reason, f"chown root {path}; chmod go-w {path}"))
        return Settings(file=path)
    found: list[Problem] = []
    root = documents.read(path, found)
    if root is None or root.kind is Kind.NULL:
        problems += found
        return Settings(file=path)
    interpolation = Interpolation(environ)
    root = root.replaced(interpolation)
    before = len(found)
    reader = _Reader(path.absolute().parent, trusted_only=trusted_only)
    settings = reader.settings(root)
    if try_on is not None:
        _report_addresses(reader.addresses, try_on)
    # A value that could not be filled in is one mistake, whatever may be wrong with what is left of it.
    found[before:] = [each for each in found[before:] if (each.line, each.column) not in interpolation.unfilled]
    problems += sorted(found, key=lambda each: (each.line == 0, each.line, each.column))
    return replace(settings, file=path, origins=_origins(root, str(path), interpolation.used))


def _report_addresses(addresses: Sequence[tuple[Node, str]], try_on: TryOn) -> None:
    for (node, _), problem in zip(addresses, try_on([url for _, url in addresses]) if addresses else (), strict=True):
        if problem is not None:
            node.report(
                f"`{node.name}`: {problem}", "https://github.com/caronc/apprise lists how addresses are written"
            )


def _usual(environ: Mapping[str, str], *, system: bool) -> Path | None:
    if system and not environ.get("SENTINEL_CONFIG"):
        return paths.SYSTEM_CONFIG if paths.SYSTEM_CONFIG.is_file() else None
    return paths.configuration_file(environ)


def _distrusted(path: Path) -> str | None:
    try:
        return distrust(path.stat())
    except OSError:
        return None  # reading it says why


def _origins(root: Node, file: str, used: Mapping[str, list[str]]) -> dict[str, str]:
    """Where each scalar stands; for a list of them also where the list does."""
    made: dict[str, str] = {}

    def visit(node: Node) -> None:
        variables = "".join(f", ${{{name}}}" for name in used.get(node.name, []))
        made[node.name] = f"{file}:{node.line}{variables}"
        for below in (*node.items, *(value for _, value in node.entries.values())):
            visit(below)

    visit(root)
    return made


@dataclass(frozen=True, slots=True)
class _Reader:
    """Reads one document.

    Attributes:
        base: The file's directory, to which relative paths are relative.
        trusted_only: Whether files it names must be root's.
        addresses: Those that were read, and where they stand.
    """

    base: Path
    trusted_only: bool
    addresses: list[tuple[Node, str]] = field(default_factory=list)

    def settings(self, root: Node) -> Settings:
        made = Settings()
        top = root.fields(*_TOP)
        mode = top.choice("mode", ("act", "observe"), made.mode)
        made = replace(
            made,
            mode=mode,
            rules=self._files(top, "rules"),
            shipped_rules=top.boolean("shipped_rules", default=made.shipped_rules),
            patterns=self._files(top, "patterns"),
            adoptions=self._adoptions(top),
            actions=replace(made.actions, observe=mode == "observe"),
        )
        if (node := top.get("sampling")) is not None:
            made = replace(made, sampling=replace(made.sampling, interval_s=_interval(node, made.sampling.interval_s)))
        if (node := top.get("notify")) is not None:
            made = replace(made, notify=self._notify(node))
        if (node := top.get("store")) is not None:
            made = replace(made, store=_store(node))
        if (node := top.get("api")) is not None:
            made = replace(made, api=self._api(node))
        return made

    def _files(self, fields: Fields, name: str) -> tuple[str, ...]:
        """Paths and globs, absolute: relative ones are looked for beside the file that names them."""
        return tuple(str(self.base / os.path.expanduser(text)) for text in fields.texts(name, single=True) if text)

    def _adoptions(self, top: Fields) -> tuple[Adoption, ...]:
        made: list[Adoption] = []
        names: dict[str, Node] = {}
        for node in top.sequence("jobs"):
            fields = node.fields(*_JOB, required=("name", "match"))
            name = fields.text("name", "")
            if (where := fields.get("name")) is not None:
                if name in names:
                    where.report(f"two jobs are called `{name}`", f"the first is in line {names[name].line}")
                names[name] = where
            made.append(self._adoption(fields, name))
        return tuple(made)

    def _adoption(self, fields: Fields, name: str) -> Adoption:
        cmdline = user = ""
        if (match := fields.get("match")) is not None and match.kind is not Kind.TEXT:
            wanted = match.fields("cmdline", "user")
            cmdline, user = wanted.text("cmdline", ""), wanted.text("user", "")
            if not cmdline and not user:
                match.report("`match` fits every process", "cmdline: a regular expression, user: a name")
            if (pattern := wanted.get("cmdline")) is not None:
                _check_pattern(pattern)
        elif match is not None:
            cmdline = match.value
            _check_pattern(match)
        spec = JobSpec(
            argv=(),
            cwd="/",
            name=name,
            logs=self._absolute(fields, "logs"),
            checkpoints=self._checkpoints(fields),
            checkpoint_size_bytes=fields.size("checkpoint_size", least=1),
            channels=_channels(fields),
            degrade_levels=fields.integer("degrade_levels", 1, least=0, most=100),
            notify=self._urls(fields, "notify"),
            memory_limit_bytes=fields.size("memory_limit", least=1 << 20),
            cost_per_hour=fields.number("cost_per_hour", least=0),
            rules=self._files(fields, "rules"),
            dry_run=fields.boolean("dry_run", default=False),
        )
        return Adoption(spec, cmdline, user)

    def _absolute(self, fields: Fields, name: str) -> tuple[str, ...]:
        node = fields.get(name)
        items = () if node is None else node.items if node.kind is Kind.SEQUENCE else (node,)
        return tuple(text for item in items if (text := _absolute(item)) is not None)

    def _checkpoints(self, fields: Fields) -> tuple[CheckpointDir, ...]:
        made: list[CheckpointDir] = []
        for node in fields.sequence("checkpoints"):
            if node.kind is not Kind.MAPPING:
                if (path := _absolute(node)) is not None:
                    made.append(CheckpointDir(path))
                continue
            inner = node.fields("path", "interval", "complete_when", required=("path",))
            where = inner.get("path")
            told = inner.text("complete_when", "")
            said = inner.get("complete_when")
            if said is not None and told not in {"rename", "stable"} and not _MARKER.fullmatch(told):
                said.report(f"`{told}` does not say when one is complete", "rename, stable or marker:NAME")
            if where is not None and (path := _absolute(where)) is not None:
                made.append(CheckpointDir(path, inner.duration("interval", above=0), told))
        return tuple(made)

    def _notify(self, node: Node) -> Notify:
        fields = node.fields("receivers", "route")
        receivers: dict[str, Receiver] = {}
        for item in fields.sequence("receivers"):
            inner = item.fields("name", "urls", required=("name", "urls"))
            name = inner.text("name", "")
            where = inner.get("name")
            if where is not None and name in receivers:
                where.report(f"two receivers are called `{name}`")
            receivers[name] = Receiver(name, self._urls(inner, "urls"))
        made = Notify(receivers=tuple(receivers.values()))
        route = fields.get("route")
        if route is not None:
            return replace(made, route=_route(route, receivers))
        if len(receivers) == 1:
            return replace(made, route=Route(receiver=next(iter(receivers))))
        if receivers:
            node.report("with several receivers, `route` must say who hears of alerts", "route: {receiver: NAME}")
        return made

    def _urls(self, fields: Fields, name: str) -> tuple[str, ...]:
        node = fields.get(name)
        items = () if node is None else node.items if node.kind is Kind.SEQUENCE else (node,)
        made: list[str] = []
        for item in items:
            url = secret(item, trusted_only=self.trusted_only)
            if url is not None and "://" not in url:
                item.report(
                    f"`{item.name}` is not an address to notify", "slack://…, mailtos://…, ntfy://…, json://host/path"
                )
            elif url is not None:
                made.append(url)
                self.addresses.append((item, url))
        if node is not None and node.kind is Kind.SEQUENCE and not items:
            node.report(f"`{node.name}` is empty")
        return tuple(made)

    def _api(self, node: Node) -> Api:
        fields = node.fields("listen", "token")
        made = Api()
        if (token := fields.get("token")) is not None and (shown := secret(token, trusted_only=self.trusted_only)):
            made = replace(made, token=shown)
        if (listen := fields.get("listen")) is not None:
            text = listen.text() or ""
            try:
                address(text)
            except UsageError as fault:
                listen.report(f"`{listen.name}`: {fault.message}", fault.hint)
            if token is None:
                listen.report("the API over TCP needs a token", 'token: "file:/etc/sentinel/token", or "${NAME}"')
            made = replace(made, listen=text)
        return made


def _interval(node: Node, default: float) -> float:
    fields = node.fields("interval")
    found = fields.get("interval")
    seconds = None if found is None else found.duration(least=_FASTEST_S, most=_SLOWEST_S)
    return default if seconds is None else seconds


def _store(node: Node) -> Store:
    made = Store()
    retention = node.fields("retention").get("retention")
    if retention is None:
        return made
    fields = retention.fields("raw", "rollup", "size")
    return replace(
        made,
        raw_s=fields.duration("raw", made.raw_s, least=3600),
        rollup_s=fields.duration("rollup", made.rollup_s, least=3600),
        size_bytes=fields.size("size", made.size_bytes, least=64 << 20),
    )


def _route(node: Node, receivers: Mapping[str, Receiver]) -> Route:
    default = Route()
    fields = node.fields(
        "receiver", "group_by", "group_wait", "group_interval", "repeat_interval", required=("receiver",)
    )
    where = fields.get("receiver")
    receiver = fields.text("receiver", "")
    if where is not None and receiver not in receivers:
        near = nearest(receiver, set(receivers))
        where.report(f"there is no receiver `{receiver}`", f"`{near}`" if near else None)
    return Route(
        receiver=receiver,
        group_by=fields.texts("group_by") if "group_by" in fields else default.group_by,
        group_wait_s=fields.duration("group_wait", default.group_wait_s, least=0),
        group_interval_s=fields.duration("group_interval", default.group_interval_s, above=0),
        repeat_interval_s=fields.duration("repeat_interval", default.repeat_interval_s, above=0),
    )


def _channels(fields: Fields) -> tuple[Channel, ...]:
    node = fields.get("requests")
    if node is None:
        return ()
    asked = node.fields("checkpoint", "degrade", "restore")
    made: list[Channel] = []
    for kind in (RequestKind.CHECKPOINT, RequestKind.DEGRADE, RequestKind.RESTORE):
        inner = asked.get(kind.value)
        for item in () if inner is None else inner.items if inner.kind is Kind.SEQUENCE else (inner,):
            try:
                channel = Channel.parse(kind, item.text() or "")
                check_words(channel)
            except UsageError as fault:
                item.report(fault.message, fault.hint)
                continue
            made.append(channel)
            if problem := missing_program(channel, "/", os.environ.get("PATH", os.defpath)):
                item.report(problem.message, problem.hint, severity="warning")
    return tuple(made)


def _absolute(node: Node) -> str | None:
    text = node.text()
    if text is None:
        return None
    path = os.path.expanduser(text)
    if not os.path.isabs(path):
        node.report(f"`{text}` must be an absolute path", f"/data/{text.lstrip('./')}")
        return None
    return path


def _check_pattern(node: Node) -> None:
    from sentinel.promql.regex import BadPattern, compiled

    try:
        compiled(node.value)
    except BadPattern as fault:
        node.report(f"bad regular expression: {fault}", "RE2 syntax: https://github.com/google/re2/wiki/Syntax")
