"""What a line of a log can mean."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class LogKind(StrEnum):
    """The kinds of log event. Each has the series log_events_total{kind=…}."""

    GPU_OOM = "gpu_oom"
    HOST_OOM = "host_oom"
    RATE_LIMITED = "rate_limited"
    QUOTA_EXHAUSTED = "quota_exhausted"
    OVERLOADED = "overloaded"
    CONTEXT_LENGTH = "context_length"
    NCCL_FAILURE = "nccl_failure"
    GPU_FAULT = "gpu_fault"
    DISK_FULL = "disk_full"
    CHECKPOINT_FAILED = "checkpoint_failed"
    CHECKPOINT_SAVED = "checkpoint_saved"
    NUMERIC_ANOMALY = "numeric_anomaly"
    TIMEOUT = "timeout"
    CONNECTION_LOST = "connection_lost"
    PREEMPTED = "preempted"
    TRACEBACK = "traceback"  # an uncaught exception of no more telling kind


@dataclass(frozen=True, slots=True)
class LogEvent:
    """One record of a log that means something.

    Attributes:
        kind: What it means.
        line: The decisive line, cleaned and masked, at most 4 KiB.
        line_number: Of that line, from 1; 0 where unknown.
        retryable: Would the same again plausibly succeed? None: cannot be said.
        framework: Provider or framework, where the wording tells; else "".
        fields: Captured: bytes_wanted, bytes_free, status, retry_after_seconds,
            tokens_over, limit, step, path, xid, rank.
        pattern: The name of the pattern that decided.
        count: How many records this stands for.
        context: A few lines around it, cleaned and masked.
    """

    kind: LogKind
    line: str
    line_number: int = 0
    retryable: bool | None = None
    framework: str = ""
    fields: Mapping[str, object] = field(default_factory=dict)
    pattern: str = ""
    count: int = 1
    context: tuple[str, ...] = ()
