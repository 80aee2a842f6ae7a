"""The bill: GPU-hours and money, useful, lost, at risk and saved, by job. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sentinel.model.jobs import Job, JobState


@dataclass(frozen=True, slots=True)
class Row:
    """One attempt that is over.

    Attributes:
        job: The job's name.
        outcome: As in `Past`.
        ran_s: How long it ran.
        useful_s: As in `Past`; `lost_s` and `saved_s` too.
        gpus: On how many boards.
        cost_per_hour: None: it has no price.
        verdict: Of a failure.
    """

    job: str
    outcome: str
    ran_s: float
    useful_s: float
    lost_s: float
    saved_s: float
    gpus: int
    cost_per_hour: float | None
    verdict: str = ""

    @classmethod
    def read(cls, row: Mapping[str, Any]) -> Row:
        """From what the store keeps."""
        price = row.get("cost_per_hour")
        return cls(
            str(row["job"]),
            str(row["outcome"]),
            max(0.0, float(row["ended"]) - float(row["started"])),
            float(row.get("useful_s") or 0.0),
            float(row.get("lost_s") or 0.0),
            float(row.get("saved_s") or 0.0),
            int(row.get("gpus") or 0),
            None if price is None else float(price),
            str(row.get("verdict") or ""),
        )


def made(
    rows: Sequence[Row], living: Sequence[Job], since: float, now: float, at_risk: Mapping[str, float]
) -> dict[str, Any]:
    """One entry per job and the sum, as plain JSON. Times in seconds, money in the unit of `--cost-per-hour`.

    Args:
        rows: Attempts that ended since then.
        living: Jobs that run now, for what is at risk.
        since: Unix seconds.
        now: Unix seconds.
        at_risk: Seconds of work since the last whole checkpoint, by the names of living jobs.
    """
    names = list(dict.fromkeys([*(row.job for row in rows), *(job.name for job in living)]))
    risks = {job.name: job for job in living}
    entries = [
        _entry(name, [row for row in rows if row.job == name], risks.get(name), now, at_risk.get(name, 0.0))
        for name in names
    ]
    return {"since": since, "until": now, "jobs": entries, "total": _total(entries)}


_SUMS = (
    "attempts", "run_seconds", "gpu_hours", "useful_seconds", "lost_seconds", "saved_seconds", "at_risk_seconds",
)  # fmt: skip
_MONEY = ("cost", "useful_cost", "lost_cost", "saved_cost", "at_risk_cost")


def _entry(name: str, rows: Sequence[Row], job: Job | None, now: float, at_risk_s: float) -> dict[str, Any]:
    running = job is not None and job.attempt_started is not None and job.state is not JobState.WAITING
    ran_now = max(0.0, now - job.attempt_started) if job is not None and running and job.attempt_started else 0.0
    finished = sorted(row.ran_s for row in rows if row.outcome == "succeeded")
    whole = sum(row.ran_s for row in rows) + ran_now
    gpus_now = (job.spec.gpus or 0) if job is not None else 0
    entry: dict[str, Any] = {
        "job": name,
        "state": job.state.value if job is not None else rows[-1].outcome,
        "attempts": len(rows) + (1 if running else 0),
        "run_seconds": whole,
        "gpu_hours": (sum(row.gpus * row.ran_s for row in rows) + gpus_now * ran_now) / 3600.0,
        "useful_seconds": sum(row.useful_s for row in rows),
        "lost_seconds": sum(row.lost_s for row in rows),
        "saved_seconds": sum(row.saved_s for row in rows),
        "at_risk_seconds": at_risk_s if running else 0.0,
        "run_p99_seconds": finished[min(len(finished) - 1, int(0.99 * len(finished)))] if finished else None,
        "runs": len(finished),
    }
    prices = [row.cost_per_hour for row in rows if row.cost_per_hour is not None]
    now_price = job.spec.cost_per_hour if job is not None else None
    if not prices and now_price is None:
        return {**entry, **dict.fromkeys(_MONEY)}

    def cost(field: str) -> float:
        return sum((row.cost_per_hour or 0.0) * float(getattr(row, field)) / 3600.0 for row in rows)

    return {
        **entry,
        "cost": cost("ran_s") + (now_price or 0.0) * ran_now / 3600.0,
        "useful_cost": cost("useful_s"),
        "lost_cost": cost("lost_s"),
        "saved_cost": cost("saved_s"),
        "at_risk_cost": (now_price or 0.0) * (at_risk_s if running else 0.0) / 3600.0,
    }


def _total(entries: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    total: dict[str, Any] = {name: sum(entry[name] for entry in entries) for name in _SUMS}
    for name in _MONEY:
        known = [entry[name] for entry in entries if entry[name] is not None]
        total[name] = sum(known) if known else None
    return total
