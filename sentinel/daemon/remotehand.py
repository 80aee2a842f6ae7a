"""The hands of other users: each a process of a job's owner that reads, calls and runs for us, since we do not.

What a hand says is the owner's word about the owner's own job. It is bounded and
cleaned here, and it moves nothing but that job's numbers, events and requests.
"""

from __future__ import annotations

import asyncio
import contextlib
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from sentinel.clock import Clock
from sentinel.collectors.joblogs import JobLogs
from sentinel.daemon import handwords
from sentinel.daemon.handwire import Errand, Habits, Left, Orders, Report
from sentinel.daemon.lookout import Lookout
from sentinel.daemon.remotemail import RemoteMail
from sentinel.jobs.ports import Journal
from sentinel.model.events import new_id
from sentinel.model.jobs import How, Job
from sentinel.model.journal import JournalUnavailable, Record
from sentinel.model.requests import Delivery, Outcome

KIND = "hand"
SILENT_S = 10.0
"""A hand not heard of for so long is not waited for."""
PROMISED_S = 10.0
"""How long the first word of a hand may take after its job was registered."""
LAST_WORDS_S = 5.0
"""How long the end of a job waits for what its hand has still to say."""
TAKE_S = 5.0
"""How long an errand waits to be taken: a hand that was killed is back in about a second."""
GRACE_S = 3.0
"""Beyond an errand's own time, for the word to come back."""
STAYS_S = 60.0
"""How long a hand may stay after the end of its job, for messages still to be delivered."""
_MOST_SESSIONS = 200


@dataclass(slots=True)
class _Session:
    """One hand, as long as it speaks."""

    hand: str
    heard: float
    seq: int = 0
    drain: int = 0
    drained: int = 0
    left: Left | None = None
    settled: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(slots=True)
class _Open:
    """An errand under way."""

    errand: Errand
    answer: asyncio.Future[Delivery]
    given: bool = False
    taken: bool = False


