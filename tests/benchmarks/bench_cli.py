"""How long a command takes, from the shell's point of view: whole processes, best and median of several runs.

python tests/benchmarks/bench_cli.py [RUNS]

Goals: `sentinel status` 150 ms with a daemon running, `sentinel --help` 80 ms.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
COMMANDS = (
    ("--help",),
    ("status",),
    ("jobs", "--json"),
    ("query", "host_load1"),
    ("rules", "--help"),
    ("tui", "--help"),
)


def main() -> None:
    """Measure, print."""
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 15
    with tempfile.TemporaryDirectory(prefix="snt-", dir="/tmp") as place:
        environ = {
            **os.environ,
            "SENTINEL_SOCKET": f"{place}/s.sock",
            "SENTINEL_STATE_DIR": f"{place}/state",
            "PYTHONPATH": str(ROOT),
        }
        with Path(place, "log").open("wb") as log:
            daemon = subprocess.Popen([sys.executable, "-m", "sentinel", "daemon"], env=environ, stdout=log, stderr=log)
        try:
            while not Path(place, "s.sock").exists():
                time.sleep(0.01)
            time.sleep(3)
            bare = _wall(["-c", "pass"], environ, runs)
            print(f"python -c pass: best {bare[0]:.0f} ms, median {bare[1]:.0f} ms")
            for command in COMMANDS:
                best, median = _wall(["-m", "sentinel", *command], environ, runs)
                print(f"sentinel {' '.join(command)}: best {best:.0f} ms, median {median:.0f} ms")
        finally:
            daemon.terminate()
            daemon.wait()


def _wall(arguments: list[str], environ: dict[str, str], runs: int) -> tuple[float, float]:
    taken = []
    for _ in range(runs + 1):
        began = time.perf_counter()
        subprocess.run([sys.executable, *arguments], env=environ, stdout=subprocess.DEVNULL, check=False)
        taken.append((time.perf_counter() - began) * 1000)
    return min(taken[1:]), statistics.median(taken[1:])


if __name__ == "__main__":
    main()
