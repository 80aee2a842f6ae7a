"""A disk so small that it fills up."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    """Mounts a tmpfs of a size such as `4m`; skips where that is not allowed."""
    mounted: list[Path] = []

    def mount(size: str) -> Path:
        place = tmp_path / f"disk-{len(mounted)}"
        place.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        except FileNotFoundError:
            pytest.skip("there is no mount command")
        if done.returncode:
            pytest.skip(f"cannot mount a tmpfs here: {done.stderr.strip()}")
        mounted.append(place)
        return place

    yield mount
    for place in mounted:
        subprocess.run(["umount", "-l", str(place)], check=True)


@pytest.fixture
def fill() -> Callable[[Path], Path]:
    """Uses up all space of the file system that a directory is on; answers with the file that does."""

    def use_up(directory: Path) -> Path:
        hog = directory / "hog"
        with hog.open("wb", buffering=0) as stream:
            for size in (1 << 16, 1 << 12, 1):
                try:
                    while True:
                        stream.write(b"x" * size)
                except OSError:
                    continue
        return hog

    return use_up
