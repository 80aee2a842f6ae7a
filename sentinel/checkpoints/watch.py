"""Watching the places a job writes its checkpoints to.

A look costs a stat per place and per candidate that may still change; what has
not changed is not looked into again, and old ones are looked into only when
the newer ones turn out to be no good.
"""

from __future__ import annotations

import heapq
import os
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from sentinel.checkpoints.contents import missing, ordered
from sentinel.checkpoints.form import QUICK, Form, Look, Verdict
from sentinel.checkpoints.formats import inspect
from sentinel.checkpoints.listing import Candidate, Listing
from sentinel.checkpoints.names import step_of
from sentinel.checkpoints.outside import Outside, outside_of
from sentinel.model.checkpoints import Checkpoint, CheckpointState
from sentinel.model.jobs import CheckpointDir

SETTLED_SECONDS = 1.5
"""A file of silent form counts once it has not changed for this long."""
SETTLED_DIRECTORY_SECONDS = 5.0
"""The same for a directory: between two of its files a writer may think."""
SETTLED_FEWER_SECONDS = 30.0
"""The same for a directory of fewer files than the whole one before it."""
GIVEN_UP_SECONDS = 120.0
"""A torn one that has not changed for this long is broken, no longer in progress."""
OVERTAKEN_SECONDS = 10.0
"""The same, where a newer one is whole already: the writer has gone on."""
STATS_PER_LOOK = 4000
"""So many candidates are looked at from outside in one look; the others have their turn in the next ones."""
_OLD_PER_LOOK = 16
_MOST_TEMPORARIES = 1024
_CLOSELY = 2
_TRIES_PER_LOOK = 64
_AGAIN_SECONDS = 2.0
_WALK_NEW_SECONDS = 10.0
_WALK_OLD_SECONDS = 600.0
_SHARE_OF_TIME = 20.0
_PROVEN_BY_SIZE = frozenset({"safetensors", "hdf5"})
"""A writer may make room for all of it first: these count once they rest, too."""


@dataclass(slots=True)
class _Known:
    candidate: Candidate
    shallow: tuple[int, int, int] = (0, 0, 0)
    walked: float = float("-inf")
    looked: float = float("-inf")
    print: Outside | None = None
    since: float = 0.0
    first_seen: float = 0.0
    old: bool = False  # it was there before the first look
    renamed: bool = False  # it came by rename from a temporary name
    form: Form | None = None
    inspected: float = float("-inf")
    cost: float = 0.0
    checkpoint: Checkpoint | None = None


