"""What can be set about asking jobs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Settings:
    """Limits on what sentinel asks.

    Attributes:
        observe: Do everything but act, and say what would have been done.
        requests_per_job_per_hour: The breaker of one job; above it sentinel only alerts.
        requests_per_host_per_hour: The breaker of the whole host.
        start_up_s: How long a job without a first step or checkpoint only warns.
        stop_timeout_s: How long a person's `stop` waits for the checkpoint before it.
        hook_timeout_s: When a hook is killed.
        remembered_s: How long closed requests stay in memory and in the compacted journal.
    """

    observe: bool = False
    requests_per_job_per_hour: int = 20
    requests_per_host_per_hour: int = 60
    start_up_s: float = 900.0
    stop_timeout_s: float = 60.0
    hook_timeout_s: float = 30.0
    remembered_s: float = 86_400.0
