"""Jobs' logs and checkpoints, read with the real tails, patterns and counters."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from sentinel.collectors.counters import Counters
from sentinel.collectors.jobcheckpoints import JobCheckpoints
from sentinel.collectors.joblogs import JobLogs
from sentinel.logs.classify import Classifier
from sentinel.logs.patterns import load
from sentinel.model.checkpoints import Checkpoint
from sentinel.model.families import LOG, LOG_VOLUME
from sentinel.model.jobs import CheckpointDir, Job, JobSpec
from sentinel.model.logs import LogEvent, LogKind
from sentinel.paths import shipped

PATTERNS = load(sorted((shipped("rules") / "patterns").glob("*.yaml")))


class House:
    """One job, its log, and what was told of it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.log = root / "log"
        self.now = 1_800_000_000.0
        self.jobs = [Job("j1", "train", 0, "root", JobSpec(("train",), "/"), output=(str(self.log),))]
        self.counters = Counters()
        self.told: list[LogEvent] = []
        self.logs = self.begin()

    def begin(self) -> JobLogs:
        return JobLogs(
            lambda: self.jobs,
            Classifier(PATTERNS),
            self.counters,
            lambda job, events: self.told.extend(events),
            self.root / "tails.json",
            lambda: self.now,
        )

    def count(self, kind: LogKind) -> float:
        return self.counters.value(LOG, ("train", kind.value), "log_events_total")


def test_every_kind_is_counted_from_zero(tmp_path: Path) -> None:
    house = House(tmp_path)
    house.log.write_text("HTTP/1.1 429 Too Many Requests\nstep 429\nHTTP/1.1 429 Too Many Requests\n")

    house.logs.look()

    assert house.count(LogKind.RATE_LIMITED) == 2
    assert house.count(LogKind.GPU_OOM) == 0
    assert house.counters.value(LOG_VOLUME, ("train",), "log_lines_total") == 3
    assert [(event.line_number, event.count) for event in house.told] == [(1, 2)]
    assert house.logs.last_output("j1") == house.now


def test_a_bar_that_never_ends_its_line_tells_the_step(tmp_path: Path) -> None:
    house = House(tmp_path)
    with house.log.open("a") as log:
        log.write("start\n\r  1%|          | 10/1000 [00:01<01:00]\r  2%|          | 20/1000 [00:02<01:00]")
    house.logs.look()
    assert house.logs.progress("j1") == (20, house.now)

    house.now += 60
    with house.log.open("a") as log:
        log.write("\r  2%|          | 20/1000 [01:02<01:00]")
    house.logs.look()
    assert house.logs.progress("j1") == (20, house.now - 60)


def test_a_loss_that_stays_nan_is_said_once(tmp_path: Path) -> None:
    house = House(tmp_path)
    house.log.write_text("".join(f"step {step} loss nan\n" for step in range(1, 6)))

    house.logs.look()
    house.logs.look()

    assert [event.pattern for event in house.told] == ["not-a-number", "loss-stays-nan"]
    assert house.count(LogKind.NUMERIC_ANOMALY) == 5


def test_a_restart_neither_loses_nor_repeats_a_line(tmp_path: Path) -> None:
    house = House(tmp_path)
    house.log.write_text("CUDA out of memory\n")
    house.logs.look()
    house.logs.close()

    with house.log.open("a") as log:
        log.write("CUDA out of memory\n")
    house.logs = house.begin()
    house.logs.look()

    assert [event.line_number for event in house.told] == [1, 2]


def test_the_last_words_are_read_when_the_job_ends(tmp_path: Path) -> None:
    house = House(tmp_path)
    house.logs.look()
    house.log.write_text('Traceback (most recent call last):\n  File "a.py", line 1\n')

    (last,) = house.logs.drain(house.jobs[0])

    assert last.kind is LogKind.TRACEBACK
    house.jobs = []
    house.logs.look()
    assert house.logs.last_events("j1") == [last]


def test_an_adopted_process_is_read_from_now_on(tmp_path: Path) -> None:
    house = House(tmp_path)
    house.jobs = [replace(house.jobs[0], adopted=True)]
    house.log.write_text("CUDA out of memory\n")

    house.logs.look()

    assert house.told == []


def test_checkpoints_of_the_job_are_told_and_measured(tmp_path: Path) -> None:
    told: list[Checkpoint] = []
    job = Job("j1", "train", 0, "root", JobSpec(("x",), "/", checkpoints=(CheckpointDir(str(tmp_path), 60.0),)))
    now = 1_800_000_000.0
    clock = [now]
    collector = JobCheckpoints(lambda: [job], Counters(), lambda job, found: told.append(found), lambda: clock[0])
    (batch,) = collector.collect(now)
    assert batch.rows()["train",].keys() == {
        "checkpoint_interval_target_seconds", "checkpoint_free_bytes", "checkpoint_free_inodes",
        "checkpoint_kept", "checkpoint_look_seconds",
    }  # fmt: skip

    (tmp_path / "state-7.json").write_text('{"step": 7}')
    clock[0] += 1
    (batch,) = collector.collect(now + 1)

    assert [found.step for found in told] == [7]
    assert batch.rows()["train",]["checkpoint_last_step"] == 7
    newest = collector.newest("j1")
    assert newest is not None
    assert newest.path.endswith("state-7.json")
