"""Debian's own logrotate, again and again, under a writer that counts."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from sentinel.logs.tail import Position, Tailer

LOGROTATE = shutil.which("logrotate", path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
ROTATIONS = int(os.environ.get("SENTINEL_ROTATIONS", "8"))

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(LOGROTATE is None, reason="logrotate is not installed (apt-get install logrotate)"),
]


class Rotated:
    """A log, the writer of numbered lines, and the logrotate that takes it away."""

    def __init__(self, root: Path, options: str) -> None:
        self.log = root / "app.log"
        self._conf = root / "conf"
        self._state = root / "state"
        # The clock of dateext has only seconds, so the hook makes each name its own.
        self._conf.write_text(f"{self.log} {{\n  rotate 100000\n  size 1\n  su root root\n  {options}\n}}\n")
        self._conf.chmod(0o644)
        self.written = 0

    def write(self, lines: int) -> None:
        with self.log.open("a") as file:
            for _ in range(lines):
                self.written += 1
                file.write(f"line {self.written}\n")

    def rotate(self) -> None:
        done = subprocess.run(
            [str(LOGROTATE), "--force", "--state", str(self._state), str(self._conf)],
            capture_output=True, text=True, timeout=20, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr


def numbers(tailer: Tailer) -> Iterator[int]:
    tailer.look_for_files()
    for chunk in tailer.read_all():
        for line in chunk.lines:
            yield int(line.split()[1])


@pytest.mark.skipif(os.getuid() != 0, reason="`su root root` in logrotate's configuration needs root")
@pytest.mark.parametrize(
    "options",
    ["create 0644 root root", "copytruncate", "create\n  compress", "create\n  dateext\n  dateformat .%s", "nocreate"],
    ids=["create", "copytruncate", "compress", "dateext", "nocreate"],
)
def test_not_a_line_is_lost_or_seen_twice(tmp_path: Path, options: str) -> None:
    rotated = Rotated(tmp_path, options)
    tailer = Tailer([str(rotated.log)])
    seen: list[int] = []
    positions: dict[str, Position] = {}

    for turn in range(ROTATIONS if "dateext" not in options else 1):
        rotated.write(3)
        if "copytruncate" in options or "nocreate" in options or turn % 3 == 0:
            seen.extend(numbers(tailer))  # copytruncate loses what nobody has read: that window is logrotate's own
        rotated.rotate()
        if turn % 7 == 0:  # a restart between two looks
            seen.extend(numbers(tailer))
            positions = tailer.positions()
            tailer.close()
            tailer = Tailer([str(rotated.log)], positions)
        if "nocreate" not in options or turn % 2:
            rotated.write(2)
        seen.extend(numbers(tailer))
    rotated.write(1)
    seen.extend(numbers(tailer))
    tailer.close()

    assert seen == list(range(1, rotated.written + 1))
