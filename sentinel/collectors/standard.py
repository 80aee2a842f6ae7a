"""The collectors that every daemon runs, as one explicit list."""

from __future__ import annotations

from dataclasses import dataclass

from sentinel.collectors.disks import DiskCollector
from sentinel.collectors.gpu import GpuCollector
from sentinel.collectors.gpu_sources import GpuSource
from sentinel.collectors.host import HostCollector
from sentinel.collectors.itself import OwnCollector
from sentinel.collectors.ports import Collector, Facts, Targets, no_facts
from sentinel.collectors.processes import JobCollector
from sentinel.collectors.settings import Settings
from sentinel.collectors.trees import Trees


@dataclass(frozen=True, slots=True)
class Standard:
    """The standard collectors, and those of them that others need by name.

    Attributes:
        collectors: All, in the order in which they are shown.
        jobs: Looks at endangered jobs ahead of the tick.
        trees: Who belongs to which job.
    """

    collectors: tuple[Collector, ...]
    jobs: JobCollector
    trees: Trees


def standard(targets: Targets, gpus: GpuSource, facts: Facts = no_facts, settings: Settings | None = None) -> Standard:
    """Host, disks, jobs, GPUs and sentinel itself."""
    settings = settings or Settings()
    trees = Trees()
    jobs = JobCollector(targets, trees, facts)
    return Standard(
        (
            HostCollector(facts),
            DiskCollector(settings.disks_interval_s, settings.mount_deadline_s),
            jobs,
            GpuCollector(gpus, trees),
            OwnCollector(trees, facts),
        ),
        jobs,
        trees,
    )
