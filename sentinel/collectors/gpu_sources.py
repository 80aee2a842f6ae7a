"""Where readings of GPUs come from: the driver through a child, or a file for the demo."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Protocol

from sentinel.collectors.ports import Unavailable
from sentinel.model.wire import WireError, decode
from sentinel.system.frames import Child, Gone, Overdue, python
from sentinel.system.processes import PROC

_INITIAL_PID_NAMESPACE = 0xEFFFFFFC
_REST_AFTER_HANG_S = 30.0
_LIBRARIES = ("/usr/lib/wsl/lib", "/usr/local/nvidia/lib64", "/run/opengl-driver/lib")


@dataclass(frozen=True, slots=True)
class GpuReading:
    """One board, or one MIG instance of it, at one moment, as the driver reports it.

    A field is None when the board or the driver does not offer it; it is never
    zero in its place.

    Attributes:
        gpu: The driver's index; it may change with a reboot.
        uuid: Of the board, stable across reboots and renumbering.
        model: The product's name.
        mig: "GPU instance/compute instance" on MIG instances, else empty.
        minor: The number of its device file, /dev/nvidiaN.
        up: False while the driver says that it is lost or must be reset.
        fault: Then, what the driver says.
        memory_used_bytes: Held by all processes and the driver, the reserved part included.
        memory_total_bytes: On the board; the host's where they share one memory.
        memory_reserved_bytes: What the driver keeps for itself.
        busy_ratio: Share of the last sample period with a kernel running, 0 to 1.
            One tiny kernel counts as busy. Source: NVML, `nvmlUtilization_t.gpu`.
        memory_busy_ratio: Share with device memory being read or written.
        temperature_celsius: Of the core.
        memory_temperature_celsius: Of the memory.
        slowdown_celsius: Of the core, where the hardware slows down.
        power_watts: Of the whole board.
        power_limit_watts: In force.
        energy_joules: Since the driver was loaded.
        pcie_replays: Packets sent again.
        recovery_action: The driver's own advice (NVML field 230).
        clocks_hertz: By domain: graphics, sm, memory.
        throttled: By reason, whether the clocks are held down for it.
        processes: Bytes by pid, in the pid namespace of the driver: the host's. None
            for a process whose share the driver does not tell.
    """

    gpu: str
    uuid: str
    model: str = ""
    mig: str = ""
    minor: int | None = None
    up: bool = True
    fault: str = ""
    memory_used_bytes: float | None = None
    memory_total_bytes: float | None = None
    memory_reserved_bytes: float | None = None
    busy_ratio: float | None = None
    memory_busy_ratio: float | None = None
    temperature_celsius: float | None = None
    memory_temperature_celsius: float | None = None
    slowdown_celsius: float | None = None
    power_watts: float | None = None
    power_limit_watts: float | None = None
    energy_joules: float | None = None
    pcie_replays: float | None = None
    recovery_action: float | None = None
    clocks_hertz: dict[str, float] = field(default_factory=dict)
    throttled: dict[str, bool] = field(default_factory=dict)
    processes: dict[str, int | None] | None = None

    @property
    def entity(self) -> tuple[str, str, str, str]:
        """Its label values."""
        return (self.gpu, self.uuid, self.model, self.mig)


_FIELDS = frozenset(one.name for one in fields(GpuReading))


class GpuSource(Protocol):
    """The port behind which boards are read."""

    @property
    def pids_resolve(self) -> bool:
        """Whether the pids in its readings are those that sentinel sees."""
        ...

    @property
    def off(self) -> Sequence[tuple[str, str, str]]:
        """What boards cannot do, after the first reading: uuid, metric, why."""
        ...

    def read(self) -> list[GpuReading]:
        """Every board and instance.

        Raises:
            Unavailable: There is no driver, or it shows no GPU.
            SentinelError: It did not answer this time.
        """
        ...

    def close(self) -> None:
        """Let go of whatever it holds."""
        ...


class DriverGpus:
    """The NVIDIA driver, in a child that is killed when a call hangs.

    Without a driver the child ends at once, so that an idle machine holds no extra
    memory, and the next reading tries with a fresh one. After a hang the driver is
    left alone for half a minute.

    Args:
        deadline_s: For one reading.
        env: The child's environment; None for ours, with the directories in which some
            machines keep the driver's library.
        monotonic: For the rest after a hang.
        proc: Where /proc is.
    """

    def __init__(
        self,
        deadline_s: float = 5.0,
        env: Mapping[str, str] | None = None,
        monotonic: Callable[[], float] = time.monotonic,
        proc: str = PROC,
    ) -> None:
        self._child = Child(
            python("sentinel.collectors.gpu_child"),
            name="the NVIDIA driver",
            deadline_s=deadline_s,
            env=_with_libraries(os.environ) if env is None else env,
        )
        self._monotonic = monotonic
        self._not_before = float("-inf")
        self._off: list[tuple[str, str, str]] = []
        self.pids_resolve = _in_initial_pid_namespace(proc)

    @property
    def off(self) -> Sequence[tuple[str, str, str]]:
        """What boards cannot do."""
        return self._off

    @property
    def child_pid(self) -> int | None:
        """Of the child that runs now."""
        return self._child.pid

    def read(self) -> list[GpuReading]:
        """Every board and instance."""
        if self._monotonic() < self._not_before:
            raise Overdue("the NVIDIA driver hung, and is asked again in half a minute")
        try:
            answer = self._child.call({"op": "read"})
        except Overdue:
            self._not_before = self._monotonic() + _REST_AFTER_HANG_S
            raise
        if "unavailable" in answer:
            self._child.close()
            raise Unavailable(answer["unavailable"], hint=answer.get("hint") or None)
        self._off = [(uuid, what, why) for uuid, what, why in answer["off"]]
        # An upgrade under a running daemon starts a newer child: fields that we do not know are left out.
        return [GpuReading(**{key: board[key] for key in board.keys() & _FIELDS}) for board in answer["gpus"]]

    def close(self) -> None:
        """End the child."""
        self._child.close()


class SimulatedGpus:
    """Boards described by a small JSON file that somebody else keeps rewriting.

    `{"gpus": [{"gpu": "0", "uuid": "…", …fields of GpuReading…, "processes": {"PID": bytes}}]}`,
    read anew every time. A file that is being replaced or is half-written gives
    what was read last.

    Args:
        path: The file.
    """

    pids_resolve = True
    off: Sequence[tuple[str, str, str]] = ()

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)
        self._last: list[GpuReading] = []

    def read(self) -> list[GpuReading]:
        """What the file says now."""
        try:
            data = json.loads(self._path.read_bytes())
            self._last = [decode(GpuReading, _told(board)) for board in data["gpus"]]
        except FileNotFoundError:
            if not self._last:
                raise Unavailable(f"no simulated GPUs: {self._path} does not exist") from None
        except (ValueError, KeyError, TypeError, WireError) as fault:
            if not self._last:
                raise Gone(f"{self._path} does not describe GPUs: {fault}") from None
        return list(self._last)

    def close(self) -> None:
        """Nothing is held."""


def _told(board: dict[str, Any]) -> dict[str, Any]:
    return {**board, "gpu": str(board["gpu"])}


def _with_libraries(environ: Mapping[str, str]) -> dict[str, str]:
    """WSL, GKE and NixOS keep libnvidia-ml.so.1 where the loader does not look by itself."""
    places = [environ.get("LD_LIBRARY_PATH", ""), *(place for place in _LIBRARIES if os.path.isdir(place))]
    return {**environ, "LD_LIBRARY_PATH": ":".join(place for place in places if place)}


def _in_initial_pid_namespace(proc: str) -> bool:
    try:
        return os.stat(f"{proc}/self/ns/pid").st_ino == _INITIAL_PID_NAMESPACE
    except OSError:
        return False
