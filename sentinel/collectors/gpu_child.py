"""The child that talks to the NVIDIA driver, because a driver call can block for ever.

It answers `{"op": "read"}` with one object per board and per MIG instance, in
the fields of `GpuReading`, or with why there is none. What a board cannot do is
asked once and never again in the life of this process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from sentinel.system.frames import serve

_CANNOT = {3: "not supported", 13: "unknown to this driver", 25: "unknown to this driver"}
_NO_PERMISSION = 4
_LOST = {15: "the GPU is lost: it has fallen off the bus", 16: "the GPU needs a reset"}
_NO_DRIVER = {
    1: ("the NVIDIA driver is not initialised", ""),
    9: ("the NVIDIA driver is not loaded", "`nvidia-smi` should list the GPUs"),
    12: ("no NVIDIA driver here (libnvidia-ml.so.1 is not found)", ""),
    18: ("the NVIDIA driver was upgraded and its kernel module is still the old one", "reboot this machine"),
}
_REASONS = (
    ("idle", 0x1),
    ("app_clocks", 0x2),
    ("sw_power", 0x4),
    ("hw_slowdown", 0x8),
    ("sync_boost", 0x10),
    ("sw_thermal", 0x20),
    ("hw_thermal", 0x40),
    ("power_brake", 0x80),
    ("display", 0x100),
)
_COSTS = {
    "utilization": ("gpu_utilization_ratio", ""),
    "temperature": ("gpu_temperature_celsius", ""),
    "slowdown": ("gpu_temperature_slowdown_celsius", ""),
    "power": ("gpu_power_watts", ""),
    "power_limit": ("gpu_power_limit_watts", ""),
    "energy": ("gpu_energy_joules_total", ""),
    "pcie_replays": ("gpu_pcie_replays_total", ""),
    "memory_v2": ("gpu_memory_reserved_bytes", ""),
    "throttle": ("gpu_throttled", "throttle_old"),
    "Compute_v3": ("gpu_process_memory_bytes", "Compute_v2"),
}
"""What is lost when a board cannot do something, unless the older way after it can."""
_MEMORY_TEMPERATURE, _RECOVERY_ACTION = 82, 230
_SELDOM = 30


class _Lost(Exception):
    def __init__(self, code: int) -> None:
        super().__init__(_LOST[code])


class Boards:
    """The boards of this machine through pynvml, which is imported on the first use."""

    def __init__(self) -> None:
        self._nvml: Any = None
        self._off: dict[tuple[str, str], str] = {}
        self._known: dict[int, dict[str, Any]] = {}
        self._kept: dict[tuple[str, str], tuple[int, Any]] = {}
        self._readings = 0

    def answer(self, request: Any) -> dict[str, Any]:
        """What one frame asks for."""
        if request != {"op": "read"}:
            raise ValueError(f"unknown request {request!r}")
        try:
            if self._nvml is None:
                import pynvml

                pynvml.nvmlInit()
                self._nvml = pynvml
            return self._read()
        except Exception as fault:
            code = getattr(fault, "value", None)
            if code in _NO_DRIVER:
                reason, hint = _NO_DRIVER[code]
                return {"unavailable": reason, "hint": hint}
            raise

    def _read(self) -> dict[str, Any]:
        count = self._nvml.nvmlDeviceGetCount()
        if count == 0:
            return {"unavailable": "the NVIDIA driver shows no GPU", "hint": ""}
        found: list[dict[str, Any]] = []
        self._readings += 1
        for index in range(count):
            try:
                found += self._board(index)
            except _Lost as lost:
                known = self._known.get(index, {"gpu": str(index), "uuid": f"unknown-{index}", "model": "unknown"})
                found.append({**known, "up": False, "fault": str(lost)})
        return {"gpus": found, "off": [list(told) for told in self._told()]}

    def _told(self) -> Iterator[tuple[str, str, str]]:
        """What boards cannot do, as far as it costs a metric: where an older way answers, nothing is lost."""
        for (uuid, what), why in self._off.items():
            metric, older = _COSTS.get(what, ("", ""))
            if metric and (not older or (uuid, older) in self._off):
                yield uuid, metric, why

    def _board(self, index: int) -> list[dict[str, Any]]:
        nvml = self._nvml
        handle = self._must(lambda: nvml.nvmlDeviceGetHandleByIndex(index))
        if index not in self._known:
            self._known[index] = {
                "gpu": str(index),
                "uuid": self._must(lambda: nvml.nvmlDeviceGetUUID(handle)),
                "model": self._must(lambda: nvml.nvmlDeviceGetName(handle)),
            }
        known = self._known[index]
        uuid: str = known["uuid"]
        board = {**known, **self._memory(uuid, handle), **self._numbers(uuid, handle)}
        board["minor"] = self._seldom(uuid, "minor", nvml.nvmlDeviceGetMinorNumber, handle)
        board["processes"] = self._processes(uuid, handle)
        return [board, *self._instances(known, uuid, handle)]

    def _instances(self, known: dict[str, Any], uuid: str, handle: Any) -> list[dict[str, Any]]:
        """The MIG instances: what each has of its own; the rest is the board's."""
        nvml = self._nvml
        mode = self._seldom(uuid, "mig", nvml.nvmlDeviceGetMigMode, handle)
        if not mode or not mode[0]:
            return []
        found = []
        for index in range(self._ask(uuid, "mig_count", lambda: nvml.nvmlDeviceGetMaxMigDeviceCount(handle)) or 0):
            instance = self._ask(uuid, "", nvml.nvmlDeviceGetMigDeviceHandleByIndex, handle, index)
            if instance is None:
                continue
            gi = self._ask(uuid, "gi", nvml.nvmlDeviceGetGpuInstanceId, instance)
            ci = self._ask(uuid, "ci", nvml.nvmlDeviceGetComputeInstanceId, instance)
            if gi is None or ci is None:
                continue
            name = f"{gi}/{ci}"
            memory = self._memory(f"{uuid} {name}", instance)
            processes = self._processes(f"{uuid} {name}", instance)
            found.append({**known, **memory, "mig": name, "processes": processes})
        return found

    def _memory(self, uuid: str, handle: Any) -> dict[str, Any]:
        """Version 2 tells the reserved part; total less free is what is used in either version, reserved included."""
        nvml = self._nvml
        memory = self._ask(uuid, "memory_v2", lambda: nvml.nvmlDeviceGetMemoryInfo(handle, version=nvml.nvmlMemory_v2))
        reserved = memory.reserved if memory is not None else None
        if memory is None:
            memory = self._ask(uuid, "memory", lambda: nvml.nvmlDeviceGetMemoryInfo(handle))
        if memory is not None and memory.total:
            return {
                "memory_total_bytes": memory.total,
                "memory_used_bytes": memory.total - memory.free,
                "memory_reserved_bytes": reserved,
            }
        if memory is not None or (uuid, "memory") in self._off:
            return _unified_memory()
        return {}

    def _numbers(self, uuid: str, handle: Any) -> dict[str, Any]:
        nvml = self._nvml

        def ask(what: str, call: Callable[[], Any], scale: float = 1.0) -> Any:
            value = self._ask(uuid, what, call)
            return value if value is None or scale == 1.0 else value * scale

        busy = ask("utilization", lambda: nvml.nvmlDeviceGetUtilizationRates(handle))
        board: dict[str, Any] = {
            "busy_ratio": None if busy is None else busy.gpu / 100,
            "memory_busy_ratio": None if busy is None else busy.memory / 100,
            "temperature_celsius": ask("temperature", lambda: nvml.nvmlDeviceGetTemperature(handle, 0)),
            "slowdown_celsius": self._seldom(uuid, "slowdown", nvml.nvmlDeviceGetTemperatureThreshold, handle, 1),
            "power_watts": ask("power", lambda: nvml.nvmlDeviceGetPowerUsage(handle), 0.001),
            "power_limit_watts": ask("power_limit", lambda: nvml.nvmlDeviceGetEnforcedPowerLimit(handle), 0.001),
            "energy_joules": ask("energy", lambda: nvml.nvmlDeviceGetTotalEnergyConsumption(handle), 0.001),
            "pcie_replays": ask("pcie_replays", lambda: nvml.nvmlDeviceGetPcieReplayCounter(handle)),
        }
        hertz: dict[str, float] = {}
        for domain, number in (("graphics", 0), ("sm", 1), ("memory", 2)):
            megahertz = self._ask(uuid, f"clock_{domain}", nvml.nvmlDeviceGetClockInfo, handle, number)
            if megahertz is not None:
                hertz[domain] = megahertz * 1e6
        board["clocks_hertz"] = hertz
        reasons = ask("throttle", lambda: nvml.nvmlDeviceGetCurrentClocksEventReasons(handle))
        if reasons is None:  # before driver 535 the same under its older name
            reasons = ask("throttle_old", lambda: nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle))
        if reasons is not None:
            board["throttled"] = {name: bool(reasons & bit) for name, bit in _REASONS}
        fields = ask("fields", lambda: nvml.nvmlDeviceGetFieldValues(handle, [_MEMORY_TEMPERATURE, _RECOVERY_ACTION]))
        for value in fields or ():
            if value.nvmlReturn == 0:
                name = "memory_temperature_celsius" if value.fieldId == _MEMORY_TEMPERATURE else "recovery_action"
                board[name] = value.value.uiVal
        return board

    def _processes(self, uuid: str, handle: Any) -> dict[str, int | None] | None:
        """Bytes by pid, of computing and drawing processes; None where the driver does not tell."""
        nvml, told = self._nvml, False
        found: dict[str, int | None] = {}
        for kind in ("Compute", "Graphics"):
            processes = self._ask(uuid, f"{kind}_v3", getattr(nvml, f"nvmlDeviceGet{kind}RunningProcesses_v3"), handle)
            if processes is None:
                older = getattr(nvml, f"nvmlDeviceGet{kind}RunningProcesses_v2")
                processes = self._ask(uuid, f"{kind}_v2", older, handle)
            told = told or processes is not None
            for process in processes or ():
                key = str(process.pid)
                found[key] = max((process.usedGpuMemory, found.get(key)), key=lambda size: -1 if size is None else size)
        return found if told else None

    def _seldom(self, uuid: str, what: str, call: Callable[..., Any], *arguments: Any) -> Any:
        """As `_ask`, but the answer is kept for thirty readings: it hardly ever changes."""
        until, answer = self._kept.get((uuid, what), (0, None))
        if self._readings >= until:
            answer = self._ask(uuid, what, call, *arguments)
            self._kept[uuid, what] = (self._readings + _SELDOM, answer)
        return answer

    def _must(self, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except self._nvml.NVMLError as fault:
            if fault.value in _LOST:
                raise _Lost(fault.value) from None
            raise

    def _ask(self, uuid: str, what: str, call: Callable[..., Any], *arguments: Any) -> Any:
        """The answer, or None: the board cannot (asked no more), or has nothing this time."""
        if (uuid, what) in self._off:
            return None
        try:
            return call(*arguments)
        except self._nvml.NVMLError as fault:
            code = fault.value
            if code in _LOST:
                raise _Lost(code) from None
            if code in _NO_DRIVER:
                raise
            if what and code in _CANNOT:
                self._off[uuid, what] = _CANNOT[code]
            elif what and code == _NO_PERMISSION:
                self._off[uuid, what] = "no permission (a container, or the parent of MIG instances)"
            return None


def _unified_memory() -> dict[str, Any]:
    """Boards that share the host's memory tell none of their own."""
    found: dict[str, int] = {}
    with open("/proc/meminfo", encoding="ascii") as file:
        for line in file:
            words = line.split()
            if words[0] in {"MemTotal:", "MemAvailable:"}:
                found[words[0]] = int(words[1]) * 1024
    total, available = found.get("MemTotal:"), found.get("MemAvailable:")
    if total is None or available is None:
        return {}
    return {"memory_total_bytes": total, "memory_used_bytes": total - available}


def main() -> int:
    """Serve until the daemon closes our stdin."""
    return serve(Boards().answer)
