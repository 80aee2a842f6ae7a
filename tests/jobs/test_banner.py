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
    retries=3,
    budget_s=7200.0,
    timeout_auto=True,
    stall_timeout_s=1200.0,
)


def test_nothing_declared_nothing_hidden() -> None:
    said = banner(BARE, Registration("j1", "train"), ["/state/output.log"])

    assert said.splitlines() == [
        "sentinel: train · log /state/output.log",
        "  ✗ checkpoints   not watched: --checkpoints DIR",
        "  ✗ can be asked  nothing: --on-checkpoint signal:USR1 --on-degrade signal:USR2",
        "  ✗ told          nobody, when it ends or fails: --notify URL",
        "  ✗ retry         no, a failure ends it: --retries 3",
        "  ✓ limits        a stall is only told (--stall-timeout), memory of cgroup or host",
    ]


def test_everything_declared() -> None:
    met = Registration(
        "j1",
        "train-2",
        "train",
        resume_from="/home/me/ckpt/step-7",
        facts={"checkpoint_age_seconds": 720.0, "timeout_seconds": 4500.0, "timeout_runs": 31},
    )
    said = banner(FULL, met, ["/home/me/.local/output.log"], home="/home/me", deadline_s=2400.0)

    assert said.splitlines() == [
        "sentinel: train-2 (train runs already) · resumes from ~/ckpt/step-7 · log ~/.local/output.log",
        "  ✓ checkpoints   ~/ckpt, newest 12m old, expected every 30m",
        "  ✓ can be asked  checkpoint by signal:USR1, degrade by file:/tmp/x",
        "  ✓ told          1 address of yours",
        "  ✓ retry         3 times within 2h without progress, from the newest checkpoint",
        (
            "  ✓ limits        the scheduler ends it in 40m, a checkpoint is asked before, time 1h 15m (P99 of 31 runs), "
            "stopped after 20m without progress, memory 600 MiB"
        ),
    ]


@pytest.mark.parametrize("spec", [BARE, FULL, JobSpec(("x",), "/", dry_run=True)])
@pytest.mark.parametrize("trouble", ["", "cannot reach the daemon"])
@pytest.mark.parametrize("mode", ["act", "observe"])
def test_never_more_than_six_lines_and_each_no_names_a_way(spec: JobSpec, trouble: str, mode: str) -> None:
    lines = banner(spec, Registration("j1", "x", facts={"mode": mode}), ["/log"], trouble=trouble).splitlines()

    assert len(lines) <= 6
    assert all(len(line) < 90 for line in lines if "USR1;" not in line and "limits" not in line)
    for line in lines:
        if "✗" in line and "daemon " not in line:
            assert "--" in line or "mode: act" in line or "sentinel daemon" in line


def test_without_a_daemon_only_what_the_supervisor_does_itself_is_said_to_be_done() -> None:
    said = banner(FULL, Registration("", "train"), ["/log"], trouble="cannot reach the daemon at /s: no such file")

    assert "✓" not in banner(BARE, Registration("", "train"), ["/log"], trouble="none")
    assert said.splitlines()[1:] == [
        "  ✓ retry         3 times within 2h without progress, from the newest checkpoint",
        "  ✓ limits        time 1d (so far 0 of 20 runs known), stopped after 20m without progress",
        "  ✗ daemon        none: cannot reach the daemon at /s: no such file",
        "  ✗ watched       nothing, and nobody is asked or told: sentinel daemon",
    ]


def test_what_a_daemon_said_when_it_could_not_start_is_said_in_one_line() -> None:
    trouble = (
        "a daemon did not come up. It said:\n/c.yaml:1:7: bad mode\n    1 | mode: x\n      |       ^\n  try: `act`"
    )

    said = banner(FULL, Registration("", "train"), ["/log"], trouble=trouble)

    (line,) = [line for line in said.splitlines() if "✗ daemon" in line]
    assert line.endswith("none: a daemon did not come up. It said: /c.yaml:1:7: bad mode")


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


def test_a_checkpoint_directory_that_is_not_there_is_said() -> None:
    met = Registration("j1", "x", facts={"checkpoints_absent": ["/home/me/ckpt"]})

    assert "✓ checkpoints   /home/me/ckpt, does not exist yet, expected every 30m" in banner(FULL, met, [])


def test_only_those_are_named_who_will_be_told() -> None:
    assert told(("slack://***", None), receiver="oncall") == "oncall"
    assert told() == "nobody, when it ends or fails: --notify URL"


def test_a_learnt_limit_says_what_it_rests_on() -> None:
    spec = JobSpec(("x",), "/", timeout_auto=True)
    said = banner(spec, Registration("j1", "x", facts={"timeout_seconds": 86400.0, "timeout_runs": 3}), [])

    assert "time 1d (so far 3 of 20 runs known)" in said


def test_colours_only_where_asked() -> None:
    assert "\x1b" not in banner(BARE, Registration("j1", "x"), [])
    assert "\x1b[33m--notify URL" in banner(BARE, Registration("j1", "x"), [], colours=True)
