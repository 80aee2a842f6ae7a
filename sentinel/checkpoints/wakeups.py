"""Hearing at once that something came to a directory, where the kernel tells: inotify, on local file systems."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from sentinel.checkpoints.names import is_temporary
from sentinel.system.mounts import Mount, mounts

if TYPE_CHECKING:
    from watchdog.events import FileSystemEvent, FileSystemEventHandler
    from watchdog.observers.api import BaseObserver, ObservedWatch

MOST_DIRECTORIES = 64
"""More than these of one listener are only polled: a watch costs kernel memory and a thread."""


class Wakeups:
    """One listener for all jobs. Where nothing can be heard, polling notices a little later.

    Not a single event is relied on: they only make the next look come sooner.
    """

    def __init__(self) -> None:
        self._observer: BaseObserver | None = None
        self._failed = False
        self._lock = threading.Lock()

    def listen(self, heard: Callable[[str, bool], None]) -> Ear:
        """Begin to listen for one job.

        Args:
            heard: Called in a thread of ours with a path that came, was closed or
                renamed, and whether it was renamed from a temporary name.
        """
        return Ear(self._watch, self._unwatch, heard)

    def close(self) -> None:
        """Hear nothing any more."""
        with self._lock:
            observer, self._observer, self._failed = self._observer, None, True
        if observer is not None:
            observer.stop()
            observer.join(2.0)

    def _watch(self, directory: str, heard: Callable[[str, bool], None]) -> ObservedWatch | None:
        with self._lock:
            if self._failed:
                return None
            try:
                from watchdog.events import (
                    DirCreatedEvent,
                    DirMovedEvent,
                    FileClosedEvent,
                    FileCreatedEvent,
                    FileMovedEvent,
                )
                from watchdog.observers import Observer

                if self._observer is None:
                    self._observer = Observer(timeout=5.0)
                    self._observer.start()
                kinds: list[type[FileSystemEvent]] = [
                    DirCreatedEvent, DirMovedEvent, FileClosedEvent, FileCreatedEvent, FileMovedEvent,
                ]  # fmt: skip
                return self._observer.schedule(_handler(heard), directory, recursive=False, event_filter=kinds)
            except (OSError, RuntimeError):  # no inotify, or all its watches are used up
                return None

    def _unwatch(self, watch: ObservedWatch) -> None:
        with self._lock:
            observer = self._observer
        if observer is not None:
            with contextlib.suppress(KeyError, OSError):
                observer.unschedule(watch)


class Ear:
    """What one job's directories are heard with."""

    def __init__(
        self,
        watch: Callable[[str, Callable[[str, bool], None]], ObservedWatch | None],
        unwatch: Callable[[ObservedWatch], None],
        heard: Callable[[str, bool], None],
    ) -> None:
        self._watch = watch
        self._unwatch = unwatch
        self._heard = heard
        self._watches: dict[tuple[str, int], ObservedWatch | None] = {}

    def attend(self, directories: Iterable[str]) -> None:
        """From now on these directories, and no others; network mounts are left to polling."""
        wanted: set[tuple[str, int]] = set()
        for directory in list(directories)[:MOST_DIRECTORIES]:
            with contextlib.suppress(OSError):
                wanted.add((directory, os.stat(directory).st_ino))
        for gone in self._watches.keys() - wanted:
            watch = self._watches.pop(gone)
            if watch is not None:
                self._unwatch(watch)
        new = wanted - self._watches.keys()
        if not new:
            return
        table = mounts()
        for key in sorted(new):
            self._watches[key] = None if _may_hang(key[0], table) else self._watch(key[0], self._heard)

    def close(self) -> None:
        """Hear nothing any more."""
        for watch in self._watches.values():
            if watch is not None:
                self._unwatch(watch)
        self._watches.clear()


def _may_hang(directory: str, table: Sequence[Mount]) -> bool:
    """Whether a directory lies on a mount of another machine: inotify tells nothing of what is done there."""
    real = os.path.realpath(directory)
    above = [mount for mount in table if real == mount.point or real.startswith(mount.point.rstrip("/") + "/")]
    return bool(above) and max(above, key=lambda mount: len(mount.point)).may_hang


def _handler(heard: Callable[[str, bool], None]) -> FileSystemEventHandler:
    from watchdog.events import FileSystemEventHandler

    class Handler(FileSystemEventHandler):
        """Hands on where something happened."""

        def on_any_event(self, event: FileSystemEvent) -> None:
            """A file or directory came, was closed or renamed."""
            source, target = os.fsdecode(event.src_path), os.fsdecode(event.dest_path or "")
            renamed = bool(target) and is_temporary(os.path.basename(source))
            heard(target or source, renamed)

    return Handler()
