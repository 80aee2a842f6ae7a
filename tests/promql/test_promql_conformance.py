"""Prometheus's own cases from the shared data, and ours in the same language."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.promql import conformance

ROOT = Path(__file__).parents[2]
SHARED = Path(os.environ.get("SENTINEL_SHARED", ROOT.parent / "shared")) / "data" / "promqltest"
OURS = Path(__file__).parent / "cases"
THEIRS = sorted(SHARED.glob("*.test"))


@pytest.mark.parametrize("path", THEIRS, ids=lambda path: path.name)
def test_prometheus_s_own_cases_pass(path: Path) -> None:
    tally = conformance.run(path)

    assert not tally.failed, "\n".join(tally.failed)
    assert all("native histogram" in line or "refused" in line for line in tally.skipped)


@pytest.mark.skipif(bool(THEIRS), reason="the shared cases are here")
def test_the_shared_cases_are_absent() -> None:
    pytest.skip(f"no cases in {SHARED}; set SENTINEL_SHARED to the shared data")


@pytest.mark.parametrize("path", sorted(OURS.glob("*.test")), ids=lambda path: path.name)
def test_our_own_cases_pass(path: Path) -> None:
    tally = conformance.run(path)

    assert not tally.failed, "\n".join(tally.failed)
    assert tally.passed


def test_the_last_line_counts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "three.test"
    script.write_text(
        "load 1m\n  m 1 2 3\n  h {{schema:0 sum:1 count:1}}\n\n"
        "eval instant at 1m m\n  m 2\n\n"
        "eval instant at 1m m\n  m 3\n\n"
        "eval instant at 1m h\n  h {{schema:0 sum:1 count:1}}\n\n"
        "eval instant at 1m limit_ratio(0.5, m)\n  m 2\n"
    )

    assert conformance.main([str(script)]) == 1
    lines = capsys.readouterr().out.splitlines()

    assert lines[-1] == "1 passed, 1 failed, 2 skipped"
    assert any(line.startswith("FAILED three.test:8: m: ") for line in lines)
    assert any("limit_ratio" in line and line.startswith("skipped") for line in lines)
