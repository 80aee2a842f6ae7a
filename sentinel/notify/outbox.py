"""The outbox: every message for every address, until it is delivered or given up.

A letter is written down before it is sent and again when it is delivered. After
a crash in between it is sent once more: rather twice than never.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from sentinel.model.wire import WireError, decode, encode

FIRST_RETRY_S = 5.0
LONGEST_RETRY_S = 600.0
LONGEST_WISH_S = 6 * 3600.0
"""A Retry-After beyond this is no wish but a mistake."""
PATIENCE = 5
"""Failed attempts after which a letter no longer holds back the ones behind it."""


class LetterState(StrEnum):
    """Where a letter is."""

    WAITING = "waiting"
    DELIVERED = "delivered"
    ABANDONED = "abandoned"


@dataclass(frozen=True, slots=True)
class Letter:
    """One message for one address.

    Attributes:
        id: Names its occasion and address, so that no occasion makes it twice.
        receiver: Name of a configured receiver, or `job:ID` for a job's own.
        address: The name of the address (a hash: the address itself is secret).
        kind: firing, resolved, job or test.
        title: One line, plain text.
        body: Plain text.
        severity: info, success, warning or failure.
        created: Unix seconds.
        job: The job's name, or None.
        uid: Whose it is; None for the host's.
        follows: The letter that must have arrived before this one makes sense, or "".
        state: Where it is.
        attempts: How often it was tried.
        next_at: When it is tried next (Unix seconds).
        closed: When it was delivered or abandoned.
        error: Why the last attempt failed.
        unjournalled: Whether it goes out although it could not be written down.
    """

    id: str
    receiver: str
    address: str
    kind: str
    title: str
    body: str
    severity: str
    created: float
    job: str | None = None
    uid: int | None = None
    follows: str = ""
    state: LetterState = LetterState.WAITING
    attempts: int = 0
    next_at: float = 0.0
    closed: float | None = None
    error: str = ""
    unjournalled: bool = False

    @property
    def open(self) -> bool:
        """Whether it is still to be delivered."""
        return self.state is LetterState.WAITING


def next_attempt(attempts: int, at: float, jitter: float, retry_after_s: float | None = None) -> float:
    """When to try again after the failed attempt number `attempts` (from 1).

    5 s, doubled each time, at most 10 min, a fifth more or less. What the other
    side asked for is the least we wait. A library for retries would hold the
    wait in a sleeping call; here it must outlive the process.

    Args:
        attempts: How many have failed.
        at: Now (Unix seconds).
        jitter: From 0 to 1.
        retry_after_s: The other side's wish, or None.
    """
    wait = min(LONGEST_RETRY_S, FIRST_RETRY_S * 2.0 ** min(attempts - 1, 20)) * (0.8 + 0.4 * jitter)
    if retry_after_s is not None:
        wait = max(wait, min(LONGEST_WISH_S, retry_after_s))
    return at + wait


def delivered(letter: Letter, at: float) -> Letter:
    """It arrived."""
    return replace(letter, state=LetterState.DELIVERED, attempts=letter.attempts + 1, closed=at, error="")


def abandoned(letter: Letter, at: float, why: str) -> Letter:
    """It is given up."""
    return replace(letter, state=LetterState.ABANDONED, closed=at, error=why)


def failed(
    letter: Letter, at: float, why: str, *, give_up_s: float, jitter: float, retry_after_s: float | None = None
) -> Letter:
    """An attempt failed: try later, or give up where it is too old."""
    tried = replace(letter, attempts=letter.attempts + 1, error=why)
    following = next_attempt(tried.attempts, at, jitter, retry_after_s)
    if following - letter.created > give_up_s:
        return abandoned(tried, at, f"given up after {tried.attempts} attempts: {why}")
    return replace(tried, next_at=following)


class Outbox:
    """All letters that are remembered, by id."""

    def __init__(self) -> None:
        self.letters: dict[str, Letter] = {}

    def put(self, letter: Letter) -> None:
        """Take in a letter, or what became of it."""
        self.letters[letter.id] = letter

    def fold(self, data: Mapping[str, Any]) -> None:
        """Take in one record."""
        try:
            self.put(decode(Letter, data))
        except WireError:
            return

    def snapshot(self) -> Iterator[dict[str, Any]]:
        """Every letter as a record."""
        return (encode(letter) for letter in self.letters.values())

    def waiting(self) -> list[Letter]:
        """Those not yet delivered, oldest first."""
        return [letter for letter in self.letters.values() if letter.open]

    def due(self, at: float, busy: set[str]) -> list[Letter]:
        """Those to be tried now, one for each address at a time, in the order in which they were written.

        A letter that failed holds the later ones to its address back, so that
        they keep their order and a struggling receiver is left alone, unless it
        has failed so often that the fault may be its own.

        Args:
            at: Now (Unix seconds).
            busy: Addresses that are being spoken to.
        """
        taken = set(busy)
        found: list[Letter] = []
        for letter in self.waiting():
            before = self.letters.get(letter.follows)
            blocked = before is not None and before.open
            if letter.address in taken or blocked:
                continue
            if letter.next_at > at:
                if letter.attempts <= PATIENCE:
                    taken.add(letter.address)
                continue
            taken.add(letter.address)
            found.append(letter)
        return found

    def orphans(self) -> list[Letter]:
        """Waiting letters that make no sense any more: the one they follow was given up."""
        return [
            letter
            for letter in self.waiting()
            if (before := self.letters.get(letter.follows)) is not None and before.state is LetterState.ABANDONED
        ]

    def prune(self, before: float) -> None:
        """Forget what was closed before `before`."""
        needed = {letter.follows for letter in self.waiting()}
        for letter in list(self.letters.values()):
            if letter.closed is not None and letter.closed < before and letter.id not in needed:
                del self.letters[letter.id]


def jitter() -> float:
    """From 0 to 1, evenly."""
    return random.random()
