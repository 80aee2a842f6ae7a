"""How jobs are kept, in numbers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Settings:
    """What the configuration can say about jobs.

    Attributes:
        stop_grace_s: How long a job has between TERM and KILL.
        report_grace_s: How long a supervisor may take to say how its job ended, before the job counts as lost.
        remember_s: How long an ended job is shown.
        log_limit_bytes: How much of an attempt's output is kept, the oldest dropped first.
        keep_output_s: How long the output of an ended job is kept.
        output_limit_bytes: How much all kept output may take; the oldest goes first.
        ack_poll_s: How often to look for the answer beside a request file.
        exec_limit_s: How long a program that carries a request may run, at most.
    """

    stop_grace_s: float = 30.0
    report_grace_s: float = 10.0
    remember_s: float = 900.0
    log_limit_bytes: int = 256 * 1024 * 1024
    keep_output_s: float = 7 * 86400.0
    output_limit_bytes: int = 4 * 1024 * 1024 * 1024
    ack_poll_s: float = 0.1
    exec_limit_s: float = 300.0
