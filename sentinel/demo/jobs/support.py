"""What the demo's jobs share: whole checkpoints, polite ends, a lifeline.

Standard library only, and nothing of sentinel: a job needs none of it to be
asked.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import sys
import time
from pathlib import Path
from types import FrameType

MIB = 1024 * 1024


class Asked:
    """A flag that a signal raises and the training loop lowers at its next step.

    The handler does nothing else: a checkpoint written inside a handler would
    save a step that is half done.
    """

    def __init__(self, number: signal.Signals | None = None) -> None:
        self._times = 0
        if number is not None:
            signal.signal(number, self._raise)

    def _raise(self, _number: int, _frame: FrameType | None) -> None:
        self._times += 1

    def take(self) -> bool:
        """Whether it was asked since the last call."""
        times, self._times = self._times, 0
        return times > 0


class Life:
    """How long a job goes on: until it is told to end, its time is over, or its lifeline is cut.

    Args:
        seconds: Ends by itself after so long; None: never.
        lifeline: A FIFO whose writing end somebody holds open. When that one
            ends, however it ends, so does the job.
    """

    def __init__(self, seconds: float | None = None, lifeline: Path | None = None) -> None:
        self._until = None if seconds is None else time.monotonic() + seconds
        self._told = Asked(signal.SIGTERM)
        self._over = False
        self._line = os.open(lifeline, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC) if lifeline else None

    def goes_on(self) -> bool:
        """Whether to take another step."""
        if not self._over:
            late = self._until is not None and time.monotonic() >= self._until
            self._over = late or self._told.take() or self._cut()
        return not self._over

    def _cut(self) -> bool:
        if self._line is None:
            return False
        try:
            return os.read(self._line, 1) == b""
        except BlockingIOError:
            return False


def save(directory: Path, step: int, size_bytes: int = 4 * MIB, keep: int = 3) -> Path:
    """Write a checkpoint so that nobody ever sees half of one, and drop the oldest.

    The file is a valid safetensors file: eight bytes of header length, a JSON
    header, the tensor. It is written beside its final name, synced, then
    renamed.
    """
    directory.mkdir(parents=True, exist_ok=True)
    shape = size_bytes // 4
    header = json.dumps(
        {
            "__metadata__": {"step": str(step)},
            "weights": {"dtype": "F32", "shape": [shape], "data_offsets": [0, shape * 4]},
        }
    ).encode()
    header += b" " * (-len(header) % 8)
    final = directory / f"step-{step:06d}.safetensors"
    partial = directory / f".{final.name}.tmp"
    with partial.open("wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        block = random.Random(step).randbytes(min(MIB, shape * 4))
        left = shape * 4
        while left:
            left -= file.write(block[:left])
        file.flush()
        os.fsync(file.fileno())
    partial.rename(final)
    for old in sorted(directory.glob("step-*.safetensors"))[:-keep]:
        with contextlib.suppress(OSError):
            old.unlink()
    return final


def say(text: str) -> None:
    """One line of the job's log, written at once."""
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


def loss(step: int) -> float:
    """A curve that looks like learning."""
    return 1.2 + 3.0 / (1 + step / 40) + random.Random(step).uniform(-0.05, 0.05)


def arguments(description: str) -> argparse.ArgumentParser:
    """The options that every job of the demo has."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--seconds", type=float, metavar="N", help="end by itself after N seconds")
    parser.add_argument(
        "--lifeline", type=Path, metavar="FIFO", help="end when nobody holds this FIFO open for writing"
    )
    parser.add_argument("--step-seconds", type=float, default=0.1, metavar="N", help="time that one step takes")
    return parser


def resident_bytes() -> int:
    """This process's resident set."""
    try:
        return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0


def done(text: str) -> None:
    """Say the last line and end well."""
    say(text)
    sys.exit(0)
