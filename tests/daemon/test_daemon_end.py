"""A daemon that is told to end ends, whatever happens in that moment."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from sentinel.daemon import lifecycle


@pytest.mark.parametrize("steps", range(5))
async def test_told_to_end_in_the_moment_in_which_something_happens_the_judge_ends(steps: int) -> None:
    engine = SimpleNamespace(next_due=lambda: 9.0)
    house: Any = SimpleNamespace(
        judge=lambda: None,
        rooms=SimpleNamespace(engine=engine),
        clock=SimpleNamespace(monotonic=lambda: 0.0),
        wake=asyncio.Event(),
    )
    judging = asyncio.create_task(lifecycle._judge(house))
    await asyncio.sleep(0.01)

    house.wake.set()
    for _ in range(steps):
        await asyncio.sleep(0)
    judging.cancel()

    done, _ = await asyncio.wait([judging], timeout=2)
    judging.cancel()
    assert done
