"""What is kept of jobs that have ended, and what goes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sentinel.jobs.housekeeping import sweep

NOW = 1_800_000_000.0
DAY = 86400.0


@pytest.fixture
def jobs(tmp_path: Path) -> Path:
    """Three jobs that ended one, five and nine days ago, a MiB each."""
    for name, days in (("new", 1), ("middle", 5), ("old", 9)):
        attempt = tmp_path / name / "attempt-1"
        attempt.mkdir(parents=True)
        (attempt / "output.log").write_bytes(b"x" * (1 << 20))
        for path in (attempt / "output.log", attempt, tmp_path / name):
            os.utime(path, (NOW - days * DAY, NOW - days * DAY))
    return tmp_path


def left(jobs: Path) -> set[str]:
    return {path.name for path in jobs.iterdir()}


def test_what_is_too_old_goes(jobs: Path) -> None:
    assert sweep(jobs, (), now=NOW, older_s=7 * DAY, limit_bytes=1 << 30) == ["old"]
    assert left(jobs) == {"new", "middle"}


def test_what_is_too_much_goes_the_oldest_first(jobs: Path) -> None:
    assert sweep(jobs, (), now=NOW, older_s=99 * DAY, limit_bytes=3 << 19) == ["old", "middle"]
    assert left(jobs) == {"new"}


def test_what_belongs_to_a_living_job_stays(jobs: Path) -> None:
    assert sweep(jobs, {"old", "middle"}, now=NOW, older_s=DAY / 2, limit_bytes=0) == ["new"]
    assert left(jobs) == {"old", "middle"}


def test_a_link_is_not_followed_and_nothing_is_no_fault(jobs: Path, tmp_path: Path) -> None:
    (jobs / "link").symlink_to("/etc")

    sweep(jobs, (), now=NOW, older_s=0.0, limit_bytes=0)

    assert left(jobs) == {"link"}
    assert sweep(tmp_path / "none", (), now=NOW, older_s=0.0, limit_bytes=0) == []
