"""Jobs' checkpoints are noticed at once, and a mount that hangs blinds nobody else."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from sentinel.collectors.counters import Counters
from sentinel.collectors.jobcheckpoints import JobCheckpoints
from sentinel.model.checkpoints import Checkpoint, CheckpointState
from sentinel.model.families import CHECKPOINT
from sentinel.model.jobs import CheckpointDir, Job, JobSpec, JobState
from sentinel.model.series import Batch


def until(what: Callable[[], bool], seconds: float = 10.0) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def job(place: Path, name: str = "train", **spec: int) -> Job:
    spec_made = JobSpec(("train",), "/", checkpoints=(CheckpointDir(str(place), 60.0),), **spec)  # type: ignore[arg-type]
    return Job(f"id-{name}", name, os.getuid(), "me", spec_made, JobState.RUNNING)


def value(batch: Batch, name: str, metric: str) -> float:
    column = next(index for index, each in enumerate(CHECKPOINT.metrics) if each.name == metric)
    return float(batch.columns[column][list(batch.labels).index((name,))])


class Desk:
    """A collector over some jobs, and what it tells."""

    def __init__(self, *jobs: Job) -> None:
        self.jobs = list(jobs)
        self.told: list[Checkpoint] = []
        self.counters = Counters(tick_s=2.0)
        self.collector = JobCheckpoints(lambda: self.jobs, self.counters, lambda _, found: self.told.append(found))

    def close(self) -> None:
        self.jobs = []
        self.collector.collect(time.time())


def test_what_was_there_before_is_known_but_not_told(tmp_path: Path) -> None:
    (tmp_path / "step-7.bin").write_bytes(b"x" * 100)
    os.utime(tmp_path / "step-7.bin", (time.time() - 60,) * 2)
    desk = Desk(job(tmp_path))

    (batch,) = desk.collector.collect(time.time())

    assert value(batch, "train", "checkpoint_last_step") == 7
    assert value(batch, "train", "checkpoint_next_size_bytes") == 100
    assert value(batch, "train", "checkpoint_kept") == 1
    assert desk.told == []
    desk.close()


def test_before_the_first_one_the_declared_size_is_what_the_next_will_need(tmp_path: Path) -> None:
    desk = Desk(job(tmp_path, checkpoint_size_bytes=5000))

    (batch,) = desk.collector.collect(time.time())

    assert value(batch, "train", "checkpoint_next_size_bytes") == 5000
    assert value(batch, "train", "checkpoint_last_size_bytes") != value(batch, "train", "checkpoint_last_size_bytes")
    desk.close()


def test_an_atomic_rename_is_noticed_within_a_moment(tmp_path: Path) -> None:
    desk = Desk(job(tmp_path))
    desk.collector.collect(time.time())
    waits = []
    for step in range(5):
        (tmp_path / f".step-{step}.tmp").write_bytes(b"x" * 1000)
        time.sleep(0.15)
        before = time.monotonic()
        os.replace(tmp_path / f".step-{step}.tmp", tmp_path / f"step-{step}.bin")
        until(lambda count=step + 1: len(desk.told) >= count)  # type: ignore[misc]
        waits.append(time.monotonic() - before)

    assert sorted(waits)[2] < 0.3
    assert [found.step for found in desk.told] == [0, 1, 2, 3, 4]
    desk.close()


def test_a_place_that_hangs_blinds_no_other_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    good, bad = tmp_path / "good", tmp_path / "bad"
    good.mkdir()
    bad.mkdir()
    released, hung = threading.Event(), threading.Event()
    real = os.stat

    def stat(path: str, **options: bool) -> os.stat_result:
        if str(path).startswith(str(bad)) and threading.current_thread().name.startswith("checkpoints"):
            hung.set()
            released.wait(20)
        return real(path, **options)

    desk = Desk(job(good, "good"), job(bad, "bad"))
    monkeypatch.setattr("sentinel.checkpoints.listing.os.stat", stat)  # a mount that hangs cannot be made here
    began = time.monotonic()
    (batch,) = desk.collector.collect(time.time())
    assert hung.is_set()
    (batch,) = desk.collector.collect(time.time())

    assert time.monotonic() - began < 5
    assert value(batch, "good", "checkpoint_kept") == 0
    assert value(batch, "bad", "checkpoint_look_seconds") > 0.4
    released.set()
    until(lambda: value(desk.collector.collect(time.time())[0], "bad", "checkpoint_kept") == 0)
    desk.close()


def test_a_job_that_ended_is_looked_at_no_more(tmp_path: Path) -> None:
    desk = Desk(job(tmp_path, "passing"))
    desk.collector.collect(time.time())

    desk.close()

    until(lambda: not any(thread.name == "checkpoints passing" for thread in threading.enumerate()))
    assert desk.collector.newest("id-passing") is None


def test_what_the_hand_of_another_user_has_seen_is_told_as_if_we_had(tmp_path: Path) -> None:
    desk = Desk()
    found = Checkpoint(str(tmp_path / "step-3.pt"), CheckpointState.COMPLETE, 1000.0, 10, 3)
    foreign = job(tmp_path, "foreign")

    desk.collector.take(foreign, (1000.0, 10.0, *(None,) * (len(CHECKPOINT.metrics) - 2)), found, [found])
    (batch,) = desk.collector.collect(time.time())

    assert value(batch, "foreign", "checkpoint_last_timestamp_seconds") == 1000.0
    assert desk.told == [found]
    assert desk.collector.newest("id-foreign") == found
    desk.collector.forget("id-foreign")
    (batch,) = desk.collector.collect(time.time())
    assert batch.rows() == {}
    desk.close()


def test_a_state_that_is_saved_at_every_turn_is_told_now_and_then(tmp_path: Path) -> None:
    desk = Desk(job(tmp_path))
    desk.collector.collect(time.time())
    for turn in range(4):
        (tmp_path / ".state.tmp").write_text(f'{{"messages": [], "step": {turn}}}')
        os.replace(tmp_path / ".state.tmp", tmp_path / "state.json")
        until(lambda turn=turn: getattr(desk.collector.newest("id-train"), "step", None) == turn)  # type: ignore[misc]

    assert [found.step for found in desk.told] == [0]
    desk.close()
