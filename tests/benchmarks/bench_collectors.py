"""What measuring costs: processor time per tick with five jobs of nine processes, and memory of the driver's child.

python tests/benchmarks/bench_collectors.py [--ticks N] [--gpus N]

The clock of the collectors is moved two seconds per tick, so that what is done
every ten or thirty seconds is counted with its share, without waiting for it.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from sentinel.collectors.gpu_sources import DriverGpus
from sentinel.collectors.settings import Settings
from sentinel.collectors.standard import standard
from sentinel.model.jobs import Job, JobSpec, JobState
from sentinel.system.processes import PAGE_BYTES, TICKS_PER_SECOND, identify, pids, read_stat
from tests.fake_nvml.fake_nvml import FakeDriver, board, build

JOB = """
import os
shared = bytearray(b'x') * (200 << 20)
for _ in range(8):
    if os.fork() == 0:
        sum(shared[::4096]); os.read(0, 1); os._exit(0)
print('ready', flush=True); os.read(0, 1)
"""


def start_job(stack: ExitStack, number: int) -> Job:
    """A parent of 200 MiB with eight workers."""
    child = subprocess.Popen(
        [sys.executable, "-c", JOB], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    )
    stack.callback(os.killpg, child.pid, signal.SIGKILL)
    assert child.stdout is not None
    child.stdout.readline()
    spec = JobSpec((sys.executable,), "/", memory_limit_bytes=4 << 30)
    return Job(
        f"j{number}",
        f"job-{number}",
        os.getuid(),
        "bench",
        spec,
        JobState.RUNNING,
        root=identify(child.pid),
        pgid=child.pid,
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--ticks", type=int, default=150)
    parser.add_argument("--gpus", type=int, default=8)
    arguments = parser.parse_args()
    settings = Settings()
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        jobs = [start_job(stack, number) for number in range(5)]
        time.sleep(1)  # let the workers touch their pages
        driver = FakeDriver(build(directory), directory)
        lines = [line for gpu in range(arguments.gpus) for line in board(gpu, f"process {jobs[gpu % 5].root.pid} 1000")]  # type: ignore[union-attr]
        driver.says(f"count {arguments.gpus}", *lines)
        gpus = DriverGpus(env=driver.env)
        stack.callback(gpus.close)
        measuring = standard(lambda: jobs, gpus, settings=settings)
        spent = {collector.name: 0.0 for collector in measuring.collectors}
        rows = {collector.name: 0 for collector in measuring.collectors}
        for collector in measuring.collectors:
            collector.supported()
        child_before = _ticks(gpus.child_pid)
        for tick in range(arguments.ticks):
            at = 1e9 + tick * settings.interval_s
            for collector in measuring.collectors:
                if collector.interval_s is not None and tick % round(collector.interval_s / settings.interval_s):
                    continue
                began = time.process_time()
                batches = collector.collect(at)
                spent[collector.name] += time.process_time() - began
                rows[collector.name] = sum(len(batch.labels) * len(batch.columns) for batch in batches)
        child_s = (_ticks(gpus.child_pid) - child_before) / TICKS_PER_SECOND
        began = time.process_time()
        for look in range(100):
            measuring.jobs.collect_only(2e9 + look / 4, frozenset({"job-0"}))
        endangered = (time.process_time() - began) / 100
        print(f"{len(pids())} processes, 5 jobs of 9 processes, {arguments.gpus} GPUs, tick {settings.interval_s:g} s")
        total = 0.0
        for name, seconds in [*spent.items(), ("NVML child", child_s)]:
            each = seconds / arguments.ticks
            total += each
            values = f"{rows[name]:5d} values" if name in rows else ""
            print(f"{name:12s} {each * 1000:7.3f} ms per tick  {each / settings.interval_s:7.3%} of a core  {values}")
        print(f"{'together':12s} {total * 1000:7.3f} ms per tick  {total / settings.interval_s:7.3%} of a core")
        print(
            f"{'endangered':12s} {endangered * 1000:7.3f} ms per look  {endangered * 4:7.3%} of a core at 4 looks a second"
        )
        child = read_stat(gpus.child_pid or 0)
        print(f"NVML child: {(child.rss_pages * PAGE_BYTES if child else 0) / 2**20:.1f} MiB resident")


def _ticks(pid: int | None) -> int:
    stat = read_stat(pid or 0)
    return stat.utime_ticks + stat.stime_ticks if stat else 0


if __name__ == "__main__":
    main()
