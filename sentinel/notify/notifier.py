"""Tells people: alerts through the route, a job's end to its owner, each through the outbox.

Lives on the daemon's loop. What is said and when is decided in `router`, in
which words in `messages`, when to try again in `outbox`: all pure. Only the
courier, in a thread and a process of its own, speaks to the outside.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from sentinel.clock import Clock
from sentinel.model.alerts import Alert, AlertState, Reason, Transition
from sentinel.model.events import Severity, event, new_id
from sentinel.model.jobs import Job
from sentinel.model.journal import JournalUnavailable, Record
from sentinel.model.requests import Answer, Request
from sentinel.model.wire import WireError, decode, encode
from sentinel.notify import addresses, messages, outbox, router
from sentinel.notify.directory import OWN, Directory
from sentinel.notify.inspection import Inspection
from sentinel.notify.messages import Text
from sentinel.notify.outbox import Letter, Outbox
from sentinel.notify.ports import (
    Courier,
    FindJob,
    JobsOf,
    Journal,
    Newest,
    Parcel,
    Publish,
    RequestsOf,
    Silences,
    SpeaksFor,
)
from sentinel.notify.postroom import PostRoom
from sentinel.notify.router import Group
from sentinel.notify.settings import Settings

KINDS = frozenset({"notify.flush", "outbox"})
UNJOURNALLED = "[sentinel's journal cannot be written: this message may come again after a restart]"
_IN_VAIN = frozenset({Answer.REFUSED, Answer.FAILED, Answer.EXPIRED})
_PRUNE_EVERY_S = 60.0
_RECENT_S = 3600.0


class Notifier:
    """Makes letters of what happened, and sees to it that they arrive.

    Args:
        journal: Letters are written there before they are sent.
        publish: Where deliveries and failures go as events.
        courier: Carries letters.
        clock: The time.
        settings: Receivers and the route.
        find: Jobs, also those that ended lately, by id or name.
        jobs_of: The jobs an alert is about.
        requests_of: What was asked because of an alert.
        requests_to: What was asked of a job, by its id.
        newest: The newest whole checkpoint of a job.
        silences: What people do not want to hear of.
        mask: Takes secrets out of text.
        uid: Whose daemon this is.
        speaks_for: Whether somebody carries messages as a job's owner; None: only for jobs of `uid`.
        jitter: From 0 to 1, for the waits between attempts.
    """

    def __init__(
        self,
        journal: Journal,
        publish: Publish,
        courier: Courier,
        *,
        clock: Clock,
        settings: Settings,
        find: FindJob,
        jobs_of: JobsOf,
        requests_of: RequestsOf,
        requests_to: Callable[[str], Sequence[Request]],
        newest: Newest,
        silences: Silences,
        mask: Callable[[str], str],
        uid: int | None = None,
        speaks_for: SpeaksFor | None = None,
        jitter: Callable[[], float] = outbox.jitter,
    ) -> None:
        self._journal = journal
        self._publish = publish
        self._courier = courier
        self._clock = clock
        self._find = find
        self._jobs_of = jobs_of
        self._requests_of = requests_of
        self._requests_to = requests_to
        self._newest = newest
        self._silences = silences
        self._mask = mask
        self._directory = Directory(settings, find, os.getuid() if uid is None else uid, speaks_for)
        self._outbox = Outbox()
        self._post = PostRoom(
            self._outbox, self._directory, courier, journal, publish, clock=clock, mask=mask, jitter=jitter
        )
        self._inspection = Inspection(courier)
        self._groups: dict[str, Group] = {}
        self._ended: dict[str, float] = {}
        self._left_open: dict[str, list[Alert]] = {}
        self._pruned = 0.0

    # What the daemon does with it

    def fold(self, record: Record) -> None:
        """Take in one record of the replay; kinds of other rooms are ignored."""
        if record.kind == "outbox":
            self._outbox.fold(record.data)
        elif record.kind == "notify.flush":
            self._fold_flush(record.data)

    def snapshot(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """The records (kind, data) that describe the present state, for compaction."""
        for group in self._groups.values():
            if group.serial:
                yield "notify.flush", {"group": encode(group), "letters": []}
        for job_id, at in self._ended.items():
            yield "notify.flush", {"job": job_id, "at": at, "letters": []}
        for data in self._outbox.snapshot():
            yield "outbox", data

    def recover(self, alerts: Iterable[Transition], ended: Iterable[Job] = ()) -> None:
        """Once, after the replay: hear what happened while nobody was there to tell it.

        Args:
            alerts: All alerts as the rules know them after the replay, the lately
                resolved ones too, each with its rule.
            ended: The jobs that ended lately; those already told are left out.
        """
        at = self._clock.now()
        over = list(ended)
        known = {change.alert.id: change for change in alerts}
        for change in known.values():
            if change.alert.state is AlertState.FIRING:
                self._hear_firing(change, at)
        for group in list(self._groups.values()):
            for member in group.members:
                if member.alert.id not in known:
                    self._hear_over(replace(member.alert, state=AlertState.RESOLVED, resolved=at), "", at)
                elif (change := known[member.alert.id]).alert.state is not AlertState.FIRING:
                    if (owner := _ended_with(change.alert, over)) is not None:
                        self._hear_end_of(owner, change.alert, at)
                    else:
                        self._hear_over(change.alert, change.reason.value, at)
        for job in over:
            if at - (job.ended or 0.0) <= _RECENT_S:
                self.on_job_end(job)

    def on_transition(self, change: Transition) -> None:
        """A rule has spoken, and it is written down."""
        at = self._clock.now()
        if change.firing:
            self._hear_firing(change, at)
        elif change.resolving:
            job = self._find(change.alert.job) if change.alert.job is not None else None
            if change.reason is Reason.JOB_ENDED and job is not None:
                self._hear_end_of(job, change.alert, at)
            else:
                self._say_what_is_due(change.alert, at)
                self._hear_over(change.alert, change.reason.value, at)

    def on_job_end(self, job: Job) -> None:
        """A job has ended for good: always a message, once, to its own receivers or else along the route."""
        if job.id in self._ended or not job.state.ended:
            return
        at = self._clock.now()
        requests = [request for request in self._requests_to(job.id) if request.attempt == job.attempt]
        left_open = self._left_open.pop(job.id, [])
        text = self._masked(messages.job_end(job, self._newest(job.id), requests, at, left_open))
        receiver = self._receiver_of_end(job)
        letters = self._letters(text, receiver, f"end-{job.id}", at, job=job) if receiver else []
        self._write_flush({"job": job.id, "at": at}, letters)

    def _receiver_of_end(self, job: Job) -> str:
        return f"{OWN}{job.id}" if self._directory.own(job) else self._directory.settings.route.receiver

    async def tick(self, at: float) -> None:
        """Make what is due into letters and set them going; about once a second. Never waits for a delivery."""
        self._look_for_refusals(at)
        for group in [group for group in self._groups.values() if group.due is not None and group.due <= at]:
            self._flush(group, at)
        self._post.move(at)
        if at - self._pruned >= _PRUNE_EVERY_S:
            self._pruned = at
            self._prune(at)

    async def settle(self) -> None:
        """Wait until nothing is on its way."""
        await self._post.settle()

    async def close(self) -> None:
        """End the courier. What is on its way is sent again after the next start."""
        await self._post.close()

    def replace_settings(self, settings: Settings) -> None:
        """Other receivers or another route from now on."""
        self._directory.settings = settings

    # What people do with it

    async def test(self, name: str) -> dict[str, Any]:
        """Send a test message to a receiver at once, past route and outbox.

        Returns:
            `{"receiver", "ok", "deliveries": [{"address", "delivered", "error"}]}`, addresses masked.

        Raises:
            SentinelError: There is no such receiver.
        """
        receiver, urls, job_id = self._directory.resolved(name)
        text = messages.test_message(receiver, socket.gethostname(), self._clock.now())
        parcels = [Parcel(new_id("t"), url, text.title, text.body, text.severity, job_id) for url in urls]
        receipts = await self._post.send_now(parcels)
        return {
            "receiver": receiver,
            "ok": all(receipt.delivered for receipt in receipts),
            "deliveries": [
                {"address": addresses.masked(url), "delivered": receipt.delivered, "error": receipt.error or None}
                for url, receipt in zip(urls, receipts, strict=True)
            ],
        }

    async def check(self) -> list[str]:
        """What is wrong with the configured addresses, in words that name receiver and address and no secret."""
        found: list[str] = []
        for receiver in self._directory.settings.receivers:
            problems = await asyncio.to_thread(self._courier.check, receiver.urls)
            for number, (url, problem) in enumerate(zip(receiver.urls, problems, strict=True), start=1):
                if problem is not None:
                    which = f"address {number} ({addresses.masked(url)})"
                    found.append(f"receiver {receiver.name!r}, {which}: {problem}")
        name = self._directory.settings.route.receiver
        if name and self._directory.settings.receiver(name) is None:
            found.append(f"the route names the receiver {name!r}, which does not exist")
        at = self._clock.now()
        for text in found:
            self._publish(event("notification.failed", text, at=at, severity=Severity.WARNING))
        return found

    async def told_at_end(self, job: Job, *, within_s: float, ours: bool = True) -> dict[str, Any]:
        """Whom the end of a job will be told to, and what stands against it.

        Args:
            job: The job, alive or not.
            within_s: How long to find out whether its addresses can be used.
            ours: Whether we carry its messages; what another user carries is not looked at.

        Returns:
            `{"receiver", "own", "checked", "addresses": [{"address", "problem"}]}`, addresses masked;
            `own` where they are those its owner gave, no addresses where nobody is told.
        """
        receiver = self._receiver_of_end(job)
        urls = list(dict.fromkeys(self._directory.urls(receiver))) if receiver else []
        own = receiver.startswith(OWN)
        found = await self._inspection.problems(urls, within_s) if ours or not own else None
        return {
            "receiver": "" if own else receiver,
            "own": own,
            "checked": found is not None,
            "addresses": [
                {"address": addresses.masked(url), "problem": problem}
                for url, problem in zip(urls, found or [None] * len(urls), strict=True)
            ],
        }

    def receivers(self) -> list[str]:
        """The names of the configured receivers."""
        return [receiver.name for receiver in self._directory.settings.receivers]

    def undelivered(self) -> int:
        """How many messages are still to be delivered, those held back by a group included."""
        untold = sum(1 for group in self._groups.values() if group.due is not None and _unsaid(group))
        return len(self._outbox.waiting()) + untold

    def waiting(self) -> list[dict[str, Any]]:
        """The receivers that could not be reached: how many messages wait for each, and what it last answered."""
        late: dict[str, list[Letter]] = {}
        for letter in self._outbox.waiting():
            if letter.error:
                late.setdefault(self._directory.label(letter.receiver), []).append(letter)
        return [
            {"receiver": receiver, "messages": len(letters), "error": letters[-1].error}
            for receiver, letters in late.items()
        ]

    def waiting_for(self, job_id: str) -> int:
        """How many messages to the addresses of this job's owner are still to be delivered."""
        receiver = f"{OWN}{job_id}"
        untold = sum(1 for g in self._groups.values() if g.receiver == receiver and g.due is not None and _unsaid(g))
        return sum(1 for letter in self._outbox.waiting() if letter.receiver == receiver) + untold

    def outbox(self, *, everything: bool = False) -> list[dict[str, Any]]:
        """Messages not yet delivered (or all that are remembered), oldest first; no secrets in them."""
        letters = self._outbox.letters.values() if everything else self._outbox.waiting()
        return [
            {
                "id": letter.id,
                "receiver": self._directory.label(letter.receiver),
                "address": self._directory.shown(letter),
                "kind": letter.kind,
                "job": letter.job,
                "title": letter.title,
                "state": letter.state.value,
                "created": letter.created,
                "attempts": letter.attempts,
                "next_at": letter.next_at or None,
                "error": letter.error or None,
            }
            for letter in letters
        ]

    # Groups

    def _hear_firing(self, change: Transition, at: float) -> None:
        alert = change.alert
        limit = messages.limit_of(change.rule)
        for receiver in self._receivers_of(change):
            name = router.group_id(receiver, alert, self._directory.settings.route)
            group = self._groups.get(name) or Group(name, receiver)
            self._groups[name] = router.hear(group, alert, at, self._directory.settings.route, limit=limit)

    def _say_what_is_due(self, alert: Alert, at: float) -> None:
        """What should be told by now is told, even where a job that helped itself at once ended it before our tick."""
        for group in list(self._groups.values()):
            due = group.due is not None and group.due <= at
            if due and any(member.alert.id == alert.id and not member.told for member in group.members):
                self._flush(group, at)

    def _hear_over(self, alert: Alert, why: str, at: float) -> None:
        for group in list(self._groups.values()):
            if any(member.alert.id == alert.id for member in group.members):
                self._groups[group.id] = router.hear(group, alert, at, self._directory.settings.route, ended=why)

    def _hear_end_of(self, job: Job, alert: Alert, at: float) -> None:
        """An alert ended because its job did: no all-clear. The message about the job's end says that it was open."""
        for group in list(self._groups.values()):
            member = next((each for each in group.members if each.alert.id == alert.id), None)
            if member is None:
                continue
            if group.receiver != self._receiver_of_end(job):
                if not member.told and group.due is not None and group.due <= at:
                    self._flush(group, at)
                    group = self._groups[group.id]
                heard = router.hear(group, alert, at, self._directory.settings.route, ended=Reason.JOB_ENDED.value)
                self._groups[group.id] = heard
                continue
            self._groups[group.id] = forgotten = router.forget(group, alert.id)
            if job.id not in self._ended:
                self._left_open.setdefault(job.id, []).append(alert)
            if member.told:
                self._write_flush({"group": encode(forgotten)}, [])

    def _look_for_refusals(self, at: float) -> None:
        """Where a job was asked in vain after people were told, they are told that too."""
        for group in list(self._groups.values()):
            for member in group.members if group.flushed is not None else ():
                requests = self._requests_of(member.alert) if member.told else ()
                if any(r.answer in _IN_VAIN and (r.closed or 0.0) > (group.flushed or 0.0) for r in requests):
                    stirred = router.stir(self._groups[group.id], member.alert.id, at, self._directory.settings.route)
                    self._groups[group.id] = stirred

    def _receivers_of(self, change: Transition) -> list[str]:
        """The route's receiver, and the own ones of the jobs it is about."""
        rule, route = change.rule, self._directory.settings.route
        foreign = rule is not None and rule.uid is not None and rule.uid != self._directory.uid
        common = self._directory.settings.receiver(route.receiver) if route.receiver and not foreign else None
        found = [common.name] if common is not None else []
        for job in self._jobs_of(change.alert):
            own = self._directory.own(job)
            if own and not (common is not None and set(own) <= set(common.urls)):
                found.append(f"{OWN}{job.id}")
        return found

    def _flush(self, group: Group, at: float) -> None:
        silenced = frozenset(
            member.alert.id for member in group.members if self._silences.covering(member.alert) is not None
        )
        spoken, said = router.flush(group, at, self._directory.settings.route, silenced)
        self._groups[group.id] = spoken
        if said is None:
            return
        text = self._masked(messages.bulletin(said, self._requests_of, at))
        stem = f"{hashlib.sha256(group.id.encode()).hexdigest()[:10]}-{at:.3f}-{spoken.serial}"
        job = next((job for member in (*said.firing, *said.resolved) for job in self._jobs_of(member.alert)), None)
        letters = self._letters(
            text, group.receiver, stem, at, job=job, before=group.letters if not said.firing else ()
        )
        spoken = replace(spoken, letters=tuple(letter.id for letter in letters))
        self._groups[group.id] = spoken
        self._write_flush({"group": encode(spoken)}, letters)

    def _letters(
        self, text: Text, receiver: str, stem: str, at: float, *, job: Job | None, before: tuple[str, ...] = ()
    ) -> list[Letter]:
        letters = []
        for url in dict.fromkeys(self._directory.urls(receiver)):
            address = addresses.key(url)
            letters.append(
                Letter(
                    id=f"{stem}-{address}",
                    receiver=receiver,
                    address=address,
                    kind=text.kind,
                    title=text.title,
                    body=text.body,
                    severity=text.severity,
                    created=at,
                    job=job.name if job else None,
                    uid=job.uid if job else None,
                    follows=next((name for name in before if name.endswith(address)), ""),
                    next_at=at,
                )
            )
        return letters

    def _write_flush(self, data: dict[str, Any], letters: Sequence[Letter]) -> None:
        """Write down in one record what was said and to whom, then take it in."""
        record = {**data, "letters": [encode(letter) for letter in letters]}
        try:
            self._journal.append("notify.flush", record)
        except JournalUnavailable:
            marked = [replace(x, unjournalled=True, body=f"{x.body}\n\n{UNJOURNALLED}") for x in letters]
            record = {**data, "letters": [encode(letter) for letter in marked]}
        self._fold_flush(record)

    def _fold_flush(self, data: Mapping[str, Any]) -> None:
        try:
            if "group" in data:
                group = decode(Group, data["group"])
                self._groups[group.id] = group
            if isinstance(job_id := data.get("job"), str):
                self._ended[job_id] = float(data.get("at", 0.0))
        except (WireError, TypeError, ValueError):
            return
        for letter in data.get("letters", ()):
            self._outbox.fold(letter)

    def _prune(self, at: float) -> None:
        self._outbox.prune(at - self._directory.settings.remembered_s)
        gone = [g.id for g in self._groups.values() if router.finished(g, at, self._directory.settings.route)]
        for name in gone:
            del self._groups[name]
        self._ended = {name: told for name, told in self._ended.items() if at - told < 7 * 86_400.0}

    def _masked(self, text: Text) -> Text:
        return replace(text, title=self._mask(text.title), body=self._mask(text.body))


def _ended_with(alert: Alert, ended: Iterable[Job]) -> Job | None:
    """The job whose end ended the alert."""
    for job in ended:
        if job.name == alert.job and job.ended is not None and (alert.resolved or 0.0) >= job.ended:
            return job
    return None


def _unsaid(group: Group) -> bool:
    return any(not member.told or member.alert.state is not AlertState.FIRING for member in group.members)