class Watcher:
    """Knows the checkpoints of one job.

    Args:
        places: Directories or globs. In a directory, each file or subdirectory is a candidate.
        stats_per_look: How many candidates are looked at from outside in one look.
        look: How closely.
    """

    def __init__(
        self,
        places: Iterable[CheckpointDir | str],
        *,
        stats_per_look: int = STATS_PER_LOOK,
        look: Look = QUICK,
    ) -> None:
        self._listing = Listing(places)
        self._stats = stats_per_look
        self._look = look
        self._known: dict[str, _Known] = {}
        self._backlog: list[_Known] = []  # not yet looked at from outside; the most promising at the end
        self._open: dict[str, _Known] = {}  # new, or under way
        self._rest: list[_Known] = []
        self._closely: list[_Known] = []
        self._newest: Checkpoint | None = None
        self._temporaries: dict[int, float] = {}
        self._arrived: set[str] = set()
        self._begun = False
        self._turn = 0

    def poll(self, now: float) -> list[Checkpoint]:
        """Look once; the checkpoints that became complete or broken since the last look.

        Args:
            now: Unix seconds, on the clock that stamps the files.
        """
        if self._listing.refresh() or not self._begun:
            self._find(now)
        self._lookoutside_of(now)
        news = self._judge(now)
        self._begun = True
        return sorted(news, key=lambda found: found.finished)

    def arrived(self, path: str) -> None:
        """Somebody saw that this path was renamed from a temporary name: it will not grow any more."""
        self._arrived.add(path)

    def newest(self) -> Checkpoint | None:
        """The newest whole one, as of the last look."""
        return self._newest

    def complete(self) -> list[Checkpoint]:
        """All that are known to be whole. Old ones are looked into only when they are needed."""
        return [found for found in self._judged() if found.state is CheckpointState.COMPLETE]

    def skipped(self) -> list[Checkpoint]:
        """Those newer than the newest whole one that cannot be resumed from, each with its reason; newest first."""
        newest = self.newest()
        floor = newest.finished if newest else float("-inf")
        found = []
        for known in self._known.values():
            if known.print is None or known.print.changed <= floor:
                continue
            if known.checkpoint is not None and known.checkpoint.state is CheckpointState.COMPLETE:
                continue
            if known.form is not None:
                reason = known.form.reason or "it is still being written"
                found.append(replace(_described(known, known.print, None), state=_state(known), reason=reason))
        return sorted(found, key=lambda item: item.finished, reverse=True)

    def writing(self) -> list[str]:
        """Paths of those still being written."""
        return [
            path
            for path, known in self._known.items()
            if known.checkpoint is None and (not known.old or known.form is not None)
        ]

    def kept(self) -> int:
        """How many there are on disk, those known to be broken or in progress left out."""
        return sum(
            1
            for known in self._known.values()
            if (known.old and known.form is None)
            or (known.checkpoint is not None and known.checkpoint.state is CheckpointState.COMPLETE)
        )

    def directories(self) -> list[str]:
        """Where something new would appear."""
        return self._listing.directories()

    # Finding

    def _find(self, now: float) -> None:
        seen: set[str] = set()
        new: list[_Known] = []
        for candidate in self._listing.candidates():
            seen.add(candidate.path)
            if candidate.path not in self._known:
                known = _Known(candidate, since=now, first_seen=now, old=not self._begun)
                self._known[candidate.path] = known
                new.append(known)
        for gone in self._known.keys() - seen:
            self._open.pop(gone, None)
            if self._known.pop(gone).checkpoint == self._newest:
                self._newest = None
        if len(new) > self._stats:
            new.sort(key=lambda known: (step_of(Path(known.candidate.path)) or -1, known.candidate.path))
        self._backlog = [*(known for known in self._backlog if known.candidate.path in self._known), *new]
        for inode in self._listing.temporaries():
            self._temporaries.setdefault(inode, now)
        while len(self._temporaries) > _MOST_TEMPORARIES:
            del self._temporaries[next(iter(self._temporaries))]
        self._arrived &= seen
        self._sort_out()

    def _sort_out(self) -> None:
        """Those at rest are looked at now and then, the newest of them more often."""
        self._rest = [known for known in self._known.values() if known.print is not None]
        self._closely = heapq.nlargest(_CLOSELY, self._rest, key=_changed)

    def _lookoutside_of(self, now: float) -> None:
        """New ones, those under way, the newest, and some others in turn."""
        came = bool(self._backlog)
        for known in [self._backlog.pop() for _ in range(min(self._stats, len(self._backlog)))]:
            self._stat(known, now, _WALK_NEW_SECONDS)
            self._open[known.candidate.path] = known
        for known in list(self._open.values())[: self._stats]:
            self._stat(known, now, _WALK_NEW_SECONDS)
        for known in self._closely:
            self._stat(known, now, _WALK_NEW_SECONDS)
        for _ in range(min(_OLD_PER_LOOK, len(self._rest))):
            self._turn = (self._turn + 1) % len(self._rest)
            self._stat(self._rest[self._turn], now, _WALK_OLD_SECONDS)
        if came:
            self._sort_out()

    def _stat(self, known: _Known, now: float, walk_after_s: float) -> None:
        path = known.candidate.path
        if known.looked == now:
            return
        known.looked = now
        try:
            found = os.stat(path)
            shallow = (found.st_ino, found.st_size, found.st_mtime_ns)
            if path not in self._open and shallow == known.shallow and 0 <= now - known.walked < walk_after_s:
                return
            outside = outside_of(path, found)
        except OSError:
            return
        known.shallow, known.walked = shallow, now
        if known.print is None:
            known.print = outside
            began = self._temporaries.pop(outside.inode, None)
            if began is not None and not known.old:
                known.first_seen, known.renamed = min(began, known.first_seen), True
        elif known.print != outside:
            known.print, known.since, known.form, known.old = outside, now, None, False
            self._open[path] = known
            if known.checkpoint is not None:  # written again in place: a new one under an old name
                if known.checkpoint == self._newest:
                    self._newest = None
                known.checkpoint, known.first_seen, known.renamed = None, now, False
                began = self._temporaries.pop(outside.inode, None)
                if began is not None:
                    known.first_seen, known.renamed = began, True
        if path in self._arrived:
            known.renamed = True
            self._arrived.discard(path)

    # Judging

    def _judge(self, now: float) -> list[Checkpoint]:
        """New ones always; those that were there before, newest first, until one is whole."""
        if self._newest is None:
            self._newest = max(self.complete(), key=_rank, default=None)
        news: list[Checkpoint] = []
        tries = 0
        waiting = [known for known in self._open.values() if known.print is not None]
        if self._newest is None:
            waiting = [known for known in self._known.values() if known.print is not None and known.checkpoint is None]
        for known in sorted(waiting, key=_changed, reverse=True):
            path, newest = known.candidate.path, self._newest
            if known.old and newest is not None and _changed(known) <= newest.finished:
                self._open.pop(path, None)  # it is not needed, as long as that one is there
                continue
            tries += 1
            if known.old and tries > _TRIES_PER_LOOK:
                break
            made = self._try(known, now, newest.finished if newest else float("-inf"))
            if made is None:
                self._open[path] = known
                continue
            self._open.pop(path, None)
            news.append(made)
            if made.state is CheckpointState.COMPLETE and (newest is None or _rank(made) > _rank(newest)):
                self._newest = made
        return news

    def _try(self, known: _Known, now: float, floor: float) -> Checkpoint | None:
        assert known.print is not None
        form = self._form(known, now)
        if form is None:
            return None
        # What was there before the first look has been quiet since its last change.
        quiet = now - (known.print.changed if known.old else max(known.print.changed, known.since))
        match form.verdict:
            case Verdict.TORN:
                overtaken = known.print.changed < floor and quiet >= OVERTAKEN_SECONDS
                if quiet >= GIVEN_UP_SECONDS or overtaken:
                    state, reason = CheckpointState.BROKEN, form.reason
                else:
                    return None
            case _ if not _is_told(known, form, quiet, self._patience(known.print)):
                return None
            case _:
                state, reason = CheckpointState.COMPLETE, ""
        known.checkpoint = replace(_described(known, known.print, self._took(known)), state=state, reason=reason)
        return known.checkpoint

    def _patience(self, outside: Outside) -> float:
        """How long one of silent form must rest: longer where several files come one after the other."""
        if not outside.directory:
            return SETTLED_SECONDS
        usual = self._known.get(self._newest.path) if self._newest is not None else None
        fewer = usual is not None and usual.print is not None and outside.files < usual.print.files
        return SETTLED_FEWER_SECONDS if fewer else SETTLED_DIRECTORY_SECONDS

    def _form(self, known: _Known, now: float) -> Form | None:
        """What its form says; from memory while nothing has changed, and never for more than a share of the time."""
        again = known.form is None or (known.form.verdict is Verdict.TORN and now - known.inspected >= _AGAIN_SECONDS)
        if again and not 0 <= now - known.inspected < _SHARE_OF_TIME * known.cost:
            before = time.perf_counter()
            try:
                known.form = inspect(Path(known.candidate.path), self._look)
            except OSError:
                return None
            known.inspected, known.cost = now, time.perf_counter() - before
        return known.form

    def _took(self, known: _Known) -> float | None:
        """How long it took to write: as it was seen, else from its first file to its last."""
        assert known.print is not None
        seen = None if known.old else max(0.0, known.print.changed - known.first_seen)
        if known.print.files > 1 and known.print.changed > known.print.began:
            return max(known.print.changed - known.print.began, seen or 0.0)
        return seen

    def _judged(self) -> list[Checkpoint]:
        return [known.checkpoint for known in self._known.values() if known.checkpoint is not None]


