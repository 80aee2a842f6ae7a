"""Queries run beside the loop, with a deadline, a few at a time."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence

import pytest

from sentinel.promql.series import Block, Matcher, SeriesReader
from sentinel.server import queries
from sentinel.server.queries import Queries
from sentinel.server.respond import HttpError


class Empty:
    """No series at all."""

    def select(self, matchers: tuple[Matcher, ...], start: float, end: float) -> Sequence[Block]:
        return []


@pytest.fixture
async def pool() -> AsyncIterator[Queries]:
    made = Queries(deadline_s=10)
    yield made
    made.close()


async def test_work_is_done_in_another_thread(pool: Queries) -> None:
    assert await pool.run(lambda reader: threading.current_thread().name, Empty()) != threading.current_thread().name


async def test_a_query_that_nobody_waits_for_any_more_ends_at_its_next_look(pool: Queries) -> None:
    ended = threading.Event()

    def endless(reader: SeriesReader) -> None:
        try:
            while True:
                reader.select((), 0, 1)
        finally:
            ended.set()

    with pytest.raises(HttpError, match="timed out") as refused:
        await pool.run(endless, Empty(), timeout_s=0.05)

    assert (refused.value.status, refused.value.kind) == (503, "timeout")
    assert await asyncio.to_thread(ended.wait, 10)


async def test_too_many_at_once_are_refused_at_once(pool: Queries, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queries, "MOST_WAITING", 2)
    gate = threading.Event()
    waiting = [asyncio.ensure_future(pool.run(lambda reader: gate.wait(10), Empty())) for _ in range(2)]
    await asyncio.sleep(0)

    with pytest.raises(HttpError, match="too many queries"):
        await pool.run(lambda reader: None, Empty())

    gate.set()
    assert await asyncio.gather(*waiting) == [True, True]
    assert await pool.run(lambda reader: 1, Empty()) == 1


async def test_a_fault_comes_back_to_whoever_asked(pool: Queries) -> None:
    with pytest.raises(ZeroDivisionError):
        await pool.run(lambda reader: 1 / 0, Empty())
