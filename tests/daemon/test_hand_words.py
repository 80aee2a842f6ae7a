"""What hands and daemon say to each other, without any process: nothing is lost, done twice or believed too far."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from sentinel.clock import ManualClock
from sentinel.collectors.counters import Counters
from sentinel.collectors.jobcheckpoints import JobCheckpoints
from sentinel.collectors.joblogs import JobLogs
from sentinel.daemon import handwords, remotehand
from sentinel.daemon.handwire import Habits, Left, Look, Orders, Report, Result
from sentinel.daemon.handwork import condensed
from sentinel.daemon.lookout import TOLD_FOR_S, Lookout
from sentinel.daemon.remotehand import RemoteHands
from sentinel.daemon.remotemail import GRACE_S, UNTAKEN_S, Couriers, RemoteMail
from sentinel.jobs.link import Attempt, Registration
from sentinel.logs.classify import Classifier
from sentinel.model.checkpoints import Checkpoint, CheckpointState
from sentinel.model.families import CHECKPOINTS, LOG
from sentinel.model.jobs import CheckpointDir, Job, JobSpec, JobState, ProcessId
from sentinel.model.journal import Record
from sentinel.model.logs import LogEvent, LogKind
from sentinel.model.requests import Delivery, Outcome
from sentinel.model.wire import decode, encode
from sentinel.notify.ports import Parcel, Receipt

NOW = 1_800_000_000.0
US, ALICE = 0, 1000
LIMITED = LogEvent(LogKind.RATE_LIMITED, "HTTP 429 Too Many Requests")
OOM = LogEvent(LogKind.GPU_OOM, "CUDA out of memory")


def job(uid: int = ALICE, **changes: object) -> Job:
    spec = JobSpec(("train",), "/", checkpoints=(CheckpointDir("/ckpt"),), notify=("json://here/",))
    fields: dict[str, object] = {"state": JobState.RUNNING, "root": ProcessId(4711, 1, "boot"), **changes}
    return Job("j1", "train", uid, "alice", spec, **fields)  # type: ignore[arg-type]


class Desk:
    """The daemon's side of hands, and what it makes of them."""

    def __init__(self, directory: Path) -> None:
        self.clock = ManualClock(NOW)
        self.counters = Counters()
        self.said: list[LogEvent] = []
        self.seen: list[Checkpoint] = []
        self.journal: list[tuple[str, Mapping[str, object]]] = []
        self.waiting = 0
        self.job = job()
        self.logs = JobLogs(
            tuple, Classifier(()), self.counters, lambda _, events: self.said.extend(events), directory / "tails.json"
        )
        own = JobCheckpoints(tuple, self.counters, lambda *_: None)
        self.lookout = Lookout(own, self.counters, lambda _, found: self.seen.append(found), self.clock.now)
        self.mail = RemoteMail(30.0, self.clock.monotonic)
        self.hands = self.born()

    def born(self) -> RemoteHands:
        return RemoteHands(
            self.logs, self.lookout, self.mail, self, clock=self.clock, uid=US, habits=Habits(("/etc/p.yaml",)),
            find=lambda name: self.job if name == self.job.id else None, waiting_for=lambda _: self.waiting,
        )  # fmt: skip

    def append(self, kind: str, data: Mapping[str, object]) -> None:
        self.journal.append((kind, data))

    def hears(self, report: Report) -> Orders:
        """Over the wire and back."""
        said = decode(Report, encode(report))
        return decode(Orders, encode(self.hands.report(self.job, said)))

    def count(self, kind: LogKind) -> float:
        return self.counters.value(LOG, ("train", kind.value), "log_events_total")


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    made = Desk(tmp_path)
    yield made
    made.logs.close()


# What is measured


def test_a_report_that_is_said_again_counts_once(desk: Desk) -> None:
    report = Report("h1", 1, events=(LIMITED, OOM), lines=7, size_bytes=70, output_at=NOW - 1)

    desk.hears(report)
    desk.hears(report)
    desk.hears(Report("h1", 2, events=(LIMITED,)))

    assert (desk.count(LogKind.RATE_LIMITED), desk.count(LogKind.GPU_OOM)) == (2, 1)
    assert [found.kind for found in desk.said] == [LogKind.RATE_LIMITED, LogKind.GPU_OOM, LogKind.RATE_LIMITED]
    assert desk.logs.last_output("j1") == NOW - 1
    assert [found.kind for found in desk.logs.last_events("j1")] == [found.kind for found in desk.said]


def test_what_was_said_before_the_daemon_was_there_is_evidence_and_not_counted(desk: Desk) -> None:
    desk.hears(Report("h1", 9, recent=(OOM,)))

    assert desk.count(LogKind.GPU_OOM) == 0
    assert [found.line for found in desk.logs.last_events("j1")] == ["CUDA out of memory"]


def test_nothing_more_is_measured_of_a_job_that_has_ended(desk: Desk) -> None:
    desk.hears(Report("h1", 1, events=(OOM,)))
    desk.job = job(state=JobState.FAILED, ended=NOW)

    desk.hears(Report("h1", 2, events=(OOM,), look=Look({"checkpoint_last_step": 3.0})))

    assert desk.count(LogKind.GPU_OOM) == 1
    assert not desk.lookout.collect(NOW)


