"""Unit tests of rules run as promtool runs them, and say the same."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from sentinel.rules.testing import run

RULES = """\
groups:
  - name: one
    rules:
      - record: job:up:sum
        expr: sum by (job) (up)
      - alert: Down
        expr: up == 0
        for: 2m
        labels: {severity: "{{ if gt $value 0.5 }}low{{ else }}high{{ end }}", team: x}
        annotations:
          summary: "{{ $labels.instance }} of {{ $externalLabels.cluster }} is {{ $value }}"
      - alert: Kept
        expr: sum by (job) (up) < 2
        keep_firing_for: 3m
      - alert: FromRecord
        expr: job:up:sum < 1
  - name: two
    interval: 5m
    rules:
      - record: job:up:twice
        expr: job:up:sum * 2
"""

SERIES = """\
      - series: 'up{job="a", instance="1"}'
        values: '1 1 0x5 1x10'
      - series: 'up{job="a", instance="2"}'
        values: '1x4 _x3 stale 0 0 0 0'
"""

HOLDS = {
    "alerts, with templates, external labels and every clock": """\
      - eval_time: 3m
        alertname: Down
        exp_alerts: []
      - eval_time: 4m
        alertname: Down
        exp_alerts:
          - exp_labels: {job: a, instance: "1", severity: high, team: x}
            exp_annotations: {summary: "1 of c is 0"}
      - eval_time: 4m59s
        alertname: Down
        exp_alerts:
          - exp_labels: {job: a, instance: "1", severity: high, team: x}
            exp_annotations: {summary: "1 of c is 0"}
      - eval_time: 8m
        alertname: Down
        exp_alerts: []
      - eval_time: 2m
        alertname: Kept
        exp_alerts: [{exp_labels: {job: a}}]
      - eval_time: 5m
        alertname: FromRecord
        exp_alerts: []
      - eval_time: 0m
        alertname: NoSuchAlert
        exp_alerts: []
""",
    "an alert that comes back after going stale": """\
      - eval_time: 10m
        alertname: Down
        exp_alerts: []
      - eval_time: 11m
        alertname: Down
        exp_alerts:
          - exp_labels: {job: a, instance: "2", severity: high, team: x}
            exp_annotations: {summary: "2 of c is 0"}
""",
}

QUESTIONS = {
    "recorded series, ALERTS and scalars": """\
      - expr: job:up:sum
        eval_time: 4m
        exp_samples: [{labels: 'job:up:sum{job="a"}', value: 1}]
      - expr: job:up:twice
        eval_time: 1m
        exp_samples: [{labels: 'job:up:twice{job="a"}', value: 4}]
      - expr: ALERTS{alertname="Down"}
        eval_time: 3m
        exp_samples:
          - {labels: 'ALERTS{alertname="Down", alertstate="pending", instance="1", job="a", severity="high", team="x"}', value: 1}
      - expr: count(ALERTS{alertstate="firing"})
        eval_time: 12m
        exp_samples: [{value: 2}]
      - expr: ALERTS_FOR_STATE{alertname="Down", instance="1"}
        eval_time: 5m
        exp_samples:
          - {labels: 'ALERTS_FOR_STATE{alertname="Down", instance="1", job="a", severity="high", team="x"}', value: 120}
      - expr: rate(up{instance="1"}[5m]) > 7
        eval_time: 5m
        exp_samples: []
      - expr: 1 + 1.5
        exp_samples: [{labels: '{}', value: 2.5}]
      - expr: up{instance="2"}
        eval_time: 7m
        exp_samples: [{labels: 'up{instance="2", job="a"}', value: 1}]
      - expr: up{instance="2"}
        eval_time: 8m
        exp_samples: []
"""
}

FAILS = {
    "an alert that was not expected": "      - {eval_time: 4m, alertname: Down, exp_alerts: []}\n",
    "an alert that never came": "      - {eval_time: 1m, alertname: Down, exp_alerts: [{exp_labels: {job: a}}]}\n",
    "another annotation": """\
      - eval_time: 4m
        alertname: Down
        exp_alerts: [{exp_labels: {job: a, instance: "1", severity: high, team: x}, exp_annotations: {summary: other}}]
""",
    "a label that is missing": """\
      - eval_time: 4m
        alertname: Down
        exp_alerts: [{exp_labels: {job: a, instance: "1", team: x}, exp_annotations: {summary: "1 of c is 0"}}]
