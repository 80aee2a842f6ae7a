"""`sentinel watch --pid N [options]`: watch over a process that runs already."""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import stat
import sys
from dataclasses import replace
from typing import Any

from sentinel import paths
from sentinel.api.connect import connect
from sentinel.errors import SentinelError, UsageError
from sentinel.jobs import ownhand
from sentinel.jobs.banner import banner
from sentinel.jobs.link import YOURS, Registration
from sentinel.jobs.naming import default_name
from sentinel.jobs.options import add_options, spec_from
from sentinel.jobs.ownhand import Charge
from sentinel.model.jobs import JobSpec, ProcessId
from sentinel.model.wire import encode
from sentinel.system import processes

HELP = "watch over a process that runs already"
EPILOG = """examples:
  sentinel watch --pid 4711 --checkpoints /data/ckpt --on-checkpoint signal:USR1
  sentinel watch --match 'train\\.py' --notify ntfy://my-topic

Its tree is watched until it ends. Nobody but its parent can see its exit code."""
_SHOWN = 8


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which process, and the options of a job."""
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--pid", metavar="N", help="the process at the top of the job's tree")
    which.add_argument("--match", metavar="REGEX", help="the one whose command line matches")
    add_options(parser)


def run(args: argparse.Namespace) -> int:
    """Have the daemon adopt it."""
    process = _by_pid(args.pid) if args.pid is not None else _by_pattern(args.match)
    spec = _spec(args, process)
    with contextlib.closing(connect(start=not args.no_daemon)) as daemon:
        answer = daemon.post(
            "/v1/jobs", {"spec": encode(spec), "supervisor": None, "protocol": 1, "adopt": encode(process)}
        )
    if answer.get("hand") == YOURS:
        _start_hand(answer, spec, daemon.socket_path)
    name = answer["job"]["name"]
    if not spec.quiet:
        colours = sys.stderr.isatty() and "NO_COLOR" not in os.environ
        sys.stderr.write(banner(spec, _met(answer), spec.logs, colours=colours, adopted=True))
    print(name)
    return 0


def _start_hand(answer: dict[str, Any], spec: JobSpec, socket: str) -> None:
    """The daemon is another user's: a process of ours reads, calls and runs for it as long as the job lives."""
    job_id = answer["job"]["id"]
    state = paths.state_directory() / "jobs" / job_id
    try:
        ownhand.start(Charge(job_id, answer.get("socket") or socket, spec, directory=str(state)))
    except OSError as fault:
        words = "its logs are not read and its checkpoints not watched"
        print(f"sentinel: no hand of yours could be started ({fault}): {words}", file=sys.stderr)


def _met(answer: dict[str, Any]) -> Registration:
    return Registration(
        id=answer["job"]["id"],
        name=answer["job"]["name"],
        renamed_from=answer.get("renamed_from"),
        resume_from=answer.get("resume_from") or "",
        facts=answer.get("facts") or {},
    )


def _by_pid(text: str) -> ProcessId:
    if not text.isdecimal() or not int(text):
        raise UsageError(f"--pid: {text!r} is not a process id", hint="sentinel watch --pid 4711")
    pid = int(text)
    found = processes.read_stat(pid)
    if found is None:
        raise SentinelError(f"there is no process {pid}")
    if not found.alive:
        raise SentinelError(f"process {pid} has ended; its parent has not noticed yet")
    if not processes.command_line(pid):
        raise UsageError(f"process {pid} ({found.name}) belongs to the kernel")
    if pid == os.getpid():
        raise UsageError("this is sentinel itself")
    owner = processes.owner(pid)
    if os.getuid() not in {0, owner}:
        raise UsageError(
            f"process {pid} belongs to user {owner}, not to you", hint="its owner, or root, can have it watched"
        )
    identity = processes.identify(pid)
    if identity is None:
        raise SentinelError(f"process {pid} has just ended")
    return identity


def _by_pattern(text: str) -> ProcessId:
    try:
        matches = re.compile(text).search
    except re.error as fault:
        raise UsageError(f"--match: bad regular expression {text!r}: {fault}") from None
    seen = processes.scan()
    line = _ancestors(os.getpid(), seen)
    found = {
        pid: words
        for pid, entry in seen.items()
        if entry.alive and pid not in line and processes.owner(pid) == os.getuid()
        if matches(words := " ".join(processes.command_line(pid))) and words
    }
    top = [pid for pid in found if not _ancestors(seen[pid].ppid, seen) & found.keys()]
    if not top:
        raise SentinelError(f"none of your processes matches {text!r}", hint="pgrep -af REGEX shows what matches")
    if len(top) > 1:
        listed = "\n".join(f"  {pid}  {found[pid][:100]}" for pid in top[:_SHOWN])
        raise UsageError(f"{len(top)} processes match {text!r}:\n{listed}", hint=f"sentinel watch --pid {top[0]}")
    return _by_pid(str(top[0]))


def _ancestors(pid: int, seen: processes.Scan) -> set[int]:
    """A process and all above it."""
    found: set[int] = set()
    while pid in seen and pid not in found:
        found.add(pid)
        pid = seen[pid].ppid
    return found


def _spec(args: argparse.Namespace, process: ProcessId) -> JobSpec:
    argv = processes.command_line(process.pid)
    try:
        its_cwd = os.readlink(f"/proc/{process.pid}/cwd")
    except OSError:
        its_cwd = os.getcwd()
    spec = spec_from(
        args, argv, cwd=os.getcwd(), notify=os.environ.get("SENTINEL_NOTIFY", ""), name=default_name(tuple(argv))
    )
    logs = [path for path in _written_to(process.pid) if path not in spec.logs]
    return replace(spec, cwd=its_cwd, logs=(*spec.logs, *logs))


def _written_to(pid: int) -> list[str]:
    """The files that its stdout and stderr are, if they are files."""
    found: list[str] = []
    for number in (1, 2):
        with contextlib.suppress(OSError):
            path = os.readlink(f"/proc/{pid}/fd/{number}")
            if stat.S_ISREG(os.stat(path).st_mode) and path not in found:
                found.append(path)
    return found
