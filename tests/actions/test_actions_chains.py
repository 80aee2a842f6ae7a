"""A rule fires: what is asked of the job, in which order, and what is not."""

from __future__ import annotations

from dataclasses import replace

from sentinel.actions.chain import Because
from sentinel.actions.settings import Settings
from sentinel.model.alerts import ActionSpec, After, AlertState, On, Reason, Transition
from sentinel.model.events import event
from sentinel.model.jobs import JobState
from sentinel.model.labels import Labels
from sentinel.model.requests import Answer, Delivery, Effect, Outcome, RequestKind, RequestState
from tests.actions.world import CHECKPOINT, DEGRADE, NOW, World, a_job, a_rule, an_alert, firing, resolving

K = RequestKind


async def test_a_checkpoint_then_a_degrade_and_each_proves_itself() -> None:
    world = World()
    world.jobs.add(a_job())
    change = firing(a_rule(), NOW)

    await world.fire(change)

    assert world.asked() == ["checkpoint", "degrade"], "a delivered signal is an acknowledgement"
    assert world.request(K.CHECKPOINT).state is RequestState.ACKNOWLEDGED
    assert (world.request(K.DEGRADE).answer, world.request(K.DEGRADE).effect) == (Answer.DONE, None)
    assert world.jobs.levels == {"j1": 1}

    world.clock.advance(4)
    world.jobs.save("j1", world.clock.now())
    world.dispatcher.on_event(event("checkpoint.complete", "step 4", at=world.clock.now(), job="llama"))
    saved = world.request(K.CHECKPOINT)
    assert (saved.answer, saved.effect, saved.closed) == (Answer.DONE, Effect.OBSERVED, NOW + 4)

    world.clock.advance(8)
    await world.fire(resolving(change, world.clock.now()))
    lowered = world.request(K.DEGRADE)
    assert lowered.effect is Effect.OBSERVED
    assert "12 s later" in lowered.detail
    assert world.told() == [
        "request.sent",
        "request.acknowledged",
        "request.sent",
        "request.acknowledged",
        "request.closed",
        "request.closed",
        "request.effect",
    ]


async def test_each_step_is_in_the_journal_before_it_is_delivered() -> None:
    world = World()
    world.jobs.add(a_job())
    world.jobs.answers[K.CHECKPOINT] = RuntimeError("the channel broke")

    await world.fire(firing(a_rule(CHECKPOINT), NOW))

    states = [record.data["state"] for record in world.journal.replay() if record.kind == "request"]
    assert states == ["planned", "sent", "closed"]
    assert world.request(K.CHECKPOINT).answer is Answer.FAILED
    assert "the channel broke" in world.request(K.CHECKPOINT).detail


async def test_a_step_that_wants_the_one_before_done_waits_for_the_checkpoint() -> None:
    world = World()
    world.jobs.add(a_job())
    await world.fire(firing(a_rule(CHECKPOINT, replace(DEGRADE, after=After.DONE)), NOW))
    assert world.asked() == ["checkpoint"]

    world.jobs.save("j1", NOW + 3)
    await world.after(3)

    assert world.asked() == ["checkpoint", "degrade"]


async def test_a_step_for_failure_comes_only_after_failure() -> None:
    for outcome, expected in ((Outcome.REFUSED, ["checkpoint", "dump"]), (Outcome.DONE, ["checkpoint"])):
        world = World()
        world.jobs.add(a_job())
        world.jobs.answers[K.CHECKPOINT] = Delivery(outcome, "said the job")
        await world.fire(firing(a_rule(CHECKPOINT, ActionSpec(K.DUMP, after=After.FAILED)), NOW))
        assert world.asked() == expected


async def test_an_unanswered_checkpoint_expires_and_the_chain_ends_with_a_reason() -> None:
    world = World()
    world.jobs.add(a_job())
    world.jobs.answers[K.CHECKPOINT] = Delivery(Outcome.SENT)
    await world.fire(firing(a_rule(), NOW))

    await world.after(59)
    assert world.request(K.CHECKPOINT).open
    await world.after(1)

    expired = world.request(K.CHECKPOINT)
    assert (expired.answer, expired.effect) == (Answer.EXPIRED, Effect.NOT_OBSERVED)
    assert world.asked() == ["checkpoint"]
    assert any("not_reached" in told.message and "degrade" in told.message for told in world.events)


async def test_no_step_waits_longer_than_half_of_what_the_forecast_leaves() -> None:
    world = World()
    world.jobs.add(a_job())
    world.jobs.answers[K.CHECKPOINT] = Delivery(Outcome.SENT)
    rule = a_rule(labels=Labels({"forecast": "seconds"}))
    await world.fire(firing(rule, NOW, value=40.0))

    await world.after(19)
    assert world.asked() == ["checkpoint"]
    await world.after(1)

    assert world.asked() == ["checkpoint", "degrade"]
    assert Because.HALF_FORECAST.value in world.request(K.DEGRADE).detail
    assert "no time to wait" in world.request(K.DEGRADE).reason


