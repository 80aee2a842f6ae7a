"""A job resumes from the newest checkpoint that can be loaded, and hears why not from a newer one."""

from __future__ import annotations

import os
import sys
import time
import zipfile
from pathlib import Path

import pytest

from .conftest import Household, until

pytestmark = pytest.mark.slow


def written(path: Path, age_s: float, *, cut: int = 0) -> Path:
    """What torch.save leaves, as far as its form goes."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", b"\x80\x02}q\x00X\x05\x00\x00\x00modelq\x01K\x01s.")
    path.write_bytes(path.read_bytes()[: -cut or None])
    os.utime(path, (time.time() - age_s,) * 2)
    return path


def test_the_newest_that_can_be_loaded_is_what_a_job_resumes_from(household: Household) -> None:
    household.start()
    place = household.root / "ckpt"
    place.mkdir()
    written(place / "step-100.pt", 900)
    whole = written(place / "step-200.pt", 600)
    torn = written(place / "step-300.pt", 30, cut=40)

    done = household.sentinel(
        "run", "--name", "train", "--checkpoints", str(place), "--", "sh", "-c", 'echo "from=$SENTINEL_RESUME_FROM {checkpoint}"'
    )  # fmt: skip

    assert f"from={whole} {whole}" in done.stdout
    assert "1 newer not whole" in done.stderr
    (skipped,) = until(lambda: household.events("checkpoint.skipped"), 10)
    assert skipped["data"]["checkpoint"]["path"] == str(torn)
    assert "the zip directory at its end is absent or damaged" in skipped["message"]
    assert f"{whole} is the newest to resume from" in skipped["message"]


SAVES = """
import json, os, signal, sys, time
place, wanted = sys.argv[1], []
signal.signal(signal.SIGUSR1, lambda *_: wanted.append(1))
step = 0
print("training", flush=True)
while True:
    time.sleep(0.05)
    step += 1
    if wanted:
        wanted.clear()
        with open(f"{place}/.state-{step}.tmp", "w") as file:
            json.dump({"step": step, "messages": [], "tool_results": [], "completed_tasks": []}, file)
        os.replace(file.name, f"{place}/state-{step}.json")
"""


def test_an_asked_for_checkpoint_is_seen_at_once_and_told_with_its_numbers(household: Household) -> None:
    household.start()
    place = household.root / "ckpt"
    place.mkdir()
    script = household.root / "saves.py"
    script.write_text(SAVES)
    household.begin(
        "run", "--name", "agent", "--checkpoints", str(place), "--on-checkpoint", "signal:USR1",
        "--", sys.executable, str(script), str(place),
    )  # fmt: skip
    until(lambda: (household.job("agent") or {}).get("state") == "running", 20)
    until(lambda: _looked_at(household), 20, "it was looked at")

    household.sentinel("checkpoint", "agent")
    (seen,) = until(lambda: household.events("checkpoint.complete"), 10)
    (request,) = until(lambda: [r for r in household.requests("agent") if r["effect"] == "observed"], 10)

    found = seen["data"]["checkpoint"]
    assert seen["time"] - found["finished"] < 0.5
    assert found["missing"] == []
    assert f"step {found['step']}, {found['size_bytes']} B" in request["detail"]
    listed = household.json("checkpoints", "list", "agent")
    assert [(each["path"], each["state"]) for each in listed["checkpoints"]] == [(found["path"], "complete")]
    assert listed["checkpoints"][0]["write_seconds"] == found["write_seconds"]
    assert listed["recommended"]["interval_s"] > 0


def _looked_at(household: Household) -> bool:
    found = household.client().get("/api/v1/query?query=checkpoint_look_seconds")
    return bool(found["data"]["result"])
