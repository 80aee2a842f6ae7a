"""How long an evaluation may take: whoever evaluates says until when, and the long loops look at the clock."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator


class _Until(threading.local):
    moment: float = float("inf")


_UNTIL = _Until()


@contextlib.contextmanager
def within(seconds: float) -> Iterator[None]:
    """What this thread evaluates inside may take so long; then it ends with a TimeoutError."""
    before = _UNTIL.moment
    _UNTIL.moment = min(before, time.monotonic() + seconds)
    try:
        yield
    finally:
        _UNTIL.moment = before


def check() -> None:
    """Go on only while there is time.

    Raises:
        TimeoutError: There is none left.
    """
    if time.monotonic() > _UNTIL.moment:
        raise TimeoutError("it takes too long to evaluate")