async def test_a_job_without_a_checkpoint_channel_is_still_degraded() -> None:
    world = World()
    only_degrade = tuple(c for c in a_job().spec.channels if c.request is not K.CHECKPOINT)
    world.jobs.add(a_job(spec={"channels": only_degrade}))

    await world.fire(firing(a_rule(), NOW))

    assert world.asked() == ["degrade"]
    assert world.request(K.CHECKPOINT).answer is Answer.REFUSED
    assert "no_channel" in world.request(K.CHECKPOINT).detail


async def test_but_it_is_never_stopped_on_the_strength_of_a_checkpoint_it_cannot_write() -> None:
    world = World()
    world.jobs.add(a_job(spec={"channels": ()}))
    await world.fire(firing(a_rule(CHECKPOINT, ActionSpec(K.STOP)), NOW))
    assert world.asked() == []


async def test_the_alert_ends_and_the_rest_of_the_chain_is_not_asked() -> None:
    world = World()
    world.jobs.add(a_job())
    world.jobs.answers[K.CHECKPOINT] = Delivery(Outcome.SENT)
    change = firing(a_rule(), NOW)
    await world.fire(change)
    await world.fire(resolving(change, NOW + 5))

    world.dispatcher.answered(world.request(K.CHECKPOINT).id, "acknowledged")
    await world.settle()

    assert world.asked() == ["checkpoint"]


async def test_the_job_answers_by_itself() -> None:
    world = World()
    world.jobs.add(a_job(spec={"checkpoints": ()}))
    world.jobs.answers[K.CHECKPOINT] = Delivery(Outcome.SENT)
    await world.fire(firing(a_rule(), NOW))
    asked = world.request(K.CHECKPOINT)

    world.dispatcher.answered(asked.id, "acknowledged")
    await world.settle()
    assert world.asked() == ["checkpoint", "degrade"]
    world.dispatcher.answered(asked.id, "done", "step 12")

    done = world.request(K.CHECKPOINT)
    assert (done.answer, done.effect) == (Answer.DONE, Effect.NOT_OBSERVABLE)
    assert "step 12" in done.detail


async def test_firing_again_within_the_cooldown_asks_nothing_and_says_so() -> None:
    world = World()
    world.jobs.add(a_job())
    rule = a_rule(CHECKPOINT)
    first = firing(rule, NOW)
    await world.fire(first)
    world.jobs.save("j1", NOW + 1)
    await world.after(1)
    await world.fire(resolving(first, NOW + 10))
    world.clock.advance(50)

    await world.fire(firing(rule, world.clock.now()))

    assert world.asked() == ["checkpoint"]
    last = world.dispatcher.requests()[-1]
    assert last.answer is Answer.SUPPRESSED
    assert last.detail.startswith("cooling_down")

    world.clock.advance(300)
    await world.fire(resolving(first, world.clock.now()))
    await world.fire(firing(rule, world.clock.now()))
    assert world.asked() == ["checkpoint", "checkpoint"]


async def test_two_alerts_share_one_open_checkpoint() -> None:
    world = World()
    world.jobs.add(a_job())
    world.jobs.answers[K.CHECKPOINT] = Delivery(Outcome.SENT)
    await world.fire(firing(a_rule(CHECKPOINT), NOW))
    await world.fire(firing(a_rule(name="Other"), NOW))
    assert world.asked() == ["checkpoint"]

    world.dispatcher.answered(world.jobs.asked[0].id, "acknowledged")
    await world.settle()

    assert world.asked() == ["checkpoint", "degrade"], "the second chain goes on once the shared request is heard"


async def test_observing_says_all_it_would_have_done_and_does_nothing() -> None:
    world = World(Settings(observe=True))
    world.jobs.add(a_job())

    await world.fire(firing(a_rule(), NOW))

    assert world.asked() == []
    assert [(r.kind, r.answer) for r in world.dispatcher.requests()] == [
        (K.CHECKPOINT, Answer.SUPPRESSED),
        (K.DEGRADE, Answer.SUPPRESSED),
    ]
    assert world.told() == ["request.closed", "request.closed"]
    assert "did not ask llama to checkpoint: the daemon only observes" in world.events[0].message


async def test_a_silenced_alert_asks_nothing() -> None:
    world = World()
    world.jobs.add(a_job())
    change = firing(a_rule(), NOW)
    world.silenced.add(change.alert.id)
    await world.fire(change)
    assert world.asked() == []
    assert "silence s1" in world.events[0].message


