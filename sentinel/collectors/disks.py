"""How full the file systems are, without ever waiting for one that hangs."""

from __future__ import annotations

import os
from collections.abc import Sequence

from sentinel.collectors.coverage import Coverage
from sentinel.model.families import HOST_DISK
from sentinel.model.series import Batch, Entity, Support
from sentinel.system.mounts import Mount, Prober, in_use, mounts
from sentinel.system.processes import PROC

MOUNTS_EVERY_S = 60.0


class DiskCollector:
    """One row per file system in use.

    A network mount is asked in a thread of its own; one that does not answer in
    time has no values in this pass, and is asked nothing more until it has answered.

    Args:
        interval_s: Between two passes.
        deadline_s: For all network mounts of a pass together.
        prober: Asks the mounts that may hang.
        proc: Where /proc is.
    """

    name = "disks"
    families = (HOST_DISK,)

    def __init__(
        self,
        interval_s: float | None = 10.0,
        deadline_s: float = 1.0,
        prober: Prober | None = None,
        proc: str = PROC,
    ) -> None:
        self.interval_s = interval_s
        self._deadline_s = deadline_s
        self._prober = Prober() if prober is None else prober
        self._proc = proc
        self._mounts: list[Mount] = []
        self._mounts_until = float("-inf")
        self._coverage = Coverage()

    def supported(self) -> Support:
        """Needs only a mount table."""
        return Support()

    def collect(self, at: float) -> Sequence[Batch]:
        """One pass."""
        if not self._mounts_until - MOUNTS_EVERY_S <= at < self._mounts_until:
            self._mounts = in_use(mounts(self._proc))
            self._mounts_until = at + MOUNTS_EVERY_S
        answers = self._prober.ask([mount.point for mount in self._mounts if mount.may_hang], self._deadline_s)
        for mount in self._mounts:
            if not mount.may_hang:
                try:
                    answers[mount.point] = os.statvfs(mount.point)
                except OSError:
                    continue
        rows: dict[Entity, list[float | None]] = {
            (mount.point,): _row(answer)
            for mount in self._mounts
            if (answer := answers.get(mount.point)) and answer.f_blocks
        }
        return (self._coverage.batch(HOST_DISK, at, rows, also=[(m.point,) for m in self._mounts if m.may_hang]),)


def _row(found: os.statvfs_result) -> list[float | None]:
    return [
        float(found.f_bavail * found.f_frsize),
        float(found.f_blocks * found.f_frsize),
        float(found.f_favail) if found.f_files else None,
        float(bool(found.f_flag & os.ST_RDONLY)),
    ]
