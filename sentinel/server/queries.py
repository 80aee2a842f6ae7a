"""Evaluating queries beside the event loop: in a thread, with a deadline, a few at a time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from sentinel.model.labels import Labels
from sentinel.promql import limits
from sentinel.promql.series import Block, Matcher, SeriesReader
from sentinel.server.access import known
from sentinel.server.respond import HttpError

T = TypeVar("T")

WORKERS = 2
MOST_WAITING = 32


class Queries:
    """Runs work on series in threads of its own.

    Args:
        deadline_s: How long one query may take; each may ask for less.
    """

    def __init__(self, *, deadline_s: float) -> None:
        self._deadline_s = deadline_s
        self._pool = ThreadPoolExecutor(WORKERS, thread_name_prefix="query")
        self._waiting = 0

    async def run(self, work: Callable[[SeriesReader], T], reader: SeriesReader, timeout_s: float | None = None) -> T:
        """`work(reader)`, in a thread. Once the time is over it reads and evaluates no more.

        Raises:
            HttpError: 503 when it takes too long, or too many wait already.
        """
        allowed = self._deadline_s if timeout_s is None else min(timeout_s, self._deadline_s)
        if self._waiting >= MOST_WAITING:
            raise HttpError(503, "too many queries at once", kind="unavailable")
        self._waiting += 1
        until = time.monotonic() + allowed
        guarded = _Deadline(reader, until)

        def limited() -> T:
            with limits.within(until - time.monotonic()):
                return work(guarded)

        future = asyncio.get_running_loop().run_in_executor(self._pool, limited)
        future.add_done_callback(self._done)
        try:
            return await asyncio.wait_for(asyncio.shield(future), allowed)
        except TimeoutError:
            raise HttpError(503, "query timed out in expression evaluation", kind="timeout") from None

    def close(self) -> None:
        """Take no more work, and forget what waits."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _done(self, future: asyncio.Future[T]) -> None:
        self._waiting -= 1
        if not future.cancelled():
            future.exception()  # whoever waited may have gone


class _Deadline:
    """A reader that stops working when the time is over, so that a query nobody waits for ends."""

    def __init__(self, inner: SeriesReader, until: float) -> None:
        self._inner = inner
        self._until = until

    def known(self, matchers: tuple[Matcher, ...], start: float, end: float) -> set[Labels]:
        """As the inner reader."""
        limits.check()
        return known(self._inner, matchers, start, end)

    def select(self, matchers: tuple[Matcher, ...], start: float, end: float) -> Sequence[Block]:
        """As the inner reader."""
        if time.monotonic() > self._until:
            raise TimeoutError
        return self._inner.select(matchers, start, end)
