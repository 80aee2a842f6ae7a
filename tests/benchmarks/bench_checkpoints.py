"""What watching checkpoints costs: a first scan, a fresh inspection, the steady state, and how soon one is noticed.

python tests/benchmarks/bench_checkpoints.py
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import struct
import sys
import tempfile
import time
import zipfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from sentinel.checkpoints.formats import Verdict, inspect
from sentinel.checkpoints.watch import Watcher, survey
from sentinel.collectors.counters import Counters
from sentinel.collectors.jobcheckpoints import JobCheckpoints
from sentinel.model.checkpoints import Checkpoint
from sentinel.model.jobs import CheckpointDir, Job, JobSpec, JobState

PICKLE = b"\x80\x02}q\x00(X\x05\x00\x00\x00modelq\x01}q\x02X\x01\x00\x00\x00wq\x03K\x01sX\x04\x00\x00\x00stepK\x07u."


def shards(root: Path, checkpoints: int, each: int) -> None:
    """Directories of safetensors shards."""
    header = json.dumps({"w": {"dtype": "U8", "shape": [64], "data_offsets": [0, 64]}}).encode()
    data = struct.pack("<Q", len(header)) + header + bytes(64)
    for step in range(checkpoints):
        place = root / f"checkpoint-{step}"
        place.mkdir()
        for index in range(1, each + 1):
            (place / f"model-{index:05}-of-{each:05}.safetensors").write_bytes(data)


def sparse_torch(path: Path, size: int) -> None:
    """A file of torch of which only the ends are really on disk."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
        archive.writestr("archive/data.pkl", PICKLE)
        archive.writestr("archive/version", "3\n")
    whole = path.read_bytes()
    with zipfile.ZipFile(path) as archive:
        start = archive.start_dir
    directory, end = whole[start:-22], whole[-22:]
    entries, length = struct.unpack("<H", end[10:12])[0], struct.unpack("<I", end[12:16])[0]
    at = size - length - 98
    with path.open("r+b") as file:
        file.truncate(start)
        file.truncate(at)
        file.seek(at)
        file.write(directory)
        record = file.tell()
        file.write(struct.pack("<4sQHHIIQQQQ", b"PK\x06\x06", 44, 45, 45, 0, 0, entries, entries, length, at))
        file.write(struct.pack("<4sIQI", b"PK\x06\x07", 0, record, 1))
        file.write(struct.pack("<4sHHHHIIH", b"PK\x05\x06", 0, 0, 0xFFFF, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0))


def sparse_safetensors(path: Path, size: int) -> None:
    """The same of safetensors."""
    header = json.dumps({"w": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}).encode()
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        file.truncate(8 + len(header) + size)


def milliseconds(seconds: list[float]) -> str:
    """The median and the worst."""
    return f"{1000 * statistics.median(seconds):8.1f} ms (worst {1000 * max(seconds):.1f})"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--directory", type=Path, default=None)
    parser.add_argument("--seconds", type=float, default=20.0, help="of the steady state")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.directory) as text:
        root = Path(text)
        many = root / "many"
        many.mkdir()
        shards(many, 1000, 8)
        times = []
        for _ in range(7):
            before = time.perf_counter()
            found = survey([str(many)], time.time() + 10)
            times.append(time.perf_counter() - before)
            assert found.newest is not None
        print(f"scan of 1,000 checkpoints x 8 shards   {milliseconds(times)}   goal 200 ms")

        for name, make in (("a.pt", sparse_torch), ("a.safetensors", sparse_safetensors)):
            path = root / name
            make(path, 10 << 30)
            times = []
            for _ in range(7):
                before = time.perf_counter()
                form = inspect(path)
                times.append(time.perf_counter() - before)
                assert form.verdict is Verdict.WHOLE, form
            print(f"inspection of 10 GB, sparse, {form.format:<12} {milliseconds(times)}   goal 50 ms")
            path.unlink()

        watcher = Watcher([str(many)])
        watcher.poll(time.time() + 10)
        time.sleep(2.5)  # a directory that changed just now is listed again, to be sure
        watcher.poll(time.time() + 12)
        looks = 200
        before = time.process_time()
        for number in range(looks):
            watcher.poll(time.time() + 10 + number)
        share = (time.process_time() - before) / looks
        print(
            f"a look at 1,000 x 8, nothing new       {1000 * share:8.2f} ms of a core, {100 * share:.2f} % at one a second"
        )

        flat = root / "flat"
        flat.mkdir()
        for number in range(100_000):
            (flat / f"step-{number}.bin").write_bytes(b"x")
        watcher = Watcher([str(flat)])
        before = time.perf_counter()
        watcher.poll(time.time() + 10)
        first = time.perf_counter() - before
        for number in range(30):
            watcher.poll(time.time() + 10 + number / 100)
        before = time.process_time()
        for number in range(20):
            watcher.poll(time.time() + 10 + number)
        print(
            f"100,000 files: first look {1000 * first:.0f} ms, later "
            f"{1000 * (time.process_time() - before) / 20:.2f} ms each"
        )
        del watcher
        steady(root, arguments.seconds)


def steady(root: Path, seconds: float) -> None:
    """Five jobs with ten checkpoints each, looked at once a second; and how soon a new one is told."""
    told: list[tuple[float, Checkpoint]] = []
    jobs = []
    for number in range(5):
        place = root / f"job-{number}"
        place.mkdir()
        shards(place, 10, 8)
        spec = JobSpec(("train",), "/", checkpoints=(CheckpointDir(str(place), 60.0),))
        jobs.append(Job(f"j{number}", f"job-{number}", os.getuid(), "bench", spec, JobState.RUNNING))
    collector = JobCheckpoints(
        lambda: jobs, Counters(tick_s=2.0), lambda _, found: told.append((time.monotonic(), found))
    )
    for _ in range(5):
        collector.collect(time.time())
        time.sleep(1)
    before, began = time.process_time(), time.monotonic()
    while time.monotonic() - began < seconds:
        collector.collect(time.time())
        time.sleep(1)
    share = (time.process_time() - before) / (time.monotonic() - began)
    print(f"steady state, 5 jobs                   {100 * share:8.2f} % of a core   goal 0.2 %")
    waits = []
    place = root / "job-0"
    for step in range(10):
        (place / f".step-{step}.tmp").write_bytes(os.urandom(1000))
        time.sleep(0.3)
        count, at = len(told), time.monotonic()
        os.replace(place / f".step-{step}.tmp", place / f"step-{1000 + step}.bin")
        while len(told) == count:
            time.sleep(0.001)
        waits.append(told[-1][0] - at)
    print(f"noticed after an atomic rename         {milliseconds(waits)}   goal 300 ms")


if __name__ == "__main__":
    main()
