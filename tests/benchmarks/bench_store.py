"""What the store costs: run it as a program, it prints one line per measurement.

python tests/benchmarks/bench_store.py [MINUTES]
"""

from __future__ import annotations

import math
import random
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from sentinel.clock import ManualClock, SystemClock
from sentinel.model import families
from sentinel.model.series import Batch, Entity, Family
from sentinel.promql.series import Match, Matcher
from sentinel.store.journal import JournalFile
from sentinel.store.settings import Settings
from sentinel.store.store import Store
from sentinel.store.window import Window

GPUS = [(str(index), f"GPU-{index:08d}", "H200", "") for index in range(8)]
JOBS = [f"job-{index}" for index in range(5)]
SHAPE: dict[Family, list[Entity]] = {
    families.HOST: [()],
    families.HOST_DISK: [("/",), ("/data",), ("/scratch",)],
    families.HOST_PRESSURE: [
        (resource_, kind, window)
        for resource_ in ("cpu", "memory", "io")
        for kind in ("some", "full")
        for window in ("10s", "60s", "300s")
    ],
    families.GPU: list[Entity](GPUS),
    families.GPU_TEMPERATURE: [(*gpu, sensor) for gpu in GPUS for sensor in ("core", "memory")],
    families.GPU_CLOCK: [(*gpu, domain) for gpu in GPUS for domain in ("sm", "memory", "graphics")],
    families.GPU_THROTTLE: [
        (*gpu, reason) for gpu in GPUS for reason in ("idle", "sw_power", "hw_thermal", "sync_boost")
    ],
    families.JOB: [(job,) for job in JOBS],
    families.JOB_STATE: [(job, state) for job in JOBS for state in ("starting", "running", "paused", "failed")],
    families.CHECKPOINT: [(job,) for job in JOBS],
    families.LOG: [(job, kind) for job in JOBS for kind in ("traceback", "gpu_oom", "rate_limited", "quota_exhausted")],
    families.MONEY: [(job,) for job in JOBS],
}
SERIES = sum(len(family.metrics) * len(entities) for family, entities in SHAPE.items())


def pass_(at: float, chance: random.Random) -> Iterator[Batch]:
    """One look at everything: some values move, some count, most stand still."""
    for family, entities in SHAPE.items():
        yield family.batch(
            at, {entity: [_value(index, at, chance) for index in range(len(family.metrics))] for entity in entities}
        )


