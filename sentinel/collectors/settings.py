"""What can be set about measuring; the configuration's key `sampling`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Settings:
    """How often to measure, and how long to wait.

    Attributes:
        interval_s: The tick.
        disks_interval_s: Between two looks at the file systems.
        gpu_deadline_s: For one call of the driver; then its child is killed.
        mount_deadline_s: For the network mounts of one pass, together.
        retry_s: Until something that could not be measured is tried again.
        endangered_within_s: A job whose memory lasts less at its present pace is
            sampled ahead of the tick.
        endangered_jobs: At most so many at once.
        fastest_s: Never more often than this.
    """

    interval_s: float = 2.0
    disks_interval_s: float = 10.0
    gpu_deadline_s: float = 5.0
    mount_deadline_s: float = 1.0
    retry_s: float = 60.0
    endangered_within_s: float = 120.0
    endangered_jobs: int = 4
    fastest_s: float = 0.25
