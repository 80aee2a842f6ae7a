"""`sentinel run [options] -- CMD`: run a command as a job that is watched over."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable

from sentinel import paths
from sentinel.api.client import Client
from sentinel.api.connect import connect
from sentinel.errors import UsageError
from sentinel.jobs.detach import detached
from sentinel.jobs.errands import Errands
from sentinel.jobs.link import Link
from sentinel.jobs.naming import default_name
from sentinel.jobs.options import add_life_options, add_options, life_from, spec_from
from sentinel.jobs.ownhand import OwnHand
from sentinel.jobs.program import Program, find_program
from sentinel.jobs.supervisor import Supervisor
from sentinel.jobs.terminal import Terminal
from sentinel.jobs.voice import Voice
from sentinel.model.jobs import JobSpec
from sentinel.system import processes

HELP = "run a command as a job that is watched over"
EPILOG = """examples:
  sentinel run -- python train.py
  sentinel run --checkpoints ckpt:30m --on-checkpoint signal:USR1 --notify ntfy://my-topic -- torchrun train.py
  sentinel run --memory-limit 600MiB --on-degrade file:/tmp/degrade -- python train.py --resume {checkpoint}

It ends with the job's own exit code, 128+n for signal n. {checkpoint} in CMD
becomes the newest whole checkpoint (nothing, where there is none)."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the job, then its command."""
    add_options(parser)
    add_life_options(parser)
    parser.add_argument("argv", nargs=argparse.REMAINDER, metavar="-- CMD", help="the command and its arguments")


def run(args: argparse.Namespace) -> int:
    """Supervise it, and end as it ends."""
    argv = args.argv[1:] if args.argv[:1] == ["--"] else args.argv
    if not argv:
        raise UsageError("no command was given", hint="sentinel run -- python train.py")
    _open_standard_descriptors()
    environ = dict(os.environ)
    notify, name = environ.get("SENTINEL_NOTIFY", ""), default_name(tuple(argv))
    spec = life_from(args, spec_from(args, argv, cwd=paths.here(environ), notify=notify, name=name))
    terminal = None if args.detach else Terminal.ours()
    voice = Voice(terminal)
    program = find_program(argv[0], environ.get("PATH", os.defpath))
    if program.problem:
        voice.say(program.problem)
        return program.exit_code
    if args.detach:
        return detached(lambda met: _supervise(args, spec, program, environ, Voice(), None, met))
    return _supervise(args, spec, program, environ, voice, terminal)


def _supervise(
    args: argparse.Namespace,
    spec: JobSpec,
    program: Program,
    environ: dict[str, str],
    voice: Voice,
    terminal: Terminal | None,
    met: Callable[[str, str], None] = lambda _name, _log: None,
) -> int:
    ourselves = processes.identify(os.getpid())
    assert ourselves is not None  # we are running

    def reach(*, start: bool, quiet: bool) -> Client:
        return connect(start=start, environ=environ, quiet=quiet)

    hand = OwnHand(spec, ourselves, environ)
    link = Link(reach, spec, ourselves, start=not args.no_daemon, say=voice.say, hand=hand)
    errands = Errands(reach, spec, lambda: link.job_id)
    supervisor = Supervisor(
        spec, program, link, errands, voice, terminal, environ,
        met=lambda registration, logs: met(registration.name, logs[0] if logs else ""),
    )  # fmt: skip
    return supervisor.run()


def _open_standard_descriptors() -> None:
    """A descriptor that was closed would be taken by the next file we open, and the job would write into it."""
    while True:
        number = os.open(os.devnull, os.O_RDWR)
        if number > 2:
            os.close(number)
            return
        os.set_inheritable(number, True)
