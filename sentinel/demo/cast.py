"""The four jobs: how each is started, and what must become of it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Role:
    """One job of the demonstration.

    Attributes:
        name: The job's name.
        told: What is to happen, in one sentence.
        options: Of `sentinel run`.
        module: The program.
        arguments: Of the program.
    """

    name: str
    told: str
    options: tuple[str, ...]
    module: str
    arguments: tuple[str, ...]


def cast(root: Path, url: str) -> tuple[Role, ...]:
    """All four, with their files under `root` and the API at `url`."""
    jobs = "sentinel.demo.jobs"
    checkpoints = {name: str(root / "checkpoints" / name) for name in ("leaky", "forgetful", "happy")}
    request = str(root / "agent-request.json")
    return (
        Role(
            "leaky",
            "leaks host memory and is saved: a checkpoint, then half the batch, before its limit is reached",
            (
                *("--memory-limit", "420MiB", "--checkpoints", checkpoints["leaky"]),
                *("--on-checkpoint", "signal:USR1", "--on-degrade", "signal:USR2"),
            ),
            f"{jobs}.leaky",
            ("--checkpoints", checkpoints["leaky"], "--rate-mib", "20", "--warm-up", "2", "--die-at-mib", "420"),
        ),
        Role(
            "agent",
            "is refused by an API with 429 and slows down when it is asked to",
            ("--on-degrade", f"file:{request}"),
            f"{jobs}.agent",
            ("--url", url, "--degrade-file", request, "--eager-after", "11"),
        ),
        Role(
            "forgetful",
            "stops writing checkpoints and is asked for one",
            ("--checkpoints", f"{checkpoints['forgetful']}:4s", "--on-checkpoint", "signal:USR1"),
            f"{jobs}.forgetful",
            ("--checkpoints", checkpoints["forgetful"], "--every", "2", "--forget-after", "3.5"),
        ),
        Role(
            "happy",
            "trains with forked workers that share its memory, and nobody is bothered",
            (
                *("--memory-limit", "420MiB", "--checkpoints", f"{checkpoints['happy']}:20s"),
                *("--on-checkpoint", "signal:USR1"),
            ),
            f"{jobs}.happy",
            ("--checkpoints", checkpoints["happy"], "--every", "6", "--data-mib", "160", "--workers", "4"),
        ),
    )