def test_checkpoints_that_a_hand_has_seen_are_measured_until_it_falls_silent(desk: Desk) -> None:
    whole = Checkpoint("/ckpt/step-7", CheckpointState.COMPLETE, NOW - 5, 10, 7)
    desk.hears(Report("h1", 1, look=Look({"checkpoint_last_step": 7.0, "no_such_metric": 1.0}, whole, (whole,))))

    (batch,) = desk.lookout.collect(NOW)
    assert batch.rows() == {("train",): {"checkpoint_last_step": 7.0}}
    assert desk.seen == [whole]
    assert desk.lookout.newest("j1") == whole
    assert desk.counters.value(CHECKPOINTS, ("train", "complete"), "checkpoints_total") == 1

    desk.clock.advance(TOLD_FOR_S)
    (dark,) = desk.lookout.collect(NOW + TOLD_FOR_S)
    assert (dark.rows(), dark.covers) == ({}, (("train",),))


def test_a_storm_is_condensed_to_a_few_records_and_the_counts_stay_exact() -> None:
    storm = [*[LIMITED] * 1000, OOM, *[LIMITED] * 500]

    kept = condensed(condensed(storm))

    assert len(kept) == 6
    assert sum(found.count for found in kept if found.kind is LogKind.RATE_LIMITED) == 1500
    assert kept[-1] == OOM


def test_what_a_hand_says_is_bounded_cleaned_and_masked() -> None:
    hostile = LogEvent(
        LogKind.GPU_OOM, "\x1b[31mtoken=sk-proj-abcdefghijklmnopqrstuvwx " + "x" * 9000,
        fields={"deep": {"a": 1}, "n": float("inf"), "ok": 3}, count=10**30, context=("y" * 9000,) * 999,
    )  # fmt: skip

    (found,) = handwords.events([hostile])

    assert "\x1b" not in found.line
    assert "sk-proj" not in found.line
    assert len(found.line) <= 4096
    assert found.fields == {"ok": 3}
    assert found.count <= 10**12
    assert len(found.context) <= 20
    assert handwords.moment(NOW + 999, NOW) == NOW
    assert handwords.moment(float("nan"), NOW) is None
    assert handwords.look(Look({"checkpoint_last_step": float("nan")}), NOW).row == {}
    assert handwords.delivery(Delivery(Outcome.DONE, "fine", (1, 2))).pids == ()


# What is asked


async def test_an_errand_is_given_until_it_is_taken_and_answered_once(desk: Desk) -> None:
    hand = desk.hands.of(desk.job)
    desk.hears(Report("h1", 1))
    under_way = asyncio.create_task(hand.execute(["touch", "/a b"], {"id": "r"}, cwd="/", timeout_s=30.0))
    await asyncio.sleep(0)

    (errand,) = desk.hears(Report("h1", 2)).errands
    assert desk.hears(Report("h1", 3)).errands == (errand,)
    assert errand.target == "touch '/a b'"
    assert desk.hears(Report("h1", 4, taken=(errand.id,))).errands == ()
    desk.hears(Report("h1", 5, results=(Result(errand.id, Delivery(Outcome.DONE, "ended with 0")),)))
    desk.hears(Report("h1", 6, results=(Result(errand.id, Delivery(Outcome.FAILED)),)))

    assert await under_way == Delivery(Outcome.DONE, "ended with 0")


async def test_an_errand_of_a_hand_that_was_killed_is_not_given_to_the_next(desk: Desk) -> None:
    under_way = asyncio.create_task(desk.hands.of(desk.job).file("/ask", {"id": "r"}, timeout_s=30.0))
    await asyncio.sleep(0)
    (errand,) = desk.hears(Report("h1", 1)).errands
    desk.hears(Report("h1", 2, taken=(errand.id,)))

    assert desk.hears(Report("h2", 1)).errands == ()

    answer = await under_way
    assert answer.outcome is Outcome.FAILED
    assert "whether it was done is not known" in answer.detail


async def test_where_no_hand_comes_nothing_is_done(desk: Desk) -> None:
    answer = await desk.hands.of(desk.job).http("http://here/", {"id": "r"}, timeout_s=0.05)

    assert answer.outcome is Outcome.FAILED
    assert answer.detail.startswith("nothing was done: no hand of alice's is there")


# How it ends