class RemoteHands:
    """Speaks with the hands of the jobs that are not ours. Belongs to the event loop.

    Args:
        logs: Takes what they have read.
        checkpoints: Takes what they have seen.
        mail: Messages on their way to owners.
        journal: Remembers which jobs have a hand.
        clock: The time.
        uid: Whose daemon this is.
        habits: What the configuration says about their work.
        find: A job by its id.
        waiting_for: How many messages for a job's owner are still to be delivered.
    """

    def __init__(
        self,
        logs: JobLogs,
        checkpoints: Lookout,
        mail: RemoteMail,
        journal: Journal,
        *,
        clock: Clock,
        uid: int,
        habits: Habits,
        find: Callable[[str], Job | None],
        waiting_for: Callable[[str], int],
    ) -> None:
        self._logs = logs
        self._checkpoints = checkpoints
        self._mail = mail
        self._journal = journal
        self._clock = clock
        self._uid = uid
        self._habits = habits
        self._find = find
        self._waiting_for = waiting_for
        self._sessions: dict[str, _Session] = {}
        self._errands: dict[str, dict[str, _Open]] = {}
        self._promised: dict[str, float] = {}
        self._known: set[str] = set()

    # Who has one

    def of(self, job: Job) -> RemoteHand:
        """The hand of one job's owner, as the jobs' room knows hands."""
        return RemoteHand(self, job)

    def promise(self, job: Job) -> None:
        """Its owner's side has been told that a hand is needed."""
        self._promised[job.id] = self._clock.monotonic()

    def serves(self, job_id: str) -> bool:
        """Whether a hand of the job's owner has ever spoken, or should any moment. From any thread."""
        promised = self._promised.get(job_id)
        return job_id in self._known or (promised is not None and self._clock.monotonic() - promised < PROMISED_S)

    def expected(self, job: Job) -> bool:
        """Whether a word of its hand may still come."""
        if job.uid == self._uid or job.root is None:
            return False
        session, now = self._sessions.get(job.id), self._clock.monotonic()
        if session is not None:
            return now - session.heard < SILENT_S
        return now - self._promised.get(job.id, float("-inf")) < PROMISED_S

    # Over a restart

    def fold(self, record: Record) -> None:
        """Take in one record of the replay."""
        if record.kind == KIND:
            self._known.add(str(record.data.get("job", "")))

    def snapshot(self) -> Iterator[tuple[str, Mapping[str, object]]]:
        """The records that say what `fold` needs."""
        self._known = {job_id for job_id in self._known if self._find(job_id) is not None}
        for job_id in self._known:
            yield KIND, {"job": job_id}

    def recover(self, living: Iterable[Job]) -> None:
        """After the replay: the hands that spoke before will be back in a moment."""
        for job in living:
            if job.id in self._known:
                self.promise(job)

    # What they say

    def report(self, job: Job, said: Report) -> Orders:
        """Take in what a hand has seen and done; what it is to do next."""
        session = self._sessions.get(job.id)
        new = session is None or session.hand != said.hand
        if session is None or new:
            session = self._begin(job, said, session)
        session.heard = self._clock.monotonic()
        if said.seq > session.seq:
            session.seq = said.seq
            self._absorb(job, said)
        self._progress(job, session, said)
        over = not job.alive and not self._mail.away(job.id) and not self._waiting_for(job.id)
        if not job.alive and self._clock.now() - (job.ended or 0.0) > STAYS_S:
            over = True
        return Orders(
            job,
            tuple(self._give(job.id)) if job.alive else (),
            tuple(self._mail.give(job.id, said.hand)),
            session.drain >= job.attempt,
            over,
            self._habits if new else None,
        )

    def _begin(self, job: Job, said: Report, before: _Session | None) -> _Session:
        if before is not None:
            for under_way in self._errands.get(job.id, {}).values():
                if under_way.taken and not under_way.answer.done():
                    words = f"the hand of {job.owner} ended before it could say; whether it was done is not known"
                    under_way.answer.set_result(Delivery(Outcome.FAILED, words))
            self._mail.lost(job.id, said.hand)
        made = self._sessions[job.id] = _Session(said.hand, 0.0)
        made.drain = before.drain if before else 0
        while len(self._sessions) > _MOST_SESSIONS:
            del self._sessions[next(iter(self._sessions))]
        if job.id not in self._known:
            self._known.add(job.id)
            with contextlib.suppress(JournalUnavailable):  # after a restart it is known again with its first word
                self._journal.append(KIND, {"job": job.id})
        self._logs.recall(job, handwords.events(said.recent))
        return made

    def _absorb(self, job: Job, said: Report) -> None:
        if not job.alive:
            return  # its series have ended
        now = self._clock.now()
        self._logs.take(
            job,
            handwords.events(said.events),
            lines=handwords.count(said.lines),
            size_bytes=handwords.count(said.size_bytes),
            output_at=handwords.moment(said.output_at, now),
        )
        if said.look is not None and job.spec.checkpoints:
            look = handwords.look(said.look, now)
            self._checkpoints.take(job, look.row, look.newest, look.found)

    def _progress(self, job: Job, session: _Session, said: Report) -> None:
        """What may be said twice: how far errands, messages and the reading are."""
        under_way = self._errands.get(job.id, {})
        for name in said.taken:
            if name in under_way:
                under_way[name].taken = True
        for result in said.results:
            found = under_way.get(result.id)
            if found is not None and not found.answer.done():
                found.answer.set_result(handwords.delivery(result.delivery))
        self._mail.taken(job.id, said.hand, said.taken)
        self._mail.receipts_of(job.id, [handwords.receipt(receipt) for receipt in said.receipts])
        if said.left is not None:
            session.left = said.left
        session.drained = max(session.drained, said.drained)
        if session.drain >= job.attempt and session.drained >= job.attempt:
            session.settled.set()

    def _give(self, job_id: str) -> Iterator[Errand]:
        for each in self._errands.get(job_id, {}).values():
            if not each.taken and not each.answer.done():
                each.given = True
                yield each.errand

    # The end of a job

    async def last_words(self, job: Job) -> None:
        """Wait a moment until the hand has read the output to its end: the last lines say why."""
        deadline = self._clock.monotonic() + LAST_WORDS_S
        while self.is_awaited(job) and (left_s := deadline - self._clock.monotonic()) > 0:
            session = self._sessions.get(job.id)
            if session is None:  # it has not started yet
                await asyncio.sleep(min(0.05, left_s))
                continue
            try:
                async with asyncio.timeout(min(0.5, left_s)):
                    await session.settled.wait()
            except TimeoutError:
                continue

    def is_awaited(self, job: Job) -> bool:
        """Whether the hand has still to say something about an attempt that is over; from now on it is asked to."""
        if not self.expected(job):
            return False
        session = self._sessions.get(job.id)
        if session is None:
            return True
        if session.drain < job.attempt:
            session.drain, session.drained = job.attempt, 0  # what it had read before is not the end yet
            session.settled.clear()
        return session.drained < job.attempt

    def left(self, job: Job) -> tuple[int | None, int | None, float] | None:
        """How the attempt ended, as the supervisor wrote it down and the hand has read it; None: nobody says."""
        session = self._sessions.get(job.id)
        found = session.left if session is not None else None
        if found is None or found.attempt != job.attempt:
            return None
        return found.exit_code, found.exit_signal, found.at

    def ended(self, job: Job) -> None:
        """The job is over: nothing more is measured of it, and nothing more asked."""
        self._checkpoints.forget(job.id)
        for each in self._errands.get(job.id, {}).values():
            if not each.answer.done():
                each.answer.set_result(Delivery(Outcome.FAILED, "the job ended first"))

    # Errands

    async def run(self, job: Job, how: How, target: str, message: Mapping[str, object], timeout_s: float) -> Delivery:
        """Have the owner's hand do something; never raises for what came of it."""
        loop = asyncio.get_running_loop()
        errand = Errand(new_id("e"), how, target, message, timeout_s)
        under_way = _Open(errand, loop.create_future())
        self._errands.setdefault(job.id, {})[errand.id] = under_way
        try:
            await asyncio.wait({under_way.answer}, timeout=min(timeout_s, TAKE_S))
            if not under_way.answer.done() and under_way.taken:
                await asyncio.wait({under_way.answer}, timeout=max(0.0, timeout_s - TAKE_S) + GRACE_S)
            if under_way.answer.done():
                return under_way.answer.result()
            return Delivery(Outcome.FAILED, _silence(job, under_way, timeout_s))
        finally:
            del self._errands[job.id][errand.id]
            if not self._errands[job.id]:
                del self._errands[job.id]


