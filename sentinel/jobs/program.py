"""The command as a shell would find it."""

from __future__ import annotations

import os
from dataclasses import dataclass

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
