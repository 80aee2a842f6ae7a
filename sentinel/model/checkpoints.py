"""Checkpoints as found on disk."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class CheckpointState(StrEnum):
    """Only complete ones count. One in progress is neither fresh nor broken."""

    COMPLETE = "complete"
    WRITING = "writing"
    BROKEN = "broken"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """One checkpoint: a file, or a directory that belongs together.

    Attributes:
        path: Absolute.
        state: Whether it can be counted on.
        finished: When its last byte was written (Unix seconds).
        size_bytes: All its files.
        step: From its name or content, or None.
        format: What wrote it ("torch-zip", "safetensors", "hf-trainer", "file", …).
        reason: Why it is broken or not yet whole, in words.
        write_seconds: How long it took to write, where that was seen.
        contents: What it holds: model, optimizer, scheduler, step, dataloader, rng, scaler, ….
        missing: Which of these it does not hold.
    """

    path: str
    state: CheckpointState
    finished: float
    size_bytes: int
    step: int | None = None
    format: str = "file"
    reason: str = ""
    write_seconds: float | None = None
    contents: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
