"""`sentinel hold`: whatever waits to run after a job is told to wait on. One small file of the user."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from sentinel import paths


def _file(environ: Mapping[str, str]) -> Path:
    return paths.state_directory(environ) / "hold"


def put(environ: Mapping[str, str], until: float) -> Path:
    """Hold until then (Unix seconds).

    Raises:
        OSError: It cannot be written.
    """
    path = _file(environ)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    temporary = path.with_name(f"hold.{os.getpid()}.tmp")
    temporary.write_text(f"{until:.3f}\n")
    temporary.rename(path)
    return path


def lift(environ: Mapping[str, str]) -> bool:
    """Hold no longer; whether there was a hold."""
    try:
        _file(environ).unlink()
    except OSError:
        return False
    return True


def until(environ: Mapping[str, str]) -> float:
    """Until when it holds (Unix seconds); 0: it does not, or never did."""
    try:
        return float(_file(environ).read_text()[:64])
    except (OSError, ValueError):
        return 0.0
