"""The machine: memory, swap, pressure, processors, load, shared memory, OOM kills, network."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence

from sentinel.collectors.coverage import Coverage, row
from sentinel.collectors.memory import memory_fields
from sentinel.collectors.ports import Facts, no_facts
from sentinel.model.families import HOST, HOST_NETWORK, HOST_PRESSURE
from sentinel.model.series import Batch, Entity, Support
from sentinel.system.processes import PROC, read_small

_WINDOWS = ((b"avg10=", "10s"), (b"avg60=", "60s"), (b"avg300=", "300s"))
_NO_DEVICES_OF_ITS_OWN = re.compile(r"lo|veth.*|cali.*|lxc.*|tap.*|ifb.*|dummy.*")


class HostCollector:
    """Reads a dozen small files of /proc; nothing here can hang.

    Args:
        facts: Joins the host's row (the cost of idle hours).
        proc: Where /proc is.
        shm: Where shared memory is mounted; local, so that it may be asked at once.
    """

    name = "host"
    families = (HOST, HOST_PRESSURE, HOST_NETWORK)
    interval_s: float | None = None

    def __init__(
        self,
        facts: Facts = no_facts,
        proc: str = PROC,
        shm: str = "/dev/shm",
        statvfs: Callable[[str], os.statvfs_result] = os.statvfs,
    ) -> None:
        self._facts = facts
        self._proc = proc
        self._shm = shm
        self._statvfs = statvfs
        self._busy: tuple[int, int] | None = None
        self._booted: float | None = None
        self._coverage = Coverage()

    def supported(self) -> Support:
        """Says what this kernel does not tell."""
        if os.path.exists(f"{self._proc}/pressure/memory"):
            return Support()
        return Support(off=("host_pressure_ratio",), reason="this kernel does not measure pressure (PSI)")

    def collect(self, at: float) -> Sequence[Batch]:
        """One pass."""
        memory = memory_fields(self._proc)
        swap, swap_free = memory.get(b"SwapTotal"), memory.get(b"SwapFree")
        values: dict[str, float | None] = {
            "host_memory_total_bytes": memory.get(b"MemTotal"),
            "host_memory_available_bytes": memory.get(b"MemAvailable"),
            "host_swap_used_bytes": None if swap is None or swap_free is None else swap - swap_free,
            "host_cpu_utilization_ratio": self._processors(),
            "host_load1": self._load(),
            "host_shm_used_ratio": self._shared(),
            "host_oom_kills_total": self._oom_kills(),
            "host_boot_time_seconds": self._booted,
            **self._facts(HOST, ()),
        }
        return (
            self._coverage.batch(HOST, at, {(): row(HOST, values)}),
            self._coverage.batch(HOST_PRESSURE, at, self._pressure()),
            self._coverage.batch(HOST_NETWORK, at, self._network()),
        )

    def _processors(self) -> float | None:
        """Share of time since the pass before; None at the first. Waiting for storage is not busy."""
        data = read_small(f"{self._proc}/stat", 512 if self._booted else 1 << 20)
        if not data or not data.startswith(b"cpu "):
            return None
        if self._booted is None and (at := data.find(b"\nbtime ")) >= 0:
            self._booted = float(data[at + 7 :].split(None, 1)[0])
        # user nice system idle iowait irq softirq steal; guest time is part of user time
        ticks = [int(word) for word in data[: data.index(b"\n")].split()[1:9]]
        now = (sum(ticks) - ticks[3] - ticks[4], sum(ticks))
        before, self._busy = self._busy, now
        if before is None or now[1] <= before[1]:
            return None
        return min(1.0, max(0.0, (now[0] - before[0]) / (now[1] - before[1])))

    def _load(self) -> float | None:
        data = read_small(f"{self._proc}/loadavg")
        return float(data.split(None, 1)[0]) if data else None

    def _shared(self) -> float | None:
        try:
            found = self._statvfs(self._shm)
        except OSError:
            return None
        return (found.f_blocks - found.f_bfree) / found.f_blocks if found.f_blocks else None

    def _oom_kills(self) -> float | None:
        data = read_small(f"{self._proc}/vmstat", 16384) or b""
        at = data.find(b"\noom_kill ")
        return None if at < 0 else float(data[at + 10 :].split(None, 1)[0])

    def _pressure(self) -> dict[Entity, list[float | None]]:
        found: dict[Entity, list[float | None]] = {}
        for resource in ("cpu", "memory", "io"):
            for line in (read_small(f"{self._proc}/pressure/{resource}") or b"").splitlines():
                kind, *words = line.split()
                for word in words:
                    for prefix, window in _WINDOWS:
                        if word.startswith(prefix):
                            found[resource, kind.decode(), window] = [float(word[len(prefix) :]) / 100]
        return found

    def _network(self) -> dict[Entity, list[float | None]]:
        """Devices of the machine itself; the far ends of containers' devices are left out."""
        found: dict[Entity, list[float | None]] = {}
        for line in (read_small(f"{self._proc}/net/dev", 65536) or b"").splitlines()[2:]:
            name, _, rest = line.partition(b":")
            device, numbers = os.fsdecode(name.strip()), rest.split()
            if len(numbers) >= 9 and not _NO_DEVICES_OF_ITS_OWN.fullmatch(device):
                found[device,] = [float(numbers[0]), float(numbers[8])]
        return found
