"""What collectors need from others, and what they offer to the schedule."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from sentinel.errors import SentinelError
from sentinel.model.events import Event
from sentinel.model.jobs import Job
from sentinel.model.series import Batch, Entity, Family, Support

Targets = Callable[[], Sequence[Job]]
"""The jobs to look at: the living, and those that ended within the last 15 minutes."""

Deliver = Callable[[Batch], None]
"""Takes a batch from a collector's thread; returns at once and never raises."""

Emit = Callable[[Event], None]
"""Takes an event from a collector's thread; returns at once and never raises."""

Facts = Callable[[Family, Entity], Mapping[str, float]]
"""What the rest of the daemon knows of an entity, by metric name; it joins the collector's own row."""


def no_facts(family: Family, entity: Entity) -> Mapping[str, float]:
    """Nothing is known but what is measured."""
    del family, entity
    return {}


class Unavailable(SentinelError):
    """What a collector measures cannot be had here for now: no fault, no warning; asked again later."""


class Collector(Protocol):
    """One thing to measure. It neither judges nor stores nor sleeps.

    Attributes:
        name: The label `collector` of its own series.
        families: What its batches are of.
        interval_s: How often; None for the default tick.
    """

    @property
    def name(self) -> str: ...  # noqa: D102 - described above

    @property
    def families(self) -> tuple[Family, ...]: ...  # noqa: D102 - described above

    @property
    def interval_s(self) -> float | None: ...  # noqa: D102 - described above

    def supported(self) -> Support:
        """Whether it can measure here; asked in its own thread, again every minute while it cannot."""
        ...

    def collect(self, at: float) -> Sequence[Batch]:
        """One pass, at `at` (Unix seconds).

        Raises:
            Unavailable: It cannot measure here any more.
        """
        ...


class JobSampler(Collector, Protocol):
    """A collector that can look at some jobs alone, ahead of the tick."""

    def collect_only(self, at: float, jobs: frozenset[str]) -> Sequence[Batch]:
        """A pass that covers just the jobs of these names."""
        ...
