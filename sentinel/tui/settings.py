"""How the dashboard behaves."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Settings:
    """Working defaults; nothing of it needs a file.

    Attributes:
        refresh_s: Between two looks at everything (seconds). An event brings the next one forward.
        retry_s: Between two tries while the daemon is gone.
        chart_s: What the memory chart shows at first (seconds back from now).
        events: How many events are kept.
        wait_s: How long a key waits for the answer of a job before it says that it is still open.
    """

    refresh_s: float = 1.0
    retry_s: float = 1.0
    chart_s: float = 300.0
    events: int = 500
    wait_s: float = 30.0
