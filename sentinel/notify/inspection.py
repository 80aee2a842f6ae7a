"""Addresses are tried on before they are needed: one that nothing can be sent to is said when it is given."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from sentinel.notify import addresses
from sentinel.notify.ports import Courier

_REMEMBERED = 4096


class Inspection:
    """Asks the courier about addresses; those that are fine are asked about once.

    Args:
        courier: Knows what can be sent to. Nothing is sent.
    """

    def __init__(self, courier: Courier) -> None:
        self._courier = courier
        self._fine: set[str] = set()
        self._at_work: set[asyncio.Future[list[str | None]]] = set()

    async def problems(self, urls: Sequence[str], within_s: float) -> list[str | None] | None:
        """For each address what is wrong with it; None where that cannot be said within the time.

        The courier's first answer may take a while, since it starts then; it is
        remembered also where nobody waited for it.
        """
        unknown = [url for url in urls if addresses.key(url) not in self._fine]
        if not unknown:
            return [None for _ in urls]
        asked = asyncio.ensure_future(asyncio.to_thread(self._courier.check, unknown))
        self._at_work.add(asked)
        asked.add_done_callback(self._at_work.discard)
        asked.add_done_callback(lambda done: self._remember(unknown, done))
        try:
            found = dict(zip(unknown, await asyncio.wait_for(asyncio.shield(asked), within_s), strict=True))
        except TimeoutError:
            return None
        return [found.get(url) for url in urls]

    def _remember(self, urls: Sequence[str], done: asyncio.Future[list[str | None]]) -> None:
        if done.cancelled() or done.exception() is not None:
            return
        if len(self._fine) > _REMEMBERED:
            self._fine.clear()
        self._fine |= {addresses.key(url) for url, wrong in zip(urls, done.result(), strict=True) if wrong is None}
