"""A job's output, read by its owner."""

from __future__ import annotations

import json
import sys

import pytest

from .conftest import Household

pytestmark = pytest.mark.slow

CODE = """
import time
for step in range(40):
    print(time.strftime("%Y-%m-%d %H:%M:%S"), "step", step, *(["password=hunter2hunter2"] if step == 7 else []), flush=True)
"""


def test_the_last_lines_and_those_that_match(household: Household) -> None:
    household.start()
    household.sentinel("run", "--name", "talk", "--", sys.executable, "-c", CODE)

    tail = household.sentinel("logs", "tail", "talk", "-n", "3").stdout.splitlines()
    assert [line.split()[-1] for line in tail] == ["37", "38", "39"]

    found = household.sentinel("logs", "search", "talk", r"step [37]\b", "--since", "1h", "--json").stdout.splitlines()
    rows = [json.loads(line) for line in found]
    assert [row["line"] for row in rows] == [4, 8]
    assert all(row["time"] > 1_600_000_000 for row in rows)
    assert "hunter2" not in rows[1]["text"]

    nothing = household.sentinel("logs", "search", "talk", "no such thing", check=False)
    assert nothing.returncode == 1
