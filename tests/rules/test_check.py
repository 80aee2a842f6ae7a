"""The linter names what loads and yet cannot mean what its author meant."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from sentinel.rules.check import Checked, check


def checked(tmp_path: Path, text: str, **given: Any) -> Checked:
    (tmp_path / "rules.yaml").write_text(dedent(text))
    (found,) = check([tmp_path / "rules.yaml"], **given)
    return found


def of_expr(expr: str, extra: str = "") -> str:
    body = "\n".join("          " + line for line in expr.splitlines())
    return f"groups:\n- name: g\n  rules:\n    - alert: A\n      expr: |\n{body}\n{extra}"


ODD = [
    ("an unknown metric", "avg_over_time(gpu_utilisation[10m]) < 0.05", "unknown metric `gpu_utilisation`", "gpu_utilisation", "`gpu_utilization_ratio`"),
    ("an unknown metric without a likeness", "xyzzy > 1", "unknown metric `xyzzy`", "xyzzy", None),
    ("an unknown label", 'log_events_total{kid="gpu_oom"} > 1', "`log_events_total` has no label `kid`", "kid", "`kind`"),
    ("a label of another family", 'host_load1{job="a"} > 1', "`host_load1` has no label `job`", "job", "host_load1 has no labels"),
    ("grouping by nothing", "sum by (jib) (job_processes) > 1", "nothing here has a label `jib`", "jib", "`job`"),
    ("a short range", "rate(job_cpu_seconds_total[5s]) > 1", "`job_cpu_seconds_total` is sampled every 2s, so 5s hold 2 of its samples", "[5s]", "at least [8s]"),
    ("a ratio in percent", "gpu_utilization_ratio > 90", "`gpu_utilization_ratio` lies between 0 and 1, so this never holds", "gpu_utilization_ratio > 90", "0.9"),
    ("more than all", "gpu_utilization_ratio > 1", "`gpu_utilization_ratio` lies between 0 and 1, so this never holds", "gpu_utilization_ratio > 1", None),
    ("the same, the other way round", "50 < avg(max_over_time(host_shm_used_ratio[5m]))", "`host_shm_used_ratio` lies between 0 and 1, so this never holds", "50 < avg(max_over_time(host_shm_used_ratio[5m]))", "0.5"),
    ("a join that never matches", "job_memory_used_bytes / host_memory_total_bytes > 1", "these never match: the right side has no `job`", "/", "`/ on() group_left()`"),
    ("a set that never matches", "job_processes > 1 and gpu_up == 0", "these never match: the right side has no `job`", "and", "`and on()`"),
    ("an up that is more than up", "job_up > 1", "`job_up` is 0 or 1, so this never holds", "job_up > 1", None),
    ("half an up", "job_up == 0.5", "`job_up` is 0 or 1, so this never holds", "job_up == 0.5", None),
    ("a counter below zero", "job_cpu_seconds_total < 0", "`job_cpu_seconds_total` counts up from 0, so this never holds", "job_cpu_seconds_total < 0", None),
    ("a gauge below zero", "sum(job_memory_used_bytes) < 0", "`job_memory_used_bytes` is never negative, so this never holds", "sum(job_memory_used_bytes) < 0", None),
    ("a rate below zero", "0 > sum by (job) (rate(log_lines_total[1m]))", "`rate` is never negative, so this never holds", "0 > sum by (job) (rate(log_lines_total[1m]))", None),
    ("a product below zero", "job_processes * 2 <= -1", "`job_processes` is never negative, so this never holds", "job_processes * 2 <= -1", None),
    ("a bool as a number", "(job_processes > bool 5) > 1", "`bool` gives 0 or 1, so this never holds", "(job_processes > bool 5) > 1", None),
    ("absent as a truth value", "absent(job_up) == 0", "`absent` is 1 or nothing, so this never holds", "absent(job_up) == 0", None),
    ("two jobs at once", 'job_up{job="a"} == 1 and job_up{job="b"} == 1', 'these never match: `job` is "a" on the left and "b" on the right', "and", "`and ignoring(job)`"),
    ("two states joined", 'job_state{state="paused"} * on (job, state) job_state{state="running"} == 1', 'these never match: `state` is "paused" on the left and "running" on the right', "*", None),
    ("a value that never comes", 'job_state{state="runing"} == 1', "`job_state` has no `state` of this value", "runing", "`running`"),
    ("a reason that never comes", 'gpu_throttled{reason="thermal"} == 1', "`gpu_throttled` has no `reason` of this value", "thermal", "`sw_thermal`"),
    ("a range as the whole", "job_processes[5m]", "a rule needs an instant vector or a scalar, and this is a range vector: it will always fail", None, None),
    ("a join on a label of one side", "job_processes * on (uuid) job_processes > 1", None, None, None),
]  # fmt: skip


@pytest.mark.parametrize(("expr", "message", "where", "hint"), [c[1:] for c in ODD], ids=[c[0] for c in ODD])
def test_it_names(tmp_path: Path, expr: str, message: str | None, where: str | None, hint: str | None) -> None:
    found = checked(tmp_path, of_expr(expr))

    if message is None:
        assert found.problems == []
        return
    problem = found.problems[0]
    assert problem.message == message
    assert problem.severity == "warning"
    assert problem.source is not None
    assert where is None or problem.source[problem.column - 1 : problem.column - 1 + problem.width] == where
    assert hint is None or (problem.hint or "").startswith(hint)


FINE = [
    "job_memory_used_bytes / on () group_left () host_memory_total_bytes > 0.5",
    "job_gpu_memory_bytes * on (uuid, mig) group_left (model) gpu_memory_total_bytes > 1",
    "sum by (job) (rate(log_events_total[1m])) > 1 and on (job) job_processes > 1",
    'ALERTS{alertname="X", anything="y"} == 1',
    'label_replace(job_processes, "short", "$1", "job", "(.).*") > 1',
    "count without (kind) (log_events_total) > 1",
    "absent(job_up{job='a'}) == 1",
    "gpu_utilization_ratio > 0.9 or gpu_utilization_ratio < bool 90",
    "host_load1 > scalar(count(job_up))",
    "rate(job_cpu_seconds_total[8s]) > 1",
    "gpu_utilization_ratio >= 1",
    "job_memory_headroom_bytes < 0",
    "deriv(job_memory_used_bytes[1m]) < 0",
    "predict_linear(host_disk_free_bytes[10m], 3600) < 0",
    "job_memory_limit_bytes - job_memory_used_bytes < 0",
    "sum(gpu_utilization_ratio) > 2",
    "avg(job_up) == 0.5",
    "job_up < 1",
    "gpu_temperature_celsius < 0",
    'job_state{state="paused"} == 1 or job_state{state="running"} == 1',
    'job_up{job="a"} and on () job_up{job="b"}',
    'job_state{state="paused"} and ignoring (state) job_state{state!="running"}',
    'job_state{state=~"run.*"} == 1',
    "avg_over_time(job_up[1m]) < 0.5",
    "gpu_memory_used_bytes / on (uuid, mig) sum by (uuid) (gpu_memory_total_bytes) > 0.9",
]


@pytest.mark.parametrize("expr", FINE)
def test_it_says_nothing_about(tmp_path: Path, expr: str) -> None:
    assert [str(problem) for problem in checked(tmp_path, of_expr(expr)).problems] == []


def test_recorded_series_are_known_with_their_labels_and_pace(tmp_path: Path) -> None:
    found = checked(
        tmp_path,
        """\
        groups:
        - name: g
          interval: 30s
          rules:
            - {record: "job:cpu", expr: "sum by (job) (rate(job_cpu_seconds_total[1m]))", labels: {x: y}}
            - {alert: A, expr: 'job:cpu{job="a", x="y"} > 1'}
            - {alert: B, expr: 'job:cpu{mount="a"} > 1'}
            - {alert: C, expr: 'rate(job:cpu[1m]) > 1'}
        """,
    )

    assert [problem.message for problem in found.problems] == [
        "`job:cpu` has no label `mount`",
        "`job:cpu` is sampled every 30s, so 1m hold 2 of its samples",
    ]


def test_a_program_that_is_not_on_this_machine_is_said_and_may_be_on_another(tmp_path: Path) -> None:
    found = checked(tmp_path, of_expr("host_load1 > 100", "      actions: [{run: [/no/such/page, me]}]\n"))

    assert [(each.severity, each.message) for each in found.problems] == [
        ("warning", "/no/such/page does not exist on this machine")
    ]


def test_an_action_that_addresses_nobody(tmp_path: Path) -> None:
    action = "      actions: [{request: checkpoint}]\n"
    alone = checked(tmp_path, of_expr("host_load1 > 100", action))
    for text in (
        of_expr("host_load1 > 100", "      actions: [{request: checkpoint, jobs: all}]\n"),
        of_expr("job_processes > 100", action),
        of_expr("gpu_up == 0", action),
        of_expr("host_load1 > 100", action + "      labels: {job: train}\n"),
        of_expr("host_load1 > 100", "      actions: [{run: [/bin/true]}]\n"),
    ):
        assert checked(tmp_path, text).problems == []

    assert "names no job, so nobody is asked for checkpoint" in alone.problems[0].message
    assert alone.problems[0].hint is not None
    assert "`jobs: all`" in alone.problems[0].hint


def test_a_template_that_names_a_label_which_never_comes(tmp_path: Path) -> None:
    text = of_expr(
        "sum by (job) (job_processes) > 100",
        '      annotations: {a: "{{ $labels.jab }} {{ .Labels.job }} {{ if $labels.mount }}x{{ end }}"}\n',
    )

    problems = checked(tmp_path, text).problems

    assert [(problem.message, problem.hint) for problem in problems] == [
        ("the alert's result has no label `jab`", "`job`"),
        ("the alert's result has no label `mount`", "it has `job`"),
    ]


NAMED = [
    ("job_gpu_memory_bytes * on (uuid, mig) group_left (model) gpu_memory_total_bytes > 1", "model", True),
    ("sum without (kind) (log_events_total) > 1", "kind", False),
    ('gpu_memory_used_bytes{mig=""} > 1', "mig", False),
    ("topk(1, job_processes) > 1", "job", True),
    ('count_values("n", job_processes) > 1', "n", True),
    ("absent(job_up{job='a'}) == 1", "job", True),
    ("job_processes > 1 or host_load1 > 1", "job", True),
    ("avg(job_processes) > 1", "job", False),
]


@pytest.mark.parametrize(("expr", "label", "may"), NAMED, ids=[f"{case[1]} of {case[0]}" for case in NAMED])
def test_which_labels_a_result_can_have(tmp_path: Path, expr: str, label: str, may: bool) -> None:
    found = checked(tmp_path, of_expr(expr, f'      annotations: {{a: "{{{{ $labels.{label} }}}}"}}\n'))

    assert (found.problems == []) is may, [str(problem) for problem in found.problems]


def test_errors_and_oddities_come_together_and_duplicates_are_named(tmp_path: Path) -> None:
    found = checked(
        tmp_path,
        """\
        groups:
        - name: g
          rules:
            - {alert: A, expr: "xyzzy > 1"}
            - {alert: A, expr: "job_processes > 1"}
            - {alert: B, expr: "job_processes >"}
        """,
    )

    assert [(problem.line, problem.severity) for problem in found.problems] == [
        (4, "warning"),
        (5, "warning"),
        (6, "error"),
    ]
    assert found.duplicates == ["A"]
    assert len(found.errors) == 1


FILES = {
    "fine": "groups: [{name: g, rules: [{alert: A, expr: up == 0, for: 5m}, {record: 'a:b', expr: sum(up)}]}]",
    "empty": "",
    "no rules": "groups: [{name: g}]",
    "a bad expression": "groups: [{name: g, rules: [{alert: A, expr: 'up =='}]}]",
    "a bad template": "groups: [{name: g, rules: [{alert: A, expr: up, annotations: {a: '{{ $x }}'}}]}]",
    "an unknown key": "groups: [{name: g, rules: [{alert: A, expr: up, fo: 5m}]}]",
    "a bad duration": "groups: [{name: g, rules: [{alert: A, expr: up, for: soon}]}]",
    "two names": "groups: [{name: g, rules: [{alert: A, record: b, expr: up}]}]",
    "no name": "groups: [{name: g, rules: [{expr: up}]}]",
    "a repeated group": "groups: [{name: g}, {name: g}]",
    "a nameless group": "groups: [{name: ''}]",
    "a recording rule with for": "groups: [{name: g, rules: [{record: b, expr: up, for: 5m}]}]",
    "a recording rule with annotations": "groups: [{name: g, rules: [{record: b, expr: up, annotations: {a: b}}]}]",
    "a bad metric name": "groups: [{name: g, rules: [{record: 'b c', expr: up}]}]",
    "a bad label name": "groups: [{name: g, rules: [{alert: A, expr: up, labels: {'a b': c}}]}]",
    "a bare number of seconds": "groups: [{name: g, rules: [{alert: A, expr: up, for: 30}]}]",
    "a zero": "groups: [{name: g, interval: 0s, rules: [{alert: A, expr: up, for: 0s}]}]",
    "an unknown function": "groups: [{name: g, rules: [{alert: A, expr: 'rat(up[5m])'}]}]",
    "a missing range": "groups: [{name: g, rules: [{alert: A, expr: 'rate(up)'}]}]",
    "a limit": "groups: [{name: g, limit: 5, rules: [{alert: A, expr: up}]}]",
    "a label that promises a name": "groups: [{name: g, rules: [{alert: A, expr: up, labels: {__name__: c}}]}]",
    "a label value that is no text": "groups: [{name: g, rules: [{alert: A, expr: up, labels: {a: 5}}]}]",
    "an empty label value": "groups: [{name: g, rules: [{alert: A, expr: up, labels: {a: ''}}]}]",
    "a bad template in a label": "groups: [{name: g, rules: [{alert: A, expr: up, labels: {a: '{{ if }}'}}]}]",
    "a template with an unknown function": "groups: [{name: g, rules: [{alert: A, expr: up, annotations: {a: '{{ foo $value }}'}}]}]",
    "an annotation with an odd name": "groups: [{name: g, rules: [{alert: A, expr: up, annotations: {'a b': c}}]}]",
    "no expression": "groups: [{name: g, rules: [{alert: A}]}]",
    "an empty expression": "groups: [{name: g, rules: [{alert: A, expr: ''}]}]",
    "a range as the expression": "groups: [{name: g, rules: [{alert: A, expr: 'up[5m]'}]}]",
    "a series with the label of alerts": "groups: [{name: g, rules: [{record: a, expr: up, labels: {alertname: c}}]}]",
    "an alert that names itself": "groups: [{name: g, rules: [{alert: A, expr: up, labels: {alertname: c}}]}]",
    "a number as the expression": "groups: [{name: g, rules: [{alert: A, expr: '1'}]}]",
    "a text as the expression": "groups: [{name: g, rules: [{record: a, expr: '\"a\"'}]}]",
    "a negative duration": "groups: [{name: g, rules: [{alert: A, expr: up, for: -5m}]}]",
    "a compound duration": "groups: [{name: g, interval: 1h30m, rules: [{alert: A, expr: up, for: 1d12h}]}]",
    "a duration in the wrong order": "groups: [{name: g, rules: [{alert: A, expr: up, for: 30m1h}]}]",
    "a fractional duration": "groups: [{name: g, rules: [{alert: A, expr: up, for: 1.5m}]}]",
    "rules that are no list": "groups: [{name: g, rules: {alert: A, expr: up}}]",
    "groups that are no list": "groups: {name: g}",
    "another top-level key": "groups: []\nextra: 1",
    "no groups": "{}",
    "YAML that is none": "groups: [",
    "a repeated key": "groups: [{name: g, name: h}]",
    "the same alert with other labels": "groups: [{name: g, rules: [{alert: A, expr: up, labels: {a: b}}, {alert: A, expr: up, labels: {a: c}}]}]",
    "keep_firing_for of a recording rule": "groups: [{name: g, rules: [{record: b, expr: up, keep_firing_for: 5m}]}]",
    "keep_firing_for": "groups: [{name: g, rules: [{alert: A, expr: up, keep_firing_for: 5m}]}]",
    "a bare comparison of texts": "groups: [{name: g, rules: [{alert: A, expr: 'up > \"a\"'}]}]",
    "two numbers compared without bool": "groups: [{name: g, rules: [{alert: A, expr: '1 > 2'}]}]",
    "a bad regular expression": "groups: [{name: g, rules: [{alert: A, expr: 'up{a=~\"(\"}'}]}]",
    "a selector of everything": "groups: [{name: g, rules: [{alert: A, expr: '{a=~\".*\"}'}]}]",
    "an alert with an odd name": "groups: [{name: g, rules: [{alert: 'A b/c', expr: up}]}]",
    "duplicates": "groups: [{name: g, rules: [{alert: A, expr: up}, {alert: A, expr: up}]}]",
}


@pytest.mark.parametrize("name", FILES)
def test_promtool_gives_the_same_verdict(tmp_path: Path, promtool: Callable[..., Any], name: str) -> None:
    found = checked(tmp_path, FILES[name])

    done = promtool("check", "rules", "rules.yaml")

    assert (not found.errors) is (done.returncode == 0), done.stdout + done.stderr
    assert bool(found.duplicates) is ("duplicate rule(s) found" in done.stderr)
    if done.returncode == 0 and not found.duplicates:
        said = f"{found.rules} rules found" if found.rules != 1 else "1 rules found"
        assert said in done.stdout
