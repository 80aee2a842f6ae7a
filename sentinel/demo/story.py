"""What happened, and whether it is what was told.

Pure: it is shown events and overviews, and says what it makes of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from sentinel.units import format_bytes

Data = Mapping[str, Any]

_STEADY_S = 4.0
_STEADY_BYTES = 6 * 1024 * 1024
_QUIET_S = 5.0
_TOO_LATE = 0.75
_HAPPY_AT_LEAST_S = 20.0
"""A job that nothing happened to in less time has proved nothing."""


@dataclass(frozen=True, slots=True)
class Moment:
    """Something decisive.

    Attributes:
        at: Seconds since the beginning.
        job: Whom it is about.
        what: One word.
        message: One line.
    """

    at: float
    job: str
    what: str
    message: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """How one job's story ended."""

    at: float
    job: str
    ok: bool
    message: str
    what: ClassVar[str] = "verdict"


@dataclass
class Part:
    """One job's story so far.

    Attributes:
        job: The job's name.
        reached: The decisive moments, by their word.
        verdict: Once it is decided.
    """

    job: str
    reached: dict[str, Moment] = field(default_factory=dict)
    verdict: Verdict | None = None

    needs: ClassVar[tuple[str, ...]] = ()
    """The moments that must be reached, in order."""

    def event(self, kind: str, data: Data, message: str, at: float) -> None:
        """An event about this job."""

    def look(self, seen: Data, at: float) -> None:
        """The job as the overview shows it."""

    def ended(self, state: str, message: str, at: float) -> None:
        """The job has ended, which none of them should."""
        if self.verdict is None:
            self.reach("ended", f"{state}: {message}", at)
            self.verdict = Verdict(at, self.job, ok=False, message=f"it ended ({state}) instead: {message}")

    def close(self, at: float) -> Verdict:
        """The time is up."""
        if self.verdict is None:
            missing = [word for word in self.needs if word not in self.reached]
            self.verdict = Verdict(at, self.job, ok=False, message=f"never seen: {', '.join(missing)}")
        return self.verdict

    def reach(self, what: str, message: str, at: float) -> None:
        """A decisive moment; only its first time counts."""
        self.reached.setdefault(what, Moment(at, self.job, what, message))

    def seconds(self, what: str) -> float:
        """When it was reached."""
        return self.reached[what].at


class Saved(Part):
    """Leaks, is asked in time, stops."""

    needs: ClassVar[tuple[str, ...]] = ("warned", "asked", "saved", "degraded", "steady")

    def __init__(self, job: str) -> None:
        super().__init__(job)
        self._memory: list[tuple[float, float]] = []
        self._ratio = 0.0
        self._asked_at_ratio = 0.0

    def event(self, kind: str, data: Data, message: str, at: float) -> None:
        """Warned, asked, answered."""
        request = data.get("request")
        if kind == "alert.firing":
            self.reach("warned", f"{message} (at {self._ratio:.0%} of its limit)", at)
        elif kind == "request.sent" and request == "checkpoint":
            self._asked_at_ratio = self._asked_at_ratio or self._ratio
            self.reach("asked", message, at)
        elif kind == "checkpoint.complete" and "asked" in self.reached:
            self.reach("saved", message, at)
        elif kind == "request.acknowledged" and request == "degrade":
            self.reach("degraded", message, at)
        elif kind == "alert.resolved":
            self.reach("resolved", message, at)

    def look(self, seen: Data, at: float) -> None:
        """Whether the leak has stopped."""
        memory = seen.get("memory") or {}
        used, limit = memory.get("used_bytes"), memory.get("limit_bytes")
        if used is None or not limit:
            return
        self._ratio = used / limit
        self._memory = [(time, value) for time, value in self._memory if time > at - _STEADY_S - 1] + [(at, used)]
        if "degraded" not in self.reached:
            return
        lately = [(time, value) for time, value in self._memory if time >= self.seconds("degraded") + 1.5]
        if not lately or lately[-1][0] - lately[0][0] < _STEADY_S - 1:
            return
        values = [value for _, value in lately]
        if max(values) - min(values) > _STEADY_BYTES:
            return
        self.reach("steady", f"memory stays at {format_bytes(used)} of {format_bytes(limit)}", at)
        if self.verdict is None and all(word in self.reached for word in self.needs):
            late = self._asked_at_ratio > _TOO_LATE
            words = (
                f"saved: asked at {self._asked_at_ratio:.0%} of its limit, checkpoint after "
                f"{max(0.0, self.seconds('saved') - self.seconds('asked')):.1f} s, "
                f"leak stopped at {self._ratio:.0%}; it lives on"
            )
            self.verdict = Verdict(at, self.job, not late, f"asked too late: {words}" if late else words)


class Slowed(Part):
    """Is refused, is asked, slows down.

    `refused_ago` and `served` come from the API itself, not from the agent's log.
    """

    needs: ClassVar[tuple[str, ...]] = ("refused", "asked", "acknowledged", "quiet")

    def __init__(self, job: str) -> None:
        super().__init__(job)
        self._served_then: int | None = None

    def event(self, kind: str, data: Data, message: str, at: float) -> None:
        """Refused, asked, answered."""
        if kind == "log.rate_limited":
            self.reach("refused", message, at)
        elif kind == "alert.firing":
            self.reach("warned", message, at)
        elif kind == "request.sent" and data.get("request") == "degrade":
            self.reach("asked", message, at)
        elif kind == "request.acknowledged" and data.get("request") == "degrade":
            self.reach("acknowledged", message, at)

    def calls(self, refused_ago: float | None, served: int, at: float) -> None:
        """What the API has counted."""
        if "acknowledged" not in self.reached:
            return
        if self._served_then is None:
            self._served_then = served
        since = at - self.seconds("acknowledged")
        if since < _QUIET_S or (refused_ago is not None and refused_ago < _QUIET_S) or served <= self._served_then:
            return
        self.reach("quiet", f"no refusal for {_QUIET_S:.0f} s, {served - self._served_then} calls served meanwhile", at)
        if self.verdict is None and all(word in self.reached for word in self.needs):
            pause = self.seconds("asked") - self.seconds("refused")
            words = (
                f"slowed down: asked {pause:.1f} s after the first 429, none in the last {_QUIET_S:.0f} s; it works on"
            )
            self.verdict = Verdict(at, self.job, ok=True, message=words)


