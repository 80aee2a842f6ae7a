"""One checkpoint, looked at for a person: is it whole, what does it hold, what will not come back."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from sentinel.checkpoints.contents import kind_of, missing, ordered, verdict
from sentinel.checkpoints.form import DEEP, Form, Look, Verdict
from sentinel.checkpoints.formats import inspect
from sentinel.checkpoints.listing import Listing, is_candidate
from sentinel.checkpoints.names import step_of
from sentinel.checkpoints.outside import extent
from sentinel.checkpoints.watch import SETTLED_SECONDS, survey

CLOSE = Look(operations=5_000_000)
"""For a person, who waits a few seconds: a pickle is followed further than a daemon follows it."""
_POINTERS = ("latest", "latest_checkpointed_iteration.txt")


@dataclass(frozen=True, slots=True)
class Report:
    """What `sentinel checkpoints inspect` says.

    Attributes:
        path: What was looked at: where a pointer or a directory of checkpoints was named, the newest in it.
        format: What wrote it.
        step: From its content, else from its name, or None.
        size_bytes: All its files.
        files: How many.
        finished: When its last byte was written (Unix seconds).
        valid: Whether it can be loaded; None while it may still be written.
        reason: Why not, or what shows that it is.
        kind: training, weights, agent or unknown.
        contents: What it holds.
        missing: What a state of its kind would need beside that.
        verdict: In words: what will not be reproducible after resuming from it.
        notes: What else is worth knowing.
    """

    path: str
    format: str
    step: int | None
    size_bytes: int
    files: int
    finished: float
    valid: bool | None
    reason: str
    kind: str
    contents: tuple[str, ...]
    missing: tuple[str, ...]
    verdict: str
    notes: tuple[str, ...]


def report(path: Path, now: float, *, deep: bool = False) -> Report:
    """Look at one checkpoint.

    Raises:
        OSError: It cannot be read.
    """
    path = resolve(path, now)
    size, files, finished = extent(path)
    form = inspect(path, DEEP if deep else CLOSE)
    valid, reason = _valid(form, now - finished, deep=deep)
    known = form.contents if form.proven or form.contents else frozenset[str]()
    words = f"it cannot be loaded: {form.reason}" if valid is False else verdict(known)
    return Report(
        str(path),
        form.format,
        form.step if form.step is not None else step_of(path),
        size,
        files,
        finished,
        valid,
        reason,
        str(kind_of(known)),
        ordered(known),
        missing(known) if form.proven else (),
        words,
        form.notes,
    )


def _valid(form: Form, quiet_s: float, *, deep: bool) -> tuple[bool | None, str]:
    if form.verdict is Verdict.TORN:
        return False, form.reason
    if form.verdict is Verdict.WHOLE:
        return True, "every byte that has a checksum was read" if deep else "its form accounts for all of it"
    if quiet_s < SETTLED_SECONDS:
        return None, "it has changed just now: it may still be written"
    return True, "its form proves nothing, but it is not being written any more"


def resolve(path: Path, now: float | None = None) -> Path:
    """Where a directory only names or holds checkpoints: the one that it names, else the newest whole one in it.

    Raises:
        OSError: It cannot be read.
    """
    if not path.is_dir():
        return path
    for pointer in _POINTERS:
        named = _named(path / pointer)
        if named is not None:
            return named
    names = [entry.name for entry in path.iterdir()]
    candidates = [candidate.path for candidate in Listing([str(path)]).candidates()]
    if candidates == [str(path)] or any(is_candidate(name) and (path / name).is_file() for name in names):
        return path
    if any(name.startswith(("mp_rank_", "default", "state")) for name in names):  # parts of one, not several
        return path
    newest = survey([str(path)], time.time() if now is None else now).newest
    return Path(newest.path) if newest is not None else path


def _named(pointer: Path) -> Path | None:
    """What a pointer of DeepSpeed (`latest`) or Megatron names, if that is a directory beside it."""
    try:
        with pointer.open("rb") as file:
            text = file.read(256).decode("utf-8", "replace").strip()
    except OSError:
        return None
    name = f"iter_{int(text):07}" if text.isdigit() else text
    found = pointer.parent / name
    return found if name and "/" not in name and name not in {".", ".."} and found.is_dir() else None
