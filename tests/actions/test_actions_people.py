"""People ask, and the way back up."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from sentinel.errors import SentinelError
from sentinel.model.alerts import ActionSpec, Reason
from sentinel.model.events import event
from sentinel.model.jobs import JobState
from sentinel.model.requests import Answer, Delivery, Effect, Outcome, RequestKind
from tests.actions.world import CHECKPOINT, DEGRADE, NOW, World, a_job, a_rule, firing, resolving

K = RequestKind


async def test_a_person_asks_and_gets_the_answer() -> None:
    world = World()
    world.jobs.add(a_job(spec={"checkpoints": ()}))
    asked = await world.dispatcher.ask("llama", K.CHECKPOINT, by="user:alice", wait_s=5)
    assert (asked.answer, asked.effect) == (Answer.DONE, Effect.NOT_OBSERVABLE)
    assert asked.by == "user:alice"


async def test_who_waits_for_as_long_as_a_request_has_hears_that_it_was_not_answered() -> None:
    """No tick comes between: the waiting itself looks at the time."""
    world = World()
    world.jobs.add(a_job(spec={"checkpoints": ()}))
    world.jobs.answers[K.DUMP] = Delivery(Outcome.SENT)
    waiting = asyncio.ensure_future(world.dispatcher.ask("llama", K.DUMP, by="user:a", timeout_s=4.0, wait_s=0.2))
    await asyncio.sleep(0.05)
    world.clock.advance(4.0)
    asked = await waiting
    assert (asked.answer, asked.detail) == (Answer.EXPIRED, "no answer in time")


async def test_a_name_nobody_bears_is_corrected() -> None:
    world = World()
    world.jobs.add(a_job())
    with pytest.raises(SentinelError, match="no job called 'lama'") as caught:
        await world.dispatcher.ask("lama", K.CHECKPOINT, by="user:alice")
    assert caught.value.hint == "llama"


async def test_what_the_job_cannot_be_asked_is_refused_with_the_option_that_changes_it() -> None:
    world = World()
    world.jobs.add(a_job(spec={"channels": ()}))
    asked = await world.dispatcher.ask("llama", K.DEGRADE, by="user:alice", wait_s=1)
    assert asked.answer is Answer.REFUSED
    assert "--on-degrade" in asked.detail


async def test_people_are_held_up_by_no_cooldown_and_no_start_up() -> None:
    world = World()
    world.jobs.progressed = False
    world.jobs.add(a_job(spec={"checkpoints": ()}))
    for _ in range(3):
        await world.dispatcher.ask("llama", K.CHECKPOINT, by="user:alice", wait_s=1)
    assert world.asked() == ["checkpoint"] * 3


async def test_asking_twice_while_the_first_is_open_gives_the_first_back() -> None:
    world = World()
    world.jobs.add(a_job())
    first = await world.dispatcher.ask("llama", K.CHECKPOINT, by="user:alice")
    second = await world.dispatcher.ask("llama", K.CHECKPOINT, by="user:bob")
    assert first.id == second.id
    await world.settle()
    assert world.asked() == ["checkpoint"]


async def test_stop_asks_for_a_checkpoint_first_and_waits_for_its_effect() -> None:
    world = World()
    job = world.jobs.add(a_job())
    stopping = asyncio.ensure_future(world.dispatcher.ask("llama", K.STOP, by="user:alice", wait_s=30))
    await asyncio.sleep(0.01)
    assert world.asked() == ["checkpoint"]

    world.jobs.save("j1", NOW + 2)
    world.clock.advance(2)
    await world.dispatcher.tick(world.clock.now())
    await asyncio.sleep(0.01)
    assert world.asked() == ["checkpoint", "stop"]

    world.jobs.add(replace(job, state=JobState.STOPPED))
    world.dispatcher.on_event(event("job.stopped", "llama was stopped", at=NOW, job="llama"))
    stopped = await stopping
    assert (stopped.answer, stopped.effect) == (Answer.DONE, Effect.OBSERVED)
    await world.settle()


async def test_stop_does_not_wait_for_a_checkpoint_that_was_refused() -> None:
    world = World()
    world.jobs.add(a_job())
    world.jobs.answers[K.CHECKPOINT] = Delivery(Outcome.REFUSED, "mid save")
    await world.dispatcher.ask("llama", K.STOP, by="user:alice")
    await world.settle()
    assert world.asked() == ["checkpoint", "stop"]


async def test_pause_is_done_when_the_job_is_seen_paused() -> None:
    world = World()
    job = world.jobs.add(a_job())
    await world.dispatcher.ask("llama", K.PAUSE, by="user:alice")
    await world.settle()
    assert world.request(K.PAUSE).open
    world.jobs.add(replace(job, state=JobState.PAUSED))
    world.dispatcher.on_event(event("job.paused", "llama is paused", at=NOW, job="llama"))
    assert (world.request(K.PAUSE).answer, world.request(K.PAUSE).effect) == (Answer.DONE, Effect.OBSERVED)


async def test_a_level_comes_back_after_a_quiet_period_and_never_while_an_alert_holds_it() -> None:
    world = World()
    world.jobs.add(a_job(spec={"degrade_levels": 1}))
    change = firing(a_rule(DEGRADE), NOW)
    await world.fire(change)
    assert world.jobs.levels["j1"] == 1

    await world.after(3600)
    assert world.asked() == ["degrade"], "the alert is still open"
    await world.fire(resolving(change, world.clock.now()))
    await world.after(599)
    assert world.asked() == ["degrade"]
    await world.after(1)

    assert world.asked() == ["degrade", "restore"]
    assert world.jobs.levels["j1"] == 0
    assert world.request(K.RESTORE).level == 0
    assert world.request(K.RESTORE).by == "sentinel"


async def test_a_relapse_doubles_the_wait() -> None:
    world = World()
    world.jobs.add(a_job())
    rule = a_rule(DEGRADE)

    async def round_trip() -> None:
        change = firing(rule, world.clock.now())
        await world.fire(change)
        await world.fire(resolving(change, world.clock.now()))

    await round_trip()
    await world.after(600)
    assert world.asked() == ["degrade", "restore"]
    world.clock.advance(400)
    await round_trip()
    await world.after(601)
    assert world.asked() == ["degrade", "restore", "degrade"], "600 s are not enough any more"
    await world.after(600)
    assert world.asked() == ["degrade", "restore", "degrade", "restore"]


async def test_one_level_for_each_quiet_period() -> None:
    world = World()
    world.jobs.add(a_job())
    for index in range(2):
        change = firing(a_rule(DEGRADE, name=f"R{index}"), world.clock.now())
        await world.fire(change)
        await world.fire(resolving(change, world.clock.now(), Reason.WENT_DARK))
        world.clock.advance(60)
    assert world.jobs.levels["j1"] == 2
    await world.after(540)
    assert world.jobs.levels["j1"] == 1
    await world.after(300)
    assert world.jobs.levels["j1"] == 1
    await world.after(300)
    assert world.jobs.levels["j1"] == 0
    await world.after(6000)
    assert world.asked() == ["degrade", "degrade", "restore", "restore"]


async def test_a_job_is_never_asked_below_its_lowest_level() -> None:
    world = World()
    world.jobs.add(a_job(spec={"degrade_levels": 1}))
    for index in range(2):
        await world.fire(firing(a_rule(DEGRADE, name=f"R{index}"), NOW))
    assert world.asked() == ["degrade"]
    assert world.request(K.DEGRADE).detail.startswith("lowest")


async def test_a_job_that_cannot_be_restored_is_asked_no_second_time() -> None:
    world = World()
    channels = tuple(c for c in a_job().spec.channels if c.request is not K.RESTORE)
    world.jobs.add(a_job(spec={"channels": channels}))
    change = firing(a_rule(DEGRADE), NOW)
    await world.fire(change)
    await world.fire(resolving(change, NOW))
    for _ in range(5):
        await world.after(700)
    assert [r.kind for r in world.dispatcher.requests()].count(K.RESTORE) == 1


async def test_an_answer_nobody_knows_is_an_error_with_the_known_ones() -> None:
    world = World()
    world.jobs.add(a_job())
    asked = await world.dispatcher.ask("llama", K.CHECKPOINT, by="user:alice")
    with pytest.raises(SentinelError, match="is no answer"):
        world.dispatcher.answered(asked.id, "maybe")
    with pytest.raises(SentinelError, match="no request r0"):
        world.dispatcher.answered("r0", "done")
    await world.settle()


async def test_a_late_answer_makes_an_expired_request_truer() -> None:
    world = World()
    world.jobs.add(a_job(spec={"checkpoints": ()}))
    world.jobs.answers[K.CHECKPOINT] = Delivery(Outcome.SENT)
    await world.fire(firing(a_rule(CHECKPOINT, ActionSpec(K.DUMP)), NOW))
    await world.after(60)
    assert world.request(K.CHECKPOINT).answer is Answer.EXPIRED
    world.dispatcher.answered(world.request(K.CHECKPOINT).id, "done", "it took a while")
    late = world.request(K.CHECKPOINT)
    assert late.answer is Answer.DONE
    assert "answered late" in late.detail
