"""Short talks of the supervisor with the daemon, each on a connection of its own, none of them long."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Mapping
from typing import Any

from sentinel.errors import SentinelError
from sentinel.jobs.ending import Grove
from sentinel.jobs.ports import Connect
from sentinel.model.events import new_id
from sentinel.model.jobs import How, JobSpec
from sentinel.model.requests import RequestKind

_SHORT_S = 2.0


class Asked:
    """One request under way.

    Attributes:
        over: Whether nothing more will come of it.
        seen: Whether its effect was seen.
        refused: Whether it did not reach the job.
        detail: In words.
    """

    def __init__(self) -> None:
        self.over = False
        self.seen = False
        self.refused = False
        self.detail = ""


class Errands:
    """What the supervisor asks of the daemon beside keeping it informed.

    Args:
        connect: Finds the daemon; none is started for an errand.
        spec: What the owner declared.
        job_id: The job's id now; "" while the daemon does not know it.
    """

    def __init__(self, connect: Connect, spec: JobSpec, job_id: Callable[[], str]) -> None:
        self._connect = connect
        self._spec = spec
        self._job_id = job_id

    def job(self) -> Mapping[str, Any] | None:
        """The job as the daemon sees it; None where it cannot be asked."""
        found: Mapping[str, Any] | None = self._call(
            lambda caller: caller.get(f"/v1/jobs/{self._job_id()}", timeout_s=_SHORT_S)
        )
        return found

    def room(self) -> Mapping[str, Any] | None:
        """Whether the boards that the job ran on are free again: `free` and, where not, `reason`."""
        found: Mapping[str, Any] | None = self._call(
            lambda caller: caller.get(f"/v1/jobs/{self._job_id()}/room", timeout_s=_SHORT_S)
        )
        return found

    def waits(self, until: float, reason: str) -> None:
        """Say that the next attempt begins at `until` (Unix seconds)."""
        body = {"until": until, "reason": reason}
        self._call(lambda caller: caller.post(f"/v1/jobs/{self._job_id()}/waiting", body, timeout_s=_SHORT_S))

    def say(self, kind: str, message: str) -> None:
        """Have something about the job written down and told."""
        body = {"kind": kind, "message": message}
        self._call(lambda caller: caller.post(f"/v1/jobs/{self._job_id()}/said", body, timeout_s=_SHORT_S))

    def others(self) -> int | None:
        """How many other jobs live; None where nobody can say."""
        found = self._call(lambda caller: caller.get("/v1/jobs", timeout_s=_SHORT_S))
        return None if found is None else sum(1 for job in found if job["id"] != self._job_id())

    def checkpoint(self, reason: str, within_s: float, grove: Grove, wake: Callable[[], None]) -> Asked:
        """Ask the job for a checkpoint: by the daemon, else, by signal or file, directly.

        Args:
            reason: Told to the job.
            within_s: How long its effect is waited for.
            grove: The job's processes.
            wake: Called, from another thread, once it is over.
        """
        asked = Asked()

        def go() -> None:
            body = {
                "request": RequestKind.CHECKPOINT.value,
                "reason": reason,
                "timeout_seconds": within_s,
                "wait": within_s,
            }
            try:
                answer = self._call(
                    lambda caller: caller.post(f"/v1/jobs/{self._job_id()}/requests", body, timeout_s=within_s + 5.0)
                )
                if answer is None:
                    asked.detail = self._directly(reason, grove)
                    return
                asked.seen = answer.get("effect") == "observed" or answer.get("answer") == "done"
                asked.refused = answer.get("answer") in {"refused", "failed", "suppressed"}
                asked.detail = str(answer.get("detail") or answer.get("answer") or "")
            finally:
                asked.over = True
                wake()

        threading.Thread(target=go, name="checkpoint", daemon=True).start()
        return asked

    def _directly(self, reason: str, grove: Grove) -> str:
        channel = self._spec.channel(RequestKind.CHECKPOINT)
        if channel is not None and channel.how is How.SIGNAL:
            return grove.ask(channel.target, channel.pattern) or f"SIG{channel.target} sent, without a daemon"
        if channel is not None and channel.how is How.FILE:
            message = {"id": new_id("r"), "job": self._spec.name, "request": "checkpoint", "reason": reason}
            try:
                with open(f"{channel.target}.tmp", "w", encoding="utf-8") as file:
                    file.write(json.dumps(message) + "\n")
                os.rename(f"{channel.target}.tmp", channel.target)
            except OSError as fault:
                return f"cannot write {channel.target}: {fault.strerror}"
            return f"written to {channel.target}, without a daemon"
        return "no daemon can be reached, and only signals and files work without"

    def _call(self, what: Callable[[Any], Any]) -> Any:
        if not self._job_id():
            return None
        try:
            caller = self._connect(start=False, quiet=True)
        except (SentinelError, OSError):
            return None
        try:
            return what(caller)
        except (SentinelError, OSError, ValueError):
            return None
        finally:
            caller.close()
