"""`sentinel rules` as a user types it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sentinel.cli.main import main
from sentinel.rules.loader import load, load_text

PACK = Path(__file__).resolve().parents[2] / "rules"

GOOD = "groups: [{name: g, rules: [{alert: A, expr: job_processes > 5}]}]"
ODD = "groups: [{name: g, rules: [{alert: A, expr: job_proceses > 5}]}]"
BAD = "groups: [{name: g, rules: [{alert: A, expr: job_processes >}]}]"


def file(tmp_path: Path, text: str) -> str:
    path = tmp_path / "rules.yaml"
    path.write_text(text)
    return str(path)


def test_check_of_a_good_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = file(tmp_path, GOOD)

    assert main(["rules", "check", path]) == 0
    assert capsys.readouterr().out == f"Checking {path}\n  SUCCESS: 1 rule found\n"


def test_check_shows_the_place_and_what_to_try(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = file(tmp_path, ODD)

    assert main(["rules", "check", path]) == 0
    assert main(["rules", "check", "--strict", path]) == 1
    said = capsys.readouterr().out
    assert f"warning: {path}:1:45: unknown metric `job_proceses`" in said
    assert "  try: `job_processes` (Processes in its tree)" in said
    assert "SUCCESS: 1 rule found, 1 warning" in said


def test_check_of_a_bad_file_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = file(tmp_path, BAD)

    assert main(["rules", "check", path]) == 1
    assert "FAILED: 1 error" in capsys.readouterr().out
    assert main(["rules", "check", "--json", path]) == 1
    (said,) = json.loads(capsys.readouterr().out)
    assert said["problems"][0]["line"] == 1


def test_check_without_a_file_takes_the_shipped_rules(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rules", "check", "--strict"]) == 0
    assert "memory.yaml" in capsys.readouterr().out


def test_a_directory_without_rules_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rules", "check", str(tmp_path)]) == 2
    assert "no rule files in" in capsys.readouterr().err


def test_test_says_success_and_failure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file(tmp_path, GOOD)
    story = tmp_path / "story.yaml"
    text = """\
rule_files: [rules.yaml]
evaluation_interval: 1m
tests:
  - name: a crowd
    input_series: [{series: 'job_processes{job="a"}', values: "1 9 9"}]
    expect_silence: [{until: 0s1ms}]
    expect_alerts: [{eval_time: 1m, alertname: A, firing: [{job: WHO}]}]
"""
    story.write_text(text.replace("WHO", "a"))
    assert main(["rules", "test", str(story)]) == 0
    assert capsys.readouterr().out == f"Unit Testing:  {story}\n  SUCCESS\n\n"

    story.write_text(text.replace("WHO", "b").replace("0s1ms", "2m"))
    assert main(["rules", "test", str(story)]) == 1
    said = capsys.readouterr().out
    assert "name: a crowd" in said
    assert "firing A, time: 1m" in said
    assert "silence of all alerts until 2m" in said
    assert main(["rules", "test", "--json", str(story)]) == 1
    (verdict,) = json.loads(capsys.readouterr().out)
    assert (verdict["passed"], verdict["tests"], len(verdict["failures"])) == (False, 1, 2)


def test_export_is_what_prometheus_reads(
    tmp_path: Path, promtool: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["rules", "export", "--prometheus"]) == 0
    exported = capsys.readouterr().out
    (tmp_path / "exported.yaml").write_text(exported)

    done = promtool("check", "rules", "exported.yaml")

    assert done.returncode == 0, done.stdout + done.stderr
    assert "actions" not in exported
    ours = {rule.name: (rule.spec.expr, rule.spec.for_s, rule.spec.labels) for rule in load([PACK])}
    theirs = {rule.name: (rule.spec.expr, rule.spec.for_s, rule.spec.labels) for rule in load_text(exported)}
    assert theirs == ours


def test_export_of_a_broken_file_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rules", "export", file(tmp_path, BAD)]) == 2
    assert ":1:" in capsys.readouterr().err
