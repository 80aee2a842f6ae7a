"""How an attempt ended, written beside its logs: for a daemon that was away at that moment."""

from __future__ import annotations

import contextlib
import json
import os

_NAME = "end.json"
_LARGEST = 4096


def write(directory: str, attempt: int, exit_code: int | None, exit_signal: int | None, at: float) -> None:
    """Leave it there. A full disk is no reason to fail."""
    path = os.path.join(directory, _NAME)
    data = json.dumps({"attempt": attempt, "exit_code": exit_code, "exit_signal": exit_signal, "at": at})
    with contextlib.suppress(OSError):
        with open(f"{path}.tmp", "w", encoding="utf-8") as file:
            file.write(data)
        os.rename(f"{path}.tmp", path)


def read(directory: str, attempt: int) -> tuple[int | None, int | None, float] | None:
    """Exit code, signal and time of that attempt, or None where nobody wrote it."""
    try:
        with open(os.path.join(directory, _NAME), "rb") as file:
            data = json.loads(file.read(_LARGEST))
        if data["attempt"] != attempt:
            return None
        return data["exit_code"], data["exit_signal"], float(data["at"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
