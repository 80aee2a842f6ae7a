"""Checkpoints from outside: size, age, how many files; and the room left beside them."""

from __future__ import annotations

import glob
import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

_DEEPEST = 3
_MOST_FILES = 4096


@dataclass(frozen=True, slots=True)
class Outside:
    """The outside of a candidate: when it differs, the candidate has changed."""

    inode: int
    size_bytes: int
    began: float
    changed: float
    files: int
    directory: bool = False


def extent(path: Path) -> tuple[int, int, float]:
    """Bytes and files of one checkpoint, and when its last byte was written (Unix seconds).

    Raises:
        OSError: It cannot be read.
    """
    outside = outside_of(str(path), os.stat(path))
    return outside.size_bytes, outside.files, outside.changed


def free_space(places: Iterable[str]) -> tuple[int, int | None] | None:
    """Bytes and inodes left where a job writes: the least over its places.

    Returns None where no place (or its nearest existing parent) can be asked. Inodes
    are None where the file system has no fixed number of them.
    """
    least: tuple[int, int | None] | None = None
    for place in places:
        path = Path(place)
        while glob.has_magic(str(path)) or (not path.exists() and path != path.parent):
            path = path.parent
        try:
            found = os.statvfs(path)
        except OSError:
            continue
        free, inodes = found.f_bavail * found.f_frsize, found.f_favail if found.f_files else None
        if least is None or free < least[0]:
            least = (free, inodes)
    return least


def outside_of(path: str, found: os.stat_result) -> Outside:
    """Of a file or of a directory and a few levels below.

    Raises:
        OSError: It cannot be listed.
    """
    if not stat.S_ISDIR(found.st_mode):
        return Outside(found.st_ino, found.st_size, found.st_mtime, found.st_mtime, 1)
    total = _Total(found.st_mtime)
    total.add(path, 0)
    began = total.began if total.began is not None else found.st_mtime
    return Outside(found.st_ino, total.size, began, total.changed, total.files, directory=True)


class _Total:
    """Of the files in a directory and a few levels below."""

    def __init__(self, changed: float) -> None:
        self.size, self.files, self.changed = 0, 0, changed
        self.began: float | None = None

    def add(self, path: str, depth: int) -> None:
        with os.scandir(path) as entries:
            for entry in entries:
                if self.files >= _MOST_FILES:
                    return
                try:
                    inner = entry.stat()
                except OSError:
                    continue
                self.changed = max(self.changed, inner.st_mtime)
                if stat.S_ISDIR(inner.st_mode):
                    if depth < _DEEPEST and not entry.is_symlink():
                        self.add(entry.path, depth + 1)
                    continue
                self.size += inner.st_size
                self.files += 1
                self.began = inner.st_mtime if self.began is None else min(self.began, inner.st_mtime)
