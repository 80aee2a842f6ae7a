"""Builds the fake driver library and writes what it answers."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

GIB = 1 << 30
HERE = Path(__file__).parent
HEALTHY = {
    "name": "NVIDIA Fake 80GB",
    "minor": 0,
    "total": 80 * GIB,
    "reserved": GIB,
    "free": 39 * GIB,
    "busy": 87,
    "memory_busy": 31,
    "temperature": 61,
    "slowdown": 87,
    "power": 312_500,
    "limit": 700_000,
    "energy": 9_000_000,
    "replays": 3,
    "clock": 1980,
    "reasons": 0x44,
    "memory_temperature": 70,
    "action": 0,
}


def build(directory: Path) -> Path:
    """A directory with `libnvidia-ml.so.1` in it."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler to build the fake NVML with")
    library = directory / "libnvidia-ml.so.1"
    if not library.exists():
        command = [compiler, "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o", str(library), str(HERE / "nvml.c")]
        subprocess.run(command, check=True)
    return directory


class FakeDriver:
    """One machine's driver: change it at any time, the library reads it at each call."""

    def __init__(self, library: Path, directory: Path) -> None:
        self._library = library
        self._file = directory / "nvml.txt"
        self._file.write_text("count 0\n")

    @property
    def env(self) -> dict[str, str]:
        return {**os.environ, "LD_LIBRARY_PATH": str(self._library), "FAKE_NVML": str(self._file)}

    def says(self, *lines: str) -> None:
        fresh = self._file.with_suffix(".new")
        fresh.write_text("".join(f"{line}\n" for line in lines))
        fresh.replace(self._file)


def board(index: int, *lines: str, without: tuple[str, ...] = (), **values: object) -> list[str]:
    """A healthy board with some values changed, some not supported, and more lines of its own."""
    told = {"uuid": f"GPU-{index}", **HEALTHY, **values}
    return [f"{index}.{key} {value}" for key, value in told.items() if key not in without] + [
        f"{index}.{line}" for line in lines
    ]
