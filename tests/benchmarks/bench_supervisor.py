"""What `sentinel run` costs: memory, processor time while idle and while the job prints, and delay at the start.

python tests/benchmarks/bench_supervisor.py
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

GOAL_MIB = 25.0
IDLE_S = 5.0
ROOT = Path(__file__).resolve().parents[2]


def main() -> int:
    """Print the figures; 1 if the goal is missed."""
    with tempfile.TemporaryDirectory(prefix="bench-", dir="/tmp") as directory:
        environ = {
            **os.environ,
            "SENTINEL_SOCKET": f"{directory}/none.sock",
            "SENTINEL_STATE_DIR": directory,
            "PYTHONPATH": str(ROOT),
        }
        idle = _start(environ, "sleep", "99")
        time.sleep(2.0)  # for the interpreter to settle; nothing depends on it
        before = _processor_s(idle.pid)
        time.sleep(IDLE_S)
        rss_mib, idle_share = _rss_mib(idle.pid), (_processor_s(idle.pid) - before) / IDLE_S
        idle.terminate()
        idle.wait()

        busy = _start(
            environ, "sh", "-c", "while :; do echo a line of the usual length, step 1234 loss 0.1234; sleep 0.01; done"
        )
        time.sleep(1.0)
        before = _processor_s(busy.pid)
        time.sleep(IDLE_S)
        busy_share = (_processor_s(busy.pid) - before) / IDLE_S
        busy.terminate()
        busy.wait()

        began = time.perf_counter()
        _start(environ, "true").wait()
        whole_s = time.perf_counter() - began
    print(f"supervisor RSS            {rss_mib:6.1f} MiB   (goal {GOAL_MIB:.0f})")
    print(f"idle                      {idle_share * 100:6.2f} % of a core")
    print(f"100 lines a second        {busy_share * 100:6.2f} % of a core")
    print(f"`sentinel run -- true`    {whole_s * 1000:6.0f} ms")
    return 0 if rss_mib <= GOAL_MIB else 1


def _start(environ: dict[str, str], *command: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "sentinel", "run", "--no-daemon", "--quiet", "--", *command],
        env=environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def _rss_mib(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("VmRSS"))) / 1024


def _processor_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    sys.exit(main())