async def test_above_the_breaker_sentinel_only_alerts() -> None:
    world = World(Settings(requests_per_job_per_hour=3, requests_per_host_per_hour=4))
    world.jobs.add(a_job())
    world.jobs.add(a_job("bert", job_id="j2"))
    for index in range(6):
        rule = a_rule(ActionSpec(K.DUMP, jobs=("all",)), name=f"Rule{index}")
        await world.fire(firing(rule, NOW))
    assert [request.job for request in world.jobs.asked] == ["llama", "bert", "llama", "bert"]
    reasons = {r.detail.partition(":")[0] for r in world.dispatcher.requests() if r.answer is Answer.SUPPRESSED}
    assert reasons == {"breaker_host"}

    world.clock.advance(3601)
    await world.fire(firing(a_rule(ActionSpec(K.DUMP)), world.clock.now()))
    assert len(world.jobs.asked) == 5


async def test_before_its_first_step_a_job_is_only_warned_about_for_a_quarter_of_an_hour() -> None:
    world = World()
    world.jobs.progressed = False
    world.jobs.add(a_job(attempt_started=NOW - 60))
    forecast = Labels({"forecast": "seconds"})
    await world.fire(firing(a_rule(labels=forecast), NOW))
    assert world.asked() == []
    assert world.request(K.CHECKPOINT).detail.startswith("start_up")

    world.clock.advance(900)
    await world.fire(firing(a_rule(name="Later", labels=forecast), world.clock.now()))
    assert world.asked() == ["checkpoint", "degrade"]


async def test_an_alert_that_outlasts_the_start_up_asks_as_soon_as_the_job_has_started() -> None:
    world = World()
    world.jobs.progressed = False
    world.jobs.add(a_job(attempt_started=NOW - 5))
    await world.fire(firing(a_rule(labels=Labels({"forecast": "seconds"})), NOW))
    assert world.asked() == []

    world.jobs.progressed = True
    await world.after(5)

    assert world.asked() == ["checkpoint", "degrade"]


async def test_what_is_seen_rather_than_foreseen_is_asked_at_any_age() -> None:
    world = World()
    world.jobs.progressed = False
    world.jobs.add(a_job(attempt_started=NOW - 5))
    await world.fire(firing(a_rule(), NOW))
    assert world.asked() == ["checkpoint", "degrade"]


async def test_an_alert_about_a_gpu_asks_every_job_seen_on_it() -> None:
    world = World()
    for name, job_id in (("llama", "j1"), ("bert", "j2"), ("idle", "j3")):
        world.jobs.add(a_job(name, job_id=job_id))
    world.jobs.gpus["GPU-1"] = ["llama", "bert"]
    await world.fire(firing(a_rule(CHECKPOINT), NOW, uuid="GPU-1", gpu="0"))
    assert [request.job for request in world.jobs.asked] == ["llama", "bert"]


async def test_an_alert_about_the_host_only_tells_people_unless_it_names_jobs() -> None:
    world = World()
    world.jobs.add(a_job())
    world.jobs.add(a_job("bert", job_id="j2", uid=1001, owner="bob"))
    await world.fire(firing(a_rule(CHECKPOINT), NOW, mount="/"))
    assert world.asked() == []
    await world.fire(firing(a_rule(replace(CHECKPOINT, owner="bob"), name="B"), NOW, mount="/"))
    assert [request.job for request in world.jobs.asked] == ["bert"]


async def test_a_users_rule_reaches_only_that_users_jobs() -> None:
    world = World()
    world.jobs.add(a_job())
    world.jobs.add(a_job("bert", job_id="j2", uid=1001, owner="bob"))
    everywhere = replace(CHECKPOINT, jobs=("all",))
    await world.fire(firing(a_rule(everywhere, uid=1001), NOW))
    assert [request.job for request in world.dispatcher.requests()] == ["bert"], "others are not even mentioned"


async def test_a_rule_given_to_one_job_reaches_only_that_job() -> None:
    world = World()
    world.jobs.add(a_job())
    world.jobs.add(a_job("bert", job_id="j2"))
    await world.fire(firing(a_rule(replace(CHECKPOINT, jobs=("all",)), job_id="j2"), NOW))
    assert [request.job for request in world.jobs.asked] == ["bert"]


async def test_the_job_ends_and_what_was_asked_of_it_closes() -> None:
    world = World()
    job = world.jobs.add(a_job())
    world.jobs.answers[K.CHECKPOINT] = Delivery(Outcome.SENT)
    await world.fire(firing(a_rule(), NOW))

    world.jobs.add(replace(job, state=JobState.FAILED))
    world.dispatcher.on_event(event("job.failed", "llama failed", at=NOW, job="llama"))

    assert world.request(K.CHECKPOINT).answer is Answer.FAILED
    assert "has ended" in world.request(K.CHECKPOINT).detail
    assert world.asked() == ["checkpoint"]


