"""What watching costs: the daemon's processor time and memory with five jobs at the default tick.

    python tests/benchmarks/bench_daemon.py [SECONDS]

Goals over 60 s: at most 1 % of a core and 120 MiB, the NVML child included.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

JOB = """
import time
step = 0
while True:
    step += 1
    time.sleep(0.2)
    print("step", step, "loss", 1.0 / step, flush=True)
"""


def main() -> None:
    """Measure, print."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 60.0
    with tempfile.TemporaryDirectory(prefix="snt-", dir="/tmp") as place:
        environ = {
            **os.environ,
            "SENTINEL_SOCKET": f"{place}/s.sock",
            "SENTINEL_STATE_DIR": f"{place}/state",
            "PYTHONPATH": os.getcwd(),
        }
        os.chmod(place, 0o700)
        with Path(place, "log").open("wb") as log:
            daemon = subprocess.Popen([sys.executable, "-m", "sentinel", "daemon"], env=environ, stdout=log, stderr=log)
        ready = time.monotonic()
        while not Path(place, "s.sock").exists():
            time.sleep(0.01)
        print(f"daemon: socket after {time.monotonic() - ready:.2f} s")
        Path(place, "ckpt").mkdir()
        Path(place, "ckpt", "step-1.bin").write_bytes(b"x")
        jobs = [
            subprocess.Popen(
                [
                    *(sys.executable, "-m", "sentinel", "run", "--name", f"job{number}", "--quiet"),
                    *("--checkpoints", f"{place}/ckpt", "--memory-limit", "1GiB", "--", sys.executable, "-c", JOB),
                ],
                env=environ,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                stdin=subprocess.DEVNULL,
            )
            for number in range(5)
        ]
        try:
            time.sleep(10)  # imports, first ticks, first flush
            watched = psutil.Process(daemon.pid)
            before = used(watched)
            time.sleep(seconds)
            after = used(watched)
            family = [watched, *watched.children(recursive=True)]
            rss = sum(each.memory_info().rss for each in family)
            pss = sum(each.memory_full_info().pss for each in family)
            supervisors = [psutil.Process(job.pid).memory_full_info() for job in jobs]
            print(f"daemon: {100 * (after - before) / seconds:.2f} % of a core over {seconds:.0f} s with 5 jobs")
            print(f"daemon: {rss / 2**20:.1f} MiB RSS, {pss / 2**20:.1f} MiB PSS, {len(family)} process(es)")
            print(
                f"supervisor: {max(each.rss for each in supervisors) / 2**20:.1f} MiB RSS, "
                f"{max(each.pss for each in supervisors) / 2**20:.1f} MiB PSS"
            )
        finally:
            for job in jobs:
                for child in psutil.Process(job.pid).children(recursive=True):
                    child.kill()
            for job in jobs:
                job.wait()
            daemon.terminate()
            daemon.wait()


def used(process: psutil.Process) -> float:
    """Processor seconds of a process and of its children, living and dead."""
    times = process.cpu_times()
    own = times.user + times.system + times.children_user + times.children_system
    return own + sum(sum(child.cpu_times()[:2]) for child in process.children(recursive=True))


if __name__ == "__main__":
    main()
