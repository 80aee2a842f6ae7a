"""What a batch scheduler says about the end of its job, and how to get back into its queue. Slurm, so far."""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import time
from collections.abc import Callable, Mapping, Sequence

_PATIENCE_S = 5.0
_LARGEST = 64 * 1024
Ask = Callable[[Sequence[str]], str]
"""Runs a program and returns what it says; "" where it cannot, or will not in time."""


def end_time(environ: Mapping[str, str], ask: Ask | None = None) -> float | None:
    """When the scheduler ends this job (Unix seconds); None: there is none, or it does not say."""
    job = environ.get("SLURM_JOB_ID", "")
    if not job.isdecimal():
        return None
    if (said := environ.get("SLURM_JOB_END_TIME", "")).isdecimal():
        return float(said)
    text = (ask or say)(["scontrol", "show", "job", "-o", job])
    found = re.search(r"\bEndTime=(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)\b", text)
    if found is None:  # "Unknown", "N/A"
        return None
    try:
        return time.mktime(time.strptime(found[1], "%Y-%m-%dT%H:%M:%S"))
    except (ValueError, OverflowError):
        return None


def requeue_command(environ: Mapping[str, str]) -> list[str]:
    """What puts this job back into its queue: a task of an array by its own name; empty outside Slurm."""
    array, task = environ.get("SLURM_ARRAY_JOB_ID", ""), environ.get("SLURM_ARRAY_TASK_ID", "")
    job = f"{array}_{task}" if array.isdecimal() and task.isdecimal() else environ.get("SLURM_JOB_ID", "")
    return ["scontrol", "requeue", job] if re.fullmatch(r"\d+(_\d+)?", job) else []


def say(argv: Sequence[str]) -> str:
    """Run a program for what it prints, for a few seconds at most."""
    output, inner = os.pipe2(os.O_CLOEXEC)
    try:
        pid = os.posix_spawnp(
            argv[0],
            list(argv),
            os.environ,
            file_actions=[(os.POSIX_SPAWN_DUP2, inner, 1), (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)],
        )
    except OSError:
        os.close(output)
        return ""
    finally:
        os.close(inner)
    said = b""
    deadline = time.monotonic() + _PATIENCE_S
    try:
        while len(said) < _LARGEST and (left := deadline - time.monotonic()) > 0:
            if not select.select([output], [], [], left)[0]:
                break
            data = os.read(output, 4096)
            if not data:
                break
            said += data
    finally:
        os.close(output)
        if time.monotonic() >= deadline:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)  # our own child, not waited for
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, 0)
    return said.decode("utf-8", "replace")
