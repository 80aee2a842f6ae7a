"""What the form of a checkpoint says."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum, auto
from pathlib import Path

from sentinel.checkpoints.pickles import ReadAt

LONGEST_JSON_BYTES = 64 * 1024 * 1024
"""Longer JSON is not parsed."""


class Verdict(Enum):
    """What the form alone can say about being whole."""

    WHOLE = auto()  # the format proves it
    TORN = auto()  # the format disproves it
    SILENT = auto()  # only time can tell


@dataclass(frozen=True, slots=True)
class Form:
    """The form of one checkpoint, and what it says.

    Attributes:
        format: What wrote it: "torch-zip", "safetensors", "hf-trainer", "file", ….
        verdict: Whether it is whole.
        reason: Why it is torn, in words.
        step: From its content, or None.
        contents: The parts of a training or agent state that it holds.
        proven: Whether the contents are all there is: nothing was too large to follow.
        notes: What else is worth knowing.
    """

    format: str
    verdict: Verdict
    reason: str = ""
    step: int | None = None
    contents: frozenset[str] = frozenset()
    proven: bool = True
    notes: tuple[str, ...] = field(default=())


@dataclass(frozen=True, slots=True)
class Look:
    """How closely to look.

    Attributes:
        deep: Read every byte where the format keeps checksums.
        operations: How many opcodes of a pickle are followed at most.
    """

    deep: bool = False
    operations: int = 150_000


QUICK = Look()
DEEP = Look(deep=True, operations=20_000_000)


def torn(what: str, reason: str) -> Form:
    """A checkpoint that cannot be loaded."""
    return Form(what, Verdict.TORN, reason)


@contextmanager
def reading(path: Path) -> Iterator[tuple[ReadAt, int]]:
    """A file's bytes by their place, and its size.

    Raises:
        OSError: It cannot be opened.
    """
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        yield lambda offset, size: os.pread(fd, size, offset), os.fstat(fd).st_size
    finally:
        os.close(fd)


def join(what: str, forms: Sequence[tuple[str, Form]]) -> Form:
    """Several files as one: the first torn one speaks, whole only if all are."""
    for name, form in forms:
        if form.verdict is Verdict.TORN:
            return torn(what, f"{name}: {form.reason}")
    whole = bool(forms) and all(form.verdict is Verdict.WHOLE for _, form in forms)
    steps = [form.step for _, form in forms if form.step is not None]
    return Form(
        what,
        Verdict.WHOLE if whole else Verdict.SILENT,
        step=max(steps, default=None),
        contents=frozenset().union(*(form.contents for _, form in forms)),
        proven=all(form.proven for _, form in forms),
        notes=tuple(dict.fromkeys(note for _, form in forms for note in form.notes)),
    )
