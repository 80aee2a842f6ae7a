"""Two boards that exist only in a file, and the jobs that seem to run on them."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path

GIB = 1024**3
_TOTAL = 80 * GIB

SHARES: Mapping[str, tuple[int, float]] = {
    "leaky": (0, 31.5 * GIB),
    "forgetful": (0, 22.0 * GIB),
    "happy": (1, 76.0 * GIB),
}
"""Which job holds how much of which board. Board 1 is at 96 % for the whole time, on purpose: that is no incident."""


def write(path: Path, pids: Mapping[str, int], elapsed: float) -> None:
    """What the boards say after so many seconds, with these jobs on them.

    Args:
        path: The file; replaced in one step.
        pids: The leader of each job that runs.
        elapsed: Seconds since the beginning.
    """
    boards = []
    for index in (0, 1):
        held = {
            str(pids[name]): int(share) for name, (board, share) in SHARES.items() if board == index and name in pids
        }
        busy = 0.0 if not held else 0.93 - 0.06 * index + 0.05 * math.sin(elapsed / 3 + index)
        boards.append(
            {
                "gpu": str(index),
                "uuid": f"GPU-demo-{index}",
                "model": "Simulated H100 80GB",
                "memory_used_bytes": 1.0 * GIB + sum(held.values()),
                "memory_total_bytes": float(_TOTAL),
                "busy_ratio": round(busy, 3),
                "temperature_celsius": round(38 + 30 * busy + index, 1),
                "slowdown_celsius": 87.0,
                "power_watts": round(90 + 560 * busy, 1),
                "power_limit_watts": 700.0,
                "processes": held,
            }
        )
    partial = path.with_suffix(".tmp")
    partial.write_text(json.dumps({"gpus": boards}), encoding="utf-8")
    partial.replace(path)
