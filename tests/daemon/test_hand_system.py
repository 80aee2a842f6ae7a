"""A system's daemon and the jobs of other users: it sees them all, and touches nothing of theirs itself."""

from __future__ import annotations

import json
import os
import pty
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from .machine import ALICE, Machine, Sink, User, hands_of, python_for_jobs, strays, until

pytestmark = pytest.mark.slow

JOB = """
import json, os, signal, sys, time
home = sys.argv[1]
signal.signal(signal.SIGUSR1, lambda *_: open(f"{home}/restored", "w").close())
asked = ""
print("training", flush=True)
while not os.path.exists(f"{home}/enough"):
    time.sleep(0.05)
    if os.path.exists(f"{home}/say"):
        words = open(f"{home}/say").read()
        os.unlink(f"{home}/say")
        print(words, flush=True)
    try:
        request = json.load(open(f"{home}/ask"))
    except (OSError, ValueError):
        continue
    if request["id"] != asked:
        asked = request["id"]
        with open(f"{home}/ckpt/.step-7.bin.tmp", "wb") as file:
            file.write(b"x" * 100_000)
        os.rename(f"{home}/ckpt/.step-7.bin.tmp", f"{home}/ckpt/step-7.bin")
        with open(f"{home}/.ack", "w") as file:
            file.write(f"{asked} done saved at step 7")
        os.rename(f"{home}/.ack", f"{home}/ask.ack")
raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB")
"""


def night(user: User, *options: str, **more: Any) -> Any:
    """A job of the user's that can be asked by every channel but http; its supervisor."""
    home = user.home
    if not (home / "ckpt").exists():
        user.make("ckpt")
    script = user.write("job.py", JOB)
    return user.begin(
        "run", "--no-daemon", "--name", "night", "--checkpoints", str(home / "ckpt"),
        "--on-checkpoint", f"file:{home}/ask", "--on-degrade", f"exec:/usr/bin/touch {home}/degraded",
        "--on-restore", "signal:USR1", *options, "--", python_for_jobs(), str(script), str(home), **more,
    )  # fmt: skip


def runs(machine: Machine, name: str = "night") -> bool:
    """Whether the job runs and its hand has spoken."""
    found = machine.job(name)
    return bool(found) and found["state"] == "running" and found["last_output"] is not None


def test_a_users_job_is_read_asked_and_told_of_by_that_users_own_processes(
    machine: Machine, alice: User, bob: User, sink: Sink
) -> None:
    supervisor = night(alice, "--notify", f"json://127.0.0.1:{sink.port}/")
    until(lambda: runs(machine), 20, "the hand has read the first line")

    alice.write("say", "\n".join(["HTTP 429 Too Many Requests"] * 3))
    until(lambda: machine.values('log_events_total{job="night",kind="rate_limited"}') == [3.0], 10, "three refusals")
    assert machine.values('log_lines_total{job="night"}') == [4.0]

    asked = machine.ask("night", "checkpoint")
    assert (asked["answer"], asked["via"]) == ("done", f"file:{alice.home}/ask"), asked
    until(lambda: machine.events("checkpoint.complete"), 10, "the checkpoint is seen")
    seen = machine.job("night")["checkpoint"]
    assert (seen["path"], seen["step"]) == (f"{alice.home}/ckpt/step-7.bin", 7)
    until(lambda: machine.values('checkpoint_last_step{job="night"}') == [7.0], 10, "and measured")
    assert machine.values('checkpoint_free_bytes{job="night"}')[0] > 0

    assert machine.ask("night", "degrade")["answer"] == "done"
    assert (alice.home / "degraded").stat().st_uid == ALICE
    machine.ask("night", "restore", 3.0)
    until((alice.home / "restored").exists, 10, "the signal has come")

    job_id = machine.job("night")["id"]
    assert json.loads(bob.sentinel("jobs", "--all", "--json").stdout) == []
    assert "night" not in bob.sentinel("events").stdout
    assert bob.posts(f"/v1/jobs/{job_id}/hand", {"hand": "h", "seq": 1}) in {403, 404}

    alice.write("enough")
    assert supervisor.wait(20) == 1
    ended = until(lambda: found if (found := machine.job("night"))["state"] == "failed" else None)
    assert ended["exit_code"] == 1
    assert "ran out of GPU memory" in ended["cause"]
    assert "Tried to allocate 2.00 GiB" in ended["cause"]
    until(lambda: any("night" in body["title"] for _, body in sink.got), 20, "its owner is told of the end")
    assert sink.uids == {ALICE}
    until(lambda: machine.events("notification.sent"), 10, "and the daemon knows")

    # Opened, listed, called and run by the daemon: nothing of hers.
    touched = [line for line in machine.audited() if str(alice.home) in line or str(sink.port) in line]
    assert touched == []
    assert len(machine.audited()) > 100  # the hook does hear


