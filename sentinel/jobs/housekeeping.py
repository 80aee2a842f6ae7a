"""The logs of jobs that have long ended are given back to the disk."""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection
from pathlib import Path


def sweep(directory: Path, keep: Collection[str], *, now: float, older_s: float, limit_bytes: int) -> list[str]:
    """Remove what is too old; then, the oldest first, what is too much.

    Args:
        directory: Holds one directory per job, named by its id.
        keep: The ids of jobs that live: theirs stay, whatever they hold.
        now: Unix seconds.
        older_s: How long an ended job's directory stays after its last change.
        limit_bytes: How much all of them may hold on the disk.

    Returns:
        The ids of the jobs whose directories are gone.
    """
    found: list[tuple[float, int, str]] = []
    total = 0
    try:
        entries = [entry for entry in os.scandir(directory) if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return []
    for entry in entries:
        changed, size = _measure(entry.path)
        total += size
        if entry.name not in keep:
            found.append((changed, size, entry.name))
    gone: list[str] = []
    for changed, size, name in sorted(found):
        if now - changed <= older_s and total <= limit_bytes:
            continue
        shutil.rmtree(directory / name, ignore_errors=True)
        total -= size
        gone.append(name)
    return gone


def _measure(path: str) -> tuple[float, int]:
    """When something in it last changed (Unix seconds), and what it holds on the disk (bytes)."""
    changed, size = 0.0, 0
    for base, _, names in os.walk(path):
        for name in [".", *names]:
            try:
                found = os.lstat(os.path.join(base, name))
            except OSError:
                continue
            changed, size = max(changed, found.st_mtime), size + found.st_blocks * 512
    return changed, size
