"""What can be set about the store."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Settings:
    """Where nothing is said, these hold.

    Attributes:
        raw_s: How long samples are kept (seconds).
        rollup_s: How long events, jobs, requests and alerts are kept (seconds).
        size_bytes: The database may use this much; beyond it the oldest samples go.
        memory_bytes: What DuckDB may use; 128 MiB for heavy history.
        flush_s: Seconds between two transactions.
        patience_s: A table with few new rows waits this long, so that the cost of a
            flush is shared.
        window_s: How far the window reaches back (seconds).
        window_columns: How many passes of a family the window keeps.
        query_s: The longest that one query of a user or of history may take (seconds).
    """

    raw_s: float = 7 * 86400.0
    rollup_s: float = 90 * 86400.0
    size_bytes: int = 2 << 30
    memory_bytes: int = 64 << 20
    flush_s: float = 5.0
    patience_s: float = 15.0
    window_s: float = 1800.0
    window_columns: int = 1800
    query_s: float = 20.0
