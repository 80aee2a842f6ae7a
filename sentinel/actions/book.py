"""What was asked, and what came of it: the memory of the actions room.

Everything in the book comes from records, so that the book of a restarted
daemon is the book of the one before. Records are plain JSON; one record holds
all that must be true together:

    request   a Request; beside it, where it changed with it, "chain" and
              "ladder", and "restore_after_s" of the step that asked
    chain     a Chain
    degrade   a Ladder
    hook      a HookRun
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from sentinel.actions.chain import Chain
from sentinel.actions.hooks import HookRun
from sentinel.actions.machine import effect_open
from sentinel.actions.restore import Ladder
from sentinel.model.journal import Record
from sentinel.model.requests import Answer, Effect, Request, RequestKind
from sentinel.model.wire import WireError, decode, encode

KINDS = frozenset({"request", "chain", "degrade", "hook"})
_HOUR_S = 3600.0


class Book:
    """Requests, chains, ladders and hooks, by id."""

    def __init__(self) -> None:
        self.requests: dict[str, Request] = {}
        self.chains: dict[str, Chain] = {}
        self.ladders: dict[str, Ladder] = {}
        self.hooks: dict[str, HookRun] = {}
        self._restore_after: dict[str, float] = {}

    def apply(self, kind: str, data: Mapping[str, Any]) -> None:
        """Take in one record. Records of other rooms, and ones too broken to read, change nothing."""
        try:
            match kind:
                case "request":
                    self._request(data)
                case "chain":
                    self._chain(data)
                case "degrade":
                    self._ladder(data)
                case "hook":
                    hook = decode(HookRun, data)
                    self.hooks[hook.id] = hook
        except WireError:
            return

    def fold(self, record: Record) -> None:
        """Take in one record of the replay."""
        self.apply(record.kind, record.data)

    def snapshot(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """The records from which this book can be made again."""
        for request in self.requests.values():
            yield "request", self.record(request)
        for chain in self.chains.values():
            yield "chain", encode(chain)
        for ladder in self.ladders.values():
            yield "degrade", encode(ladder)
        for hook in self.hooks.values():
            yield "hook", encode(hook)

    def record(
        self,
        request: Request,
        *,
        chain: Chain | None = None,
        ladder: Ladder | None = None,
        restore_after_s: float | None = None,
    ) -> dict[str, Any]:
        """The record of a request, with all that changes together with it."""
        data: dict[str, Any] = encode(request)
        wait = restore_after_s if restore_after_s is not None else self._restore_after.get(request.id)
        if wait is not None:
            data["restore_after_s"] = wait
        if chain is not None:
            data["chain"] = encode(chain)
        if ladder is not None:
            data["ladder"] = encode(ladder)
        return data

    def restore_after_s(self, request_id: str) -> float | None:
        """The quiet period that the step behind a degrade wants before its restore."""
        return self._restore_after.get(request_id)

    def ladder(self, job_id: str) -> Ladder:
        """Of a job, a fresh one at full level where nothing was asked yet."""
        return self.ladders.get(job_id) or Ladder(job_id)

    def open_requests(self) -> list[Request]:
        """Those that may still be answered, oldest first."""
        return [request for request in self.requests.values() if request.open]

    def unsettled(self) -> list[Request]:
        """Those whose answer or effect may still come."""
        return [request for request in self.requests.values() if request.open or effect_open(request)]

    def open_like(self, job_id: str, kind: RequestKind) -> Request | None:
        """The open request of this kind to this job, if there is one."""
        found = (r for r in self.requests.values() if r.open and r.job_id == job_id and r.kind is kind)
        return next(found, None)

    def last_by(self, by: str, job_id: str, kind: RequestKind) -> Request | None:
        """The last request of this kind that `by` really sent to this job (or pretended to, when only observing)."""
        found = [
            r for r in self.requests.values() if r.by == by and r.job_id == job_id and r.kind is kind and _asked(r)
        ]
        return max(found, key=lambda request: request.created, default=None)

    def done_since(self, at: float, job_id: str, kind: RequestKind) -> Request | None:
        """The last request of this kind that the job has done since `at`; a checkpoint only where it was seen."""
        found = [
            r
            for r in self.requests.values()
            if r.job_id == job_id
            and r.kind is kind
            and r.answer is Answer.DONE
            and (kind is not RequestKind.CHECKPOINT or r.effect is Effect.OBSERVED)
            and (r.closed or 0.0) > at
        ]
        return found[-1] if found else None

    def sent_since(self, at: float, job_id: str | None = None) -> int:
        """How many requests were sent after `at`, to one job or to all."""
        return sum(
            1
            for r in self.requests.values()
            if r.sent is not None and r.sent > at and (job_id is None or r.job_id == job_id)
        )

    def last_hour(self, at: float, job_id: str | None = None) -> int:
        """How many requests were sent in the hour before `at`."""
        return self.sent_since(at - _HOUR_S, job_id)

    def of_alert(self, alert: str, since: float = 0.0) -> list[Request]:
        """What was asked because of an alert, oldest first."""
        return [r for r in self.requests.values() if r.alert == alert and r.created >= since]

    def prune(self, before: float, open_alerts: Iterable[str]) -> None:
        """Forget what was over before `before`, except what is still needed so that nothing is asked twice."""
        alive = set(open_alerts)
        needed = {chain.last for chain in self.chains.values() if chain.open}
        newest: dict[tuple[str, str, str], Request] = {}
        for request in self.requests.values():
            if _asked(request):
                newest[request.by, request.job_id, request.kind.value] = request
        needed |= {request.id for request in newest.values() if (request.closed or 0.0) >= before - 6 * _HOUR_S}
        for request in list(self.requests.values()):
            over = request.closed is not None and request.closed < before and not effect_open(request)
            if over and request.id not in needed:
                del self.requests[request.id]
                self._restore_after.pop(request.id, None)
        for chain in list(self.chains.values()):
            if chain.ended is not None and chain.ended < before and chain.alert not in alive:
                del self.chains[chain.id]
        for hook in list(self.hooks.values()):
            if hook.closed is not None and hook.closed < before and hook.alert not in alive:
                del self.hooks[hook.id]

    def forget_job(self, job_id: str) -> None:
        """A job that is over has no level any more."""
        self.ladders.pop(job_id, None)

    def _request(self, data: Mapping[str, Any]) -> None:
        request = decode(Request, data)
        self.requests[request.id] = request
        if isinstance(wait := data.get("restore_after_s"), int | float):
            self._restore_after[request.id] = float(wait)
        if isinstance(chain := data.get("chain"), Mapping):
            self._chain(chain)
        if isinstance(ladder := data.get("ladder"), Mapping):
            self._ladder(ladder)

    def _chain(self, data: Mapping[str, Any]) -> None:
        chain = decode(Chain, data)
        self.chains[chain.id] = chain

    def _ladder(self, data: Mapping[str, Any]) -> None:
        ladder = decode(Ladder, data)
        self.ladders[ladder.job_id] = replace(ladder, level=max(0, ladder.level))


def _asked(request: Request) -> bool:
    return request.sent is not None or request.detail.startswith(("observe:", "dry_run:"))
