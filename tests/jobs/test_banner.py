"""The banner: at most six lines, and each "no" names what changes it."""

from __future__ import annotations

import pytest

from sentinel.jobs.banner import banner
from sentinel.jobs.link import Registration
from sentinel.model.jobs import Channel, CheckpointDir, JobSpec
from sentinel.model.requests import RequestKind

BARE = JobSpec(argv=("python", "train.py"), cwd="/")
FULL = JobSpec(
    argv=("python", "train.py", "--resume", "{checkpoint}"),
    cwd="/",
    checkpoints=(CheckpointDir("/home/me/ckpt", 1800.0),),
    channels=(
        Channel.parse(RequestKind.CHECKPOINT, "signal:USR1"),
        Channel.parse(RequestKind.DEGRADE, "file:/tmp/x"),
    ),
    memory_limit_bytes=600 << 20,
    notify=("ntfy://x",),
)


def test_nothing_declared_nothing_hidden() -> None:
    said = banner(BARE, Registration("j1", "train"), ["/state/output.log"])

    assert said.splitlines() == [
        "sentinel: train · log /state/output.log",
        "  ✗ checkpoints   not watched: --checkpoints DIR",
        "  ✗ can be asked  nothing: --on-checkpoint signal:USR1 --on-degrade signal:USR2",
        "  ✓ memory        against the cgroup or host; tighter: --memory-limit SIZE",
        "  ✗ told          nobody, when it ends or fails: --notify URL",
    ]


def test_everything_declared() -> None:
    met = Registration(
        "j1", "train-2", "train", resume_from="/home/me/ckpt/step-7", facts={"checkpoint_age_seconds": 720.0}
    )
    said = banner(FULL, met, ["/home/me/.local/output.log"], home="/home/me")

    assert said.splitlines() == [
        "sentinel: train-2 (train runs already) · resumes from ~/ckpt/step-7 · log ~/.local/output.log",
        "  ✓ checkpoints   ~/ckpt, newest 12m old, expected every 30m",
        "  ✓ can be asked  checkpoint by signal:USR1, degrade by file:/tmp/x",
        "  ✓ memory        against 600 MiB",
        "  ✓ told          1 address of yours",
    ]


@pytest.mark.parametrize("spec", [BARE, FULL, JobSpec(("x",), "/", dry_run=True)])
@pytest.mark.parametrize("trouble", ["", "cannot reach the daemon"])
@pytest.mark.parametrize("mode", ["act", "observe"])
def test_never_more_than_six_lines_and_each_no_names_a_way(spec: JobSpec, trouble: str, mode: str) -> None:
    lines = banner(spec, Registration("j1", "x", facts={"mode": mode}), ["/log"], trouble=trouble).splitlines()

    assert len(lines) <= 6
    assert all(len(line) < 80 for line in lines if "USR1;" not in line)
    for line in lines:
        if "✗" in line and "daemon " not in line:
            assert "--" in line or "mode: act" in line


def test_colours_only_where_asked() -> None:
    assert "\x1b" not in banner(BARE, Registration("j1", "x"), [])
    assert "\x1b[33m--notify URL" in banner(BARE, Registration("j1", "x"), [], colours=True)
