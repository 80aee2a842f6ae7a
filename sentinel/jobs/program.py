"""The command as a shell would find it."""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass

from sentinel.errors import UsageError
from sentinel.model.jobs import Channel, How

NOT_FOUND = 127
NOT_EXECUTABLE = 126


@dataclass(frozen=True, slots=True)
class Program:
    """What can be run, or why it cannot.

    Attributes:
        path: What to execute; empty where there is a problem.
        problem: In words; empty where there is none.
        exit_code: What a shell would end with: 127 not found, 126 not executable.
    """

    path: str
    problem: str = ""
    exit_code: int = 0


def find_program(name: str, search: str) -> Program:
    """Look along `search` (PATH), as a shell does."""
    candidates = [name] if "/" in name else [os.path.join(part or ".", name) for part in search.split(os.pathsep)]
    near = ""
    for path in candidates:
        if os.path.isdir(path):
            near = near or f"{path} is a directory, not a command"
        elif os.path.exists(path):
            if os.access(path, os.X_OK):
                return Program(path)
            near = near or f"{path} is not executable\n  try: chmod +x {path}"
    if near:
        return Program("", near, NOT_EXECUTABLE)
    where = "no such file" if "/" in name else "in no directory of PATH"
    return Program("", f"command not found: {name} ({where})", NOT_FOUND)


_SHELL = frozenset({">", ">>", "<", "<<", "|", "||", "&&", ";", "&", "2>", "2>>", "&>", "2>&1", ">&2"})


def check_words(channel: Channel) -> None:
    """See to it that `exec:` is meant as it will be carried out: as words, not as a line for a shell.

    Raises:
        UsageError: It is not.
    """
    if channel.how is not How.EXEC:
        return
    try:
        words = shlex.split(channel.target, posix=False)
        argv = shlex.split(channel.target)
    except ValueError as fault:
        raise UsageError(f"exec:{channel.target!r} cannot be split into words: {fault}") from None
    if not argv:
        raise UsageError("`exec:` names no program", hint="exec:./ask.sh checkpoint")
    found = next((word for word in words if word in _SHELL), None)
    if found is not None:
        raise UsageError(
            f"`exec:` starts a program without a shell, and would hand `{found}` to it as a word",
            hint=f"exec:sh -c {shlex.quote(channel.target)}",
        )


def missing_program(channel: Channel, cwd: str, search: str) -> UsageError | None:
    """Why the program that `exec:` names cannot be started from here, or None. Words are checked before."""
    if channel.how is not How.EXEC:
        return None
    name = shlex.split(channel.target)[0]
    found = find_program(os.path.normpath(os.path.join(cwd, name)) if "/" in name else name, search)
    if not found.problem:
        return None
    message, _, hint = found.problem.partition("\n  try: ")
    return UsageError(f"`exec:`: {message}", hint=hint or None)
