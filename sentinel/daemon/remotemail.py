"""Messages to addresses that another user gave: carried by that user's hand, never by us."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from sentinel.notify.ports import Courier, Parcel, Receipt

UNTAKEN_S = 20.0
"""How long a message waits for a hand before it counts as tried in vain."""
GRACE_S = 40.0
"""Beyond the time for one attempt: the hand has to start its own notifier."""
_LOOK_S = 0.2


@dataclass(slots=True)
class _Away:
    parcel: Parcel
    since: float
    hand: str = ""
    taken: bool = False


class RemoteMail:
    """What is on its way through hands. Safe to use from any thread.

    Args:
        timeout_s: For one attempt to reach one address.
        monotonic: Seconds that only grow.
    """

    def __init__(self, timeout_s: float = 30.0, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._timeout_s = timeout_s
        self._monotonic = monotonic
        self._away: dict[str, _Away] = {}
        self._receipts: list[Receipt] = []
        self._news = threading.Condition()

    # The notifier's side

    @property
    def busy(self) -> bool:
        """Whether something is on its way."""
        return bool(self._away or self._receipts)

    def put(self, parcels: Iterable[Parcel]) -> None:
        """Let these go with the next word of their hands."""
        now = self._monotonic()
        with self._news:
            self._away.update((parcel.id, _Away(parcel, now)) for parcel in parcels)

    def receipts(self, wait_s: float) -> list[Receipt]:
        """What has come back within `wait_s`, or waited in vain."""
        with self._news:
            self._expire()
            if not self._receipts and wait_s > 0:
                self._news.wait(wait_s)
                self._expire()
            found, self._receipts = self._receipts, []
            return found

    # The hands' side

    def away(self, job_id: str) -> bool:
        """Whether something is on its way to this job's owner."""
        with self._news:
            return any(each.parcel.job_id == job_id for each in self._away.values())

    def give(self, job_id: str, hand: str) -> list[Parcel]:
        """What this hand is to carry and has not taken yet."""
        with self._news:
            found = [each for each in self._away.values() if each.parcel.job_id == job_id and not each.taken]
            for each in found:
                each.hand = hand
            return [each.parcel for each in found]

    def taken(self, job_id: str, hand: str, names: Iterable[str]) -> None:
        """The hand has them."""
        with self._news:
            for name in names:
                each = self._away.get(name)
                if each is not None and each.parcel.job_id == job_id and not each.taken:
                    each.hand, each.taken, each.since = hand, True, self._monotonic()

    def receipts_of(self, job_id: str, receipts: Iterable[Receipt]) -> None:
        """What came of some; those of other jobs are none of this hand's business."""
        with self._news:
            for receipt in receipts:
                each = self._away.get(receipt.id)
                if each is not None and each.parcel.job_id == job_id:
                    del self._away[receipt.id]
                    self._receipts.append(receipt)
            self._news.notify_all()

    def lost(self, job_id: str, hand: str) -> None:
        """Another hand than `hand` carried some of this job's, and is no more."""
        with self._news:
            for each in list(self._away.values()):
                if each.parcel.job_id == job_id and each.taken and each.hand != hand:
                    self._fail(each, "the owner's hand ended before it could say")

    def _expire(self) -> None:
        now = self._monotonic()
        for each in list(self._away.values()):
            waited = now - each.since
            if not each.taken and waited > UNTAKEN_S:
                self._fail(each, "no hand of the job's owner is there to carry it")
            elif each.taken and waited > self._timeout_s + GRACE_S:
                self._fail(each, "the owner's hand does not say what came of it")

    def _fail(self, each: _Away, why: str) -> None:
        del self._away[each.parcel.id]
        self._receipts.append(Receipt(each.parcel.id, delivered=False, error=why))
        self._news.notify_all()


class Couriers:
    """Our own courier for our own addresses, hands for those of other users.

    Args:
        ours: Speaks to the outside as this daemon's user.
        remote: Goes through hands.
        theirs: Whether a job, by its id, is one of another user. Called from any thread.
    """

    def __init__(self, ours: Courier, remote: RemoteMail, theirs: Callable[[str], bool]) -> None:
        self._ours = ours
        self._remote = remote
        self._theirs = theirs
        self._away: set[str] = set()

    def exchange(self, parcels: Sequence[Parcel], wait_s: float) -> list[Receipt]:
        """Take parcels on; the receipts that are there within `wait_s`."""
        theirs = [each for each in parcels if each.job_id is not None and self._theirs(each.job_id)]
        ours = [each for each in parcels if each not in theirs]
        self._remote.put(theirs)
        if not ours and not self._away:
            return self._remote.receipts(wait_s)
        self._away |= {each.id for each in ours}
        found = self._ours.exchange(ours, min(wait_s, _LOOK_S) if self._remote.busy else wait_s)
        self._away -= {receipt.id for receipt in found}
        return found + self._remote.receipts(0.0)

    def check(self, urls: Sequence[str]) -> list[str | None]:
        """For each address what is wrong with it, or None."""
        return self._ours.check(urls)

    def close(self) -> None:
        """Let go of our own; hands end by themselves."""
        self._ours.close()