def _is_told(known: _Known, form: Form, quiet: float, patience_s: float = SETTLED_SECONDS) -> bool:
    """Whether a form that is not torn counts as whole now."""
    told = known.candidate.complete_when
    if told.startswith("marker:"):
        return _has_marker(known.candidate.path, told.removeprefix("marker:"))
    if told == "rename":
        return True
    proven = form.verdict is Verdict.WHOLE and form.format not in _PROVEN_BY_SIZE
    return quiet >= patience_s or (told != "stable" and (proven or known.renamed))


def _has_marker(path: str, marker: str) -> bool:
    """In the directory, or beside it; `{name}` in the marker's name is the checkpoint's."""
    name = marker.replace("{name}", os.path.basename(path))
    return os.path.exists(f"{path}/{name}") or os.path.exists(f"{os.path.dirname(path)}/{name}")


def _rank(found: Checkpoint) -> tuple[float, int]:
    return found.finished, found.step if found.step is not None else -1


def _changed(known: _Known) -> float:
    return known.print.changed if known.print is not None else 0.0


def _state(known: _Known) -> CheckpointState:
    torn = known.form is not None and known.form.verdict is Verdict.TORN
    return CheckpointState.BROKEN if torn else CheckpointState.WRITING


def _described(known: _Known, outside: Outside, took: float | None) -> Checkpoint:
    form = known.form
    assert form is not None
    by_name = step_of(Path(known.candidate.path))
    return Checkpoint(
        known.candidate.path,
        CheckpointState.COMPLETE,
        outside.changed,
        outside.size_bytes,
        form.step if form.step is not None else by_name,
        form.format,
        "",
        took,
        ordered(form.contents),
        missing(form.contents) if form.proven else (),
    )


