"""Records of the journal, from which every room rebuilds its state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sentinel.errors import SentinelError


@dataclass(frozen=True, slots=True)
class Record:
    """One line of the journal.

    Attributes:
        seq: Rises by one, over restarts too.
        at: When it was written (Unix seconds).
        kind: Which room it belongs to, and what it is.
        data: Plain JSON, as `model.wire.encode` makes it.
    """

    seq: int
    at: float
    kind: str
    data: Mapping[str, Any]


class JournalUnavailable(SentinelError):
    """A record could not be made durable: the disk is full, read-only or failing."""