""",
}


def written(tmp_path: Path, alerts: str = "", questions: str = "", rules: str = RULES) -> Path:
    (tmp_path / "rules.yml").write_text(rules)
    body = "rule_files: [rules.yml]\nevaluation_interval: 1m\ntests:\n  - interval: 1m\n"
    body += "    external_labels: {cluster: c}\n    input_series:\n" + SERIES
    body += f"    alert_rule_test:\n{alerts}" if alerts else ""
    body += f"    promql_expr_test:\n{questions}" if questions else ""
    (tmp_path / "test.yml").write_text(body)
    return tmp_path / "test.yml"


@pytest.mark.parametrize("name", HOLDS)
def test_alerts_come_as_told(tmp_path: Path, name: str) -> None:
    verdict = run(written(tmp_path, alerts=HOLDS[name]))

    assert verdict.passed, verdict


@pytest.mark.parametrize("name", QUESTIONS)
def test_questions_are_answered(tmp_path: Path, name: str) -> None:
    verdict = run(written(tmp_path, questions=QUESTIONS[name]))

    assert verdict.passed, verdict


@pytest.mark.parametrize("name", FAILS)
def test_what_did_not_come_is_said(tmp_path: Path, name: str) -> None:
    verdict = run(written(tmp_path, alerts=FAILS[name]))

    assert not verdict.passed
    (failure,) = verdict.failures
    assert "alertname: Down, time: " in failure
    assert "exp:[" in failure
    assert "got:[" in failure


@pytest.mark.parametrize(
    ("alerts", "questions"),
    [*((text, "") for text in (*HOLDS.values(), *FAILS.values())), *(("", text) for text in QUESTIONS.values())],
)
def test_promtool_gives_the_same_verdict(
    tmp_path: Path, promtool: Callable[..., Any], alerts: str, questions: str
) -> None:
    path = written(tmp_path, alerts, questions)

    done = promtool("test", "rules", "test.yml")

    assert run(path).passed is (done.returncode == 0), done.stdout + done.stderr


def test_group_order_is_ours_to_choose(tmp_path: Path) -> None:
    path = written(tmp_path, questions="      - {expr: job:up:twice, exp_samples: []}\n")
    path.write_text("group_eval_order: [two, one]\n" + path.read_text())

    assert run(path).passed


def test_a_rule_that_fails_fails_the_test(tmp_path: Path) -> None:
    broken = "groups: [{name: g, rules: [{alert: A, expr: up * on(job) up}]}]"
    verdict = run(written(tmp_path, alerts="      - {alertname: A, exp_alerts: []}\n", rules=broken))

    assert not verdict.passed
    assert "rule: A, time: 0s, err: " in verdict.failures[0]


def test_mistakes_in_either_file_have_their_place(tmp_path: Path) -> None:
    path = written(tmp_path, alerts="      - {alertname: Down, exp_alert: []}\n", rules="groups: [{name: g, rules: [{alert: A, expr: up >}]}]")  # fmt: skip
    first = run(path)
    path.write_text(path.read_text().replace("exp_alert:", "exp_alerts:"))
    second = run(path)

    assert "test.yml:12:27:" in str(first.problems[0])
    assert "unknown key `exp_alert`" in str(first.problems[0])
    assert "rules.yml:1:" in str(second.problems[0])


def test_requests_are_expected_in_order(tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text(
        dedent(
            """\
            groups:
              - name: g
                rules:
                  - alert: Full
                    expr: use > 5
                    actions:
                      - request: checkpoint
                      - {request: degrade, cooldown: 3m}
                      - {request: stop, after: failed}
                      - {request: restore, on: resolved}
            """
        )
    )
    test = dedent(
        """\
        rule_files: [rules.yaml]
        evaluation_interval: 1m
        tests:
          - input_series:
              - {series: 'use{job="a"}', values: '1 9 1 9 1 9x9'}
            expect_requests:
              - {eval_time: 0m, job: a, exp_requests: []}
              - {eval_time: 1m, job: a, exp_requests: [checkpoint, degrade]}
              - {eval_time: 2m, job: a, exp_requests: [checkpoint, degrade, restore]}
              - {eval_time: 9m, job: a, alertname: Full, exp_requests: LATER}
              - {eval_time: 9m, job: b, exp_requests: []}
        """
    )
    told, wrong = tmp_path / "told.yaml", tmp_path / "wrong.yaml"
    told.write_text(test.replace("LATER", "[checkpoint, degrade, restore]"))
    wrong.write_text(test.replace("LATER", "[checkpoint]"))

    assert run(told).failures == []
    assert "requests of a, time: 9m" in run(wrong).failures[0]