async def test_the_end_waits_for_the_last_words_and_not_for_a_silent_hand(desk: Desk) -> None:
    assert not desk.hands.is_awaited(desk.job)  # nobody has promised anything
    desk.hands.promise(desk.job)
    assert desk.hands.is_awaited(desk.job)
    desk.hears(Report("h1", 1, drained=1))

    ending = asyncio.create_task(desk.hands.last_words(desk.job))
    await asyncio.sleep(0.01)
    assert not ending.done()  # what it had read before the end is not the end
    assert desk.hears(Report("h1", 2)).drain
    desk.hears(Report("h1", 3, events=(OOM,), drained=1, left=Left(1, 3, None, NOW)))
    await asyncio.wait_for(ending, 2.0)

    assert desk.count(LogKind.GPU_OOM) == 1
    assert desk.hands.left(desk.job) == (3, None, NOW)
    assert desk.hands.left(job(attempt=2)) is None

    desk.job = job(attempt=2)  # it is tried again: that one is not over
    assert not desk.hears(Report("h1", 4, drained=1)).drain
    assert desk.hands.is_awaited(desk.job)
    assert desk.hears(Report("h1", 5, drained=1)).drain
    desk.hears(Report("h1", 6, drained=2))
    assert not desk.hands.is_awaited(desk.job)
    desk.clock.advance(remotehand.SILENT_S)
    assert not desk.hands.is_awaited(job(attempt=3))


def test_a_hand_goes_when_its_job_is_over_and_all_is_delivered(desk: Desk) -> None:
    desk.waiting = 1
    assert not desk.hears(Report("h1", 1)).over
    desk.job = job(state=JobState.FAILED, ended=NOW)
    assert not desk.hears(Report("h1", 2)).over

    desk.waiting = 0
    assert desk.hears(Report("h1", 3)).over

    desk.waiting = 1
    desk.clock.advance(remotehand.STAYS_S + 1)
    assert desk.hears(Report("h1", 4)).over


def test_which_jobs_have_a_hand_survives_a_restart(desk: Desk) -> None:
    assert not desk.hands.serves("j1")
    desk.hears(Report("h1", 1))
    desk.hears(Report("h1", 2))
    assert desk.journal == [("hand", {"job": "j1"})]

    again = desk.born()
    for seq, (kind, data) in enumerate(desk.hands.snapshot()):
        again.fold(Record(seq, NOW, kind, dict(data)))

    assert again.serves("j1")
    assert not again.is_awaited(desk.job)
    again.recover([desk.job])
    assert again.is_awaited(desk.job)


def test_habits_are_told_to_a_new_hand_only(desk: Desk) -> None:
    assert desk.hears(Report("h1", 1)).habits == Habits(("/etc/p.yaml",))
    assert desk.hears(Report("h1", 2)).habits is None
    assert desk.hears(Report("h2", 1)).habits is not None


# Messages


class Ours:
    """A courier that delivers at once."""

    def __init__(self) -> None:
        self.carried: list[str] = []

    def exchange(self, parcels: list[Parcel], wait_s: float) -> list[Receipt]:
        self.carried += [parcel.id for parcel in parcels]
        return [Receipt(parcel.id, delivered=True) for parcel in parcels]

    def check(self, urls: list[str]) -> list[str | None]:
        return [None for _ in urls]

    def close(self) -> None:
        return


def parcel(name: str, job_id: str | None) -> Parcel:
    return Parcel(name, "json://here/", "title", "body", "info", job_id)


def test_messages_to_an_owners_addresses_go_by_the_owners_hand_and_by_nobody_elses(desk: Desk) -> None:
    ours = Ours()
    couriers = Couriers(ours, desk.mail, lambda job_id: job_id == "j1")  # type: ignore[arg-type]

    receipts = couriers.exchange([parcel("a", "j1"), parcel("b", None), parcel("c", "mine")], 0.0)
    assert ([receipt.id for receipt in receipts], ours.carried) == (["b", "c"], ["b", "c"])

    assert [each.id for each in desk.hears(Report("h1", 1)).parcels] == ["a"]
    desk.mail.receipts_of("j2", [Receipt("a", delivered=True)])  # another job's hand has no say
    assert desk.hears(Report("h1", 2, taken=("a",))).parcels == ()
    assert couriers.exchange([], 0.0) == []
    desk.hears(Report("h1", 3, receipts=(Receipt("a", delivered=True),)))
    assert couriers.exchange([], 0.0) == [Receipt("a", delivered=True)]


def test_a_message_that_no_hand_carries_comes_back(desk: Desk) -> None:
    desk.mail.put([parcel("a", "j1"), parcel("b", "j1"), parcel("c", "j1")])
    desk.hears(Report("h1", 1, taken=("a", "b")))
    desk.clock.advance(UNTAKEN_S + 1)
    assert [(each.id, each.delivered) for each in desk.mail.receipts(0.0)] == [("c", False)]

    desk.hears(Report("h1", 2, receipts=(Receipt("b", delivered=False, error="refused"),)))
    assert [each.error for each in desk.mail.receipts(0.0)] == ["refused"]

    desk.clock.advance(30.0 + GRACE_S)
    assert [each.id for each in desk.mail.receipts(0.0)] == ["a"]

    desk.mail.put([parcel("d", "j1")])
    desk.hears(Report("h1", 3, taken=("d",)))
    desk.hears(Report("h2", 1))
    assert [each.error for each in desk.mail.receipts(0.0)] == ["the owner's hand ended before it could say"]


def test_a_registration_says_whose_hand_is_needed() -> None:
    assert Registration("j", "train").hand == ""  # a daemon that does not say so needs none
    assert Attempt(1, ProcessId(1, 1, "b"), 1, ()).master == -1
