"""`sentinel doctor`: what works on this machine, what does not, and what to do about it."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sentinel import __version__, paths
from sentinel.api.client import ApiError, Client
from sentinel.api.connect import reachable
from sentinel.cli.colours import Paint, paint
from sentinel.cli.common import add_json, counted, print_json
from sentinel.cli.tables import plain, terminal_width, wrapped
from sentinel.units import format_bytes

OK, NOTE, BAD = "ok", "note", "bad"
_COLOURS = {OK: "green", NOTE: "yellow", BAD: "red"}
_TEXT_AT, _NARROW = 20, 60
_FEW_WATCHES = 8192
_LITTLE_SPACE = 256 << 20

EPILOG = "Exit code 1 where something is bad; a note is worth reading and no fault."


@dataclass(frozen=True, slots=True)
class Finding:
    """What one look found.

    Attributes:
        name: What was looked at.
        state: `ok`, `note` or `bad`.
        text: What was found.
        hint: What to try, or None.
    """

    name: str
    state: str
    text: str
    hint: str | None = None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What `sentinel doctor` takes."""
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Look at everything."""
    findings = examine(os.environ)
    if args.json:
        print_json([asdict(finding) for finding in findings])
    else:
        print("\n".join(line for finding in findings for line in lines(finding, paint(), terminal_width())))
    return 1 if any(finding.state == BAD for finding in findings) else 0


def lines(finding: Finding, colours: Paint, width: int) -> list[str]:
    """One finding; on a narrow terminal its text begins below its name."""
    head = f"{colours(f'{finding.state:<5}', _COLOURS[finding.state])}{finding.name}"
    texts = [plain(finding.text), *([f"try: {plain(finding.hint)}"] if finding.hint else [])]
    indent = " " * (_TEXT_AT if width >= _NARROW else 5)
    body = [line for text in texts for line in wrapped(text, width, indent)]
    if width < _NARROW:
        return [head, *body]
    return [head + " " * (_TEXT_AT - 5 - len(finding.name)) + body[0].lstrip(), *body[1:]]


def examine(environ: Mapping[str, str]) -> list[Finding]:
    """Every look, in the order in which they are shown; none can stop the others."""
    seen: dict[str, Any] | None = None
    daemon = [_python()]
    found = reachable(environ, timeout_s=5.0)
    if isinstance(found, Client):
        with found:
            try:
                seen = found.get("/v1/overview")
                daemon.append(_daemon(found, seen or {}))
            except ApiError as fault:
                daemon.append(Finding("daemon", BAD, fault.message, fault.hint))
    else:
        daemon.append(Finding("daemon", NOTE, f"none is running: {found.message}", "`sentinel run` starts one for you"))
    looks: list[Callable[[], Finding]] = [
        lambda: _socket(environ),
        lambda: _configuration(environ),
        lambda: _state(environ),
        _pidfd,
        _cgroup,
        _inotify,
        lambda: _gpu(seen),
    ]
    return daemon + [_guarded(look) for look in looks]


def _guarded(look: Callable[[], Finding]) -> Finding:
    try:
        return look()
    except Exception as fault:
        return Finding(getattr(look, "__name__", "look").strip("_<>"), NOTE, f"cannot be looked at: {fault}")


def _python() -> Finding:
    return Finding("sentinel", OK, f"{__version__}, Python {sys.version.split()[0]}, {sys.executable}")


def _daemon(client: Client, seen: Mapping[str, Any]) -> Finding:
    text = f"{seen['version']} at {client.socket_path}, {counted(len(seen['jobs']), 'job')}, mode {seen['mode']}"
    if seen["version"] != __version__:
        return Finding("daemon", NOTE, text, f"this is sentinel {__version__}: restart the daemon")
    down = [each["name"] for each in seen["health"].get("collectors", []) if each.get("up") is False]
    if down:
        return Finding(
            "daemon", BAD, f"{text}; collectors down: {', '.join(down)}", "`sentinel events --kind collector`"
        )
    return Finding("daemon", OK, text)


def _socket(environ: Mapping[str, str]) -> Finding:
    looked = ", ".join(str(path) + ("" if path.exists() else " (absent)") for path in paths.candidate_sockets(environ))
    return Finding("socket", OK, looked)


def _configuration(environ: Mapping[str, str]) -> Finding:
    from sentinel import config
    from sentinel.errors import Problem

    path = paths.configuration_file(environ)
    if path is None:
        return Finding("configuration", OK, "no file; all defaults are in force")
    problems: list[Problem] = []
    config.read(path, problems, environ=environ)
    errors = sum(problem.severity == "error" for problem in problems)
    if problems:
        text = f"{path}: {counted(errors, 'error') if errors else counted(len(problems), 'warning')}"
        return Finding("configuration", BAD if errors else NOTE, text, f"`sentinel config check {path}`")
    return Finding("configuration", OK, str(path))


def _state(environ: Mapping[str, str]) -> Finding:
    directory = paths.state_directory(environ)
    standing = directory
    while not standing.exists():
        standing = standing.parent
    if not os.access(standing, os.W_OK | os.X_OK):
        return Finding("state", BAD, f"{directory} cannot be written", "set SENTINEL_STATE_DIR")
    space = os.statvfs(standing)
    free = space.f_bavail * space.f_frsize
    text = f"{directory}, {format_bytes(free)} free"
    if free < _LITTLE_SPACE:
        return Finding("state", BAD, text, "make room, or set SENTINEL_STATE_DIR")
    if (kind := _network_kind(standing)) is not None:
        return Finding("state", NOTE, f"{text}, on a network mount ({kind})", "set SENTINEL_STATE_DIR to a local disk")
    return Finding("state", OK, text)


def _network_kind(path: Path) -> str | None:
    """The type of the file system below `path` where it may wait for another machine."""
    from sentinel.system.mounts import mounts

    resolved = str(path.resolve())
    below = [
        each for each in mounts() if each.point in {"/", resolved} or resolved.startswith(each.point.rstrip("/") + "/")
    ]
    nearest = max(below, key=lambda each: len(each.point), default=None)
    return nearest.kind if nearest is not None and nearest.may_hang else None


def _pidfd() -> Finding:
    try:
        os.close(os.pidfd_open(os.getpid()))
    except (AttributeError, OSError):
        return Finding(
            "signals", BAD, "this kernel has no pidfd, so no signal is ever sent", "Linux 5.3; or file:, exec:"
        )
    return Finding("signals", OK, "pidfd is there: only the very process that was meant is signalled")


def _cgroup() -> Finding:
    from sentinel.system.cgroups import Cgroups

    groups = Cgroups()
    if groups.version is None:
        return Finding("cgroup", NOTE, "no memory controller is visible: limits of containers cannot be seen")
    directory = groups.directory(os.getpid())
    limits = groups.limits(directory) if directory is not None else []
    if not limits:
        return Finding("cgroup", OK, f"version {groups.version}, no memory limit above this shell")
    least = min(limits, key=lambda each: each.headroom_bytes)
    return Finding(
        "cgroup",
        OK,
        f"version {groups.version}, {format_bytes(least.used_bytes)} of {format_bytes(least.limit_bytes)} used",
    )


def _inotify() -> Finding:
    base = Path("/proc/sys/fs/inotify")
    watches = int((base / "max_user_watches").read_text())
    instances = int((base / "max_user_instances").read_text())
    text = f"{watches} watches, {instances} instances for each user"
    if watches < _FEW_WATCHES:
        return Finding("inotify", NOTE, text, "sysctl fs.inotify.max_user_watches=524288; until then files are polled")
    return Finding("inotify", OK, text)


def _gpu(seen: Mapping[str, Any] | None) -> Finding:
    boards = (seen or {}).get("gpus") or []
    if boards:
        return Finding("gpu", OK, f"{len(boards)}: " + ", ".join(sorted({str(each["model"]) for each in boards})))
    driver = Path("/proc/driver/nvidia/version")
    if driver.exists():
        words = driver.read_text().splitlines()[0]
        return Finding("gpu", NOTE, f"{words}; no board has been measured", "`sentinel events --kind collector`")
    return Finding("gpu", OK, "no NVIDIA driver here: jobs are watched without GPUs")
