"""Healthy life, with all shipped rules in force: nobody is told and nothing is asked."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sentinel.collectors.counters import Counters
from sentinel.collectors.gauges import Board
from sentinel.daemon.bookkeeping import Books
from sentinel.model.checkpoints import Checkpoint, CheckpointState
from sentinel.model.families import (
    CHECKPOINT,
    CHECKPOINTS,
    GPU,
    GPU_THROTTLE,
    HOST,
    HOST_DISK,
    JOB,
    JOB_GPU,
    JOB_STATE,
    LOG,
    MONEY,
)
from sentinel.model.jobs import Job, JobSpec, JobState
from sentinel.rules.loader import load

PACK = Path(__file__).resolve().parents[2] / "rules"
GROUPS = [group.name for group in load([PACK]).groups]
GIB = float(1 << 30)
LIMIT = 64 * GIB
TOTAL = 80 * GIB
INTERVAL = 900.0

Curve = Callable[[float], float]
World = Callable[[float], Any]
BOARD = ("0", "GPU-1", "H200", "")


def flat(value: float) -> Curve:
    return lambda now: value


def training(
    *,
    memory: Curve = lambda _: 0.55 * LIMIT,
    gpu: Curve = lambda _: 0.9 * TOTAL,
    busy: Curve = lambda _: 0.95,
    cores: float = 4.0,
    read: Curve = lambda now: 20e6 * now,
    disk: Curve = lambda _: 0.4,
    shm: Curve = lambda _: 0.3,
    runtime: float = 7200.0,
    start: float = 1_800_000_000.0,
    asleep: float = 0.0,
    stuck: Curve = lambda _: 0.0,
    rate_limited: Curve = lambda _: 0.0,
    available: Curve = lambda _: 0.6,
) -> World:
    """A training in its third hour that writes a checkpoint every quarter of an hour.

    `asleep` is how long the machine has slept since it began; the times of wall clock include it.
    """

    def world(now: float) -> Any:
        saved = math.floor(now / INTERVAL) * INTERVAL - asleep
        at_risk = now - math.floor(now / INTERVAL) * INTERVAL
        values = {
            "job_up": 1.0,
            "job_attempts_total": 1.0,
            "job_runtime_seconds": runtime + now + asleep,
            "job_processes": 9.0,
            "job_cpu_seconds_total": cores * now,
            "job_memory_used_bytes": memory(now),
            "job_memory_limit_bytes": LIMIT,
            "job_memory_headroom_bytes": LIMIT - memory(now),
            "job_memory_rss_bytes": 3 * memory(now),
            "job_cgroup_oom_kills_total": 0.0,
            "job_open_fds": 400.0,
            "job_max_fds": 1024.0,
            "job_zombies": 0.0,
            "job_uninterruptible": stuck(now),
            "job_read_bytes_total": read(now),
            "job_last_output_timestamp_seconds": start + math.floor(now / 20) * 20 - (asleep if now < 20 else 0.0),
        }
        states = {
            (JOB_STATE, ("train", each.value)): {"job_state": float(each is JobState.RUNNING)} for each in JobState
        }
        return {
            (JOB, ("train",)): values,
            **states,
            (MONEY, ("train",)): {"job_at_risk_seconds": at_risk},
            (CHECKPOINT, ("train",)): {
                "checkpoint_last_timestamp_seconds": start + saved if now < INTERVAL else start + saved + asleep,
                "checkpoint_interval_target_seconds": INTERVAL,
                "checkpoint_last_size_bytes": 20 * GIB,
                "checkpoint_free_bytes": disk(now) * 1000 * GIB,
                "checkpoint_free_inodes": 1e6,
            },
            (CHECKPOINTS, ("train", "complete")): {"checkpoints_total": math.floor(now / INTERVAL)},
            (CHECKPOINTS, ("train", "broken")): {"checkpoints_total": 0.0},
            (LOG, ("train", "rate_limited")): {"log_events_total": rate_limited(now)},
            (GPU, BOARD): {
                "gpu_up": 1.0,
                "gpu_memory_total_bytes": TOTAL,
                "gpu_memory_used_bytes": gpu(now),
                "gpu_utilization_ratio": busy(now),
            },
            (GPU_THROTTLE, (*BOARD, "sw_power")): {"gpu_throttled": 1.0},
            (GPU_THROTTLE, (*BOARD, "hw_thermal")): {"gpu_throttled": float(now % 600 < 20)},
            (JOB_GPU, ("train", "0", "GPU-1", "")): {"job_gpu_memory_bytes": gpu(now) - GIB},
            (HOST, ()): {
                "host_memory_total_bytes": 2 * LIMIT,
                "host_memory_available_bytes": available(now) * 2 * LIMIT,
                "host_oom_kills_total": 0.0,
                "host_shm_used_ratio": shm(now),
            },
            (HOST_DISK, ("/data",)): {
                "host_disk_free_bytes": disk(now) * 1000 * GIB,
                "host_disk_total_bytes": 1000 * GIB,
                "host_inodes_free": 1e6,
                "host_disk_read_only": 0.0,
            },
        }

    return world


def saving(now: float) -> float:
    """1 while a checkpoint is being written: the first 40 s of every quarter of an hour."""
    return float(now % INTERVAL < 40)


def after(moment: float, now: float) -> float:
    return max(0.0, now - moment)


HEALTHY: dict[str, World] = {
    "an hour of training": training(),
    "torch.compile: ten minutes of processors only, memory in two ramps, no GPU": training(
        runtime=60.0,
        memory=lambda now: LIMIT * (0.3 + 0.15 * min(1.0, now / 45) + 0.1 * min(1.0, after(200, now) / 40)),
        gpu=lambda now: TOTAL * (0.3 if now < 600 else 0.88),
        busy=lambda now: 0.0 if now < 600 else 0.96,
        cores=16.0,
    ),
    "an epoch's end: the loaders end and start again, caches are dropped and filled": training(
        memory=lambda now: LIMIT * (0.6 - 0.25 * math.exp(-(now % 700) / 25)),
        gpu=lambda now: TOTAL * (0.92 if now % 700 > 30 else 0.75),
        busy=lambda now: 0.95 if now % 700 > 60 else 0.05,
        shm=lambda now: 0.6 if now % 700 > 10 else 0.05,
    ),
    "checkpoints: weights are copied to the host, written, and the disk loses 20 GiB and gets them back": training(
        memory=lambda now: LIMIT * (0.5 + 0.3 * saving(now) * min(1.0, (now % INTERVAL) / 8)),
        disk=lambda now: 0.3 - 0.02 * min(1.0, (now % INTERVAL) / 40) * float(now % INTERVAL < 200),
        busy=lambda now: 0.1 if saving(now) else 0.95,
        stuck=lambda now: 2.0 * saving(now),
    ),
    "an evaluation of ten minutes on larger batches, with the GPU hardly used between them": training(
        memory=lambda now: LIMIT * (0.6 + (0.15 if 1200 < now < 1800 else 0.0)),
        gpu=lambda now: TOTAL * (0.7 if now < 1200 else 0.93),
        busy=lambda now: 0.12 + 0.3 * float(now % 30 < 10) if 1200 < now < 1800 else 0.95,
    ),
    "a page cache that fills the cgroup is not counted, and the machine's free memory goes to caches": training(
        memory=flat(0.7 * LIMIT), available=lambda now: 0.6 - 0.3 * min(1.0, now / 3000), read=lambda now: 2e9 * now
    ),
    "a cgroup where the cache is counted until the kernel takes it back, again and again": training(
        memory=lambda now: LIMIT * (0.55 + 0.25 * (now % 400) / 400), read=lambda now: 40e6 * now
    ),
    "vLLM: nine tenths of the board at once, and then requests come and go": training(
        runtime=30.0,
        gpu=lambda now: TOTAL * (0.05 if now < 25 else 0.9),
        busy=lambda now: 0.4 + 0.4 * math.sin(now / 90) ** 2,
        read=lambda now: 1e9 * min(now, 60.0),
    ),
    "a caching allocator takes another 2 GiB now and then, up to 95 %": training(
        gpu=lambda now: min(0.95 * TOTAL, 0.6 * TOTAL + 2 * GIB * math.floor(now / 150))
    ),
    "a cache of KV blocks that breathes between 82 and 94 %": training(
        gpu=lambda now: TOTAL * (0.88 - 0.06 * math.cos(now / 95))
    ),
    "a GPU shared with a second process that comes for a while": training(
        gpu=lambda now: TOTAL * (0.6 + (0.33 if 900 < now < 1500 else 0.0))
    ),
    "a 429 now and then, each waited out": training(rate_limited=lambda now: math.floor(now / 25)),
    "a slow loader: the GPU waits half of the time": training(busy=lambda now: 0.9 if now % 20 < 9 else 0.0),
}


QUICK = frozenset({"an hour of training", "a slow loader: the GPU waits half of the time"})


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in HEALTHY]
)
def test_nobody_is_told_anything(night: Any, name: str) -> None:
    tonight = night(GROUPS, tick=10.0)

    assert tonight.live(HEALTHY[name], 900 if name in QUICK else 2400) == []


FAST = ["memory", "memory-gpu", "processes", "checkpoints", "gpu", "disk", "logs", "apis"]


@pytest.mark.parametrize("seconds", [2.0, -2.0, 60.0])
def test_a_step_of_the_clock_is_no_event(night: Any, seconds: float) -> None:
    tonight = night(FAST)
    assert tonight.live(training(), 60) == []
    tonight.jump(seconds)

    assert tonight.live(training(start=tonight.start), 90) == []


@pytest.mark.parametrize("hours", [9.0, pytest.param(0.5, marks=pytest.mark.slow)])
def test_a_laptop_asleep_overnight_is_asked_for_nothing_when_it_wakes(night: Any, hours: float) -> None:
    """The last checkpoint is nine hours old by the wall clock, and the job has worked for ten minutes since."""
    tonight = night(GROUPS, tick=10.0)
    assert tonight.live(training(), 600) == []
    tonight.jump(hours * 3600)

    assert tonight.live(training(start=tonight.start, asleep=hours * 3600), 600) == []
    assert [change for change in tonight.changes if change.firing] == []


def test_a_job_that_writes_no_checkpoint_is_asked_in_its_own_time(night: Any) -> None:
    """The sleep is not counted, the work before and after it is."""
    tonight = night(["checkpoints"], tick=5.0)
    world = training()

    def without(now: float) -> Any:
        seen = world(now)
        seen[MONEY, ("train",)] = {"job_at_risk_seconds": 1500.0 + now}
        seen[CHECKPOINT, ("train",)] |= {"checkpoint_last_timestamp_seconds": tonight.start - 1500 - 9 * 3600}
        return seen

    told = tonight.live(without, 600)

    assert [(rule, state) for rule, state, _ in told] == [("CheckpointStale", "firing")]
    assert 300 < told[0][2] < 320


class _Quiet:
    """Logs that say nothing."""

    def last_output(self, job_id: str) -> float | None:
        return None

    def progress(self, job_id: str) -> tuple[int | None, float | None]:
        return None, None


def test_time_asleep_is_no_work_at_risk() -> None:
    board = Board()
    whole = Checkpoint("/c/1", CheckpointState.COMPLETE, 1000.0, 1)
    books = Books(Counters(), board, _Quiet(), lambda job: whole)  # type: ignore[arg-type]
    job = Job(
        id="j-1", name="train", uid=0, owner="root", spec=JobSpec(("true",), "/"), state=JobState.RUNNING, created=0.0,
        attempt_started=0.0,
    )  # fmt: skip

    def at_risk(at: float, monotonic: float) -> float:
        books.tick([job], at, 0.0, monotonic)
        (batch,) = [each for each in board.collect(at) if each.family is MONEY]
        return float(batch.rows()["train",]["job_at_risk_seconds"] or 0.0)

    assert at_risk(1100.0, 50.0) == 100
    assert at_risk(1102.0, 52.0) == 102
    assert at_risk(30_104.0, 54.0) == 104, "the machine slept for eight hours"
    assert at_risk(30_106.0, 56.0) == 106
    assert at_risk(30_105.0, 58.0) == 108, "and NTP has put the clock back"