def test_a_hand_that_is_killed_is_started_again_and_what_it_knew_is_neither_lost_nor_counted_twice(
    machine: Machine, alice: User
) -> None:
    supervisor = night(alice)
    until(lambda: runs(machine))
    alice.write("say", "HTTP 429 Too Many Requests")
    until(lambda: machine.values('log_events_total{job="night",kind="rate_limited"}') == [1.0], 10)
    (hand,) = hands_of(supervisor.pid)
    log = Path(machine.job("night")["output"][0])
    place = log.parent.parent / "hand.json"
    read = f'"offset": {log.stat().st_size},'
    until(lambda: place.exists() and read in place.read_text(), 10, "its place in the log is saved")

    os.kill(hand, signal.SIGKILL)

    until(lambda: (found := hands_of(supervisor.pid)) and found != [hand], 10, "another hand")
    assert machine.ask("night", "checkpoint")["answer"] == "done"
    alice.write("say", "HTTP 429 Too Many Requests")
    until(lambda: machine.values('log_events_total{job="night",kind="rate_limited"}') == [2.0], 10)


def test_without_a_hand_nothing_is_done_and_that_is_said(machine: Machine, alice: User) -> None:
    supervisor = night(alice)
    until(lambda: runs(machine))
    (hand,) = hands_of(supervisor.pid)
    os.kill(supervisor.pid, signal.SIGSTOP)
    os.kill(hand, signal.SIGKILL)

    asked = machine.ask("night", "degrade")

    assert asked["answer"] == "failed"
    assert "nothing was done: no hand of" in asked["detail"]
    assert not (alice.home / "degraded").exists()
    os.kill(supervisor.pid, signal.SIGCONT)


def test_the_hand_outlives_a_killed_supervisor_and_still_tells_of_the_end(
    machine: Machine, alice: User, sink: Sink
) -> None:
    supervisor = night(alice, "--notify", f"json://127.0.0.1:{sink.port}/")
    until(lambda: runs(machine))
    supervisor.kill()
    until(lambda: machine.events("sentinel.supervisor_lost"), 10)

    assert machine.ask("night", "checkpoint")["answer"] == "done"
    alice.write("enough")

    until(lambda: machine.job("night")["state"] == "lost", 20)
    assert "Tried to allocate 2.00 GiB" in machine.job("night")["cause"]
    until(lambda: sink.got, 20)
    assert sink.uids == {ALICE}
    assert [line for line in machine.audited() if str(alice.home) in line] == []


def test_an_end_while_the_daemon_is_dead_is_known_and_told_after_its_restart(
    machine: Machine, alice: User, sink: Sink
) -> None:
    supervisor = night(alice, "--notify", f"json://127.0.0.1:{sink.port}/")
    until(lambda: runs(machine))
    machine.kill()
    alice.write("enough")
    assert supervisor.wait(20) == 1

    machine.start()

    until(lambda: machine.job("night")["state"] == "failed", 20, lambda: machine.job("night"))
    assert machine.job("night")["exit_code"] == 1
    assert "Tried to allocate 2.00 GiB" in machine.job("night")["cause"]
    until(lambda: sink.got, 20)
    assert sink.uids == {ALICE}
    assert [line for line in machine.audited() if str(alice.home) in line] == []


