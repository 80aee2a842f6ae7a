"""What a rule may read: a rule of a user sees that user's jobs, a rule of a job that job."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sentinel.promql.series import Block, Matcher, SeriesReader


class _Narrowed:
    """A reader that shows series of no job, and of some jobs."""

    def __init__(self, reader: SeriesReader, jobs: Collection[str]) -> None:
        from sentinel.promql.series import Match, Matcher

        self._reader = reader
        if (widest := getattr(reader, "widest_lookback_s", None)) is not None:
            self.widest_lookback_s = widest
        pattern = "|".join(["", *sorted(re.escape(job) for job in jobs)])
        self._extra = Matcher("job", Match.REGEX, pattern)

    def select(self, matchers: tuple[Matcher, ...], start: float, end: float) -> Sequence[Block]:
        """As the reader below, with one condition more."""
        return self._reader.select((*matchers, self._extra), start, end)


def narrowed(reader: SeriesReader, jobs: Collection[str] | None) -> SeriesReader:
    """`reader`, showing only series without a job and those of `jobs`; None: all."""
    return reader if jobs is None else _Narrowed(reader, jobs)
