"""What a user can say about a job on the command line, for `run` and `watch` alike."""

from __future__ import annotations

import argparse
import os
import re
import shlex
import signal
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from sentinel.errors import UsageError
from sentinel.jobs.program import check_words, missing_program
from sentinel.model.jobs import Channel, CheckpointDir, ExitHook, How, JobSpec
from sentinel.model.requests import RequestKind
from sentinel.units import parse_duration, parse_size

T = TypeVar("T")
_LONGEST_NAME = 100
_CHANNELS = "signal:USR1, signal:USR1@REGEX, file:PATH, exec:CMD or http:URL"


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options that say what a job is and what may be asked of it."""
    job = parser.add_argument_group("the job")
    job.add_argument("--name", metavar="NAME", help="what to call it; default: the script's or command's name")
    job.add_argument(
        "--log", action="append", default=[], metavar="PATH", help="another file it logs to (repeatable, a glob)"
    )
    job.add_argument(
        "--checkpoints", action="append", default=[], metavar="DIR[:INTERVAL]",
        help="where it writes checkpoints, and how often they are wanted (repeatable)",
    )  # fmt: skip
    job.add_argument("--checkpoint-interval", metavar="DURATION", help="how often, for directories that do not say")
    job.add_argument("--checkpoint-size", metavar="SIZE", help="how large one is, to warn before the disk is too full")
    job.add_argument("--memory-limit", metavar="SIZE", help="what it may use, where no cgroup says so")
    job.add_argument("--cost-per-hour", metavar="MONEY", help="what an hour of the machine costs")
    ask = parser.add_argument_group("what it can be asked", f"CHANNEL: {_CHANNELS}")
    for kind, what in (
        (RequestKind.CHECKPOINT, "write a checkpoint now"),
        (RequestKind.DEGRADE, "use less, one step"),
        (RequestKind.RESTORE, "take one step back up"),
    ):
        ask.add_argument(
            f"--on-{kind.value}", action="append", default=[], metavar="CHANNEL", help=f"how to ask it to {what}"
        )
    ask.add_argument("--degrade-levels", metavar="N", help="how many steps down there are (default 1)")
    ask.add_argument("--dry-run", action="store_true", help="say what would be asked, ask nothing")
    people = parser.add_argument_group("rules and people")
    people.add_argument(
        "--rules", action="append", default=[], metavar="FILE", help="rules for this job alone (repeatable)"
    )
    people.add_argument(
        "--notify", action="append", default=[], metavar="URL", help="whom to tell (repeatable, an apprise URL)"
    )
    parser.add_argument("--quiet", action="store_true", help="no banner")
    parser.add_argument("--no-daemon", action="store_true", help="do not start a daemon where none is running")


def add_life_options(parser: argparse.ArgumentParser) -> None:
    """The options that say how long a job may take and what follows its end: for `run` alone, which starts it."""
    again = parser.add_argument_group("trying again")
    again.add_argument("--retries", metavar="N", help="so many attempts may follow one that failed, without progress")
    again.add_argument("--budget", metavar="DURATION", help="no attempt begins later than this after the first")
    limits = parser.add_argument_group(
        "limits", "warned at 80 %, asked for a checkpoint, stopped, killed after a grace"
    )
    limits.add_argument(
        "--timeout", metavar="DURATION|auto", help="how long an attempt may run; auto: as past runs did"
    )
    limits.add_argument("--stall-timeout", metavar="DURATION", help="how long it may make no progress")
    limits.add_argument(
        "--preempt-signal", metavar="SIG", help="how a scheduler says that it wants the machine back, beside TERM"
    )
    limits.add_argument("--requeue", action="store_true", help="then put a Slurm job back into its queue")
    after = parser.add_argument_group("afterwards")
    after.add_argument(
        "--on-exit", action="append", default=[], metavar="[finished:|failed:|gave-up:]CMD",
        help="run this once the job is over (repeatable), unless somebody logs in, holds it or starts a job",
    )  # fmt: skip
    after.add_argument("--exit-grace", metavar="DURATION", help="how long that waits (default 5m)")
    after.add_argument("--detach", action="store_true", help="leave it running and return at once; prints its name")
    after.add_argument("--gpus", metavar="N", help="on how many boards it runs, for the bill")


def life_from(args: argparse.Namespace, spec: JobSpec) -> JobSpec:
    """`spec`, with what `add_life_options` has read.

    Raises:
        UsageError: Everything that is wrong with it, at once.
    """
    problems: list[UsageError] = []

    def read(option: str, parse: Callable[[str], T], text: str | None, default: T) -> T:
        try:
            return default if text is None else parse(text)
        except UsageError as problem:
            problems.append(UsageError(f"--{option}: {problem.message}", hint=problem.hint))
            return default

    auto = args.timeout == "auto"
    made = replace(
        spec,
        retries=read("retries", _number(0, 10_000), args.retries, 0),
        budget_s=read("budget", _positive(parse_duration), args.budget, None),
        timeout_s=None if auto else read("timeout", _positive(parse_duration), args.timeout, None),
        timeout_auto=auto,
        stall_timeout_s=read("stall-timeout", _positive(parse_duration), args.stall_timeout, None),
        preempt_signal=read("preempt-signal", _signal, args.preempt_signal, ""),
        requeue=args.requeue,
        on_exit=tuple(hook for text in args.on_exit if (hook := read("on-exit", _hook, text, None))),
        exit_grace_s=read("exit-grace", parse_duration, args.exit_grace, spec.exit_grace_s),
        gpus=read("gpus", _number(1, 1024), args.gpus, None),
    )
    if problems:
        raise UsageError("\n".join(str(problem) for problem in problems))
    return made


def spec_from(args: argparse.Namespace, argv: Sequence[str], *, cwd: str, notify: str = "", name: str = "") -> JobSpec:
    """What was said, checked.

    Args:
        args: As parsed with `add_options`.
        argv: The job's command.
        cwd: Paths are relative to it.
        notify: More addresses, separated by spaces (SENTINEL_NOTIFY).
        name: What to call the job where nothing was said.

    Raises:
        UsageError: Everything that is wrong with it, at once.
    """
    problems: list[UsageError] = []

    def read(option: str, parse: Callable[[str], T], text: str | None, default: T) -> T:
        if text is None:
            return default
        try:
            return parse(text)
        except UsageError as problem:
            problems.append(UsageError(f"--{option}: {problem.message}", hint=problem.hint))
            return default

    interval = read("checkpoint-interval", _positive(parse_duration), args.checkpoint_interval, None)
    spec = JobSpec(
        argv=tuple(argv),
        cwd=cwd,
        name=read("name", _name, args.name, name),
        logs=tuple(_absolute(path, cwd) for path in args.log),
        checkpoints=tuple(
            place
            for text in args.checkpoints
            if (place := read("checkpoints", lambda text: _checkpoint_dir(text, cwd, interval), text, None))
        ),
        checkpoint_size_bytes=read("checkpoint-size", _positive(parse_size), args.checkpoint_size, None),
        channels=tuple(
            channel
            for kind in (RequestKind.CHECKPOINT, RequestKind.DEGRADE, RequestKind.RESTORE)
            for text in getattr(args, f"on_{kind.value}")
            if (channel := read(f"on-{kind.value}", lambda text, kind=kind: _channel(kind, text, cwd), text, None))  # type: ignore[misc]
        ),
        degrade_levels=read("degrade-levels", _count, args.degrade_levels, 1),
        notify=(*args.notify, *notify.split()),
        memory_limit_bytes=read("memory-limit", _positive(parse_size), args.memory_limit, None),
        cost_per_hour=read("cost-per-hour", _money, args.cost_per_hour, None),
        rules=tuple(_absolute(path, cwd) for path in args.rules),
        dry_run=args.dry_run,
        quiet=args.quiet,
        degrades=args.degrade_levels is not None,
    )
    problems += [UsageError(f"--rules: cannot read {path}") for path in spec.rules if not os.access(path, os.R_OK)]
    problems += [
        UsageError(f"--notify: {address!r} is not an address", hint="--notify mailtos://USER:PASSWORD@gmail.com")
        for address in args.notify
        if "://" not in address
    ]
    problems += [
        UsageError(f"SENTINEL_NOTIFY: {address!r} is not an address", hint="export SENTINEL_NOTIFY=ntfy://my-topic")
        for address in notify.split()
        if "://" not in address
    ]
    if problems:
        raise UsageError("\n".join(str(problem) for problem in problems))
    return spec


def _name(text: str) -> str:
    if not text or len(text) > _LONGEST_NAME or not re.fullmatch(r"[\w.+:@=-]+", text):
        raise UsageError(
            f"{text!r} is not a name: letters, digits and . _ + : @ = -, at most {_LONGEST_NAME}",
            hint="--name llama-ft",
        )
    return text


def _absolute(path: str, cwd: str) -> str:
    return os.path.normpath(os.path.join(cwd, os.path.expanduser(path)))


def _checkpoint_dir(text: str, cwd: str, interval_s: float | None) -> CheckpointDir:
    """`DIR` or `DIR:INTERVAL`; a directory that is there, with a colon in its name, wins."""
    directory, colon, after = text.rpartition(":")
    if colon and directory and "/" not in after and not os.path.exists(_absolute(text, cwd)):
        try:
            return CheckpointDir(_absolute(directory, cwd), parse_duration(after) or None)
        except UsageError:
            raise UsageError(
                f"{after!r} is not a duration, and there is no directory {text!r}",
                hint=f"--checkpoints {directory}:30m; where the colon belongs to the name, make the directory first",
            ) from None
    return CheckpointDir(_absolute(text, cwd), interval_s)


def _channel(kind: RequestKind, text: str, cwd: str) -> Channel:
    channel = Channel.parse(kind, text)
    if channel.how is How.FILE:
        return Channel(kind, How.FILE, _absolute(channel.target, cwd))
    if channel.how is How.HTTP and "://" not in channel.target:
        return Channel(
            kind, How.HTTP, f"http:{channel.target}" if channel.target.startswith("//") else f"http://{channel.target}"
        )
    check_words(channel)
    if (missing := missing_program(channel, cwd, os.environ.get("PATH", os.defpath))) is not None:
        raise missing
    return channel


def _positive(parse: Callable[[str], T]) -> Callable[[str], T | None]:
    def checked(text: str) -> T | None:
        value = parse(text)
        if not value:
            raise UsageError(f"{text!r} is nothing; it must be more than 0")
        return value

    return checked


def _number(least: int, most: int) -> Callable[[str], int]:
    def checked(text: str) -> int:
        if not text.isdecimal() or not least <= int(text) <= most:
            raise UsageError(f"{text!r} is not a number from {least} to {most}")
        return int(text)

    return checked


def _signal(text: str) -> str:
    name = text.upper().removeprefix("SIG")
    if not re.fullmatch(r"[A-Z][A-Z0-9]+", name) or not hasattr(signal, f"SIG{name}") or name in {"KILL", "STOP"}:
        raise UsageError(f"{text!r} is no signal that can be caught", hint="--preempt-signal USR1")
    return name


def _hook(text: str) -> ExitHook:
    when, colon, command = text.partition(":")
    if not colon or when not in {"finished", "failed", "gave-up"}:
        when, command = "", text
    try:
        words = shlex.split(command)
    except ValueError as fault:
        raise UsageError(f"{text!r} cannot be split into words: {fault}") from None
    if not words:
        raise UsageError(f"{text!r} names no program", hint="--on-exit 'finished:sudo poweroff'")
    return ExitHook(when, command.strip())


def _count(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 100:
        raise UsageError(f"{text!r} is not a number from 1 to 100", hint="--degrade-levels 2")
    return int(text)


def _money(text: str) -> float:
    try:
        value = float(text.removeprefix("$").removeprefix("€"))
    except ValueError:
        value = -1.0
    if not 0 <= value < 1e9:
        raise UsageError(f"{text!r} is not an amount of money", hint="--cost-per-hour 19.92")
    return value
