"""Between which values a result must lie, known from its expression and from what our metrics are."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sentinel.model.families import METRICS
from sentinel.model.series import COUNTER
from sentinel.rules.shapes import metric_of

if TYPE_CHECKING:
    from sentinel.promql.tree import Aggregate, Binary, Call, Expr

_FLAGS = frozenset({"gpu_up", "gpu_throttled", "job_up", "job_state", "host_disk_read_only"}) | frozenset(
    {"sentinel_collector_up", "sentinel_rule_up"}
)
_SIGNED = frozenset({"job_memory_headroom_bytes", "gpu_temperature_celsius", "gpu_temperature_slowdown_celsius"})

_KEEPS_RANGE = frozenset(
    {"avg_over_time", "min_over_time", "max_over_time", "last_over_time", "quantile_over_time", "first_over_time"}
)
_KEEPS_VALUE = frozenset({"sort", "sort_desc", "sort_by_label", "sort_by_label_desc", "label_replace", "label_join"})
_NEVER_NEGATIVE = frozenset(
    {"rate", "irate", "increase", "resets", "changes", "count_over_time", "stddev_over_time", "stdvar_over_time"}
) | frozenset({"abs", "sqrt", "exp", "time", "timestamp", "mad_over_time"})


@dataclass(frozen=True, slots=True)
class Bounds:
    """An interval, its ends included.

    Attributes:
        low: Never less than this.
        high: Never more.
        why: Words for people.
        whole: Whether only whole numbers come.
        share: Whether it is a ratio, which people write in percent by mistake.
    """

    low: float = -math.inf
    high: float = math.inf
    why: str = ""
    whole: bool = False
    share: bool = False

    def never(self, op: str, number: float) -> bool:
        """Whether no value here stands to `number` as `op` says."""
        match op:
            case ">":
                return number >= self.high
            case ">=":
                return number > self.high
            case "<":
                return number <= self.low
            case "<=":
                return number < self.low
            case "==":
                return not self.low <= number <= self.high or (self.whole and number != int(number))
        return False


ANY = Bounds()


def bounds(expr: Expr) -> Bounds:
    """What is known of the values of `expr`."""
    from sentinel.promql import tree

    match tree.bare(expr):
        case tree.Number(value=value):
            return Bounds(value, value)
        case tree.Selector() as selector:
            return _metric(metric_of(selector))
        case tree.Range(selector=selector):
            return _metric(metric_of(selector))
        case tree.Call() as call:
            return _called(call)
        case tree.Aggregate() as aggregate:
            return _aggregated(aggregate)
        case tree.Binary() as binary:
            return _binary(binary)
    return ANY


def _metric(name: str) -> Bounds:
    if name not in METRICS:
        return ANY
    if name.endswith("_ratio"):
        return Bounds(0, 1, f"`{name}` lies between 0 and 1", share=True)
    if name in _FLAGS:
        return Bounds(0, 1, f"`{name}` is 0 or 1", whole=True)
    if name in _SIGNED:
        return ANY
    counts = "counts up from 0" if METRICS[name].kind is COUNTER else "is never negative"
    return Bounds(0, math.inf, f"`{name}` {counts}")


def _called(call: Call) -> Bounds:
    if call.function in _KEEPS_RANGE:
        found = bounds(call.args[-1])
        whole = found.whole and call.function not in ("avg_over_time", "quantile_over_time")
        return Bounds(found.low, found.high, found.why, whole, found.share)
    if call.function in _KEEPS_VALUE:
        return bounds(call.args[0])
    if call.function in _NEVER_NEGATIVE:
        return Bounds(0, math.inf, f"`{call.function}` is never negative")
    if call.function in ("absent", "absent_over_time", "present_over_time"):
        return Bounds(1, 1, f"`{call.function}` is 1 or nothing")
    return ANY


def _aggregated(aggregate: Aggregate) -> Bounds:
    inner = bounds(aggregate.expr)
    if aggregate.op in ("min", "max", "topk", "bottomk", "limitk"):
        return inner
    if aggregate.op in ("avg", "quantile"):
        return Bounds(inner.low, inner.high, inner.why, share=inner.share)
    if aggregate.op in ("count", "stddev", "stdvar", "group"):
        return Bounds(0, math.inf, f"`{aggregate.op}` is never negative")
    if aggregate.op == "sum" and inner.low >= 0:
        return Bounds(0, math.inf, inner.why if inner.high == math.inf else "this sum is never negative")
    return ANY


def _binary(binary: Binary) -> Bounds:
    from sentinel.promql.tree import COMPARISON

    left = bounds(binary.left)
    if binary.op in COMPARISON:
        return Bounds(0, 1, "`bool` gives 0 or 1", whole=True) if binary.returns_bool else left
    if binary.op in ("and", "unless"):
        return left
    right = bounds(binary.right)
    if binary.op in ("+", "*", "/") and left.low >= 0 and right.low >= 0 and (left.why or right.why):
        return Bounds(0, math.inf, left.why if left.why.endswith("negative") else "this is never negative")
    return ANY


VALUES: dict[tuple[str, str], frozenset[str]] = {
    ("job_state", "state"): frozenset(
        ["starting", "running", "paused", "stopping", "waiting", "succeeded", "failed", "preempted", "stopped", "lost"]
    ),
    ("gpu_throttled", "reason"): frozenset(
        [
            "idle",
            "app_clocks",
            "sw_power",
            "hw_slowdown",
            "sync_boost",
            "sw_thermal",
            "hw_thermal",
            "power_brake",
            "display",
        ]
    ),
    ("gpu_temperature_celsius", "sensor"): frozenset({"core", "memory"}),
    ("host_pressure_ratio", "resource"): frozenset({"cpu", "memory", "io"}),
    ("host_pressure_ratio", "kind"): frozenset({"some", "full"}),
    ("host_pressure_ratio", "window"): frozenset({"10s", "60s", "300s"}),
    ("checkpoints_total", "state"): frozenset({"complete", "broken"}),
    ("api_requests_total", "outcome"): frozenset(["ok", "rate_limited", "quota", "overloaded", "timeout", "error"]),
}
"""The values that a label can have, where they are known for good: by metric and label."""
