"""Rule files are read as Prometheus reads them, and every mistake is said, with its place, all at once."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from sentinel.errors import Problem, Problems
from sentinel.model.alerts import ActionSpec, After, On
from sentinel.model.requests import RequestKind
from sentinel.rules.loader import Options, load, load_text

WHOLE = dedent(
    """\
    groups:
      - name: memory
        interval: 2s
        limit: 50
        query_offset: 1s
        labels: {team: ml}
        rules:
          - record: job:memory:ratio
            expr: job_memory_used_bytes / job_memory_limit_bytes
            labels: {kind: ratio}
          - alert: MemoryHigh
            expr: |
              job:memory:ratio
                > 0.9
            for: 1m30s
            keep_firing_for: 2m
            dark_after: 10m
            labels:
              severity: critical
              team: infra
            annotations:
              summary: "{{ $labels.job }} uses {{ $value | humanizePercentage }}"
            actions:
              - request: checkpoint
                timeout: 45s
              - request: degrade
                after: done
                cooldown: 5m
                restore: {after: 10m}
                jobs: [a, b]
              - request: checkpoint
                jobs: {owner: alice}
                on: resolved
              - run: [/etc/sentinel/hooks/page, memory]
                on: firing
    """
)


def test_all_that_a_rule_can_say() -> None:
    rules = load_text(WHOLE, "memory.yaml")

    (group,) = rules.groups
    record, alert = group.rules
    assert (group.name, group.interval_s, group.limit, group.query_offset_s) == ("memory", 2.0, 50, 1.0)
    assert record.spec.recording
    assert record.fixed_labels().as_dict() == {"kind": "ratio", "team": "ml"}
    spec = alert.spec
    assert (spec.for_s, spec.keep_firing_for_s, spec.dark_after_s) == (90.0, 120.0, 600.0)
    assert spec.labels.as_dict() == {"severity": "critical", "team": "infra"}
    assert (spec.file, spec.line) == ("memory.yaml", 12)
    assert alert.reads == {"job:memory:ratio"}
    assert spec.actions == (
        ActionSpec(RequestKind.CHECKPOINT, timeout_s=45.0),
        ActionSpec(RequestKind.DEGRADE, after=After.DONE, restore_after_s=600.0, jobs=("a", "b")),
        ActionSpec(RequestKind.CHECKPOINT, on=On.RESOLVED, jobs=("all",), owner="alice"),
        ActionSpec(run=("/etc/sentinel/hooks/page", "memory"), timeout_s=30.0, cooldown_s=0.0),
    )


def test_a_file_without_our_keys_loads_as_it_is() -> None:
    rules = load_text(
        dedent(
            """\
            groups:
            - name: example
              rules:
              - alert: HighErrorRate
                expr: job:request_latency_seconds:mean5m{job="myjob"} > 0.5
                for: 10m
                labels:
                  severity: page
                annotations:
                  summary: High request latency
            """
        )
    )

    (rule,) = rules
    assert rule.spec.dark_after_s == 300.0
    assert rules.groups[0].interval_s == 15.0


def test_an_empty_file_has_no_rules() -> None:
    assert len(load_text("")) == 0
    assert len(load_text("groups: []")) == 0


def test_darkness_can_mean_what_it_means_to_prometheus() -> None:
    (rule,) = load_text("groups: [{name: g, rules: [{alert: A, expr: up}]}]", None, Options(dark_after_s=0.0))

    assert rule.spec.dark_after_s == 0.0


def of_rule(rule: str) -> str:
    body = "\n".join("      " + line for line in rule.splitlines())
    return f"groups:\n  - name: g\n    rules:\n{body.replace('      ', '    - ', 1)}\n"


WRONG = [
    ("unknown key", "alert: A\nexpr: up\nannotation: {a: b}", "6:7: unknown key `annotation`", "`annotations`"),
    ("a mistake in the expression", "alert: A\nexpr: sum(up) bye (job)", "5:21", None),
    ("in a block", "alert: A\nexpr: |\n  up >\n  rate(up)", "7:", None),
    ("an unknown function", "alert: A\nexpr: rat(up[5m])", "5:13: unknown function", "`rate`"),
    ("both names", "alert: A\nrecord: b\nexpr: up", "4:7: a rule has either `record` or `alert`, not both", None),
    ("no name", "expr: up", "4:7: a rule needs a name: `alert` or `record`", None),
    ("no expression", "alert: A", "4:7: `expr` is missing", None),
    ("a bad template", 'alert: A\nexpr: up\nlabels: {a: "{{ $vale }}"}', "6:23: unknown variable `$vale`", "`$value`"),
    ("a bad duration", "alert: A\nexpr: up\nfor: 5 minutes", "6:12: `5 minutes` is no duration", "30s, 5m, 1h30m"),
    ("a bare number", "alert: A\nexpr: up\nfor: 30", "6:12: `30` is no duration", "`30s`"),
    ("a bad label", "alert: A\nexpr: up\nlabels: {a-b: c}", "6:16: `a-b` is no label name", None),
    ("a bad metric", "record: a-b\nexpr: up", "4:15: `a-b` is no metric name", "`a_b`"),
    ("a record with for", "record: a\nexpr: up\nfor: 5m", "6:12: a recording rule has no `for`", None),
    ("an unknown request", "alert: A\nexpr: up\nactions: [{request: chekpoint}]", "6:27", "`checkpoint`"),
    ("neither request nor run", "alert: A\nexpr: up\nactions: [{on: firing}]", "6:17: an action has either", None),
    ("after without before", "alert: A\nexpr: up\nactions: [{request: dump, after: done}]", "6:40: `after` needs", None),
    ("restore of a checkpoint", "alert: A\nexpr: up\nactions: [{request: dump, restore: {after: 1m}}]", "6:42: `restore` takes", None),
    ("a shell line", "alert: A\nexpr: up\nactions: [{run: 'page me'}]", "6:23: `run` is a list of words", None),
    ("a program without a path", "alert: A\nexpr: up\nactions: [{run: [pg, me]}]", "6:24: 'pg' is no absolute path", "`/etc/sentinel/hooks/pg`"),
    ("a program that is a directory", "alert: A\nexpr: up\nactions: [{run: [/tmp]}]", "6:24: /tmp is a directory", None),
    ("a program nobody may start", "alert: A\nexpr: up\nactions: [{run: [/etc/passwd]}]", "6:24: /etc/passwd is not executable", "chmod +x /etc/passwd"),
    ("jobs in words", "alert: A\nexpr: up\nactions: [{request: dump, jobs: train}]", "6:39: `jobs` must be `all`", "[train]"),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "says", "hint"), [case[1:] for case in WRONG], ids=[case[0] for case in WRONG])
def test_a_mistake_has_its_place(rule: str, says: str, hint: str | None) -> None:
    with pytest.raises(Problems) as raised:
        load_text(of_rule(rule), "rules.yaml")

    problem = raised.value.problems[0]
    assert str(problem).startswith(f"rules.yaml:{says}"), str(raised.value)
    if hint is not None:
        assert problem.hint == hint


def test_all_mistakes_come_together_in_order(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(of_rule("alert: A\nexpr: up >\nfor: soon"))
    (tmp_path / "b.yml").write_text("groups: [{name: g, rules: []}, {name: g}]")
    (tmp_path / "c.txt").write_text("not looked at")

    with pytest.raises(Problems) as raised:
        load([tmp_path, tmp_path / "missing.yaml"])

    def where(problem: Problem) -> tuple[str, int]:
        return Path(str(problem.file)).name, problem.line

    assert [where(problem) for problem in raised.value.problems] == [
        ("a.yaml", 5), ("a.yaml", 6), ("b.yml", 1), ("missing.yaml", 0),
    ]  # fmt: skip


def test_two_files_may_use_one_group_name() -> None:
    one = load_text("groups: [{name: g, rules: [{alert: A, expr: up}]}]", "a.yaml")
    two = load_text("groups: [{name: g, rules: [{alert: B, expr: up}]}]", "b.yaml")

    both = one.with_(two)

    assert [group.name for group in both.groups] == ["g", "g (b.yaml)"]
    assert [rule.spec.group for rule in both] == ["g", "g (b.yaml)"]


def test_a_rule_of_the_user_replaces_the_shipped_one_of_its_name() -> None:
    shipped = load_text("groups: [{name: s, rules: [{alert: A, expr: up}, {alert: B, expr: up}]}]")
    mine = load_text("groups: [{name: m, rules: [{alert: A, expr: up > 1}]}]")

    assert [(rule.name, rule.spec.expr) for rule in shipped.overridden_by(mine)] == [("B", "up"), ("A", "up > 1")]


def test_rules_of_a_job_go_with_it() -> None:
    shipped = load_text("groups: [{name: s, rules: [{alert: A, expr: up}]}]")
    job = load_text("groups: [{name: s, rules: [{alert: A, expr: up > 1}]}]", "j.yaml", Options(uid=5, job_id="j1"))

    together = shipped.with_(job)

    assert [rule.spec.job_id for rule in together] == [None, "j1"]
    assert [group.name for group in together.groups] == ["s", "s@j1"]
    assert [rule.spec.job_id for rule in together.without_job("j1")] == [None]
