"""Nothing is asked twice, wherever the daemon dies; and a restarted daemon knows all that the one before knew."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from sentinel.actions.book import Book
from sentinel.model.alerts import ActionSpec, After, AlertState, Transition
from sentinel.model.jobs import Job, JobState
from sentinel.model.labels import Labels
from sentinel.model.requests import Answer, Delivery, Outcome, Request, RequestKind
from tests.actions.world import (
    CHECKPOINT,
    DEGRADE,
    NOW,
    Crash,
    FileJournal,
    Jobs,
    World,
    a_job,
    a_rule,
    firing,
    resolving,
)

K = RequestKind


async def test_killed_between_request_and_answer_the_request_is_unknown_and_the_chain_goes_on() -> None:
    world = World()
    world.jobs.add(a_job(spec={"checkpoints": ()}))
    world.jobs.answers[K.CHECKPOINT] = Delivery(Outcome.SENT)
    change = firing(a_rule(), NOW)
    await world.fire(change)
    assert world.asked() == ["checkpoint"]

    world.restart([change])
    await world.settle()

    assert world.request(K.CHECKPOINT).answer is Answer.UNKNOWN
    assert world.asked() == ["checkpoint", "degrade"], "never sent before, harmless, and the alert still fires"
    assert "never_sent_before_restart" in world.request(K.DEGRADE).detail
    world.restart([change])
    await world.after(200)
    assert world.asked() == ["checkpoint", "degrade"]


async def test_killed_after_planning_and_before_sending_it_is_sent_for_the_first_time() -> None:
    world = World()
    world.jobs.add(a_job())
    change = firing(a_rule(), NOW)
    world.journal.crash_after = 4  # checkpoint planned, sent, acknowledged; degrade planned
    await world.fire(change)
    await world.dispatcher.close()
    assert world.asked() == ["checkpoint"]
    world.restart([change])
    await world.settle()
    assert world.asked() == ["checkpoint", "degrade"]
    assert world.jobs.levels == {"j1": 1}


class JobsThatSayWhen(Jobs):
    """Choosing whom to signal takes a while; only then does the request leave."""

    def __init__(self, journal: FileJournal) -> None:
        super().__init__(journal)
        self.die_while_choosing = False
        self.nobody = False

    async def hand_over(self, job: Job, request: Request, leaving: Callable[[], bool]) -> Delivery:
        await asyncio.sleep(0)
        if self.die_while_choosing:
            self.die_while_choosing, self._journal.dead = False, True
        if self.nobody:
            return Delivery(Outcome.REFUSED, "no process catches it")
        return await self.deliver(job, request) if leaving() else Delivery(Outcome.FAILED, "closed before it left")


async def test_killed_while_choosing_whom_to_signal_nothing_has_left_and_it_is_sent_for_the_first_time() -> None:
    world = World(jobs=JobsThatSayWhen)
    jobs = world.jobs
    assert isinstance(jobs, JobsThatSayWhen)
    jobs.add(a_job())
    jobs.die_while_choosing = True
    change = firing(a_rule(), NOW)
    await world.fire(change)
    await world.dispatcher.close()
    assert world.asked() == []
    world.restart([change])
    await world.settle()
    assert world.asked() == ["checkpoint", "degrade"]

    jobs.nobody = True
    refused = await world.dispatcher.ask("llama", K.RESTORE, by="user:alice", wait_s=5)
    assert (refused.answer, refused.sent) == (Answer.REFUSED, None), "what found nobody was never sent"


async def test_killed_before_a_stop_that_wanted_the_checkpoint_done_it_does_not_stop() -> None:
    world = World()
    world.jobs.add(a_job())
    world.jobs.answers[K.CHECKPOINT] = Delivery(Outcome.SENT)
    change = firing(a_rule(CHECKPOINT, ActionSpec(K.STOP, after=After.DONE)), NOW)
    await world.fire(change)
    world.restart([change])
    await world.after(100)
    assert world.asked() == ["checkpoint"]
    assert any("unsafe_after_restart" in told.message for told in world.events)


async def test_an_acknowledged_checkpoint_is_still_waited_for_after_a_restart() -> None:
    world = World()
    world.jobs.add(a_job())
    change = firing(a_rule(CHECKPOINT), NOW)
    await world.fire(change)
    world.restart([change])
    world.jobs.save("j1", NOW + 5)
    await world.after(5)
    assert world.request(K.CHECKPOINT).answer is Answer.DONE


async def test_an_alert_that_fired_just_before_the_crash_is_dispatched_after_it() -> None:
    world = World()
    world.jobs.add(a_job())
    change = firing(a_rule(), NOW)
    world.restart([change])  # the journal has the alert, nobody has acted
    await world.settle()
    assert world.asked() == ["checkpoint", "degrade"]


async def test_levels_and_the_way_back_up_survive() -> None:
    world = World()
    world.jobs.add(a_job())
    change = firing(a_rule(DEGRADE), NOW)
    await world.fire(change)
    await world.fire(resolving(change, NOW))
    world.jobs.levels.clear()
    world.restart()
    assert world.jobs.levels == {"j1": 1}
    await world.after(600)
    assert world.asked() == ["degrade", "restore"]


async def test_cooldowns_and_the_breaker_survive_even_compaction() -> None:
    world = World()
    world.jobs.add(a_job())
    rule_ = a_rule(CHECKPOINT)
    change = firing(rule_, NOW)
    await world.fire(change)
    world.jobs.save("j1", NOW)
    await world.after(0)
    await world.fire(resolving(change, NOW + 1))
    kept = list(world.dispatcher.snapshot())
    world.journal.lines.clear()
    for kind, data in kept:
        world.journal.append(kind, data)
    world.restart()
    world.clock.advance(60)
    await world.fire(firing(rule_, world.clock.now()))
    assert world.asked() == ["checkpoint"]
    assert world.dispatcher.requests()[-1].detail.startswith("cooling_down")


RULES = (
    a_rule(name="Plain"),
    a_rule(name="Forecast", labels=Labels({"forecast": "seconds"})),
    a_rule(CHECKPOINT, replace(DEGRADE, after=After.DONE), ActionSpec(K.DUMP, after=After.ANY), name="Careful"),
)
OUTCOMES = [Delivery(outcome, "said the job") for outcome in Outcome]


class AnyStory(RuleBasedStateMachine):
    """A daemon that may die at every record it writes."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.world = World()
        self.open: dict[str, Transition] = {}

    def teardown(self) -> None:
        self.loop.run_until_complete(self.world.dispatcher.close())
        self.loop.close()

    def go(self, act: Callable[[], object]) -> None:
        async def living() -> None:
            try:
                act()
                await self.world.settle()
            except Crash:
                pass
            await asyncio.sleep(0)
            if self.world.journal.dead:
                await self.world.dispatcher.close()
                self.world.restart(list(self.open.values()))
                await self.world.settle()

        self.loop.run_until_complete(living())

    @initialize(levels=st.integers(0, 2), observable=st.booleans())
    def begin(self, levels: int, observable: bool) -> None:
        spec: dict[str, object] = {"degrade_levels": levels}
        if not observable:
            spec["checkpoints"] = ()
        self.world.jobs.add(a_job(spec=spec))

    @rule(which=st.sampled_from(RULES))
    def fires(self, which: object) -> None:
        change = firing(which, self.world.clock.now())  # type: ignore[arg-type]
        if change.alert.id not in self.open:
            self.open[change.alert.id] = change
            self.go(lambda: self.world.dispatcher.submit(change))

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def resolves(self, data: st.DataObject) -> None:
        change = self.open.pop(data.draw(st.sampled_from(sorted(self.open))))
        self.go(lambda: self.world.dispatcher.submit(resolving(change, self.world.clock.now())))

    @rule(seconds=st.sampled_from([0.5, 15.0, 61.0, 400.0, 2000.0]))
    def time_passes(self, seconds: float) -> None:
        self.world.clock.advance(seconds)

        async def tick() -> None:
            await self.world.dispatcher.tick(self.world.clock.now())

        def act() -> None:
            self.world.dispatcher._desk.task(tick())

        self.go(act)

    @rule(kind=st.sampled_from([K.CHECKPOINT, K.DEGRADE, K.RESTORE]), answer=st.sampled_from(OUTCOMES))
    def the_job_will_answer(self, kind: RequestKind, answer: Delivery) -> None:
        self.world.jobs.answers[kind] = answer

    @precondition(lambda self: self.world.dispatcher.requests())
    @rule(data=st.data(), answer=st.sampled_from(["acknowledged", "done", "refused", "failed"]))
    def the_job_speaks(self, data: st.DataObject, answer: str) -> None:
        request = data.draw(st.sampled_from(self.world.dispatcher.requests()))
        self.go(lambda: self.world.dispatcher.answered(request.id, answer))

    @rule()
    def a_checkpoint_appears(self) -> None:
        self.world.jobs.save("j1", self.world.clock.now())

    @rule()
    def killed(self) -> None:
        self.world.journal.dead = True
        self.go(lambda: None)

    @rule(records=st.integers(0, 4))
    def will_be_killed(self, records: int) -> None:
        """Before the next record is written (0), or just after so many."""
        self.world.journal.crash_after = records

    @rule()
    def the_job_begins_anew(self) -> None:
        job = self.world.jobs.jobs["j1"]
        self.world.jobs.add(replace(job, attempt=job.attempt + 1))

    @invariant()
    def nothing_is_asked_twice(self) -> None:
        ids = Counter(request.id for request in self.world.jobs.asked)
        assert not [name for name, count in ids.items() if count > 1]
        occasions: Counter[tuple[str, str]] = Counter()
        for request in self.world.jobs.asked:
            if request.alert is not None:
                chain = next(
                    c
                    for c in self.world.dispatcher._desk.book.chains.values()
                    if c.id.startswith(request.alert)
                    and c.begun <= request.created
                    and (c.ended is None or request.created <= c.ended)
                )
                occasions[chain.id, request.kind.value] += 1
        assert not [name for name, count in occasions.items() if count > 1]

    @invariant()
    def the_journal_tells_the_same_story(self) -> None:
        book = Book()
        for record in self.world.journal.replay():
            book.fold(record)
        mine = self.world.dispatcher._desk.book
        assert book.requests == mine.requests
        assert book.chains == mine.chains
        assert book.ladders == mine.ladders

    @invariant()
    def the_level_stays_within_its_bounds(self) -> None:
        if "j1" in self.world.jobs.jobs:
            levels = self.world.jobs.jobs["j1"].spec.degrade_levels
            assert 0 <= self.world.dispatcher._desk.book.ladder("j1").level <= levels


AnyStory.TestCase.settings = settings(
    max_examples=60, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
)
TestAnyStory = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")(AnyStory.TestCase)


async def test_a_job_that_ended_while_nobody_watched_closes_what_was_open() -> None:
    world = World()
    job = world.jobs.add(a_job())
    change = firing(a_rule(CHECKPOINT), NOW)
    await world.fire(change)
    world.jobs.add(replace(job, state=JobState.FAILED))
    world.restart([replace(change, alert=replace(change.alert, state=AlertState.RESOLVED))])
    await world.after(1)
    assert not world.request(K.CHECKPOINT).open
