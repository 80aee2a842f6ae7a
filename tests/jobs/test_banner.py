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
            assert "--" in line or "mode: act" in line or "sentinel daemon" in line


def test_without_a_daemon_no_line_says_that_something_is_protected() -> None:
    said = banner(FULL, Registration("", "train"), ["/log"], trouble="cannot reach the daemon at /s: no such file")

    assert "✓" not in said
    assert said.splitlines()[1:] == [
        "  ✗ daemon        none: cannot reach the daemon at /s: no such file",
        "  ✗ watched       nothing, and nobody is asked or told: sentinel daemon",
    ]


def told(*addresses: tuple[str, str | None], receiver: str = "", checked: bool = True) -> str:
    """The line that says whom the end is told to."""
    listed = [{"address": address, "problem": problem} for address, problem in addresses]
    facts = {"told": {"receiver": receiver, "own": not receiver, "checked": checked, "addresses": listed}}
    said = banner(FULL, Registration("j1", "x", facts=facts), [])
    return next(line for line in said.splitlines() if " told " in line).partition(" told ")[2].strip()


def test_an_address_that_nothing_can_be_sent_to_is_not_told() -> None:
    bad = ("foo://***", "no such kind of address")

    assert told(bad) == "nobody, not even foo://***: no such kind of address: --notify URL"
    assert told(("ntfy://x", None), bad) == (
        "1 address of yours, but not foo://***: no such kind of address: --notify URL"
    )
    assert told(("ntfy://x", None), ("ntfy://y", None)) == "2 addresses of yours"
    assert told(("ntfy://x", None), checked=False) == "1 address of yours, not looked at yet"


def test_only_those_are_named_who_will_be_told() -> None:
    assert told(("slack://***", None), receiver="oncall") == "oncall"
    assert told() == "nobody, when it ends or fails: --notify URL"


def test_colours_only_where_asked() -> None:
    assert "\x1b" not in banner(BARE, Registration("j1", "x"), [])
    assert "\x1b[33m--notify URL" in banner(BARE, Registration("j1", "x"), [], colours=True)
