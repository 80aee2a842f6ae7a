"""Real mail, real HTTP, a real child: servers that are down, slow, strict; a child that is killed."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from sentinel.notify.child import retry_after
from sentinel.notify.courier import AppriseCourier
from sentinel.notify.ports import Parcel, Receipt
from sentinel.notify.settings import Receiver, Route, Settings
from tests.notify.outside import NOW, Desk, Mailbox, Sink, a_job, firing, resolving, until


@pytest.fixture
def mailbox() -> Iterator[Mailbox]:
    box = Mailbox()
    box.open()
    yield box
    box.close()


@pytest.fixture
def sink() -> Iterator[Sink]:
    sink = Sink()
    yield sink
    sink.close()


@pytest.fixture(scope="module")
def courier() -> Iterator[AppriseCourier]:
    """One for all: its child takes a moment to import apprise."""
    courier = AppriseCourier(timeout_s=10)
    yield courier
    courier.close()


def told(*urls: str) -> Settings:
    return Settings(receivers=(Receiver("oncall", urls),), route=Route("oncall"))


def sent(courier: AppriseCourier, url: str, body: str = "hello") -> Receipt:
    receipts = courier.exchange([Parcel("p", url, "a title", body, "warning")], 0.0)
    deadline = time.monotonic() + 15
    while not receipts:
        assert time.monotonic() < deadline, "no receipt"
        receipts = courier.exchange([], 0.5)
    return receipts[0]


async def test_firing_and_resolved_arrive_by_mail_and_by_http(
    mailbox: Mailbox, sink: Sink, courier: AppriseCourier
) -> None:
    desk = Desk(told(mailbox.url, sink.url), courier, real_time=True)
    desk.jobs["j1"] = a_job()
    change = firing(time.time(), summary="llama <b>runs</b> *out* of memory & more")
    desk.notifier.on_transition(change)
    await desk.ticking(lambda: len(mailbox.letters) == 1 and len(sink.got) == 1)
    desk.notifier.on_transition(resolving(change, time.time()))
    await desk.ticking(lambda: len(mailbox.letters) == 2 and len(sink.got) == 2)
    await desk.notifier.settle()

    assert mailbox.subjects() == ["CRITICAL: llama <b>runs</b> *out* of memory & more", "Resolved: MemoryLow on llama"]
    assert sink.got[0]["title"] == mailbox.subjects()[0]
    assert "value: 42 (limit 60)" in sink.got[0]["message"].splitlines()
    letter = mailbox.text(0)
    assert "<b>" not in letter or "text/plain" in str(mailbox.letters[0].get_content_type()), "markup stays text"
    assert "job: llama" in letter


async def test_a_server_that_is_down_gets_the_message_when_it_is_up(mailbox: Mailbox, courier: AppriseCourier) -> None:
    mailbox.close()
    desk = Desk(told(mailbox.url), courier, real_time=True)
    desk.notifier.on_transition(firing(time.time()))
    await desk.ticking(lambda: desk.events)
    assert desk.events[0].kind == "notification.failed"
    mailbox.open()
    await desk.ticking(lambda: mailbox.letters)
    await desk.notifier.settle()
    assert mailbox.subjects() == ["CRITICAL: llama runs out of memory"]
    assert desk.notifier.undelivered() == 0


async def test_a_child_killed_in_the_middle_costs_no_message(sink: Sink, courier: AppriseCourier) -> None:
    desk = Desk(told(sink.url), courier, real_time=True)
    sink.hold.clear()
    desk.notifier.on_transition(firing(time.time()))
    await desk.ticking(lambda: sink.tries == 1)
    first = courier.pid
    assert first is not None
    os.kill(first, signal.SIGKILL)
    sink.status = 503
    sink.hold.set()
    await desk.ticking(lambda: desk.events)
    sink.status = 200
    sink.got.clear()

    await desk.ticking(lambda: sink.got)
    await desk.notifier.settle()

    assert courier.pid != first
    assert [event.kind for event in desk.events] == ["notification.failed", "notification.sent"]


async def test_an_address_that_hangs_delays_no_other(sink: Sink, mailbox: Mailbox, courier: AppriseCourier) -> None:
    sink.hold.clear()
    desk = Desk(told(sink.url, mailbox.url), courier, real_time=True)
    begun = time.monotonic()
    desk.notifier.on_transition(firing(time.time()))
    await desk.ticking(lambda: mailbox.letters)
    assert sink.got == []
    assert time.monotonic() - begun < 8
    sink.hold.set()
    await desk.ticking(lambda: sink.got)
    await desk.notifier.settle()


def test_what_the_other_side_asks_for_is_heard(sink: Sink, courier: AppriseCourier) -> None:
    sink.status, sink.headers = 429, {"Retry-After": "17"}
    receipt = sent(courier, sink.url)
    assert not receipt.delivered
    assert receipt.retry_after_s == 17
    assert "429" in receipt.error


def test_both_forms_of_retry_after() -> None:
    assert retry_after("120", NOW) == 120
    assert retry_after("Fri, 15 Jan 2027 08:01:00 GMT", NOW) == 60
    assert retry_after("soon", NOW) is None
    assert retry_after(None, NOW) is None


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("ntfy://", "it names no topic"),
        ("json://", "it is not a whole json:// address"),
        ("slak://aaaaaaaaa/bbbbbbbbb", "no such kind of address; did you mean slack://?"),
        ("no scheme at all", "it has no scheme"),
        ("slack://short", "Slack"),
    ],
)
def test_a_wrong_address_is_named_with_the_reason(url: str, said: str, courier: AppriseCourier) -> None:
    receipt = sent(courier, url)
    assert receipt.hopeless
    assert said in receipt.error
    (problem,) = courier.check([url])
    assert problem is not None
    assert said in problem


def test_errors_hold_no_secret(courier: AppriseCourier, mailbox: Mailbox) -> None:
    receipt = sent(courier, mailbox.url.replace("mailto://", "mailto://alice:hunter2secret@"))
    assert not receipt.delivered
    assert receipt.error
    assert "hunter2secret" not in receipt.error
    assert courier.check([mailbox.url]) == [None]


def test_an_idle_child_goes_and_comes_back(sink: Sink) -> None:
    courier = AppriseCourier(idle_s=0.3)
    assert sent(courier, sink.url).delivered
    first = courier.pid
    until(lambda: courier.pid is None)
    assert sent(courier, sink.url).delivered
    assert courier.pid != first
    courier.close()


async def test_notify_test_reaches_a_real_receiver(mailbox: Mailbox, courier: AppriseCourier) -> None:
    desk = Desk(told(mailbox.url), courier, real_time=True)
    said = await asyncio.wait_for(desk.notifier.test("oncall"), 20)
    assert said["ok"]
    assert mailbox.subjects()[0].startswith("Test from sentinel on ")
    mailbox.close()
    said = await asyncio.wait_for(desk.notifier.test("oncall"), 20)
    assert not said["ok"]
    assert said["deliveries"][0]["error"]


async def test_the_owner_hears_of_the_end_of_a_job(mailbox: Mailbox, courier: AppriseCourier) -> None:
    desk = Desk(Settings(), courier, real_time=True)
    job = a_job(notify=(mailbox.url,))
    ended = replace(job, state=type(job.state).FAILED, exit_code=1, cause="RuntimeError: boom", ended=time.time())
    desk.jobs["j1"] = ended
    desk.notifier.on_job_end(ended)
    await desk.ticking(lambda: mailbox.letters)
    await desk.notifier.settle()
    assert mailbox.subjects()[0].startswith("llama failed after ")
    assert "cause: RuntimeError: boom" in mailbox.text(0)
