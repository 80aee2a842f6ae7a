"""Collectors side by side: none waits for another, and none is awaited."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sentinel.clock import SystemClock
from sentinel.collectors.endangered import Watchlist
from sentinel.collectors.gpu_sources import SimulatedGpus
from sentinel.collectors.ports import Collector, JobSampler, Unavailable
from sentinel.collectors.schedule import DOWN_AFTER_TICKS, Schedule
from sentinel.collectors.settings import Settings
from sentinel.collectors.standard import standard
from sentinel.model.events import Event
from sentinel.model.families import HOST, JOB, SENTINEL_COLLECTOR
from sentinel.model.series import Batch, Entity, Family, Support
from tests.collectors.conftest import Started, eventually

FAST = Settings(interval_s=0.03, retry_s=0.05, fastest_s=0.005)
HEADROOM = [metric.name for metric in JOB.metrics].index("job_memory_headroom_bytes")


class Fake:
    """A collector that does what the test says."""

    families: tuple[Family, ...] = (HOST,)
    interval_s: float | None = None

    def __init__(self, name: str, act: Callable[[], None] = lambda: None) -> None:
        self.name = name
        self.act = act
        self.support = Support()
        self.passes = 0

    def supported(self) -> Support:
        return self.support

    def collect(self, at: float) -> Sequence[Batch]:
        self.passes += 1
        self.act()
        return (HOST.batch(at, {(): [1.0] * len(HOST.metrics)}),)


class FakeJobs(Fake):
    """One job whose headroom shrinks by `pace` bytes a second."""

    def __init__(self, pace: float) -> None:
        super().__init__("processes")
        self.pace = pace
        self.ahead = 0
        self.began: float | None = None
        self.ended = False

    def collect(self, at: float) -> Sequence[Batch]:
        self.passes += 1
        return (self._batch(at),)

    def collect_only(self, at: float, jobs: frozenset[str]) -> Sequence[Batch]:
        assert jobs == {"train"}
        self.ahead += 1
        return (self._batch(at),)

    def _batch(self, at: float) -> Batch:
        self.began = self.began or at
        values: list[float | None] = [None] * len(JOB.metrics)
        values[HEADROOM] = 1000.0 - self.pace * (at - self.began)
        rows: dict[Entity, list[float | None]] = {} if self.ended else {("train",): values}
        return JOB.batch(at, rows)


def wait_for(event: threading.Event) -> None:
    event.wait(30)


class Room:
    """A schedule, and all that came out of it."""

    def __init__(self) -> None:
        self.batches: list[Batch] = []
        self.events: list[Event] = []
        self.schedule: Schedule | None = None

    def run(
        self, *collectors: Collector, settings: Settings = FAST, jobs: JobSampler | None = None, start: bool = True
    ) -> Schedule:
        self.schedule = Schedule(collectors, self.batches.append, self.events.append, SystemClock(), settings, jobs)
        if start:
            self.schedule.start()
        return self.schedule

    def ups(self, name: str) -> list[float]:
        own = [batch.rows() for batch in list(self.batches) if batch.family is SENTINEL_COLLECTOR]
        return [rows[name,]["sentinel_collector_up"] for rows in own if (name,) in rows]

    def kinds(self) -> list[tuple[str, object]]:
        return [(event.kind, event.data["collector"]) for event in list(self.events)]


@pytest.fixture
def room() -> Iterator[Room]:
    made = Room()
    yield made
    if made.schedule is not None:
        made.schedule.stop()


def test_a_pass_comes_at_once_and_then_each_tick(room: Room) -> None:
    one, two = Fake("one"), Fake("two")
    schedule = room.run(one, two)
    eventually(lambda: one.passes >= 3 and two.passes >= 3)
    eventually(lambda: 1.0 in room.ups("one"))
    assert schedule.stop()
    done = one.passes
    times = [batch.at for batch in room.batches if batch.family is HOST]
    assert len(times) == one.passes + two.passes
    assert one.passes == done


def test_a_collector_that_hangs_is_marked_and_holds_up_nobody(room: Room) -> None:
    go_on = threading.Event()
    stuck, free = Fake("stuck", lambda: wait_for(go_on)), Fake("free")
    schedule = room.run(stuck, free)
    eventually(lambda: 0.0 in room.ups("stuck"))
    assert schedule.health()[0].seconds < 1.0, "marked by its next tick or the one after"
    eventually(lambda: ("collector.down", "stuck") in room.kinds())
    assert stuck.passes == 1, "skipped, not queued"
    assert free.passes > DOWN_AFTER_TICKS
    assert 0.0 not in room.ups("free")
    (down,) = [event for event in room.events if event.kind == "collector.down"]
    assert "has not come back for" in down.message
    assert not schedule.health()[0].up
    go_on.set()
    eventually(lambda: ("collector.up", "stuck") in room.kinds())
    assert room.ups("stuck")[-1] == 1.0
    assert [kind for kind, _ in room.kinds()] == ["collector.down", "collector.up"]


def test_a_fault_is_marked_told_once_and_stops_nothing(room: Room) -> None:
    def fail() -> None:
        raise OSError("no such luck")

    broken, fine = Fake("broken", fail), Fake("fine")
    room.run(broken, fine)
    eventually(lambda: broken.passes > 3 * DOWN_AFTER_TICKS)
    assert set(room.ups("broken")) == {0.0}
    downs = [event for event in room.events if event.kind == "collector.down"]
    assert [event.message for event in downs] == ["broken is not measured: OSError: no such luck"]
    assert fine.passes > DOWN_AFTER_TICKS


def test_one_bad_tick_is_in_the_series_and_no_event(room: Room) -> None:
    first = iter([True])

    def fail_once() -> None:
        if next(first, False):
            raise OSError("once")

    one = Fake("one", fail_once)
    schedule = room.run(one, start=False)
    schedule.keep_account(100.0)
    schedule.start()
    eventually(lambda: one.passes > 3)
    schedule.stop()
    assert room.events == []


def test_what_cannot_be_measured_says_so_once_and_is_tried_again(room: Room) -> None:
    gpu = Fake("gpu")
    gpu.support = Support(available=False, reason="no driver here", hint="install one")
    room.run(gpu)
    eventually(lambda: bool(room.events))
    eventually(lambda: sum(batch.family is SENTINEL_COLLECTOR for batch in room.batches) > 6)
    assert [event.message for event in room.events] == ["gpu is not measured: no driver here; install one"]
    assert room.events[0].severity == "info", "no GPU is not a warning"
    assert gpu.passes == 0
    assert room.ups("gpu") == []
    gpu.support = Support(off=("gpu_power_watts",))
    eventually(lambda: gpu.passes > 0)
    eventually(lambda: len(room.events) == 3)
    assert [kind for kind, _ in room.kinds()] == ["collector.unavailable", "collector.up", "collector.partial"]
    assert room.events[-1].message == "gpu: not here: gpu_power_watts"


def test_a_driver_that_went_away_is_not_a_fault(room: Room) -> None:
    gpu = Fake("gpu")
    room.run(gpu)
    eventually(lambda: 1.0 in room.ups("gpu"))

    def away() -> None:
        gpu.support = Support(available=False, reason="unloaded")
        raise Unavailable("unloaded")

    gpu.act = away
    eventually(lambda: ("collector.unavailable", "gpu") in room.kinds())

    def ended() -> bool:
        own = [batch for batch in list(room.batches) if batch.family is SENTINEL_COLLECTOR]
        return any(("gpu",) in batch.covers and ("gpu",) not in batch.labels for batch in own)

    eventually(ended)
    assert ("collector.down", "gpu") not in room.kinds()


def test_an_event_asks_for_a_pass_now(room: Room) -> None:
    slow = Fake("slow")
    slow.interval_s = 60.0
    schedule = room.run(slow)
    eventually(lambda: slow.passes == 1)
    schedule.poke("slow")
    schedule.poke("nobody")
    eventually(lambda: slow.passes == 2)


SLOW = Settings(interval_s=1.0, fastest_s=0.01)


def test_a_job_that_runs_out_of_memory_is_looked_at_ahead_of_the_tick(room: Room) -> None:
    jobs = FakeJobs(pace=100.0)  # ten seconds left
    schedule = room.run(jobs, settings=SLOW, jobs=jobs)
    eventually(lambda: jobs.ahead >= 3)
    assert jobs.passes <= jobs.ahead
    assert schedule.endangered() == ["train"]
    jobs.ended = True
    eventually(lambda: schedule.endangered() == [])
    times = [batch.at for batch in room.batches if batch.family is JOB]
    assert times == sorted(times)


def test_a_steady_job_is_not_until_somebody_asks(room: Room) -> None:
    jobs = FakeJobs(pace=0.0)
    schedule = room.run(jobs, settings=SLOW, jobs=jobs)
    eventually(lambda: jobs.passes == 2)
    assert jobs.ahead == 0
    schedule.endanger("train")
    eventually(lambda: jobs.ahead >= 3)
    schedule.calm("train")
    assert schedule.endangered() == []


def watch(*headroom: tuple[float, float], job: str = "train", settings: Settings | None = None) -> Watchlist:
    watchlist = Watchlist(settings or Settings())
    for at, left in headroom:
        watchlist.saw(at, {job: left})
    return watchlist


def test_two_looks_are_enough_to_see_the_end_coming() -> None:
    watchlist = watch((0, 600.0), (2, 560.0))
    assert watchlist.seconds_left("train") == 28
    assert watchlist.chosen() == {"train": pytest.approx(28 / 60)}


def test_what_grows_no_more_is_calm_within_ten_seconds() -> None:
    falling = [(float(at), 600.0 - 20 * at) for at in range(0, 11, 2)]
    flat = [(float(at), 400.0) for at in range(12, 23, 2)]
    watchlist = watch(*falling)
    assert watchlist.chosen()
    for at, left in flat:
        watchlist.saw(at, {"train": left})
    assert watchlist.chosen() == {}


def test_a_job_far_from_its_end_is_looked_at_on_the_tick() -> None:
    assert watch((0, 100_000.0), (2, 99_900.0)).chosen() == {}
    assert watch((0, 100.0)).chosen() == {}, "one look knows no pace"
    assert watch((0, 100.0), (0.3, 50.0)).chosen() == {}, "nor does a third of a second"


def test_over_the_limit_there_is_no_time_left() -> None:
    assert watch((0, 10.0), (2, -5.0)).chosen() == {"train": 0.25}


def test_only_the_four_nearest_their_end_and_never_faster_than_allowed() -> None:
    watchlist = Watchlist(Settings())
    for job in range(9):
        for at in (0.0, 2.0):
            watchlist.saw(at, {f"j{job}": 100.0 + 10 * job - 10 * at})
    assert list(watchlist.chosen()) == ["j0", "j1", "j2", "j3"]
    assert min(watchlist.chosen().values()) == 0.25
    watchlist.keep(["j1", "j8"])
    assert list(watchlist.chosen()) == ["j1", "j8"]


def test_a_clock_that_was_set_back_makes_no_pace() -> None:
    assert watch((1000.0, 600.0), (10.0, 500.0)).chosen() == {}


@given(st.lists(st.tuples(st.floats(0, 100), st.floats(-1e6, 1e12)), max_size=30))
def test_whatever_was_seen_the_looks_stay_within_bounds(looks: list[tuple[float, float]]) -> None:
    settings = Settings()
    chosen = watch(*looks, settings=settings).chosen()
    assert all(settings.fastest_s <= seconds < settings.interval_s for seconds in chosen.values())


def test_the_standard_collectors_see_this_machine_and_its_job(
    room: Room, start: Callable[..., Started], tmp_path: Path
) -> None:
    job, child = start("print('ready', flush=True); input()")
    boards = [{"gpu": 0, "uuid": "GPU-a", "model": "X", "busy_ratio": 0.5, "processes": {str(child.pid): 7}}]
    (tmp_path / "gpus.json").write_text(json.dumps({"gpus": boards}))
    measuring = standard(lambda: [job], SimulatedGpus(tmp_path / "gpus.json"), settings=FAST)
    room.run(*measuring.collectors, jobs=measuring.jobs)

    def seen() -> set[str]:
        return {batch.family.name for batch in list(room.batches) if batch.labels}

    eventually(
        lambda: seen() >= {"host", "host_disk", "job", "job_state", "gpu", "job_gpu", "sentinel", "sentinel_collector"}
    )
    assert room.events == []
    assert {name for name in ("host", "disks", "processes", "gpu", "sentinel") if room.ups(name)} >= {
        "host",
        "processes",
    }
