"""The main job, end to end: a leak is foreseen, the job is asked, a person is told."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from .conftest import Household, Mailbox, Sink, until

pytestmark = pytest.mark.slow

LEAK = """
import os, signal, sys, time
place, rate = sys.argv[1], float(sys.argv[2])
state = {"leak": True, "save": False}
def checkpoint(*_): state["save"] = True
def degrade(*_): state["leak"] = False; print("degraded", flush=True)
signal.signal(signal.SIGUSR1, checkpoint)
signal.signal(signal.SIGUSR2, degrade)
kept, step = [], 0
print("training", flush=True)
def save():
    temporary = os.path.join(place, f".step-{step}.bin.tmp")
    with open(temporary, "wb") as file:
        file.write(b"x" * 100_000)
    os.replace(temporary, os.path.join(place, f"step-{step}.bin"))
save()
while True:
    step += 1
    time.sleep(0.1)
    if state["leak"]:
        kept.append(bytearray(b"y" * int(rate * 1e5)))
    if state["save"]:
        state["save"] = False
        save()
        print("saved", step, flush=True)
"""


def leaking_job(household: Household, *options: str, name: str = "leak", rate: float = 20.0) -> subprocess.Popen[str]:
    """A real process that grows under `sentinel run`."""
    place = household.root / "ckpt"
    place.mkdir(exist_ok=True)
    script = household.root / "leak.py"
    script.write_text(LEAK)
    return household.begin(
        "run", "--name", name, "--memory-limit", "600MiB", "--checkpoints", str(place),
        "--on-checkpoint", "signal:USR1", "--on-degrade", "signal:USR2", *options,
        "--", sys.executable, str(script), str(place), str(rate),
    )  # fmt: skip


def forecast(household: Household) -> dict[str, Any] | None:
    """The alert about memory, firing."""
    found = [
        alert
        for alert in household.client().get("/v1/alerts")
        if alert["state"] == "firing" and alert["rule"].startswith("MemoryExhaustion")
    ]
    return found[0] if found else None


def asked(household: Household, kind: str) -> list[dict[str, Any]]:
    """Requests of a kind that reached the job."""
    return [request for request in household.requests("leak") if request["kind"] == kind and request["sent"]]


def test_a_leak_is_foreseen_the_job_is_asked_and_a_person_is_told(
    household: Household, mailbox: Mailbox, sink: Sink
) -> None:
    household.configure(
        "notify:\n"
        f"  receivers:\n    - {{name: oncall, urls: ['{mailbox.url}', '{sink.url}']}}\n"
        "  route: {receiver: oncall, group_wait: 1s, group_interval: 2s}\n"
    )
    household.start()
    leaking_job(household)
    until(lambda: asked(household, "checkpoint"), 40, "a checkpoint is asked for")

    assert household.value('job_memory_used_bytes{job="leak"} / job_memory_limit_bytes') < 0.75

    until(lambda: [r for r in asked(household, "checkpoint") if r["effect"] == "observed"], 15, "a newer checkpoint")
    until(lambda: [r for r in asked(household, "degrade") if r["acknowledged"]], 15, "degrade is acknowledged")
    degraded = time.monotonic()
    until(lambda: forecast(household) is None, 20, "the alert resolves")
    assert time.monotonic() - degraded < 20

    job = household.job("leak")
    assert job is not None
    assert job["state"] == "running"
    assert job["degrade_level"] == 1

    until(lambda: len(mailbox.letters) >= 2, 20, "a letter for firing and one for resolved")
    until(lambda: len(sink.got) >= 2, 20, "the same at the sink")
    assert "leak" in mailbox.subjects()[0]
    assert "resolved" in mailbox.subjects()[1].lower()
    assert "checkpoint" in mailbox.text(0).lower()
    assert len(asked(household, "checkpoint")) == 1
    assert len(asked(household, "degrade")) == 1


def test_a_daemon_killed_in_the_middle_asks_nothing_twice(household: Household, mailbox: Mailbox) -> None:
    household.configure(
        f"notify:\n  receivers:\n    - {{name: oncall, urls: ['{mailbox.url}']}}\n"
        "  route: {receiver: oncall, group_wait: 1s, group_interval: 2s}\n"
    )
    household.start()
    leaking_job(household, rate=20.0)
    until(lambda: [r for r in asked(household, "checkpoint") if r["acknowledged"]], 40, "a checkpoint is asked for")
    household.kill_daemon()  # between request and answer
    household.start()
    until(lambda: mailbox.letters, 30, "the firing letter")
    until(lambda: [r for r in asked(household, "degrade") if r["acknowledged"]], 40, "the chain goes on")
    household.kill_daemon()  # between firing and resolved
    household.start()
    until(lambda: forecast(household) is None, 30, "the alert resolves")
    until(lambda: any("resolved" in subject.lower() for subject in mailbox.subjects()), 30, "the resolved letter")

    # The file of the job itself says what reached it.
    job = household.job("leak")
    assert job is not None
    output = Path(job["output"][0]).read_text()
    assert output.count("saved") == 1
    assert output.count("degraded") == 1
    time.sleep(3)  # long enough for a second letter, were there one
    assert sum("resolved" in subject.lower() for subject in mailbox.subjects()) == 1


def test_a_supervisor_killed_leaves_the_job_and_its_output(household: Household) -> None:
    household.start()
    supervisor = leaking_job(household, rate=0.1)
    until(lambda: (household.job("leak") or {}).get("state") == "running", 20, "it runs")
    job = household.job("leak")
    assert job is not None
    supervisor.send_signal(signal.SIGKILL)
    supervisor.wait()

    until(lambda: household.events("sentinel.supervisor_lost"), 20, "the daemon says so")
    household.sentinel("checkpoint", "leak")
    until(lambda: "saved" in Path(job["output"][0]).read_text(), 10, "the job lives and answers, its output is kept")

    household.sentinel("stop", "leak")
    until(lambda: (household.job("leak") or {}).get("ended"), 20, "it ends when told")


WORKER = """
import signal, sys, time
name = sys.argv[1]
def caught(*_):
    with open(name, "a") as file:
        file.write("caught\\n")
