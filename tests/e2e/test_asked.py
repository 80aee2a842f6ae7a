"""People ask a job by hand, and hear what came of it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from .conftest import Household, until

pytestmark = pytest.mark.slow


def _sleeping(household: Household, *options: str) -> None:
    household.start()
    household.begin(
        "run", "--name", "deaf", "--quiet", *options, "--", sys.executable, "-c", "import time; time.sleep(60)"
    )
    until(lambda: (household.job("deaf") or {}).get("state") == "running", 20)


def test_a_job_that_does_not_answer_is_said_not_to_have_answered(household: Household, tmp_path: Path) -> None:
    _sleeping(household, "--on-checkpoint", f"file:{tmp_path / 'ask'}")

    said = household.sentinel("checkpoint", "deaf", "--timeout", "2s", check=False)
    data = household.sentinel("checkpoint", "deaf", "--timeout", "2s", "--json", check=False)

    assert said.returncode == 1
    assert "not answered in 2s" in said.stdout
    assert data.returncode == 1
    assert json.loads(data.stdout)["answer"] == "expired"


def test_what_is_paused_already_is_said_and_not_paused_again(household: Household) -> None:
    _sleeping(household)

    household.sentinel("pause", "deaf")
    again = household.sentinel("pause", "deaf", check=False)
    household.sentinel("resume", "deaf")
    twice = household.sentinel("resume", "deaf", check=False)

    assert (again.returncode, again.stdout) == (1, "deaf: pause refused: deaf is paused already\n")
    assert (twice.returncode, twice.stdout) == (1, "deaf: resume refused: deaf is not paused\n")
