"""What events move, and what others tell: counters and the board."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sentinel.collectors.counters import Counters
from sentinel.collectors.gauges import Board
from sentinel.collectors.gpu_sources import SimulatedGpus
from sentinel.collectors.standard import standard
from sentinel.model.families import CHECKPOINT, JOB, LOG, LOG_VOLUME, MONEY
from sentinel.model.series import Batch

ENTITY = ("train", "cuda_oom")


def told(counters: Counters | Board, at: float) -> list[tuple[float, dict[str, dict[str, float]]]]:
    return [(batch.at, {"/".join(e): row for e, row in batch.rows().items()}) for batch in counters.collect(at)]


def test_a_counter_that_is_born_at_one_gets_a_zero_before() -> None:
    counters = Counters(tick_s=2)
    counters.inc(LOG, ENTITY, "log_events_total")
    assert told(counters, 100.0) == [
        (98.0, {"train/cuda_oom": {"log_events_total": 0}}),
        (100.0, {"train/cuda_oom": {"log_events_total": 1}}),
    ]
    counters.inc(LOG, ENTITY, "log_events_total", 2)
    assert told(counters, 102.0) == [(102.0, {"train/cuda_oom": {"log_events_total": 3}})]


def test_that_zero_is_never_before_the_last_pass_of_its_family() -> None:
    counters = Counters(tick_s=2)
    counters.declare(LOG, ("other", "x"))
    counters.collect(99.5)
    counters.inc(LOG, ENTITY, "log_events_total")
    zero, _ = counters.collect(100.0)
    assert 99.5 < zero.at < 100
    assert zero.labels == (ENTITY,), "the others were not measured then"


def test_a_declared_counter_is_zero_at_once_and_needs_no_second_zero() -> None:
    counters = Counters()
    counters.declare(LOG, ENTITY)
    assert told(counters, 100.0) == [(100.0, {"train/cuda_oom": {"log_events_total": 0}})]
    counters.inc(LOG, ENTITY, "log_events_total")
    assert told(counters, 102.0) == [(102.0, {"train/cuda_oom": {"log_events_total": 1}})]


def test_a_restored_counter_goes_on_and_is_not_new() -> None:
    counters = Counters()
    counters.restore(LOG, ENTITY, "log_events_total", 41)
    counters.inc(LOG, ENTITY, "log_events_total")
    assert told(counters, 100.0) == [(100.0, {"train/cuda_oom": {"log_events_total": 42}})]
    assert counters.value(LOG, ENTITY, "log_events_total") == 42
    assert counters.value(LOG, ("nobody", "x"), "log_events_total") == 0


def test_the_series_of_an_ended_job_end_once() -> None:
    counters = Counters()
    counters.inc(LOG, ENTITY, "log_events_total")
    counters.inc(LOG_VOLUME, ("train",), "log_lines_total")
    counters.inc(LOG_VOLUME, ("other",), "log_lines_total")
    counters.collect(100.0)
    counters.end_where("job", "train")
    counters.end(LOG, ("never", "there"))
    by_family = {batch.family.name: batch for batch in counters.collect(102.0)}
    assert by_family["log"].covers == (ENTITY,)
    assert by_family["log"].labels == ()
    assert set(by_family["log_volume"].covers) == {("other",), ("train",)}
    assert {batch.family.name for batch in counters.collect(104.0)} == {"log_volume"}


def test_only_what_changed_is_collected_ahead_of_the_tick() -> None:
    counters = Counters()
    counters.declare(LOG, ENTITY)
    counters.declare(LOG_VOLUME, ("train",))
    counters.collect(100.0)
    assert counters.dirty == frozenset()
    counters.inc(LOG, ENTITY, "log_events_total")
    assert counters.dirty == {"log"}
    assert [batch.family.name for batch in counters.collect_changed(100.3)] == ["log"]
    assert not counters.collect_changed(100.4)


def test_a_counter_only_grows_and_fits_its_family() -> None:
    counters = Counters()
    with pytest.raises(ValueError, match="only grows"):
        counters.inc(LOG, ENTITY, "log_events_total", -1)
    with pytest.raises(ValueError, match="labels"):
        counters.declare(LOG, ("train",))


def test_no_count_is_lost_between_threads() -> None:
    counters = Counters()

    def count() -> None:
        for _ in range(500):
            counters.inc(LOG, ENTITY, "log_events_total")

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for at in range(20):
        counters.collect(float(at))
    for thread in threads:
        thread.join()
    assert counters.value(LOG, ENTITY, "log_events_total") == 2000


@given(
    st.lists(st.tuples(st.sampled_from(["inc", "declare", "end", "tick", "now"]), st.sampled_from("abc")), max_size=40)
)
def test_the_times_of_a_family_only_go_forward_and_each_life_begins_at_zero(script: list[tuple[str, str]]) -> None:
    counters, at, seen, last = Counters(), 100.0, dict[str, float](), dict[str, float]()
    for what, who in script:
        at += 0.5
        entity = (who, "x")
        batches: list[Batch] = []
        match what:
            case "inc":
                counters.inc(LOG, entity, "log_events_total")
            case "declare":
                counters.declare(LOG, entity)
            case "end":
                counters.end(LOG, entity)
            case "tick":
                batches = list(counters.collect(at))
            case _:
                batches = list(counters.collect_changed(at))
        for batch in batches:
            assert batch.at > last.get(batch.family.name, 0)
            last[batch.family.name] = batch.at
            for covered in set(batch.covers) - set(batch.labels):
                seen.pop(covered[0], None)
            for (name, _), row in batch.rows().items():
                assert seen.get(name) is not None or row["log_events_total"] == 0
                seen[name] = row["log_events_total"]


def test_the_board_keeps_what_it_was_told_and_ends_what_is_gone() -> None:
    board = Board()
    board.set(CHECKPOINT, ("train",), checkpoint_last_step=10.0, checkpoint_last_size_bytes=5.0)
    board.set(CHECKPOINT, ("train",), checkpoint_last_step=20.0, checkpoint_last_size_bytes=None)
    assert told(board, 100.0) == [(100.0, {"train": {"checkpoint_last_step": 20}})]
    assert told(board, 102.0) == [(102.0, {"train": {"checkpoint_last_step": 20}})]
    board.set(MONEY, ("other",), job_cost_total=1.0)
    assert board.dirty == {"money"}
    assert [batch.family.name for batch in board.collect_changed(102.5)] == ["money"]
    board.end_where("job", "train")
    board.end(MONEY, ("nobody",))
    batches = {batch.family.name: batch for batch in board.collect(104.0)}
    assert batches["checkpoint"].covers == (("train",),)
    assert batches["checkpoint"].labels == ()
    assert "checkpoint" not in {batch.family.name for batch in board.collect(106.0)}


def test_an_entity_that_comes_back_is_no_longer_ended() -> None:
    board = Board()
    board.set(CHECKPOINT, ("train",), checkpoint_last_step=1.0)
    board.end(CHECKPOINT, ("train",))
    board.set(CHECKPOINT, ("train",), checkpoint_last_step=2.0)
    (batch,) = board.collect(100.0)
    assert batch.rows() == {("train",): {"checkpoint_last_step": 2.0}}


def test_what_belongs_into_another_collectors_row_is_asked_for_there() -> None:
    board = Board()
    board.set(JOB, ("train",), job_step=7.0)
    assert board.facts(JOB, ("train",)) == {"job_step": 7.0}
    assert board.facts(JOB, ("other",)) == {}
    assert board.collect(100.0) == []
    assert JOB not in board.families


def test_a_board_says_what_it_cannot_take() -> None:
    board = Board()
    with pytest.raises(ValueError, match="checkpoint does not measure job_stepp"):
        board.set(CHECKPOINT, ("train",), job_stepp=1.0)
    with pytest.raises(ValueError, match="labels"):
        board.set(CHECKPOINT, (), checkpoint_last_step=1.0)


def test_no_family_is_claimed_by_two_collectors() -> None:
    """The daemon takes each family's tick from the collector that names it."""
    measuring = standard(list, SimulatedGpus("/nowhere"))
    claimed = [f.name for one in (*measuring.collectors, Counters(), Board()) for f in one.families]
    assert len(claimed) == len(set(claimed))