signal.signal(signal.SIGUSR1, caught)
open(name, "w").close()
while True:
    time.sleep(0.05)
"""


def test_a_launcher_without_a_handler_over_two_workers_with_one(household: Household) -> None:
    household.start()
    worker = household.root / "worker.py"
    worker.write_text(WORKER)
    one, two = household.root / "one", household.root / "two"
    line = f"{sys.executable} {worker} {one} & {sys.executable} {worker} {two} & wait"
    launcher = household.begin("run", "--name", "pair", "--on-checkpoint", "signal:USR1", "--", "bash", "-c", line)
    until(lambda: one.exists() and two.exists(), 20, "both workers are up")
    until(lambda: (household.job("pair") or {}).get("state") == "running")

    household.sentinel("checkpoint", "pair", check=False)

    until(lambda: one.read_text() and two.read_text(), 10, "both are told")
    time.sleep(1)
    assert one.read_text() == two.read_text() == "caught\n"
    assert launcher.poll() is None
    assert (household.job("pair") or {})["state"] == "running"


def test_a_process_that_catches_nothing_is_never_signalled(household: Household) -> None:
    household.start()
    household.begin("run", "--name", "deaf", "--on-checkpoint", "signal:USR1", "--", "sleep", "60")
    until(lambda: (household.job("deaf") or {}).get("state") == "running", 20)

    said = household.sentinel("checkpoint", "deaf", check=False)

    assert said.returncode == 1
    (request,) = household.requests("deaf")
    assert request["answer"] == "refused"
    assert "catch" in request["detail"]
    assert (household.job("deaf") or {})["state"] == "running"
