"""The silences in force, and which alerts they cover."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Protocol

from sentinel.model.alerts import Alert
from sentinel.model.journal import Record
from sentinel.model.silences import Silence
from sentinel.model.wire import decode, encode

_KIND = "silence"


class Append(Protocol):
    """The journal, as silences need it."""

    def append(self, kind: str, data: Mapping[str, object]) -> None:
        """Make one record durable."""
        ...


class SilenceBook:
    """All silences that have not ended.

    Args:
        journal: Written before a silence takes effect.
        now: Unix seconds.
        uid_of: Whose alert it is: the owner of the job it is about, or None for the host's.
    """

    def __init__(self, journal: Append, now: Callable[[], float], uid_of: Callable[[Alert], int | None]) -> None:
        self._journal = journal
        self._now = now
        self._uid_of = uid_of
        self._silences: dict[str, Silence] = {}

    def add(self, silence: Silence) -> None:
        """Put it in force."""
        self._journal.append(_KIND, encode(silence))
        self._silences[silence.id] = silence

    def end(self, silence: Silence) -> None:
        """End it now."""
        ended = replace(silence, ends=self._now())
        self._journal.append(_KIND, encode(ended))
        self._silences.pop(silence.id, None)

    def all(self) -> list[Silence]:
        """Those in force, and those still to come."""
        now = self._now()
        self._silences = {key: silence for key, silence in self._silences.items() if silence.ends > now}
        return list(self._silences.values())

    def covering(self, alert: Alert) -> str | None:
        """The id of a silence in force that covers this alert, or None."""
        now, uid = self._now(), self._uid_of(alert)
        for silence in self.all():
            mine = silence.uid is None or silence.uid == uid
            if mine and silence.active(now) and silence.covers(alert.labels, _whole):
                return silence.id
        return None

    def fold(self, record: Record) -> None:
        """Take one record of the journal."""
        if record.kind == _KIND:
            silence = decode(Silence, record.data)
            self._silences[silence.id] = silence

    def snapshot(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """The records that say all that `fold` needs."""
        for silence in self.all():
            yield _KIND, encode(silence)


def _whole(pattern: str, text: str) -> bool:
    """Whether a regular expression matches all of a text; in linear time, since users write it."""
    import re2

    try:
        return re2.fullmatch(pattern, text) is not None
    except re2.error:
        return False