class Reminded(Part):
    """Forgets to save, is asked, saves."""

    needs: ClassVar[tuple[str, ...]] = ("warned", "asked", "saved")

    def event(self, kind: str, data: Data, message: str, at: float) -> None:
        """Late, asked, saved."""
        if kind == "alert.firing":
            self.reach("warned", message, at)
        elif kind == "request.sent" and data.get("request") == "checkpoint":
            self.reach("asked", message, at)
        elif kind == "checkpoint.complete" and "asked" in self.reached:
            self.reach("saved", message, at)
            if self.verdict is None and "warned" in self.reached:
                pause = max(0.0, at - self.seconds("asked"))
                words = f"reminded: its checkpoint was overdue, it was asked and wrote one after {pause:.1f} s"
                self.verdict = Verdict(at, self.job, ok=True, message=words)


class Undisturbed(Part):
    """Nothing happens to it, and it works."""

    needs: ClassVar[tuple[str, ...]] = ("running",)

    def __init__(self, job: str) -> None:
        super().__init__(job)
        self._rss = self._used = 0.0
        self._began: float | None = None

    def event(self, kind: str, data: Data, message: str, at: float) -> None:  # noqa: ARG002 - as its siblings
        """Any alert or request is one too many."""
        if kind in {"alert.firing", "request.sent"}:
            self.reach("disturbed", message, at)
            self.verdict = self.verdict or Verdict(at, self.job, ok=False, message=f"was disturbed: {message}")
        elif kind == "checkpoint.complete":
            self.reach("saved", message, at)

    def look(self, seen: Data, at: float) -> None:
        """That it is at work, and what its workers seem to use."""
        memory = seen.get("memory") or {}
        self._rss = max(self._rss, memory.get("rss_bytes") or 0.0)
        self._used = max(self._used, memory.get("used_bytes") or 0.0)
        if seen.get("state") == "running":
            self._began = at if self._began is None else self._began
            processes = seen.get("processes") or 0
            if processes >= 2:
                self.reach("running", f"{processes:.0f} processes at work", at)

    def settle(self, at: float) -> None:
        """The others are decided: was it left alone long enough?"""
        if self.verdict is None and "running" in self.reached and at - (self._began or at) >= _HAPPY_AT_LEAST_S:
            words = (
                f"undisturbed: resident sets of its workers sum to {format_bytes(self._rss)}, "
                f"{format_bytes(self._used)} are really used, and nobody was told or asked"
            )
            self.verdict = Verdict(at, self.job, ok=True, message=words)


class Story:
    """All four."""

    def __init__(self) -> None:
        self.agent = Slowed("agent")
        self.happy = Undisturbed("happy")
        self.parts: dict[str, Part] = {
            part.job: part for part in (Saved("leaky"), self.agent, Reminded("forgetful"), self.happy)
        }
        self._told: set[tuple[str, str]] = set()
        self._known: set[str] = set()

    def events(self, events: Sequence[Data], began: float) -> None:
        """What the daemon says has happened; the same event may come twice.

        Args:
            events: As the API gives them.
            began: The beginning (Unix seconds).
        """
        for event in events:
            part = self.parts.get(str(event.get("job")))
            if part is None or event.get("id") in self._known:
                continue
            self._known.add(str(event.get("id")))
            kind, at = str(event.get("kind")), max(0.0, float(event.get("time") or began) - began)
            message = str(event.get("message"))
            state = kind.removeprefix("job.")
            if state in {"succeeded", "failed", "preempted", "stopped", "lost"}:
                part.ended(state, message, at)
            else:
                part.event(kind, event.get("data") or {}, message, at)

    def look(self, jobs: Sequence[Data], refused_ago: float | None, served: int, at: float) -> None:
        """The jobs of the overview, and what the API has counted."""
        for job in jobs:
            if (part := self.parts.get(str(job.get("name")))) is not None:
                part.look(job, at)
        self.agent.calls(refused_ago, served, at)
        if all(part.verdict for part in self.parts.values() if part is not self.happy):
            self.happy.settle(at)

    def news(self, until: float = math.inf) -> Iterator[Moment | Verdict]:
        """Decisive moments and verdicts that have not been told yet, in order of time.

        Args:
            until: Only what was before (seconds since the beginning): a later look may still
                bring something from before what this one has brought.
        """
        parts = self.parts.values()
        found: list[Moment | Verdict] = [moment for part in parts for moment in part.reached.values()]
        found += [part.verdict for part in parts if part.verdict is not None]
        for one in sorted(found, key=lambda one: one.at):
            if one.at <= until and (one.job, one.what) not in self._told:
                self._told.add((one.job, one.what))
                yield one

    @property
    def decided(self) -> bool:
        """Whether every job's story has ended."""
        return all(part.verdict for part in self.parts.values())

    def close(self, at: float) -> list[Verdict]:
        """The verdicts in order of time; what is not decided by now has not ended as told."""
        return sorted((part.close(at) for part in self.parts.values()), key=lambda verdict: verdict.at)
