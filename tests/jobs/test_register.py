"""The register: names, the journal, what is told, and a restart."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from sentinel.clock import ManualClock
from sentinel.errors import SentinelError
from sentinel.jobs.failures import Evidence
from sentinel.jobs.naming import default_name
from sentinel.jobs.register import Register, UnknownJob
from sentinel.model.events import Event, Severity
from sentinel.model.jobs import Job, JobSpec, JobState, ProcessId
from sentinel.model.journal import JournalUnavailable, Record
from sentinel.model.logs import LogEvent, LogKind

ROOT, SUPERVISOR = ProcessId(100, 5, "b"), ProcessId(99, 4, "b")


class Paper:
    """A journal on paper, and whoever listens."""

    def __init__(self) -> None:
        self.records: list[tuple[str, dict[str, Any]]] = []
        self.events: list[Event] = []
        self.full = False

    def append(self, kind: str, data: Mapping[str, object]) -> None:
        if self.full:
            raise JournalUnavailable("the disk is full")
        self.records.append((kind, dict(data)))

    def kinds(self) -> list[str]:
        return [event.kind for event in self.events]


def a_register(paper: Paper, evidence: Evidence | None = None) -> Register:
    return Register(
        paper,
        paper.events.append,
        ManualClock(),
        directory=Path("/state"),
        evidence=lambda _: evidence or Evidence(),
    )


def enter(register: Register, name: str = "", supervisor: ProcessId | None = SUPERVISOR, uid: int | None = None) -> Job:
    spec = JobSpec(argv=("python", "train.py"), cwd="/", name=name)
    return register.register(spec, uid=os.getuid() if uid is None else uid, owner="me", supervisor=supervisor).job


def started(register: Register, **more: Any) -> Job:
    job = enter(register, **more)
    return register.attempt_started(job.id, attempt=1, root=ROOT, pgid=100, output=("/log",))


def test_each_living_job_has_a_name_of_its_own() -> None:
    register = a_register(Paper())
    names = [enter(register, supervisor=ProcessId(number, 1, "b")).name for number in range(3)]

    assert names == ["train", "train-2", "train-3"]


def test_a_name_is_free_again_when_its_job_has_ended() -> None:
    register = a_register(Paper())
    first = started(register)
    register.attempt_ended(first.id, attempt=1, exit_code=0, exit_signal=None, at=1.0)

    second = enter(register, supervisor=ProcessId(1, 1, "b"))

    assert second.name == "train"
    assert register.find("train") == second
    assert register.find(first.id) is not None


def test_a_supervisor_that_comes_again_gets_its_job_again() -> None:
    register = a_register(Paper())
    job = started(register)

    again = register.register(job.spec, uid=0, owner="me", supervisor=SUPERVISOR)

    assert (again.job.id, again.again) == (job.id, True)
    assert register.attempt_started(job.id, attempt=1, root=ROOT, pgid=100, output=("/log",)) == job


def test_a_process_is_adopted_once() -> None:
    register = a_register(Paper())
    spec = JobSpec(argv=("x",), cwd="/")
    register.register(spec, uid=0, owner="me", adopt=ROOT)

    with pytest.raises(SentinelError, match="process 100 is job 'x' already"):
        register.register(spec, uid=0, owner="me", adopt=ROOT)


def test_the_life_of_a_job_is_written_down_then_told() -> None:
    paper = Paper()
    register = a_register(paper)
    job = started(register)
    register.paused(job.id, "user:me")
    register.resumed(job.id, "user:me")
    register.stopping(job.id, "rule:x")
    ended = register.attempt_ended(job.id, attempt=1, exit_code=None, exit_signal=15, at=7.0)

    assert paper.kinds() == [
        "job.starting", "job.running", "job.paused", "job.running", "job.stopping", "job.stopped",
    ]  # fmt: skip
    assert [data["state"] for _, data in paper.records] == [kind.removeprefix("job.") for kind in paper.kinds()]
    assert (ended.exit_signal, ended.ended, ended.cause) == (15, 7.0, "ended by SIGTERM")


def test_an_end_that_is_told_twice_is_one_end() -> None:
    paper = Paper()
    register = a_register(paper)
    job = started(register)
    first = register.attempt_ended(job.id, attempt=1, exit_code=1, exit_signal=None, at=1.0)

    assert register.attempt_ended(job.id, attempt=1, exit_code=0, exit_signal=None, at=2.0) == first
    assert paper.kinds().count("job.failed") == 1


def test_a_failure_says_why_with_the_last_decisive_line() -> None:
    paper = Paper()
    evidence = Evidence([LogEvent(LogKind.GPU_OOM, "torch.OutOfMemoryError: tried to allocate 2 GiB")])
    register = a_register(paper, evidence)
    register.attempt_ended(started(register).id, attempt=1, exit_code=1, exit_signal=None, at=1.0)

    last = paper.events[-1]
    assert last.severity is Severity.WARNING
    assert last.message == (
        "train: ran out of GPU memory (exit code 1): torch.OutOfMemoryError: tried to allocate 2 GiB"
    )


def test_after_a_restart_everything_is_as_it_was() -> None:
    paper = Paper()
    register = a_register(paper)
    job = started(register)
    register.set_degrade_level(job.id, 1)
    enter(register, name="other", supervisor=ProcessId(5, 5, "b"))

    again = a_register(Paper())
    for seq, (kind, data) in enumerate(paper.records):
        again.fold(Record(seq, 0.0, kind, data))

    assert again.living() == register.living()
    assert dict(again.snapshot()) == dict(register.snapshot())


def test_a_full_disk_keeps_no_job_out_and_is_said_once() -> None:
    paper = Paper()
    paper.full = True
    register = a_register(paper)

    job = started(register)

    assert job.state is JobState.RUNNING
    assert paper.kinds().count("store.journal_unavailable") == 1


def test_a_lost_supervisor_is_told_once_and_the_job_goes_on() -> None:
    paper = Paper()
    register = a_register(paper)
    job = started(register)

    adopted = register.supervisor_lost(job.id)
    register.supervisor_lost(job.id)

    assert (adopted.adopted, adopted.supervisor, adopted.state) == (True, None, JobState.RUNNING)
    assert paper.kinds().count("sentinel.supervisor_lost") == 1


def test_the_daemon_chooses_no_directory_for_somebody_else() -> None:
    register = a_register(Paper())
    spec = JobSpec(argv=("x",), cwd="/")

    mine = register.register(spec, uid=os.getuid(), owner="me")
    theirs = register.register(spec, uid=os.getuid() + 1, owner="you")

    assert mine.directory == f"/state/jobs/{mine.job.id}"
    assert theirs.directory == ""


def test_an_unknown_job_is_said() -> None:
    with pytest.raises(UnknownJob, match="there is no job 'x'"):
        a_register(Paper()).paused("x", "user:me")


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("python train.py --lr 3", "train"),
        ("/usr/bin/python3 -u src/finetune.py", "finetune"),
        ("torchrun --nproc-per-node 8 train_ddp.py", "train_ddp"),
        ("python -m torch.distributed.run train.py", "train"),
        ("python -m axolotl.cli.train config.yml", "train"),
        ("bash run.sh", "run"),
        ("./simulate", "simulate"),
        ("python -c print()", "python"),
        ("env A=1 ./my.script", "env"),
    ],
)
def test_a_job_without_a_name_is_called_after_its_script(command: str, name: str) -> None:
    assert default_name(tuple(command.split())) == name
