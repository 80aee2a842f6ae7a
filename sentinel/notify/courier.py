"""Carries parcels to the child that speaks to the outside, and says of each what came of it."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from sentinel.errors import SentinelError
from sentinel.notify.ports import Parcel, Receipt
from sentinel.system.frames import Child, python

_FRAME_GRACE_S = 20.0
"""Beyond the wait asked for: the child may have to start and import apprise first."""


class AppriseCourier:
    """A courier over `sentinel.notify.child`, started when there is something to send.

    Args:
        timeout_s: For one attempt to reach one address.
        idle_s: How long the child lives without work.
        env: Its environment; None for ours.
    """

    def __init__(self, *, timeout_s: float = 30.0, idle_s: float = 60.0, env: Mapping[str, str] | None = None) -> None:
        self._timeout_s = timeout_s
        self._child = Child([*python("sentinel.notify.child"), str(idle_s)], name="the notifier", env=env)
        self._away: set[str] = set()
        self._known_pid: int | None = None
        self._lock = threading.Lock()

    @property
    def pid(self) -> int | None:
        """Of the child that runs now, or None."""
        return self._child.pid

    def exchange(self, parcels: Sequence[Parcel], wait_s: float) -> list[Receipt]:
        """Hand parcels over and take back the receipts that are there within `wait_s`."""
        with self._lock:
            lost = self._lost() if self._away else []
            self._away |= {parcel.id for parcel in parcels}
            try:
                answer = self._child.call(
                    {
                        "op": "exchange",
                        "parcels": [asdict(parcel) for parcel in parcels],
                        "wait_s": wait_s,
                        "timeout_s": self._timeout_s,
                    },
                    deadline_s=wait_s + _FRAME_GRACE_S,
                )
            except SentinelError as fault:
                return lost + self._all_lost(fault.message)
            if self._known_pid not in {None, self._child.pid}:
                # It was a new one that answered: what the old one had under way is lost.
                gone = self._away - {parcel.id for parcel in parcels}
                lost += [Receipt(name, delivered=False, error="the notifier was restarted") for name in sorted(gone)]
                self._away -= gone
            self._known_pid = self._child.pid
            receipts = [_receipt(data) for data in answer["receipts"]]
            self._away -= {receipt.id for receipt in receipts}
            return lost + receipts

    def check(self, urls: Sequence[str]) -> list[str | None]:
        """For each address what is wrong with it, or None."""
        with self._lock:
            try:
                answer = self._child.call({"op": "check", "urls": list(urls)}, deadline_s=_FRAME_GRACE_S)
            except SentinelError as fault:
                return [fault.message for _ in urls]
            problems: list[str | None] = answer["problems"]
            return problems

    def close(self) -> None:
        """End the child."""
        self._child.close()

    def _lost(self) -> list[Receipt]:
        return self._all_lost("the notifier ended before it could say") if self._child.pid is None else []

    def _all_lost(self, why: str) -> list[Receipt]:
        lost = [Receipt(name, delivered=False, error=why) for name in sorted(self._away)]
        self._away.clear()
        self._known_pid = None
        return lost


def _receipt(data: dict[str, Any]) -> Receipt:
    return Receipt(
        id=str(data["id"]),
        delivered=bool(data["delivered"]),
        error=str(data["error"]),
        retry_after_s=data["retry_after_s"],
        hopeless=bool(data["hopeless"]),
    )
