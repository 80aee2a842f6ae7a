"""From the command line to one command's module, without importing the others.

A command is a module `sentinel.cli.NAME` with `add_arguments(parser)` and
`run(args) -> int`. Its name and its one line of help stand in `COMMANDS`, so
that `sentinel --help` imports none of them.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # typing itself would cost a fifth of the time that `sentinel --help` takes
if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence
    from typing import NoReturn

COMMANDS: dict[str, tuple[str, str]] = {
    "run": ("run", "run a command as a job that is watched over"),
    "watch": ("watch", "watch over a process that runs already"),
    "status": ("status", "one screen: is all well?"),
    "jobs": ("jobs", "list jobs"),
    "alerts": ("alerts", "list alerts"),
    "events": ("events", "what happened, newest last"),
    "logs": ("logs", "what log lines mean; a job's output"),
    "checkpoints": ("checkpoints", "look into checkpoints: whole? resumable? how often?"),
    "tui": ("tui", "the live dashboard"),
    "checkpoint": ("ask", "ask a job to write a checkpoint now"),
    "degrade": ("ask", "ask a job to use less, one step"),
    "restore": ("ask", "ask a job to take one step back up"),
    "pause": ("ask", "stop a job's processes for a while"),
    "resume": ("ask", "let a paused job go on"),
    "stop": ("ask", "end a job: checkpoint, then TERM, then KILL"),
    "restart": ("ask", "end a job's attempt and start the next"),
    "hold": ("hold", "keep --on-exit from running, for a while"),
    "dump": ("ask", "have a job print its stacks"),
    "audit": ("audit", "is a job looked after, and what is missing?"),
    "report": ("report", "the bill: useful, lost, at risk, saved"),
    "ack": ("ack", "say that you have seen an alert"),
    "silence": ("silence", "keep messages and requests of some alerts back for a while"),
    "unsilence": ("unsilence", "end a silence"),
    "query": ("query", "evaluate a PromQL expression"),
    "sql": ("sql", "ask the database, read-only"),
    "rules": ("rules", "check, test, list and export rules"),
    "notify": ("notify", "test receivers, show undelivered messages"),
    "config": ("config", "check, show or begin a configuration file"),
    "doctor": ("doctor", "what works on this machine and what does not"),
    "daemon": ("daemon", "run the daemon in the foreground"),
    "demo": ("demo", "a bad night in forty seconds, with real processes"),
    "help": ("help", "read about a topic"),
}
"""Name → (module, help), in the order in which they are listed."""

_INTERRUPTED = 130
_BROKEN_PIPE = 141
_OUR_FAULT = 70


def main(argv: Sequence[str] | None = None) -> int:
    """Carry out one command line; returns the exit code.

    What a user can do something about is said on stderr in two lines, never
    as a traceback.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    _replace_what_is_closed()
    try:
        code = _dispatch(arguments)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return _INTERRUPTED
    except BrokenPipeError:
        _swallow_stdout()
        return _BROKEN_PIPE
    except Exception as error:
        return _explained(error)
    return code


def parser_for(name: str) -> argparse.ArgumentParser:
    """The argument parser of one command."""
    import argparse
    import importlib

    from sentinel.errors import UsageError

    module_name, summary = COMMANDS[name]
    try:
        module = importlib.import_module(f"sentinel.cli.{module_name}")
    except ModuleNotFoundError as missing:
        if missing.name != f"sentinel.cli.{module_name}":
            raise
        raise UsageError(f"this build of sentinel does not have the command `{name}`") from None

    class Parser(argparse.ArgumentParser):
        """Says what is wrong in two lines, as every other mistake is said."""

        def error(self, message: str) -> NoReturn:
            raise UsageError(message, hint=f"`{self.prog} --help`")

    parser = Parser(
        prog=f"sentinel {name}",
        description=summary[0].upper() + summary[1:] + ".",
        epilog=getattr(module, "EPILOG", None),
        # With a width it does not import shutil, and with it the compressors.
        formatter_class=lambda prog: argparse.RawDescriptionHelpFormatter(prog, width=_help_width()),
    )
    parser.set_defaults(command=name, execute=module.run)
    module.add_arguments(parser)
    return parser


def _dispatch(arguments: list[str]) -> int:
    if not arguments or arguments[0] in {"-h", "--help"}:
        print(overview())
        return 0
    name = arguments[0]
    if name in {"-V", "--version"}:
        from sentinel import __version__

        print(f"sentinel {__version__}")
        return 0
    if name not in COMMANDS:
        from sentinel.errors import UsageError, nearest

        kind = "option" if name.startswith("-") else "command"
        close = nearest(name, list(COMMANDS))
        raise UsageError(
            f"unknown {kind} `{name}`", hint=f"`sentinel {close}`" if close else "`sentinel --help` lists the commands"
        )
    try:
        args = parser_for(name).parse_args(arguments[1:])
    except SystemExit as ended:  # argparse has said it already
        return ended.code if isinstance(ended.code, int) else 2
    code: int = args.execute(args)
    return code


def overview() -> str:
    """What `sentinel --help` prints."""
    lines = [
        "usage: sentinel COMMAND [options]",
        "",
        "Keeps long jobs from crashing: it measures, foresees, asks the job to checkpoint or",
        "degrade, and tells people.",
        "",
        "  sentinel run -- python train.py      watch over a job, from now on",
        "  sentinel demo                        see what that is good for",
        "",
        "commands:",
        *(f"  {name:<12} {text}" for name, (_, text) in COMMANDS.items()),
        "",
        "`sentinel COMMAND --help` tells more; `sentinel help` lists topics to read about.",
    ]
    return "\n".join(lines)


def _replace_what_is_closed() -> None:
    """`sentinel … >&-`: Python has no stream there, and nothing of ours is to fail for it."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115 - for as long as we run


def _help_width() -> int:
    try:
        return min(os.get_terminal_size().columns, 120) - 2
    except OSError:
        return 98


def _explained(error: Exception) -> int:
    """Say what went wrong; the exit code."""
    from sentinel.errors import SentinelError

    if isinstance(error, SentinelError):
        return _fail(str(error), error.exit_code)
    if os.environ.get("SENTINEL_TRACEBACK"):
        raise error
    return _fail(
        f"a fault of sentinel itself: {type(error).__name__}: {error}\n"
        "  try: the same with SENTINEL_TRACEBACK=1, and send us what it prints",
        _OUR_FAULT,
    )


def _fail(text: str, code: int) -> int:
    try:
        print(f"sentinel: {text}", file=sys.stderr, flush=True)
    except BrokenPipeError:
        return code
    return code


def _swallow_stdout() -> None:
    """Point stdout at nothing, so that the interpreter's last flush is quiet too."""
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, sys.stdout.fileno())
    os.close(quiet)