async def test_a_hook_pages_at_once_and_only_once() -> None:
    world = World()
    world.jobs.add(a_job())
    rule = a_rule(CHECKPOINT, ActionSpec(run=("/bin/page", "memory")), ActionSpec(run=("/bin/ok",), on=On.RESOLVED))
    change = firing(rule, NOW)
    await world.fire(change)
    world.restart([change])
    await world.settle()
    assert world.hooks == [("/bin/page", "memory")]
    await world.fire(resolving(change, NOW + 9))
    assert world.hooks == [("/bin/page", "memory"), ("/bin/ok",)]
    assert world.told("hook.") == ["hook.started", "hook.ended"] * 2


async def test_a_hook_that_waits_for_failure_stands_in_the_chain() -> None:
    world = World()
    world.jobs.add(a_job())
    world.jobs.answers[K.CHECKPOINT] = Delivery(Outcome.FAILED)
    rule = a_rule(CHECKPOINT, ActionSpec(run=("/bin/page",), after=After.FAILED))
    await world.fire(firing(rule, NOW))
    assert world.hooks == [("/bin/page",)]


async def test_a_full_disk_lets_only_checkpoints_out_and_marks_them() -> None:
    world = World()
    world.jobs.add(a_job())
    world.journal.full = True

    await world.fire(firing(a_rule(), NOW))

    assert world.asked() == ["checkpoint"]
    assert world.request(K.CHECKPOINT).unjournalled
    assert world.request(K.DEGRADE).detail.startswith("unjournalled")

    world.journal.full = False
    await world.after(1)
    written = [record.data["kind"] for record in world.journal.replay() if record.kind == "request"]
    assert "checkpoint" in written, "what is owed is written as soon as there is room"


async def test_a_pending_alert_asks_nothing() -> None:
    world = World()
    world.jobs.add(a_job())
    rule = a_rule()
    alert = an_alert(rule, NOW, state=AlertState.PENDING)
    await world.fire(Transition(alert, AlertState.INACTIVE, Reason.BEGAN, NOW, rule))
    assert world.asked() == []


async def test_an_alert_that_outlasts_the_cooldown_takes_the_job_one_level_lower_but_never_below_the_last() -> None:
    world = World()
    world.jobs.add(a_job(spec={"degrade_levels": 2}))
    change = firing(a_rule(DEGRADE), NOW)
    await world.fire(change)
    await world.after(299)
    assert world.jobs.levels["j1"] == 1
    await world.after(1)
    assert world.jobs.levels["j1"] == 2
    world.restart([change])
    for _ in range(20):
        await world.after(300)
    assert world.asked() == ["degrade", "degrade"]
    assert len(world.dispatcher.requests()) == 2, "and nothing is said each time either"


async def test_a_checkpoint_from_before_the_request_proves_nothing() -> None:
    world = World()
    world.jobs.add(a_job())
    world.jobs.save("j1", NOW - 30)
    await world.fire(firing(a_rule(CHECKPOINT), NOW))
    await world.after(5)
    assert world.request(K.CHECKPOINT).open
    world.jobs.save("j1", NOW + 6)
    await world.after(5)
    assert world.request(K.CHECKPOINT).effect is Effect.OBSERVED


async def test_what_was_asked_is_remembered_as_long_as_its_cooldown_may_need_it() -> None:
    world = World(Settings(remembered_s=60))
    world.jobs.add(a_job(spec={"checkpoints": ()}))
    rule = a_rule(replace(CHECKPOINT, cooldown_s=3600))
    change = firing(rule, NOW)
    await world.fire(change)
    await world.fire(resolving(change, NOW + 1))
    await world.after(1800)
    await world.fire(firing(rule, world.clock.now()))
    assert world.asked() == ["checkpoint"]
    await world.after(6 * 3600 + 120)
    assert world.asked() == ["checkpoint"]


async def test_what_the_job_has_just_done_for_one_rule_counts_for_the_next() -> None:
    world = World()
    world.jobs.add(a_job())
    await world.fire(firing(a_rule(), NOW))
    world.jobs.save("j1", NOW + 2)
    await world.after(10)

    await world.fire(firing(a_rule(name="Slower"), world.clock.now()))

    assert world.asked() == ["checkpoint", "degrade"]
    details = [r.detail.partition(":")[0] for r in world.dispatcher.requests() if r.by == "rule:Slower"]
    assert details == ["fresh", "fresh"]
    world.clock.advance(120)
    await world.fire(firing(a_rule(name="Later"), world.clock.now()))
    assert world.asked() == ["checkpoint", "degrade", "checkpoint", "degrade"]
