"""Sees to it that letters arrive: hands them to the courier, takes receipts, tries again, gives up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

from sentinel.clock import Clock
from sentinel.model.events import Severity, event
from sentinel.model.journal import JournalUnavailable
from sentinel.model.wire import encode
from sentinel.notify import outbox
from sentinel.notify.directory import Directory
from sentinel.notify.outbox import Letter, LetterState, Outbox
from sentinel.notify.ports import Courier, Journal, Parcel, Publish, Receipt

_POLL_S = 1.0
_LOST_S = 60.0


class PostRoom:
    """Moves letters from the outbox to the outside.

    Args:
        box: The letters.
        directory: Knows their addresses.
        courier: Carries them.
        journal: What becomes of each is written there.
        publish: Where deliveries and failures go as events.
        clock: The time.
        mask: Takes secrets out of errors.
        jitter: From 0 to 1, for the waits between attempts.
    """

    def __init__(
        self,
        box: Outbox,
        directory: Directory,
        courier: Courier,
        journal: Journal,
        publish: Publish,
        *,
        clock: Clock,
        mask: Callable[[str], str],
        jitter: Callable[[], float],
    ) -> None:
        self._outbox = box
        self._directory = directory
        self._courier = courier
        self._journal = journal
        self._publish = publish
        self._clock = clock
        self._mask = mask
        self._jitter = jitter
        self._away: dict[str, float] = {}
        self._express: list[Parcel] = []
        self._awaited: dict[str, asyncio.Future[Receipt]] = {}
        self._pump: asyncio.Task[None] | None = None

    def move(self, at: float) -> None:
        """Set going what is due. Never waits for a delivery."""
        for letter in self._outbox.orphans():
            self._close(outbox.abandoned(letter, at, "what it follows upon never arrived"), at)
        if self._pump is None and (self._away or self._express or self._outbox.due(at, set())):
            self._pump = asyncio.get_running_loop().create_task(self._deliver())
            self._pump.add_done_callback(self._delivered)

    async def send_now(self, parcels: list[Parcel]) -> list[Receipt]:
        """Send past the outbox and wait for the receipts, in the same order."""
        loop = asyncio.get_running_loop()
        futures: list[asyncio.Future[Receipt]] = [loop.create_future() for _ in parcels]
        self._awaited.update(zip([parcel.id for parcel in parcels], futures, strict=True))
        self._express += parcels
        self.move(self._clock.now())
        await asyncio.wait(futures, timeout=self._directory.settings.timeout_s + _LOST_S)
        late = Receipt("", delivered=False, error="no answer in time")
        return [future.result() if future.done() else late for future in futures]

    async def settle(self) -> None:
        """Wait until nothing is on its way."""
        while self._pump is not None:
            await asyncio.wait([self._pump])
            await asyncio.sleep(0)

    async def close(self) -> None:
        """End the courier. What is on its way is sent again after the next start."""
        if self._pump is not None:
            self._pump.cancel()
        await asyncio.to_thread(self._courier.close)

    async def _deliver(self) -> None:
        """Hand over what is due and take in receipts, until there is nothing left to do."""
        while True:
            at = self._clock.now()
            parcels = self._parcels(at)
            if not parcels and not self._away:
                return
            receipts = await asyncio.to_thread(self._courier.exchange, parcels, _POLL_S)
            for receipt in (*receipts, *self._overdue()):
                self._take(receipt)

    def _parcels(self, at: float) -> list[Parcel]:
        parcels, self._express = self._express, []
        busy = {letter.address for name in self._away if (letter := self._outbox.letters.get(name)) is not None}
        for letter in self._outbox.due(at, busy):
            url = self._directory.url(letter)
            if url is None:
                self._close(outbox.abandoned(letter, at, f"{letter.receiver} has this address no more"), at)
                continue
            job_id = self._directory.job_of(letter.receiver)
            parcels.append(Parcel(letter.id, url, letter.title, letter.body, letter.severity, job_id))
        since = self._clock.monotonic()
        self._away.update((parcel.id, since) for parcel in parcels)
        return parcels

    def _overdue(self) -> list[Receipt]:
        limit = self._clock.monotonic() - self._directory.settings.timeout_s - _LOST_S
        return [
            Receipt(name, delivered=False, error="no answer") for name, since in self._away.items() if since < limit
        ]

    def _take(self, receipt: Receipt) -> None:
        self._away.pop(receipt.id, None)
        if (future := self._awaited.pop(receipt.id, None)) is not None:
            if not future.done():
                future.set_result(receipt)
            return
        letter = self._outbox.letters.get(receipt.id)
        if letter is None or not letter.open:
            return
        at = self._clock.now()
        if receipt.delivered:
            self._close(outbox.delivered(letter, at), at)
        elif receipt.hopeless:
            self._close(outbox.abandoned(letter, at, self._mask(receipt.error)), at)
        else:
            why = self._mask(receipt.error)
            tried = outbox.failed(
                letter,
                at,
                why,
                give_up_s=self._directory.settings.give_up_s,
                jitter=self._jitter(),
                retry_after_s=receipt.retry_after_s,
            )
            self._close(tried, at)

    def _close(self, letter: Letter, at: float) -> None:
        """What became of a letter: journal, memory, event."""
        try:
            self._journal.append("outbox", encode(letter))
        except JournalUnavailable:
            letter = replace(letter, unjournalled=True)
        self._outbox.put(letter)
        where = f"{self._directory.named(letter.receiver)} ({self._directory.shown(letter)})"
        receiver = self._directory.label(letter.receiver)
        data = {"letter": letter.id, "receiver": receiver, "attempts": letter.attempts, "title": letter.title}
        match letter.state:
            case LetterState.DELIVERED:
                kind, text, severity = "notification.sent", f"told {where}: {letter.title}", Severity.INFO
            case LetterState.ABANDONED:
                kind, severity = "notification.failed", Severity.CRITICAL
                text = f"could not tell {where}: {letter.title}: {letter.error}"
            case LetterState.WAITING if letter.attempts == 1:
                kind, severity = "notification.failed", Severity.WARNING
                text = f"could not tell {where} yet, trying again: {letter.error}"
            case _:
                return
        self._publish(
            event(kind, text, at=at, job=letter.job, severity=severity, uid=letter.uid, error=letter.error, **data)
        )

    def _delivered(self, pump: asyncio.Task[None]) -> None:
        self._pump = None
        if self._express:  # came in just as it ended
            self.move(self._clock.now())
        if not pump.cancelled() and (fault := pump.exception()) is not None:
            self._away.clear()
            text = f"messages could not be handled: {type(fault).__name__}: {fault}"
            self._publish(event("sentinel.fault", text, at=self._clock.now(), severity=Severity.CRITICAL))
