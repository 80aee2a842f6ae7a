"""Hooks: programs of the administrator that a rule starts. An argument vector, never a shell.

A hook gets a small environment, the alert as JSON on its stdin, and 30 s.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import stat
from asyncio.subprocess import PIPE, STDOUT, Process
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from sentinel.model.alerts import Alert
from sentinel.model.wire import encode

LONGEST_OUTPUT = 4096
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True, slots=True)
class HookRun:
    """One start of one hook.

    Attributes:
        id: Names the occasion, so that the same occasion never starts it twice.
        rule: Name of the rule.
        alert: Fingerprint of the alert.
        job: The job's name, or None.
        argv: What is started.
        begun: Unix seconds.
        closed: When it ended, or None.
        code: Its exit code; None where it was not started, killed or never seen to end.
        detail: What it printed, or why it was not started.
    """

    id: str
    rule: str
    alert: str
    job: str | None
    argv: tuple[str, ...]
    begun: float
    closed: float | None = None
    code: int | None = None
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Ended:
    """How a hook ended: its exit code (None: killed or not started) and what it printed."""

    code: int | None
    output: str


RunHook = Callable[[tuple[str, ...], Mapping[str, str], bytes, float], Awaitable[Ended]]
Distrust = Callable[[tuple[str, ...]], str | None]


def environment(alert: Alert, job: str | None) -> dict[str, str]:
    """All that a hook gets to know by its environment."""
    return {
        "PATH": PATH,
        "LANG": "C.UTF-8",
        "HOME": "/",
        "SENTINEL_ALERT": alert.rule,
        "SENTINEL_ALERT_ID": alert.id,
        "SENTINEL_STATE": alert.state.value,
        "SENTINEL_SEVERITY": alert.severity,
        "SENTINEL_VALUE": repr(alert.value),
        "SENTINEL_JOB_NAME": job or "",
    }


def stdin(alert: Alert) -> bytes:
    """What a hook reads: the alert as one line of JSON."""
    return json.dumps(encode(alert)).encode() + b"\n"


def distrusted(argv: tuple[str, ...], uid: int | None = None) -> str | None:
    """Why this must not be started by the user `uid` (None: by us), or None.

    Root starts only files that belong to root and that nobody else may write,
    by an absolute path.
    """
    program = argv[0]
    if (os.getuid() if uid is None else uid) != 0:
        return None
    if not os.path.isabs(program):
        return f"{program} is not an absolute path"
    try:
        found = os.stat(program)
    except OSError as fault:
        return f"{program}: {fault.strerror}"
    if found.st_uid != 0 or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return f"{program} is not root's or others may write to it"
    return None


async def run(argv: tuple[str, ...], env: Mapping[str, str], given: bytes, timeout_s: float) -> Ended:
    """Start a hook and wait for its end, at most `timeout_s`; never raises for what it does."""
    try:
        process = await asyncio.create_subprocess_exec(
            *argv, stdin=PIPE, stdout=PIPE, stderr=STDOUT, env=dict(env), cwd="/", start_new_session=True
        )
    except (OSError, ValueError) as fault:
        return Ended(None, f"cannot be started: {fault}")
    output = bytearray()
    try:
        async with asyncio.timeout(timeout_s):
            await asyncio.gather(_feed(process, given), _read(process, output))
            code = await process.wait()
    except TimeoutError:
        return Ended(None, _text(output) + f" (killed after {timeout_s:.0f} s)")
    finally:
        await _put_down(process)
    return Ended(code, _text(output))


async def _feed(process: Process, given: bytes) -> None:
    assert process.stdin is not None
    with contextlib.suppress(ConnectionError):
        process.stdin.write(given)
        await process.stdin.drain()
    process.stdin.close()


async def _read(process: Process, output: bytearray) -> None:
    assert process.stdout is not None
    while part := await process.stdout.read(4096):
        output += part[: LONGEST_OUTPUT - len(output)]


async def _put_down(process: Process) -> None:
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
    # A grandchild may hold the pipe open; its end of it is of no interest any more.
    process._transport.close()  # type: ignore[attr-defined]


def _text(output: bytearray) -> str:
    return bytes(output).decode("utf-8", "replace").strip()
