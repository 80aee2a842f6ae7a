"""What one look at everything shows: the snapshot behind `status` and the dashboard."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from sentinel.model.families import GPU, HOST
from sentinel.model.jobs import Job
from sentinel.model.labels import METRIC_NAME, Labels
from sentinel.promql.series import Block, Match, Matcher, SeriesReader

GROWTH_WINDOW_S = 12.0
FRESH_S = 15.0
"""A value older than this is not shown as what is now."""
_FORECAST_HORIZON_S = 24 * 3600.0
_GPU_TEMPERATURE = "gpu_temperature_celsius"


class Newest(SeriesReader, Protocol):
    """The window, as the overview needs it."""

    def latest(self, metric: str, **labels: str) -> float | None:
        """The newest value of a series, or None."""
        ...


def host(window: Newest) -> dict[str, float | None]:
    """The host's numbers, without the prefix `host_`."""
    return {metric.name.removeprefix("host_"): window.latest(metric.name) for metric in HOST.metrics}


def gpus(window: Newest, at: float) -> list[dict[str, Any]]:
    """One entry per board or MIG instance, in the order of their indices."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for metric in GPU.metrics:
        for labels, value in _latest(window, metric.name, at).items():
            entry = found.setdefault(_board(labels), _empty(labels))
            entry[metric.name.removeprefix("gpu_")] = value
    for labels, value in _latest(window, _GPU_TEMPERATURE, at, sensor="core").items():
        if _board(labels) in found:
            found[_board(labels)]["temperature_celsius"] = value
    return sorted(found.values(), key=lambda entry: (len(entry["gpu"]), entry["gpu"], entry["mig"]))


def memory(window: Newest, job: Job, at: float) -> dict[str, Any]:
    """A job's memory against the limit that kills it, and when it will be full at this pace; nothing once it ended.

    `constraint` says whose limit it is: "declared", "cgroup", or "host". Against the whole
    host `used_bytes` is everybody's; it fills at this job's pace only where the job grows.
    """
    values = {
        name: window.latest(f"job_memory_{name}", job=job.name) if job.alive else None
        for name in ("used_bytes", "limit_bytes", "headroom_bytes", "rss_bytes")
    }
    constraint = _constraint(window, job, values["limit_bytes"])
    growth = _growth(window, job.name, at, host=constraint == "host") if job.alive else None
    headroom = values["headroom_bytes"]
    full_in = max(0.0, headroom) / growth if growth and growth > 0 and headroom is not None else None
    return {
        **values,
        "constraint": constraint,
        "growth_bytes_per_second": growth,
        "full_in_seconds": full_in if full_in is not None and full_in < _FORECAST_HORIZON_S else None,
    }


def usage(window: Newest, job: Job, at: float) -> dict[str, float | None]:
    """Processors, processes and GPU memory of a job; nothing once it has ended: its name may be another's by then."""
    if not job.alive:
        return dict.fromkeys(("gpu_memory_bytes", "processes", "cpu_cores", "step"))
    boards = _latest(window, "job_gpu_memory_bytes", at, job=job.name)
    return {
        "gpu_memory_bytes": sum(boards.values()) if boards else None,
        "processes": window.latest("job_processes", job=job.name),
        "cpu_cores": _rate(window, "job_cpu_seconds_total", job.name, at),
        "step": window.latest("job_step", job=job.name),
    }


def _board(labels: Mapping[str, str]) -> tuple[str, str]:
    return labels.get("uuid", ""), labels.get("mig", "")


def _empty(labels: Mapping[str, str]) -> dict[str, Any]:
    named = {name: labels.get(name, "") for name in GPU.labels}
    return {**named, **{metric.name.removeprefix("gpu_"): None for metric in GPU.metrics}, "temperature_celsius": None}


def _select(window: SeriesReader, metric: str, start: float, end: float, **labels: str) -> list[Block]:
    pairs = {METRIC_NAME: metric, **labels}
    return list(window.select(tuple(Matcher(name, Match.EQUAL, value) for name, value in pairs.items()), start, end))


def _latest(window: SeriesReader, metric: str, at: float, **labels: str) -> dict[Labels, float]:
    """The newest value of each series of a metric that is fresh and has not ended."""
    found: dict[Labels, float] = {}
    for block in _select(window, metric, at - FRESH_S, at, **labels):
        for index, series in enumerate(block.labels):
            present = np.flatnonzero(block.present[index])
            stale = np.flatnonzero(block.stale[index])
            if present.size and (not stale.size or stale[-1] < present[-1]):
                found[series] = float(block.values[index, present[-1]])
    return found


def _points(
    window: SeriesReader, metric: str, job: str, at: float
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    for block in _select(window, metric, at - GROWTH_WINDOW_S, at, job=job):
        if len(block.labels):
            mask = block.present[0]
            return block.times[mask], block.values[0][mask]
    return np.empty(0), np.empty(0)


def _constraint(window: Newest, job: Job, limit: float | None) -> str | None:
    if limit is None:
        return None
    if limit == job.spec.memory_limit_bytes:
        return "declared"
    return "host" if limit == window.latest("host_memory_total_bytes") else "cgroup"


def _growth(window: SeriesReader, job: str, at: float, *, host: bool) -> float | None:
    """Bytes of headroom lost per second, or against the host gained by the job itself: a least-squares line."""
    name = "job_memory_rss_bytes" if host else "job_memory_headroom_bytes"
    times, values = _points(window, name, job, at)
    if times.size < 3 or times[-1] - times[0] < 2.0:
        return None
    centred = times - times.mean()
    slope = float((centred @ (values - values.mean())) / (centred @ centred))
    return slope if host else -slope


def _rate(window: SeriesReader, metric: str, job: str, at: float) -> float | None:
    times, values = _points(window, metric, job, at)
    if times.size < 2 or times[-1] <= times[0]:
        return None
    return float((values[-1] - values[0]) / (times[-1] - times[0]))
