"""A job resumes from the newest checkpoint that can be loaded, and hears why not from a newer one."""

from __future__ import annotations

import os
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
