"""Watching the places a job writes its checkpoints to.

A look costs a directory listing and a stat per candidate. What has not
changed is not looked into again.
"""

from __future__ import annotations

import glob
import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from sentinel.checkpoints.formats import Verdict, inspect, is_temporary, step_of
from sentinel.model.checkpoints import Checkpoint, CheckpointState

SETTLED_SECONDS = 1.5
"""A file of silent form counts once it has not changed for this long."""
GIVEN_UP_SECONDS = 120.0
"""A torn one that has not changed for this long is broken, no longer in progress."""
_IGNORED = frozenset(
    {"latest", "latest_checkpointed_iteration.txt", "checkpoint", "lightning_logs", "logs", "runs", "wandb"}
)
_IGNORED_SUFFIXES = frozenset(
    {".log", ".txt", ".out", ".err", ".csv", ".md", ".yaml", ".yml", ".lock", ".ack", ".py", ".html"}
)


@dataclass(frozen=True, slots=True)
class _Print:
    """The outside of a candidate: when it differs, the candidate has changed."""

    size_bytes: int
    changed: float
    files: int


@dataclass(slots=True)
class _Known:
    print: _Print
    since: float
    first_seen: float
    checkpoint: Checkpoint | None = None


class Watcher:
    """Knows the checkpoints of one job.

    Args:
        places: Directories or globs. In a directory, each file or subdirectory is a candidate.
    """

    def __init__(self, places: Iterable[str]) -> None:
        self._places = tuple(places)
        self._known: dict[str, _Known] = {}
        self._begun = False

    def poll(self, now: float) -> list[Checkpoint]:
        """Look once; the checkpoints that became complete or broken since the last look.

        Args:
            now: Unix seconds, on the clock that stamps the files.
        """
        news: list[Checkpoint] = []
        seen = set()
        for path in self._candidates():
            try:
                outside = _outside(path)
            except OSError:
                continue
            seen.add(str(path))
            changed = self._judge(path, outside, now)
            if changed is not None:
                news.append(changed)
        for gone in self._known.keys() - seen:
            del self._known[gone]
        self._begun = True
        return sorted(news, key=lambda found: found.finished)

    def newest(self) -> Checkpoint | None:
        """The newest whole one, as of the last look."""
        return max(self.complete(), key=lambda found: (found.finished, found.step or -1), default=None)

    def complete(self) -> list[Checkpoint]:
        """All whole ones."""
        found = (known.checkpoint for known in self._known.values())
        return [item for item in found if item is not None and item.state is CheckpointState.COMPLETE]

    def writing(self) -> list[str]:
        """Paths of those still being written."""
        return [path for path, known in self._known.items() if known.checkpoint is None]

    def _judge(self, path: Path, outside: _Print, now: float) -> Checkpoint | None:
        known = self._known.get(str(path))
        if known is None:
            known = self._known[str(path)] = _Known(outside, now, now)
        elif known.print != outside:
            known.print, known.since = outside, now
            if known.checkpoint is not None:  # written again in place: a new one under an old name
                known.checkpoint, known.first_seen = None, now
        if known.checkpoint is not None:
            return None
        # What was there before the first look has been quiet since its last change.
        quiet = now - (outside.changed if not self._begun else max(outside.changed, known.since))
        try:
            form = inspect(path)
        except OSError:
            return None
        took = max(0.0, outside.changed - known.first_seen) if self._begun else None
        base = Checkpoint(
            str(path),
            CheckpointState.COMPLETE,
            outside.changed,
            outside.size_bytes,
            step_of(path),
            form.format,
            "",
            took,
        )
        if form.verdict is Verdict.WHOLE or (form.verdict is Verdict.SILENT and quiet >= SETTLED_SECONDS):
            known.checkpoint = base
        elif form.verdict is Verdict.TORN and quiet >= GIVEN_UP_SECONDS:
            known.checkpoint = replace(base, state=CheckpointState.BROKEN, reason=form.reason)
        return known.checkpoint

    def _candidates(self) -> Iterable[Path]:
        for place in self._places:
            paths = [Path(found) for found in glob.glob(place)] if glob.has_magic(place) else _entries(Path(place))
            for path in paths:
                name = path.name
                if is_temporary(name) or name in _IGNORED or path.suffix.lower() in _IGNORED_SUFFIXES:
                    continue
                yield path


def newest(places: Iterable[str], now: float) -> Checkpoint | None:
    """The newest whole checkpoint in `places`, looked up once."""
    watcher = Watcher(places)
    watcher.poll(now)
    return watcher.newest()


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


def _entries(directory: Path) -> list[Path]:
    try:
        return [Path(entry.path) for entry in os.scandir(directory)]
    except NotADirectoryError:
        return [directory]
    except OSError:
        return []


def _outside(path: Path) -> _Print:
    found = path.stat()
    if not stat.S_ISDIR(found.st_mode):
        return _Print(found.st_size, found.st_mtime, 1)
    size, changed, files = 0, found.st_mtime, 0
    for entry in os.scandir(path):
        inner = entry.stat()
        size += inner.st_size
        changed = max(changed, inner.st_mtime)
        files += 1
    return _Print(size, changed, files)