@dataclass(frozen=True, slots=True)
class Survey:
    """What there is to resume from.

    Attributes:
        newest: The newest whole one.
        skipped: Newer ones that cannot be resumed from, each with its reason, newest first.
    """

    newest: Checkpoint | None
    skipped: tuple[Checkpoint, ...] = ()


def survey(places: Iterable[CheckpointDir | str], now: float, *, stats: int = 50_000) -> Survey:
    """Look once, while nobody writes: what cannot be loaded now never will be."""
    watcher = Watcher(places, stats_per_look=stats)
    watcher.poll(now)
    return Survey(watcher.newest(), tuple(watcher.skipped()))


def newest(places: Iterable[CheckpointDir | str], now: float) -> Checkpoint | None:
    """The newest whole checkpoint in `places`, looked up once."""
    return survey(places, now).newest


def history(places: Iterable[CheckpointDir | str], now: float, *, most: int = 200) -> list[Checkpoint]:
    """The newest checkpoints in `places`, broken ones and those in progress included, newest first."""
    listing = Listing(places)
    found: list[tuple[float, _Known]] = []
    for candidate in listing.candidates():
        try:
            outside = outside_of(candidate.path, os.stat(candidate.path))
        except OSError:
            continue
        found.append((outside.changed, _Known(candidate, print=outside, old=True)))
    found.sort(key=lambda pair: pair[0], reverse=True)
    made = []
    for _, known in found[:most]:
        assert known.print is not None
        try:
            known.form = inspect(Path(known.candidate.path))
        except OSError:
            continue
        took = known.print.changed - known.print.began if known.print.files > 1 else None
        base = _described(known, known.print, took)
        quiet = now - known.print.changed
        if known.form.verdict is Verdict.TORN:
            state = CheckpointState.BROKEN if quiet >= GIVEN_UP_SECONDS else CheckpointState.WRITING
            made.append(replace(base, state=state, reason=known.form.reason))
        elif _is_told(known, known.form, quiet):
            made.append(base)
        else:
            made.append(replace(base, state=CheckpointState.WRITING, reason="it has changed just now"))
    return made
