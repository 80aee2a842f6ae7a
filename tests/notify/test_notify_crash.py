"""Wherever the daemon dies: people end up believing what is true, and hear of no end without a beginning."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from sentinel.clock import ManualClock
from sentinel.model.alerts import Transition
from sentinel.notify.ports import Parcel, Receipt
from tests.notify.outside import Desk, MemoryJournal, firing, resolving


class Crash(BaseException):
    """The daemon is dead from here on."""


class MortalJournal(MemoryJournal):
    def __init__(self) -> None:
        super().__init__()
        self.dead = False
        self.crash_after: int | None = None

    def append(self, kind: str, data: Mapping[str, object]) -> None:
        if self.dead or self.crash_after == 0:
            self.dead = True
            raise Crash
        super().append(kind, data)
        if self.crash_after is not None:
            self.crash_after -= 1


class AnyNight(RuleBasedStateMachine):
    """Alerts come and go, the receiver is up or down, and the daemon may die before any record."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.desk = Desk()
        self.journal = MortalJournal()
        self.desk.journal = self.journal
        self.desk.notifier = self.desk._new()
        self.up = True
        self.crashes = 0
        self.open: dict[str, Transition] = {}
        self.over: dict[str, Transition] = {}
        self.desk.carrier.exchange = self.exchange  # type: ignore[method-assign]
        self.arrived: list[Parcel] = []

    def teardown(self) -> None:
        self.drain()
        believed: dict[str, bool] = {}
        for parcel in self.arrived:
            believed[_job(parcel)] = not parcel.title.startswith("Resolved")
        assert {job for job, fires in believed.items() if fires} == set(self.open)
        self.loop.close()

    def exchange(self, parcels: Sequence[Parcel], wait_s: float) -> list[Receipt]:
        if self.journal.dead:
            return []
        if self.up:
            self.arrived += parcels
        return [Receipt(parcel.id, delivered=self.up, error="" if self.up else "down") for parcel in parcels]

    def drain(self) -> None:
        self.up = True
        self.journal.crash_after = None
        for _ in range(12):
            self.pass_(900.0)

    def go(self, act: Callable[[], None]) -> None:
        async def living() -> None:
            try:
                act()
                await self.desk.tick()
            except Crash:
                pass
            if self.journal.dead:
                self.crashes += 1
                self.journal.dead, self.journal.crash_after = False, None
                self.desk.restart([*self.open.values(), *self.over.values()])
                await self.desk.tick()

        self.loop.run_until_complete(living())

    def pass_(self, seconds: float) -> None:
        assert isinstance(self.desk.clock, ManualClock)
        self.desk.clock.advance(seconds)
        self.go(lambda: None)

    @rule(which=st.integers(0, 2))
    def fires(self, which: int) -> None:
        job = f"job-{which}"
        if job not in self.open:
            change = firing(self.desk.clock.now(), severity="critical", job=job, summary=f"{job} is low")
            self.open[job] = change
            self.over.pop(job, None)
            self.go(lambda: self.desk.notifier.on_transition(change))

    @rule(which=st.integers(0, 2))
    def resolves(self, which: int) -> None:
        job = f"job-{which}"
        if job in self.open:
            change = resolving(self.open.pop(job), self.desk.clock.now())
            self.over[job] = change
            self.go(lambda: self.desk.notifier.on_transition(change))

    @rule(seconds=st.sampled_from([1.0, 31.0, 301.0]))
    def time_passes(self, seconds: float) -> None:
        self.pass_(seconds)

    @rule(up=st.booleans())
    def the_receiver(self, up: bool) -> None:
        self.up = up

    @rule()
    def killed(self) -> None:
        self.journal.dead = True
        self.go(lambda: None)

    @rule(records=st.integers(0, 3))
    def will_be_killed(self, records: int) -> None:
        self.journal.crash_after = records

    @invariant()
    def no_end_without_a_beginning(self) -> None:
        seen: set[str] = set()
        for parcel in self.arrived:
            if parcel.title.startswith("Resolved"):
                assert _job(parcel) in seen
            else:
                seen.add(_job(parcel))

    @invariant()
    def a_letter_comes_twice_only_where_the_daemon_died_in_between(self) -> None:
        again = sum(count - 1 for count in Counter(parcel.id for parcel in self.arrived).values())
        assert again <= self.crashes * 3


def _job(parcel: Parcel) -> str:
    return next(word for word in parcel.title.replace(":", " ").split() if word.startswith("job-"))


AnyNight.TestCase.settings = settings(
    max_examples=60, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
)
TestAnyNight = AnyNight.TestCase
