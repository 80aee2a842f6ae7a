"""The book, written down: every change goes to the journal first, then into the book.

Where the journal cannot be written, the change lives in memory, is owed to the
journal, and is written as soon as there is room.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sentinel.actions.book import Book
from sentinel.actions.ports import Journal
from sentinel.model.journal import JournalUnavailable


class Ledger:
    """The only door through which the book changes."""

    def __init__(self, book: Book, journal: Journal) -> None:
        self.book = book
        self._journal = journal
        self._owed: dict[tuple[str, str], Mapping[str, Any]] = {}

    def write(self, kind: str, data: Mapping[str, Any]) -> bool:
        """Make a change durable, then true; whether it is durable."""
        key = (kind, str(data.get("id") or data.get("job_id")))
        try:
            self._journal.append(kind, data)
        except JournalUnavailable:
            self._owed[key] = data
            self.book.apply(kind, data)
            return False
        self._owed.pop(key, None)
        self.book.apply(kind, data)
        return True

    def repay(self) -> None:
        """Write what is owed, as far as the journal takes it."""
        for key, data in list(self._owed.items()):
            try:
                self._journal.append(key[0], data)
            except JournalUnavailable:
                return
            self._owed.pop(key, None)

    @property
    def owes(self) -> bool:
        """Whether something is true that is not durable."""
        return bool(self._owed)