class RemoteHand:
    """One owner's hand: implements `jobs.ports.Hand` by errands."""

    def __init__(self, hands: RemoteHands, job: Job) -> None:
        self._hands = hands
        self._job = job

    async def file(self, path: str, message: Mapping[str, object], *, timeout_s: float) -> Delivery:
        """Have the message put at `path`, and `path`.ack waited for."""
        return await self._hands.run(self._job, How.FILE, path, message, timeout_s)

    async def execute(
        self, argv: Sequence[str], message: Mapping[str, object], *, cwd: str, timeout_s: float
    ) -> Delivery:
        """Have a program run, in the directory that the owner's side knows."""
        del cwd
        return await self._hands.run(self._job, How.EXEC, shlex.join(argv), message, timeout_s)

    async def http(self, url: str, message: Mapping[str, object], *, timeout_s: float) -> Delivery:
        """Have the message posted."""
        return await self._hands.run(self._job, How.HTTP, url, message, timeout_s)


def _silence(job: Job, under_way: _Open, timeout_s: float) -> str:
    if under_way.taken:
        return f"the hand of {job.owner} did not say in {timeout_s:.0f}s what came of it"
    if under_way.given:
        return f"the hand of {job.owner} was told and did not answer; whether it was done is not known"
    return (
        f"nothing was done: no hand of {job.owner}'s is there, and this daemon, another user's, "
        "opens, calls and runs nothing of theirs"
    )
