"""Time, handed in: `now` for records, `monotonic` for waiting."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """What rooms ask for the time. Waiting never uses `now`, which may jump."""

    def now(self) -> float:
        """Unix time in seconds."""
        ...

    def monotonic(self) -> float:
        """Seconds since some fixed moment; never goes back."""
        ...


class SystemClock:
    """The machine's clocks."""

    def now(self) -> float:
        """Unix time in seconds."""
        return time.time()

    def monotonic(self) -> float:
        """Seconds since boot, suspend excluded."""
        return time.monotonic()


class ManualClock:
    """A clock that a test moves by hand; both faces move together."""

    def __init__(self, now: float = 1_800_000_000.0) -> None:
        self._now = now

    def now(self) -> float:
        """Unix time in seconds."""
        return self._now

    def monotonic(self) -> float:
        """The same moment."""
        return self._now

    def advance(self, seconds: float) -> None:
        """Move time forward."""
        self._now += seconds
