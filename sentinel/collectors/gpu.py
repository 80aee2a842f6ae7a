"""GPUs: what each board does, and which job holds its memory."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from sentinel.collectors.coverage import Coverage, row
from sentinel.collectors.gpu_sources import GpuReading, GpuSource
from sentinel.collectors.ports import Unavailable
from sentinel.collectors.trees import Trees
from sentinel.errors import SentinelError
from sentinel.model.families import GPU, GPU_CLOCK, GPU_PROCESS, GPU_TEMPERATURE, GPU_THROTTLE, JOB_GPU
from sentinel.model.series import Batch, Entity, Support
from sentinel.system.processes import PROC

HOLDERS_EVERY_S = 30.0

Rows = dict[Entity, list[float | None]]


class GpuCollector:
    """One row per board and MIG instance, and one per job on it.

    Memory belongs to the job whose tree has the pid. Where the driver's pids are
    not ours (in a container they are the host's) there are no series per process,
    and what a board holds belongs to the only job that has its device file open.

    Args:
        source: The boards.
        trees: Who belongs to which job, as of its last look.
        proc: Where /proc is.
    """

    name = "gpu"
    families = (GPU, GPU_TEMPERATURE, GPU_CLOCK, GPU_THROTTLE, GPU_PROCESS, JOB_GPU)
    interval_s: float | None = None

    def __init__(self, source: GpuSource, trees: Trees, proc: str = PROC) -> None:
        self._source = source
        self._trees = trees
        self._proc = proc
        self._holders: dict[int, set[str]] = {}
        self._holders_until = float("-inf")
        self._coverage = Coverage()

    def supported(self) -> Support:
        """Asks the driver. A driver that hangs is a fault, not a machine without GPUs."""
        try:
            self._source.read()
        except Unavailable as why:
            return Support(available=False, reason=why.message, hint=why.hint or "")
        except SentinelError:
            return Support()
        off = sorted({what for _, what, _ in self._source.off})
        if self._source.pids_resolve:
            return Support(off=tuple(off))
        return Support(
            off=(*off, "gpu_process_memory_bytes", "gpu_orphan_memory_bytes"),
            reason="the driver's pids are the host's and do not resolve here",
            hint="GPU memory is told per board, and counted to a job where only one has the board open",
        )

    def collect(self, at: float) -> Sequence[Batch]:
        """One pass."""
        readings = self._source.read()
        boards, temperatures, clocks, throttles, processes, jobs = Rows(), Rows(), Rows(), Rows(), Rows(), Rows()
        owners = self._trees.owners
        for reading in readings:
            entity = reading.entity
            boards[entity] = row(GPU, self._board(reading))
            for sensor, value in (
                ("core", reading.temperature_celsius),
                ("memory", reading.memory_temperature_celsius),
            ):
                if value is not None:
                    temperatures[*entity, sensor] = [value]
            for domain, hertz in reading.clocks_hertz.items():
                clocks[*entity, domain] = [hertz]
            for reason, held in reading.throttled.items():
                throttles[*entity, reason] = [float(held)]
            if self._source.pids_resolve:
                for pid, size in (reading.processes or {}).items():
                    if size is not None:
                        processes[*entity, pid] = [float(size)]
            for job, held_bytes in self._shares(at, reading, owners).items():
                jobs[job, reading.gpu, reading.uuid, reading.mig] = [held_bytes]
        pairs = zip(self.families, (boards, temperatures, clocks, throttles, processes, jobs), strict=True)
        return [self._coverage.batch(family, at, rows) for family, rows in pairs]

    def _board(self, reading: GpuReading) -> dict[str, float | None]:
        orphans = None
        if self._source.pids_resolve and reading.processes is not None:
            gone = (size for pid, size in reading.processes.items() if not os.path.exists(f"{self._proc}/{pid}"))
            orphans = float(sum(size for size in gone if size is not None))
        return {
            "gpu_up": float(reading.up),
            "gpu_memory_used_bytes": reading.memory_used_bytes,
            "gpu_memory_total_bytes": reading.memory_total_bytes,
            "gpu_memory_reserved_bytes": reading.memory_reserved_bytes,
            "gpu_utilization_ratio": reading.busy_ratio,
            "gpu_memory_bandwidth_ratio": reading.memory_busy_ratio,
            "gpu_temperature_slowdown_celsius": reading.slowdown_celsius,
            "gpu_power_watts": reading.power_watts,
            "gpu_power_limit_watts": reading.power_limit_watts,
            "gpu_energy_joules_total": reading.energy_joules,
            "gpu_recovery_action": reading.recovery_action,
            "gpu_pcie_replays_total": reading.pcie_replays,
            "gpu_orphan_memory_bytes": orphans,
        }

    def _shares(self, at: float, reading: GpuReading, owners: Mapping[int, str]) -> dict[str, float]:
        """Bytes of this board by job."""
        if self._source.pids_resolve:
            shares: dict[str, float] = {}
            for pid, size in (reading.processes or {}).items():
                if size is not None and (job := owners.get(int(pid))) is not None:
                    shares[job] = shares.get(job, 0.0) + size
            return shares
        if reading.minor is None or reading.memory_used_bytes is None:
            return {}
        if not self._holders_until - HOLDERS_EVERY_S <= at < self._holders_until:
            self._holders = device_holders(owners, self._proc)
            self._holders_until = at + HOLDERS_EVERY_S
        jobs = self._holders.get(reading.minor, set())
        return {
            job: reading.memory_used_bytes - (reading.memory_reserved_bytes or 0.0) for job in jobs if len(jobs) == 1
        }


def device_holders(owners: Mapping[int, str], proc: str = PROC) -> dict[int, set[str]]:
    """By number of the device file /dev/nvidiaN: the jobs that have it open."""
    found: dict[int, set[str]] = {}
    for pid, job in owners.items():
        try:
            descriptors = os.listdir(f"{proc}/{pid}/fd")
        except OSError:
            continue
        for descriptor in descriptors:
            try:
                target = os.readlink(f"{proc}/{pid}/fd/{descriptor}")
            except OSError:
                continue
            number = target.removeprefix("/dev/nvidia")
            if number != target and number.isdecimal():
                found.setdefault(int(number), set()).add(job)
    return found