def _value(index: int, at: float, chance: random.Random) -> float:
    match index % 4:
        case 0:
            return 1.0
        case 1:
            return float(chance.randrange(1 << 20) << 12)
        case 2:
            return round(50 + 40 * math.sin(at / 600) + chance.random(), 2)
    return float(int(at) // 10)


def named(metric: str) -> tuple[Matcher, ...]:
    return (Matcher("__name__", Match.EQUAL, metric),)


def milliseconds(seconds: list[float]) -> str:
    return f"median {statistics.median(seconds) * 1e3:.1f} ms, worst {max(seconds) * 1e3:.1f} ms"


def writing(directory: Path, minutes: int) -> None:
    """Flushes of five seconds of samples at 1 Hz, and what a sample costs on disk."""
    clock, chance = ManualClock(), random.Random(1)
    store = Store.open(directory, Settings(flush_s=3600.0), clock, print)
    writer = store._writer
    walls: list[float] = []
    cpu = 0.0
    for second in range(minutes * 60):
        clock.advance(1)
        for batch in pass_(clock.now(), chance):
            store.put(batch)
        if second % 5 == 4:
            began, busy = time.perf_counter(), time.process_time()
            writer.flush(everything=False)
            walls.append(time.perf_counter() - began)
            cpu += time.process_time() - busy
    store.maintain()
    samples = SERIES * minutes * 60
    print(f"flush of {SERIES} series at 1 Hz every 5 s: {milliseconds(walls)}")
    print(f"processor for writing: {cpu / (minutes * 60) * 100:.2f} % of a core (goal 0.2)")
    print(f"on disk: {store.size_bytes() / samples:.2f} bytes a sample, {samples} samples")
    began = time.perf_counter()
    count = store.refill(Window(), clock.now() - 1800)
    print(f"refill of the window: {(time.perf_counter() - began) * 1e3:.0f} ms for {count} samples")
    store.close()
    began = time.perf_counter()
    again = Store.open(directory, Settings(flush_s=3600.0), clock, print)
    print(f"opening: {(time.perf_counter() - began) * 1e3:.0f} ms")
    again.close()


def reading(directory: Path) -> None:
    """A day of eight GPUs at the default tick, in and out."""
    clock = ManualClock()
    store = Store.open(directory, Settings(flush_s=3600.0), clock, print)
    store._database.root.execute(
        "INSERT INTO family.gpu BY NAME SELECT ? - 86400 + tick * 2 AS ts, gpu::VARCHAR AS gpu,"
        " 'GPU-' || lpad(gpu::VARCHAR, 8, '0') AS uuid, 'H200' AS model, '' AS mig, 1.0 AS gpu_up,"
        " floor(random() * 1e6) * 4096 AS gpu_memory_used_bytes, round(random(), 2) AS gpu_utilization_ratio"
        " FROM range(43200) t(tick), range(8) g(gpu)",
        [clock.now()],
    )
    store._database.root.execute("CHECKPOINT")
    history = store.history()
    times: list[float] = []
    for _ in range(5):
        began = time.perf_counter()
        (block,) = history.select(named("gpu_utilization_ratio"), clock.now() - 86400, clock.now())
        times.append(time.perf_counter() - began)
    print(f"24 h of 8 series at 2 s from the store ({block.present.sum()} samples): {milliseconds(times)}")
    times.clear()
    for _ in range(5):
        began = time.perf_counter()
        store.sql(
            "SELECT time_bucket(INTERVAL 15 minutes, time) AS at, gpu, quantile_cont(gpu_utilization_ratio, 0.99)"
            " FROM gpu GROUP BY ALL ORDER BY ALL"
        )
        times.append(time.perf_counter() - began)
    print(f"24 h of GPU p99 by SQL: {milliseconds(times)}")
    store.close()


def window() -> None:
    """Appending and slicing 2,000 series."""
    family = Family("f", ("job",), tuple(families.JOB.metrics[:10]))
    held = Window()
    clock = ManualClock()
    spent = 0.0
    for second in range(1800):
        batch = family.batch(clock.now() + second, {(f"job-{n}",): [float(second + n)] * 10 for n in range(200)})
        began = time.perf_counter()
        held.append(batch)
        spent += time.perf_counter() - began
    print(f"window, append of 2,000 series: {spent / 1800 * 1e3:.2f} ms")
    rounds: list[float] = []
    for _ in range(10):
        began = time.perf_counter()
        for rule in range(60):
            held.select(named(family.metrics[rule % 10].name), clock.now() + 1500, clock.now() + 1799)
        rounds.append(time.perf_counter() - began)
    print(f"window, 60 selections of 200 series: {milliseconds(rounds)}")


def journal(directory: Path) -> None:
    """Durable appends."""
    file = JournalFile(directory / "journal", SystemClock())
    times: list[float] = []
    for number in range(300):
        began = time.perf_counter()
        file.append("request", {"number": number, "padding": "x" * 300})
        times.append(time.perf_counter() - began)
    print(f"journal, one record: {milliseconds(times)}")


def rss() -> str:
    return f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB"


def main() -> None:
    minutes = int(sys.argv[1]) if len(sys.argv) > 1 else 30
    for name, measure in (("writing", lambda at: writing(at, minutes)), ("reading", reading), ("journal", journal)):
        with tempfile.TemporaryDirectory(prefix=f"sentinel-{name}-") as directory:
            measure(Path(directory))
        print(f"  peak memory after {name}: {rss()}")
    window()
    print(f"  peak memory at the end: {rss()}")


if __name__ == "__main__":
    main()
