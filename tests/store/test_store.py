"""What is put is there: as series, as events, as rows, after a restart too."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sentinel.clock import ManualClock
from sentinel.errors import UsageError
from sentinel.model.events import Event, Severity, event
from sentinel.model.families import CHECKPOINT, HOST, HOST_DISK, JOB_STATE, LOG
from sentinel.model.labels import Labels
from sentinel.model.series import GAUGE, Batch, Entity, Family, Metric
from sentinel.promql.series import Block, Match, Matcher
from sentinel.store.layered import layered
from sentinel.store.settings import Settings
from sentinel.store.store import Store
from sentinel.store.window import Window

T0 = ManualClock().now()
SLOW = Settings(flush_s=3600.0)
"""The test says when to flush."""


class House:
    """A store in a directory, with the events it told."""

    def __init__(self, directory: Path, configured: Settings = SLOW) -> None:
        self.directory = directory
        self.settings = configured
        self.clock = ManualClock()
        self.events: list[Event] = []
        self.store = self._opened()

    def _opened(self) -> Store:
        return Store.open(self.directory, self.settings, self.clock, self.events.append)

    def restart(self) -> None:
        self.store.close()
        self.store = self._opened()


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    made = House(tmp_path)
    yield made
    made.store.close()


def named(metric: str, **labels: str) -> tuple[Matcher, ...]:
    return tuple(Matcher(name, Match.EQUAL, value) for name, value in {"__name__": metric, **labels}.items())


def marks(blocks: Sequence[Block]) -> dict[tuple[Labels, float], float | None]:
    """Each sample; None where a series ended."""
    found: dict[tuple[Labels, float], float | None] = {}
    for block in blocks:
        for row, labels in enumerate(block.labels):
            for column, at in enumerate(block.times):
                if block.present[row, column]:
                    found[labels, float(at) - T0] = float(block.values[row, column])
                elif block.stale[row, column]:
                    found[labels, float(at) - T0] = None
    return found


def disk(mount: str = "/") -> Labels:
    return Labels({"__name__": "host_disk_free_bytes", "mount": mount})


def test_samples_come_back_as_series_after_a_restart(house: House) -> None:
    for tick in range(3):
        house.store.put(HOST_DISK.batch(T0 + tick, {("/",): (tick, 9, None, 0), ("/data",): (5, 9, 1, 0)}))
    house.restart()

    history = house.store.history()

    assert marks(history.select(named("host_disk_free_bytes", mount="/"), T0, T0 + 9)) == {
        (disk(), 0.0): 0.0,
        (disk(), 1.0): 1.0,
        (disk(), 2.0): 2.0,
    }
    expression = (Matcher("__name__", Match.REGEX, "host_disk.*"), Matcher("mount", Match.REGEX, "/d.+"))
    assert {labels["mount"] for block in history.select(expression, T0, T0) for labels in block.labels} == {"/data"}
    assert history.select(named("host_disk_free_bytes", mount="/nowhere"), T0, T0 + 9) == []
    assert history.select(named("host_disk_free_bytes", job="a"), T0, T0 + 9) == []
    assert house.store.lag_s() == 0.0


def test_a_family_without_labels_has_one_series(house: House) -> None:
    house.store.put(HOST.batch(T0, {(): (64, 32, *[None] * 7)}))
    house.store.flush()

    found = house.store.history(lambda family: 6.0).select(named("host_memory_available_bytes"), T0, T0)

    assert marks(found) == {(Labels({"__name__": "host_memory_available_bytes"}), 0.0): 32.0}
    assert found[0].lookback_s == 6.0


def test_the_end_of_a_series_is_written_once(house: House) -> None:
    house.store.put(HOST_DISK.batch(T0, {("/",): (1, 9, None, 0)}))
    for tick in range(1, 4):
        house.store.put(HOST_DISK.batch(T0 + tick, {}, covers=[("/",), (f"/never-{tick}",)]))
    house.store.put(HOST_DISK.batch(T0 + 4, {("/",): (2, 9, None, 0)}))
    house.store.flush()

    assert marks(house.store.history().select(named("host_disk_free_bytes"), T0, T0 + 9)) == {
        (disk(), 0.0): 1.0,
        (disk(), 1.0): None,
        (disk(), 4.0): 2.0,
    }
    assert house.store.sql("SELECT count(*) FROM host_disk").rows == [(3,)]


def test_recorded_series_of_any_shape_share_a_table(house: House) -> None:
    for labels, value in ((("job",), 1.0), (("job", "gpu"), 2.0)):
        family = Family("rule:x", labels, (Metric("x", GAUGE, ""),), narrow=True)
        for tick in range(2):
            house.store.put(family.batch(T0 + tick, {("a", "0")[: len(labels)]: (value + tick,)}))
    house.restart()
    ended = Family("rule:x", ("job",), (Metric("x", GAUGE, ""),), narrow=True)
    house.store.put(ended.batch(T0 + 2, {("a",): (3,)}))
    house.store.put(ended.batch(T0 + 3, {}, covers=[("a",)]))
    house.store.flush()

    one, two = Labels({"__name__": "x", "job": "a"}), Labels({"__name__": "x", "job": "a", "gpu": "0"})
    expected = {(one, 0.0): 1.0, (one, 1.0): 2.0, (one, 2.0): 3.0, (one, 3.0): None, (two, 0.0): 2.0, (two, 1.0): 3.0}
    assert marks(house.store.history().select(named("x"), T0, T0 + 9)) == expected
    assert house.store.sql("SELECT count(DISTINCT labels) FROM samples").rows == [(2,)]
    window = Window()
    house.store.refill(window, T0)
    assert marks(window.select(named("x"), T0, T0 + 9)) == expected


def test_recorded_series_that_come_later_are_told_apart(house: House) -> None:
    family = Family("rule:x", ("job",), (Metric("x", GAUGE, ""),), narrow=True)
    for tick, job in enumerate("abc"):
        house.store.put(family.batch(T0 + tick, {(job,): (tick,)}))
        house.store.flush()

    found = marks(house.store.history().select(named("x"), T0, T0 + 9))

    assert {(labels["job"], at): value for (labels, at), value in found.items()} == {
        ("a", 0.0): 0.0,
        ("b", 1.0): 1.0,
        ("c", 2.0): 2.0,
    }


def test_a_value_wins_over_an_end_at_the_same_moment(house: House) -> None:
    house.store.put(HOST_DISK.batch(T0, {("/",): (1, 9, None, 0)}))
    house.store.put(HOST_DISK.batch(T0 + 1, {}, covers=[("/",)]))
    house.store.put(HOST_DISK.batch(T0 + 1, {("/",): (2, 9, None, 0)}))
    house.store.flush()

    (block,) = house.store.history().select(named("host_disk_free_bytes"), T0, T0 + 1)

    assert block.values.tolist() == [[1.0, 2.0]]
    assert not block.stale.any()


def test_the_window_is_refilled_as_it_was(house: House) -> None:
    before, after = Window(), Window()
    for tick in range(20):
        batches = [
            HOST_DISK.batch(T0 + tick, {("/",): (tick, 9, None, 0)}, covers=[("/",), ("/data",)]),
            JOB_STATE.batch(T0 + tick, {("a", "running"): (1,), ("a", ""): (0,)} if tick % 5 else {}),
        ]
        for batch in batches:
            before.append(batch)
            house.store.put(batch)
    house.restart()

    house.store.refill(after, T0 + 5)

    everything = (Matcher("__name__", Match.REGEX, ".+"),)
    wanted = {
        key: value for key, value in marks(before.select(everything, T0 + 5, T0 + 99)).items() if value is not None
    }
    got = {key: value for key, value in marks(after.select(everything, T0, T0 + 99)).items() if value is not None}
    assert got == wanted
    assert after.complete_after(named("host_disk_free_bytes")) == T0 + 5


def test_counters_go_on_where_they_were(house: House) -> None:
    for tick in range(3):
        house.store.put(LOG.batch(T0 + tick, {("a", "traceback"): (tick,), ("b", "quota"): (7,)}))
    house.store.flush()

    assert house.store.last_values("log", T0) == {
        ("a", "traceback"): {"log_events_total": 2.0},
        ("b", "quota"): {"log_events_total": 7.0},
    }
    assert house.store.last_values("nothing", T0) == {}


def test_a_metric_or_label_that_is_new_widens_its_table(house: House) -> None:
    old = Family("shop", ("a",), (Metric("shop_one", GAUGE, ""),))
    new = Family("shop", ("a", "b"), (Metric("shop_one", GAUGE, ""), Metric("shop_two", GAUGE, "")))
    house.store.put(old.batch(T0, {("x",): (1,)}))
    house.store.flush()
    house.store.put(new.batch(T0 + 1, {("x", "y"): (2, 3)}))
    house.store.put(old.batch(T0 + 2, {("x",): (4,)}))
    house.restart()

    series = Labels({"__name__": "shop_one", "a": "x"})
    assert marks(house.store.history().select(named("shop_one"), T0, T0 + 9)) == {
        (series, 0.0): 1.0,
        (series.with_(b="y"), 1.0): 2.0,
        (series, 2.0): 4.0,
    }
    assert house.store.sql("SELECT shop_two FROM shop WHERE b = 'y'").rows == [(3.0,)]


def test_events_are_found_by_time_job_and_kind(house: House) -> None:
    for number in range(5):
        house.store.put_event(
            event(
                "log.traceback" if number % 2 else "job.running", f"no. {number}", at=T0 + number, job="a", line=number
            )
        )
    house.store.put_event(event("gpu.xid", "xid", at=T0 + 9, severity=Severity.CRITICAL))
    house.restart()

    found = house.store.events(T0, kinds=["log."], job="a")

    assert [(each.message, each.data) for each in found] == [("no. 1", {"line": 1}), ("no. 3", {"line": 3})]
    assert [each.message for each in house.store.events(T0, limit=2)] == ["no. 4", "xid"]
    assert house.store.events(T0 + 9)[0].severity is Severity.CRITICAL
    assert house.store.sql("SELECT data->>'$.line' FROM events WHERE kind LIKE 'log.%' ORDER BY ts").rows == [
        ("1",),
        ("3",),
    ]


def test_rows_are_appended_and_the_view_shows_the_newest(house: House) -> None:
    for state in ("starting", "running"):
        house.store.put_row("jobs", {"id": "j1", "name": "train", "state": state, "attempt": 1, "created": T0})
    house.store.put_row("requests", {"id": "r1", "job": "train", "kind": "checkpoint", "state": "sent"})
    alert = {
        "id": "a1",
        "rule": "Leak",
        "labels": {"job": "train", "severity": "critical"},
        "state": "firing",
        "value": 2.5,
    }
    house.store.put_row("transitions", {"alert": alert, "was": "pending", "reason": "held", "at": T0})
    house.store.put_row("transitions", {"alert": {**alert, "state": "resolved"}, "was": "firing", "reason": "ended"})
    house.store.flush()

    assert house.store.sql("SELECT id, name, state, attempt FROM jobs").rows == [("j1", "train", "running", 1.0)]
    assert house.store.sql("SELECT job, kind FROM requests").rows == [("train", "checkpoint")]
    assert house.store.sql("SELECT rule, job, severity, state, value FROM alerts").rows == [
        ("Leak", "train", "critical", "resolved", 2.5)
    ]
    assert house.store.sql("SELECT was, reason FROM transitions").rows == [("pending", "held"), ("firing", "ended")]
    with pytest.raises(ValueError, match="there is no table 'nope'"):
        house.store.put_row("nope", {})


def test_text_that_no_database_takes_is_told_and_holds_up_nothing(house: House) -> None:
    house.store.put(JOB_STATE.batch(T0, {("bad\ud800", "running"): (1,)}))
    house.store.put(HOST_DISK.batch(T0, {("/",): (1, 9, 1, 0)}))

    assert house.store.flush() is False
    assert house.store.flush() is True
    assert [each.kind for each in house.events] == ["store.refused"]
    assert house.store.sql("SELECT count(*) FROM host_disk").rows == [(1,)]


def test_small_tables_wait_so_that_a_flush_costs_less(house: House) -> None:
    writer = house.store._writer
    house.store.put(HOST_DISK.batch(T0, {("/",): (1, 9, 1, 0)}))
    house.store.put_event(event("job.running", "x", at=T0))

    writer.flush(everything=False)
    assert house.store.sql("SELECT count(*) FROM host_disk").rows == [(0,)]
    assert house.store.sql("SELECT count(*) FROM events").rows == [(1,)]
    house.clock.advance(15)
    assert house.store.lag_s() == 15.0
    writer.flush(everything=False)

    assert house.store.sql("SELECT count(*) FROM host_disk").rows == [(1,)]


def test_what_is_too_old_goes(house: House) -> None:
    day = 86400.0
    rule = Family("rule:x", ("job",), (Metric("x", GAUGE, ""),), narrow=True)
    for age in (8, 6, 0):
        house.store.put(HOST_DISK.batch(T0 - age * day, {("/",): (age, 9, 1, 0)}))
        house.store.put_event(event("job.running", f"{age}", at=T0 - age * day))
    house.store.put(rule.batch(T0 - 8 * day, {("a",): (1,)}))
    house.store.put_event(event("job.running", "ancient", at=T0 - 91 * day))

    house.store.maintain()

    assert house.store.sql("SELECT host_disk_free_bytes FROM host_disk ORDER BY ts").rows == [(6.0,), (0.0,)]
    assert [each.message for each in house.store.events(0)] == ["8", "6", "0"]
    assert house.store.history().select(named("x"), 0, T0) == []


def test_what_is_too_much_goes_oldest_first(tmp_path: Path) -> None:
    house = House(tmp_path, Settings(flush_s=3600.0, size_bytes=12 << 20))
    house.store._database.root.execute(
        "INSERT INTO family.host_disk SELECT ? - i, '/', random(), random(), random(), random()"
        " FROM range(700_000, 0, -1) t(i)",
        [T0],
    )
    house.store._database.root.execute("CHECKPOINT")
    assert house.store.size_bytes() > 18 << 20

    for _ in range(3):
        house.store.maintain()

    assert house.store.size_bytes() <= 12 << 20
    ((oldest, newest),) = house.store.sql("SELECT min(ts), max(ts) FROM host_disk").rows
    assert newest == T0 - 1
    assert isinstance(oldest, float)
    assert T0 - 500_000 < oldest < T0 - 100_000
    house.store.close()


def test_long_lookbacks_join_the_store_and_the_window(house: House) -> None:
    window = Window(span_s=10, columns=100)
    for tick in range(40):
        batch = HOST_DISK.batch(
            T0 + tick, {("/",): (tick, 9, 1, 0), **({("/new",): (1, 1, 1, 1)} if tick > 35 else {})}
        )
        window.append(batch)
        house.store.put(batch)
        if tick == 30:
            house.store.flush()  # what follows is in the window alone
    reader = layered(window, house.store.history())

    found = marks(reader.select(named("host_disk_free_bytes"), T0, T0 + 99))

    assert [value for (labels, _), value in sorted(found.items(), key=lambda each: each[0][1]) if labels == disk()] == [
        float(tick) for tick in range(40)
    ]
    assert len([1 for labels, _ in found if labels == disk("/new")]) == 4
    recent = reader.select(named("host_disk_free_bytes"), T0 + 35, T0 + 39)[0]
    assert np.shares_memory(recent.values, window.select(named("host_disk_free_bytes"), T0 + 35, T0 + 39)[0].values)
    assert len(marks(reader.select(named("host_disk_free_bytes"), T0, T0 + 5))) == 6
    detached = layered(window.detached(), house.store.history())
    assert marks(detached.select(named("host_disk_free_bytes"), T0, T0 + 99)) == found


def test_an_answer_that_cannot_fit_into_memory_is_refused(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sentinel.store.history.MOST_SAMPLES", 10)
    for tick in range(6):
        house.store.put(HOST_DISK.batch(T0 + tick, {("/",): (1, 9, 1, 0), ("/data",): (1, 9, 1, 0)}))
    house.store.flush()

    with pytest.raises(UsageError, match="2 series over 6 moments"):
        house.store.history().select(named("host_disk_free_bytes"), T0, T0 + 99)


stories = st.lists(
    st.tuples(
        st.integers(1, 5),
        st.dictionaries(
            st.sampled_from([("a",), ("b",), ("",)]),
            st.tuples(*[st.one_of(st.none(), st.floats(0, 9))] * len(CHECKPOINT.metrics)),
            max_size=3,
        ),
    ),
    max_size=12,
)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    made = House(tmp_path_factory.mktemp("shared"))
    yield made
    made.store.close()


@settings(max_examples=30, deadline=None)
@given(stories, st.integers(0, 30), st.integers(0, 30))
def test_window_and_history_tell_the_same(
    shared: House,
    story: list[tuple[int, dict[Entity, tuple[float | None, ...]]]],
    first: int,
    length: int,
) -> None:
    shared.clock.advance(10_000)  # each story has a stretch of time of its own
    begin = now = shared.clock.now()
    window = Window()
    shared.store.put(CHECKPOINT.batch(begin - 5000, {}, covers=[("a",), ("b",), ("",)]))  # all end before
    for gap, values in story:
        now += gap
        batch: Batch = CHECKPOINT.batch(now, dict(values), covers=[("a",)])
        window.append(batch)
        shared.store.put(batch)
    shared.store.flush()
    history = shared.store.history()

    for metric in CHECKPOINT.metrics:
        asked = named(metric.name), begin + first, begin + first + length
        mine = {key: value for key, value in marks(window.select(*asked)).items() if value is not None}
        theirs = {key: value for key, value in marks(history.select(*asked)).items() if value is not None}
        assert mine == theirs
