"""Who can be reached how: receivers of the configuration, and those a job's owner gave."""

from __future__ import annotations

from sentinel.errors import SentinelError, nearest
from sentinel.model.jobs import Job
from sentinel.notify import addresses
from sentinel.notify.outbox import Letter
from sentinel.notify.ports import FindJob, SpeaksFor
from sentinel.notify.settings import Settings

OWN = "job:"
"""A receiver of this prefix and a job's id stands for the addresses that the job's owner gave."""


class Directory:
    """Looks receivers up, always in the settings and jobs of the moment: no letter holds an address.

    Args:
        settings: Receivers and the route; may be replaced.
        find: Jobs, also those that ended lately, by id.
        uid: Whose daemon this is.
        speaks_for: Whether somebody carries messages as a job's owner; None: only for jobs of `uid`.
    """

    def __init__(self, settings: Settings, find: FindJob, uid: int, speaks_for: SpeaksFor | None = None) -> None:
        self.settings = settings
        self.uid = uid
        self._find = find
        self._speaks_for = speaks_for or (lambda job: job.uid == uid)

    def own(self, job: Job) -> tuple[str, ...]:
        """The addresses its owner gave, where messages go there as the owner; otherwise they are not spoken to."""
        return job.spec.notify if job.spec.notify and self._speaks_for(job) else ()

    def job_of(self, receiver: str) -> str | None:
        """The id of the job whose owner's addresses a receiver stands for, or None."""
        return receiver.removeprefix(OWN) if receiver.startswith(OWN) else None

    def urls(self, receiver: str) -> tuple[str, ...]:
        """The addresses of a receiver; none where it does not exist any more."""
        if receiver.startswith(OWN):
            job = self._find(receiver.removeprefix(OWN))
            return self.own(job) if job is not None else ()
        found = self.settings.receiver(receiver)
        return found.urls if found is not None else ()

    def url(self, letter: Letter) -> str | None:
        """The address a letter goes to, or None where its receiver no longer has it."""
        return next((url for url in self.urls(letter.receiver) if addresses.key(url) == letter.address), None)

    def shown(self, letter: Letter) -> str:
        """The address of a letter for people, masked."""
        url = self.url(letter)
        return addresses.masked(url) if url is not None else "***"

    def label(self, receiver: str) -> str:
        """A receiver's name, fit for a label: a job by its name, never by its id."""
        if not receiver.startswith(OWN):
            return receiver
        job = self._find(receiver.removeprefix(OWN))
        return f"{OWN}{job.name if job else 'forgotten'}"

    def named(self, receiver: str) -> str:
        """A receiver for people."""
        if not receiver.startswith(OWN):
            return receiver
        job = self._find(receiver.removeprefix(OWN))
        return f"{job.owner if job else 'the owner'} (--notify)"

    def resolved(self, name: str) -> tuple[str, tuple[str, ...], str | None]:
        """A receiver by its name, or the own one of a living job by the job's: name, addresses, the job's id."""
        found = self.settings.receiver(name)
        if found is not None and found.urls:
            return found.name, found.urls, None
        if found is not None:
            raise SentinelError(f"the receiver {name!r} has no address", hint="give it `urls`")
        job = self._find(name)
        if job is not None and self.own(job):
            return job.name, self.own(job), job.id
        known = [receiver.name for receiver in self.settings.receivers]
        close = nearest(name, known)
        hint = close or (", ".join(known) if known else "notify.receivers in the configuration, or run --notify URL")
        raise SentinelError(f"there is no receiver called {name!r}", hint=hint)
