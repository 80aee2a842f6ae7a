"""What people are told, when, and how often."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sentinel.errors import SentinelError
from sentinel.model.alerts import Reason
from sentinel.model.checkpoints import Checkpoint, CheckpointState
from sentinel.model.jobs import JobState
from sentinel.model.requests import Answer, Effect, Request, RequestKind, RequestState
from sentinel.notify.ports import Receipt
from sentinel.notify.settings import Receiver, Route, Settings
from tests.notify.outside import NOW, ONCALL, RULE, Desk, a_job, firing, resolving


async def test_a_critical_alert_is_told_at_once_and_its_end_as_well() -> None:
    desk = Desk()
    desk.jobs["j1"] = a_job()
    change = firing()
    desk.notifier.on_transition(change)
    await desk.tick()
    assert desk.carrier.titles() == ["CRITICAL: llama runs out of memory"]

    await desk.after(10)
    desk.notifier.on_transition(resolving(change, desk.clock.now()))
    await desk.tick()
    assert desk.carrier.titles()[1:] == ["Resolved: MemoryLow on llama"]
    assert [event.kind for event in desk.events] == ["notification.sent", "notification.sent"]


async def test_a_critical_alert_that_its_request_ended_at_once_is_told_all_the_same() -> None:
    desk = Desk()
    change = firing()
    desk.notifier.on_transition(change)
    desk.notifier.on_transition(resolving(change, NOW + 0.3))
    await desk.after(2)
    assert desk.carrier.titles() == ["CRITICAL: llama runs out of memory", "Resolved: MemoryLow on llama"]


async def test_a_warning_waits_for_company_and_what_ends_meanwhile_is_never_mentioned() -> None:
    desk = Desk()
    change = firing(severity="warning")
    desk.notifier.on_transition(change)
    await desk.after(29)
    desk.notifier.on_transition(resolving(change, desk.clock.now()))
    await desk.after(300)
    assert desk.carrier.titles() == []

    desk.notifier.on_transition(firing(desk.clock.now(), severity="warning"))
    await desk.after(30)
    assert desk.carrier.titles() == ["WARNING: llama runs out of memory"]


async def test_a_storm_becomes_one_message_with_a_count() -> None:
    desk = Desk(replace(ONCALL, route=replace(ONCALL.route, group_by=("alertname",))))
    for index in range(40):
        desk.notifier.on_transition(firing(severity="warning", job=f"job-{index}", summary=f"job-{index} is low"))
    await desk.after(30)
    (message,) = desk.carrier.parcels
    assert message.title == "WARNING: 40 alerts: MemoryLow (job-0, job-1 and 38 more)"
    assert "… and 35 more" in message.body


async def test_a_second_alert_of_a_group_comes_at_the_groups_pace() -> None:
    desk = Desk(replace(ONCALL, route=replace(ONCALL.route, group_by=("alertname",))))
    desk.notifier.on_transition(firing(job="a"))
    await desk.tick()
    await desk.after(20)
    desk.notifier.on_transition(firing(desk.clock.now(), job="b"))
    await desk.after(279)
    assert len(desk.carrier.parcels) == 1
    await desk.after(1)
    assert desk.carrier.titles()[1] == "CRITICAL: 2 alerts: MemoryLow (a, b)"


async def test_what_still_fires_is_told_again_after_the_repeat_interval() -> None:
    desk = Desk()
    desk.notifier.on_transition(firing())
    await desk.tick()
    await desk.after(14399)
    assert len(desk.carrier.parcels) == 1
    await desk.after(1)
    assert desk.carrier.titles()[1] == "Still firing: CRITICAL: llama runs out of memory"


async def test_an_alert_that_flaps_does_not_ring_each_time() -> None:
    desk = Desk()
    for _ in range(15):
        change = firing(desk.clock.now())
        desk.notifier.on_transition(change)
        await desk.after(5)
        desk.notifier.on_transition(resolving(change, desk.clock.now()))
        await desk.after(5)
    assert len(desk.carrier.parcels) == 2, "one for firing, one for resolved, then quiet for the interval"


async def test_a_silenced_alert_is_held_back_and_told_when_the_silence_ends() -> None:
    desk = Desk()
    change = firing()
    desk.silenced.add(change.alert.id)
    desk.notifier.on_transition(change)
    await desk.after(600)
    assert desk.carrier.titles() == []
    desk.silenced.clear()
    await desk.after(300)
    assert desk.carrier.titles() == ["CRITICAL: llama runs out of memory"]


async def test_dark_is_no_all_clear() -> None:
    desk = Desk()
    change = firing()
    desk.notifier.on_transition(change)
    await desk.tick()
    desk.notifier.on_transition(resolving(change, NOW + 1, Reason.WENT_DARK))
    await desk.tick()
    assert desk.carrier.titles()[1] == "Resolved (no data any more): MemoryLow on llama"
    assert "no all-clear" in desk.carrier.parcels[1].body


async def test_a_message_says_what_which_job_how_bad_since_when_and_what_was_done() -> None:
    desk = Desk()
    desk.jobs["j1"] = a_job()
    change = firing()
    base = Request(
        "r1", "j1", "llama", 1, RequestKind.CHECKPOINT, None, "low", change.alert.id, "rule:MemoryLow", NOW, NOW + 60
    )
    closed = RequestState.CLOSED
    desk.requests += [
        replace(base, state=closed, sent=NOW, acknowledged=NOW + 4, answer=Answer.DONE, effect=Effect.OBSERVED),
        replace(
            base,
            id="r2",
            kind=RequestKind.DEGRADE,
            level=1,
            state=closed,
            answer=Answer.SUPPRESSED,
            detail="cooling_down: again in 4m",
        ),
    ]
    desk.notifier.on_transition(change)
    await desk.tick()
    lines = desk.carrier.parcels[0].body.splitlines()
    assert lines[0] == "llama runs out of memory"
    assert "job: llama" in lines
    assert "value: 42 (limit 60)" in lines
    assert any(line.startswith("since: ") and line.endswith(", 4s ago") for line in lines)
    assert "sentinel asked for checkpoint: done after 4s, and it was seen to work" in lines
    assert "sentinel did not ask for degrade to level 1: again in 4m" in lines


async def test_text_from_jobs_is_data() -> None:
    desk = Desk()
    desk.notifier.on_transition(firing(summary="\x1b[31m@everyone <!channel> key sk-secret \u202e" + "x" * 9000))
    await desk.tick()
    (message,) = desk.carrier.parcels
    assert "\x1b" not in message.title + message.body
    assert "@everyone" not in message.body
    assert "<!channel" not in message.body
    assert "sk-secret" not in message.title + message.body
    assert len(message.body) <= 4096
    assert len(message.title) <= 120


OWN = ("json://alice.example/x",)


async def test_a_jobs_end_is_told_once_to_its_own_receivers() -> None:
    desk = Desk()
    job = a_job(
        notify=OWN, state=JobState.FAILED, exit_code=1, cause="CUDA out of memory. Tried to allocate 2 GiB", ended=NOW
    )
    desk.jobs["j1"] = job
    desk.checkpoint = Checkpoint("/c/step-900", CheckpointState.COMPLETE, NOW - 600, 1 << 30, 900)
    for _ in range(3):
        desk.notifier.on_job_end(job)
        await desk.tick()
    desk.restart(ended=[job])
    await desk.tick()

    (message,) = desk.carrier.parcels
    assert message.url == OWN[0]
    assert message.title == "llama failed after 2h"
    assert "cause: CUDA out of memory. Tried to allocate 2 GiB" in message.body
    assert "last checkpoint: step 900, 1.00 GiB, 10m before the end" in message.body


@pytest.mark.parametrize(
    ("state", "title"),
    [
        (JobState.SUCCEEDED, "llama finished after 2h"),
        (JobState.PREEMPTED, "llama was preempted after 2h"),
        (JobState.STOPPED, "llama was stopped after 2h"),
        (JobState.LOST, "llama is gone after 2h"),
    ],
)
async def test_without_own_receivers_a_jobs_end_goes_along_the_route(state: JobState, title: str) -> None:
    desk = Desk()
    desk.jobs["j1"] = job = a_job(state=state, ended=NOW, exit_code=0)
    desk.notifier.on_job_end(job)
    await desk.tick()
    assert [(p.url, p.title) for p in desk.carrier.parcels] == [("json://oncall.example/a", title)]


async def test_nobody_to_tell_is_no_error() -> None:
    desk = Desk(Settings())
    desk.jobs["j1"] = job = a_job(state=JobState.SUCCEEDED, ended=NOW)
    desk.notifier.on_job_end(job)
    desk.notifier.on_transition(firing())
    await desk.after(60)
    assert desk.carrier.parcels == []


async def test_an_alert_of_a_job_reaches_the_route_and_the_jobs_own_and_nobody_twice() -> None:
    desk = Desk()
    desk.jobs["j1"] = a_job(notify=OWN)
    desk.jobs["j2"] = a_job("bert", job_id="j2", notify=("json://oncall.example/a",))
    desk.notifier.on_transition(firing())
    desk.notifier.on_transition(firing(job="bert", summary="bert is low"))
    await desk.tick()
    told = sorted(parcel.url for parcel in desk.carrier.parcels)
    assert told == ["json://alice.example/x", "json://oncall.example/a", "json://oncall.example/a"]


async def test_another_users_addresses_are_never_spoken_to() -> None:
    desk = Desk(Settings())
    desk.jobs["j1"] = job = a_job(notify=OWN, uid=2000, state=JobState.FAILED, ended=NOW)
    desk.notifier.on_transition(firing())
    desk.notifier.on_job_end(job)
    await desk.after(60)
    assert desk.carrier.parcels == []


async def test_a_failed_delivery_is_tried_again_and_later_each_time() -> None:
    desk = Desk()
    desk.carrier.answer = lambda parcel: Receipt(parcel.id, delivered=False, error="connection refused sk-secret")
    change = firing()
    desk.notifier.on_transition(change)
    await desk.tick()
    tries = []
    for _ in range(120):
        before = len(desk.carrier.parcels)
        await desk.after(1)
        if len(desk.carrier.parcels) > before:
            tries.append(desk.clock.now() - NOW)
    assert tries == [5, 15, 35, 75]
    assert [event.kind for event in desk.events] == ["notification.failed"], "said once, not at each attempt"
    assert "sk-secret" not in desk.events[0].message
    assert desk.notifier.undelivered() == 1
    (waiting,) = desk.notifier.outbox()
    assert (waiting["receiver"], waiting["address"], waiting["attempts"]) == ("oncall", "json://oncall.example/***", 5)

    desk.notifier.on_transition(resolving(change, desk.clock.now()))
    desk.carrier.answer = lambda parcel: Receipt(parcel.id, delivered=True)
    before = len(desk.carrier.parcels)
    await desk.after(60)
    await desk.tick()
    assert [p.title for p in desk.carrier.parcels[before:]] == [
        "CRITICAL: llama runs out of memory",
        "Resolved: MemoryLow on llama",
    ], "in this order"
    assert desk.notifier.undelivered() == 0


async def test_however_often_firing_failed_resolved_waits_for_it() -> None:
    desk = Desk()
    desk.carrier.answer = lambda parcel: Receipt(parcel.id, delivered=False, error="refused")
    change = firing()
    desk.notifier.on_transition(change)
    for _ in range(60):
        await desk.after(15)
    assert desk.notifier.outbox()[0]["attempts"] > 6
    desk.notifier.on_transition(resolving(change, desk.clock.now()))
    for _ in range(4):
        await desk.after(15)
    desk.carrier.answer = lambda parcel: Receipt(parcel.id, delivered=True)
    desk.carrier.parcels.clear()
    for _ in range(50):
        await desk.after(15)
    assert desk.carrier.titles() == ["CRITICAL: llama runs out of memory", "Resolved: MemoryLow on llama"]


async def test_what_the_other_side_asks_for_is_the_least_we_wait() -> None:
    desk = Desk()
    desk.carrier.answer = lambda parcel: Receipt(parcel.id, delivered=False, error="429", retry_after_s=120)
    desk.notifier.on_transition(firing())
    await desk.tick()
    await desk.after(119)
    assert len(desk.carrier.parcels) == 1
    await desk.after(1)
    assert len(desk.carrier.parcels) == 2


async def test_a_firing_message_that_was_given_up_takes_its_resolved_one_along() -> None:
    desk = Desk(replace(ONCALL, give_up_s=8))
    desk.carrier.answer = lambda parcel: Receipt(parcel.id, delivered=False, error="refused")
    change = firing()
    desk.notifier.on_transition(change)
    await desk.tick()
    await desk.after(5)
    desk.notifier.on_transition(resolving(change, desk.clock.now()))
    await desk.after(60)
    assert {p.title for p in desk.carrier.parcels} == {"CRITICAL: llama runs out of memory"}
    assert desk.notifier.undelivered() == 0


async def test_a_wrong_address_is_given_up_at_once_and_said_without_its_secret() -> None:
    secret = Settings(receivers=(Receiver("chat", ("slack://tokenA/tokenB/tokenC",)),), route=Route("chat"))
    desk = Desk(secret)
    desk.carrier.answer = lambda parcel: Receipt(parcel.id, delivered=False, error="not whole", hopeless=True)
    desk.notifier.on_transition(firing())
    await desk.tick()
    (failed,) = desk.events
    assert failed.message == "could not tell chat (slack://***): CRITICAL: llama runs out of memory: not whole"
    assert "token" not in "".join(desk.journal.lines)


async def test_checking_names_the_receiver_and_hides_the_secret() -> None:
    desk = Desk(Settings(receivers=(Receiver("x", ("json://fine", "nope://tokenA")),), route=Route("nobody")))
    assert await desk.notifier.check() == [
        "receiver 'x', address 2 (nope://***): no such scheme",
        "the route names the receiver 'nobody', which does not exist",
    ]


async def test_whom_a_jobs_end_is_told_to_is_known_before() -> None:
    desk = Desk()
    own, common = a_job(notify=("json://fine", "nope://tokenA")), a_job("bert", job_id="j2")
    desk.jobs |= {"j1": own, "j2": common}

    assert await desk.notifier.told_at_end(own, within_s=3.0) == {
        "receiver": "",
        "own": True,
        "checked": True,
        "addresses": [
            {"address": "json://fine", "problem": None},
            {"address": "nope://***", "problem": "no such scheme"},
        ],
    }
    assert (await desk.notifier.told_at_end(common, within_s=3.0))["receiver"] == "oncall"
    desk.notifier.replace_settings(Settings())
    assert (await desk.notifier.told_at_end(common, within_s=3.0))["addresses"] == []


async def test_a_test_message_goes_past_the_outbox_and_answers() -> None:
    desk = Desk()
    said = await desk.notifier.test("oncall")
    assert said["ok"]
    assert said["deliveries"] == [{"address": "json://oncall.example/***", "delivered": True, "error": None}]
    assert desk.journal.lines == []
    with pytest.raises(SentinelError, match="no receiver called 'oncal'") as caught:
        await desk.notifier.test("oncal")
    assert caught.value.hint == "oncall"


async def test_killed_after_firing_was_told_resolved_comes_once_and_firing_never_again() -> None:
    desk = Desk()
    change = firing()
    desk.notifier.on_transition(change)
    await desk.tick()
    desk.restart([change])
    await desk.after(400)
    assert len(desk.carrier.parcels) == 1
    over = resolving(change, desk.clock.now())
    desk.restart([over])  # it resolved, and the daemon died before it could say so
    await desk.tick()
    desk.restart([over])
    await desk.after(400)
    assert desk.carrier.titles() == ["CRITICAL: llama runs out of memory", "Resolved: MemoryLow on llama"]


async def test_killed_between_firing_and_its_message_the_message_still_comes() -> None:
    desk = Desk()
    change = firing()
    desk.notifier.on_transition(change)
    desk.restart([change])
    await desk.tick()
    assert desk.carrier.titles() == ["CRITICAL: llama runs out of memory"]


async def test_killed_between_sending_and_writing_it_down_a_message_is_repeated() -> None:
    desk = Desk()
    desk.notifier.on_transition(change := firing())
    await desk.tick()
    desk.journal.lines = [line for line in desk.journal.lines if '"outbox"' not in line]
    desk.restart([change])
    await desk.tick()
    assert len(desk.carrier.parcels) == 2, "rather twice than never"


async def test_compaction_loses_nothing() -> None:
    desk = Desk()
    desk.carrier.answer = lambda parcel: Receipt(parcel.id, delivered=False, error="refused")
    change = firing()
    desk.notifier.on_transition(change)
    desk.jobs["j1"] = job = a_job(notify=OWN, state=JobState.FAILED, ended=NOW)
    desk.notifier.on_job_end(job)
    await desk.tick()
    kept = list(desk.notifier.snapshot())
    desk.journal.lines.clear()
    for kind, data in kept:
        desk.journal.append(kind, data)
    desk.restart([change], [job])
    desk.carrier.answer = lambda parcel: Receipt(parcel.id, delivered=True)
    desk.carrier.parcels.clear()
    await desk.after(10)
    critical = "CRITICAL: llama runs out of memory"
    assert sorted(desk.carrier.titles()) == [critical, critical, "llama failed after 2h"], "oncall, and alice both"


async def test_a_full_disk_marks_the_message() -> None:
    desk = Desk()
    desk.journal.full = True
    desk.notifier.on_transition(firing())
    await desk.tick()
    assert "journal cannot be written" in desk.carrier.parcels[0].body


async def test_a_users_rule_tells_only_that_users_jobs() -> None:
    desk = Desk()
    desk.jobs["j1"] = a_job(notify=OWN)
    desk.notifier.on_transition(firing(rule=replace(RULE, uid=2000)))
    await desk.tick()
    assert [p.url for p in desk.carrier.parcels] == [OWN[0]]


async def test_a_receiver_that_is_gone_after_a_reload_gets_nothing_more() -> None:
    desk = Desk()
    desk.notifier.on_transition(firing())
    desk.notifier.replace_settings(Settings())
    await desk.tick()
    assert desk.carrier.parcels == []
    assert desk.notifier.undelivered() == 0


async def test_a_job_that_was_asked_in_vain_is_a_reason_to_wake_people_again() -> None:
    desk = Desk()
    desk.jobs["j1"] = a_job()
    change = firing()
    request = Request(
        "r1", "j1", "llama", 1, RequestKind.CHECKPOINT, None, "low", change.alert.id, "rule:MemoryLow", NOW, NOW + 60,
        state=RequestState.SENT, sent=NOW,
    )  # fmt: skip
    desk.requests = [request]
    desk.notifier.on_transition(change)
    await desk.tick()
    await desk.after(10)
    desk.requests = [
        replace(request, state=RequestState.CLOSED, closed=NOW + 10, answer=Answer.EXPIRED, detail="no answer in time")
    ]
    await desk.after(5)
    assert len(desk.carrier.parcels) == 1
    for _ in range(5):
        await desk.after(15)
    assert desk.carrier.titles()[1:] == ["Asked in vain: CRITICAL: llama runs out of memory"]
    assert "sentinel asked for checkpoint: expired (no answer in time)" in desk.carrier.parcels[1].body


async def test_a_jobs_own_receiver_is_named_by_the_job_and_never_by_its_id() -> None:
    desk = Desk()
    desk.jobs["j1"] = job = a_job(notify=OWN, state=JobState.SUCCEEDED, ended=NOW)
    desk.carrier.answer = lambda parcel: Receipt(parcel.id, delivered=False, error="refused")
    desk.notifier.on_job_end(job)
    await desk.tick()
    assert desk.notifier.outbox()[0]["receiver"] == "job:llama"
    assert desk.events[0].data["receiver"] == "job:llama"