def test_the_terminal_of_a_job_whose_supervisor_is_killed_is_drained_into_its_log(
    machine: Machine, alice: User
) -> None:
    ours, theirs = pty.openpty()
    try:
        supervisor = night(alice, stdin=theirs, stdout=theirs, stderr=theirs, preexec_fn=lambda: os.login_tty(theirs))
        until(lambda: runs(machine))
        os.set_blocking(ours, False)
        supervisor.kill()
        until(lambda: machine.events("sentinel.supervisor_lost"), 10)

        for number in range(4):  # more than a terminal holds
            alice.write("say", f"line {number} " + "x" * 50_000)
            until(lambda: not (alice.home / "say").exists(), 10, "the job is not held up by its terminal")

        log = Path(machine.job("night")["output"][0])
        until(lambda: "line 3 " in log.read_text(errors="replace"), 10, "it is all in the log")
        assert machine.job("night")["state"] == "running"
        assert [line for line in machine.audited() if str(alice.home) in line] == []
    finally:
        os.close(ours)
        os.close(theirs)


def test_a_url_of_the_owner_is_called_by_the_owner(machine: Machine, alice: User, sink: Sink) -> None:
    alice.begin(
        "run", "--no-daemon", "--name", "asked", "--on-checkpoint", f"http://127.0.0.1:{sink.port}/save",
        "--", "/bin/sleep", "60",
    )  # fmt: skip
    until(lambda: machine.job("asked").get("state") == "running")

    asked = machine.ask("asked", "checkpoint")

    assert asked["answer"] == "done", asked
    assert [(uid, body["id"]) for uid, body in sink.got] == [(ALICE, asked["id"])]


def test_a_process_that_is_watched_has_a_hand_as_well(machine: Machine, alice: User) -> None:
    alice.make("ckpt")
    script = alice.write("job.py", JOB)
    with alice.write("it.log").open("ab") as out:
        job = alice.spawn(python_for_jobs(), str(script), str(alice.home), stdout=out, stderr=out)
    until(lambda: "training" in (alice.home / "it.log").read_text(), 10)

    alice.sentinel(
        "watch", "--pid", str(job.pid), "--name", "adopted", "--checkpoints", str(alice.home / "ckpt"),
        "--on-checkpoint", f"file:{alice.home}/ask",
    )  # fmt: skip

    assert machine.ask("adopted", "checkpoint")["answer"] == "done"
    alice.write("say", "HTTP 429 Too Many Requests")
    until(lambda: machine.values('log_events_total{job="adopted",kind="rate_limited"}') == [1.0], 10)
    alice.write("enough")
    job.wait(20)
    until(lambda: machine.job("adopted")["state"] == "lost", 20)
    assert "Tried to allocate 2.00 GiB" in machine.job("adopted")["cause"]
    until(lambda: not strays(machine.root), 20, "its hand has ended with it")
    assert [line for line in machine.audited() if str(alice.home) in line] == []


def test_resuming_is_from_the_newest_checkpoint_that_the_owners_side_has_found(machine: Machine, alice: User) -> None:
    place = alice.make("ckpt")
    (place / "step-41.bin").write_bytes(b"x" * 1000)
    os.chown(place / "step-41.bin", ALICE, ALICE)
    os.utime(place / "step-41.bin", (time.time() - 60, time.time() - 60))

    done = alice.sentinel("run", "--no-daemon", "--checkpoints", str(place), "--", "/bin/echo", "resume={checkpoint}")

    assert f"resume={place}/step-41.bin" in done.stdout
    assert "newest 1m" in done.stderr
    assert [line for line in machine.audited() if str(alice.home) in line] == []
