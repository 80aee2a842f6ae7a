"""A job that fails in the night: told from evidence, resumed one step smaller from its checkpoint, and billed."""

from __future__ import annotations

import sys

import pytest

from .conftest import Household, Mailbox, until

pytestmark = pytest.mark.slow

TRAINS = """
import os, pathlib, sys, time
ckpt = pathlib.Path(sys.argv[1])
came_from, level = os.environ["SENTINEL_RESUME_FROM"], os.environ["SENTINEL_DEGRADE_LEVEL"]
print("attempt", os.environ["SENTINEL_ATTEMPT"], "level", level, "from", came_from or "nothing", flush=True)
if level == "0":
    time.sleep(2)
    (ckpt / "step-7.bin").write_bytes(b"x" * 1000)
    time.sleep(4)
    raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB")
"""


def test_an_oom_is_retried_one_level_down_from_the_checkpoint_and_billed(
    household: Household, mailbox: Mailbox
) -> None:
    household.start()
    script, ckpt = household.root / "train.py", household.root / "ckpt"
    script.write_text(TRAINS)
    ckpt.mkdir()

    done = household.sentinel(
        "run", "--name", "train", "--retries", "3", "--degrade-levels", "1", "--checkpoints", str(ckpt),
        "--cost-per-hour", "3600", "--gpus", "2", "--notify", mailbox.url,
        "--", sys.executable, str(script), str(ckpt), timeout=60,
    )  # fmt: skip

    assert "attempt 1 level 0 from nothing" in done.stdout
    assert f"attempt 2 level 1 from {ckpt}/step-7.bin" in done.stdout
    assert "one level down (level 1)" in done.stderr
    until(lambda: mailbox.letters, 20, "the letter")
    job = household.job("train")
    assert job is not None
    first = job["past"][0]
    assert (first["error"], first["verdict"], first["gpus"]) == ("gpu_oom", "deterministic", 2)
    assert 1.0 < first["useful_s"] < 4.0 < first["lost_s"] + 1.0 < 9.0
    (entry,) = household.json("report")["jobs"]
    assert (entry["job"], entry["attempts"], entry["state"]) == ("train", 2, "succeeded")
    assert entry["lost_cost"] == pytest.approx(first["lost_s"], rel=0.01)
    assert "train" in household.sentinel("report").stdout
    until(
        lambda: household.client().get("/api/v1/query?query=host_idle_cost_total>0")["data"]["result"], 15, "the cost"
    )


def test_the_audit_of_a_bare_job_finds_what_is_missing(household: Household) -> None:
    household.start()
    household.begin("run", "--name", "bare", "--", "sleep", "60")
    until(lambda: (household.job("bare") or {}).get("state") == "running", 20)

    audited = household.sentinel("audit", "bare", check=False)

    assert audited.returncode == 1
    assert "Does it write checkpoints?" in audited.stdout
    assert "try: --retries 3" in audited.stdout
    household.sentinel("restart", "bare", timeout=60)
    until(lambda: (household.job("bare") or {}).get("attempt") == 2, 20, "the second attempt")
