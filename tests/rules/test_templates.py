"""Templates say what Prometheus's say, to the digit, and mistakes have a place."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from sentinel.rules.templates import Facts, TemplateError, compile_template, fill

FACTS = Facts({"__name__": "up", "job": "train", "instance": "box.example.org:9100", "path": "/data/a1"}, 1234567.5)

SAYS = [
    ("plain text", "plain text"),
    ("{{ $labels.job }} and {{ .Labels.job }}", "train and train"),
    ("a missing label is empty: [{{ $labels.nothing }}]", "a missing label is empty: []"),
    ("{{ $value }}", "1.2345675e+06"),
    ("{{ .Value | humanize }}", "1.235M"),
    ("{{ 0.0 | humanize }} {{ 0.0123 | humanize }} {{ -1500.0 | humanize }} {{ 999.96 | humanize }}", "0 12.3m -1.5k 1000"),
    ("{{ 1536.0 | humanize1024 }} {{ 3e9 | humanize1024 }} {{ 0.5 | humanize1024 }}", "1.5ki 2.794Gi 0.5"),
    ("{{ humanizeDuration 0.0 }} {{ humanizeDuration 0.02 }} {{ humanizeDuration 4.56789 }}", "0s 20ms 4.568s"),
    ("{{ humanizeDuration 61.9 }} {{ humanizeDuration 3723.0 }} {{ humanizeDuration 90061.0 }}", "1m 1s 1h 2m 3s 1d 1h 1m 1s"),
    ("{{ humanizeDuration -90.0 }}", "-1m 30s"),
    ("{{ 1000.0 | humanize }} {{ 0.001 | humanize }} {{ 1024.0 | humanize1024 }}", "1k 1m 1ki"),
    ("{{ 0.12345 | humanizePercentage }}", "12.35%"),
    ("{{ 1435065584.128 | humanizeTimestamp }}", "2015-06-23 13:19:44.128 +0000 UTC"),
    ('{{ printf "%.2f of %s" $value $labels.job }}', "1234567.50 of train"),
    ('{{ printf "%d%% %5d|%-4d|%04d|%+d" 7 7 7 7 7 }}', "7%     7|7   |0007|+7"),
    ('{{ printf "%5.1f|%-8s|%q|%v|%x" 3.14159 "ab" "c\\"d" 0.1 255 }}', '  3.1|ab      |"c\\"d"|0.1|ff'),
    ('{{ printf "%e %g %.3g" 1234.5 1234.5 1234.5 }}', "1.234500e+03 1234.5 1.23e+03"),
    ('{{ printf "%d" $value }}', "%!d(float64=1.2345675e+06)"),
    ('{{ printf "%s %s" "one" }}', "one %!s(MISSING)"),
    ('{{ printf "%s" "one" "two" }}', "one%!(EXTRA string=two)"),
    ("{{ 100.0 }} {{ 123456.0 }} {{ 1e21 }} {{ 0.00001 }} {{ 0.0001 }} {{ 5 }} {{ true }}", "100 123456 1e+21 1e-05 0.0001 5 true"),
    ("{{ if gt $value 5.0 }}big{{ else }}small{{ end }}", "big"),
    ("{{ if lt $value 5.0 }}a{{ else if ge $value 6.0 }}b{{ else }}c{{ end }}", "b"),
    ('{{ if and (eq $labels.job "train") (not $labels.none) }}yes{{ end }}', "yes"),
    ('{{ if or $labels.none (ne "a" "b") }}yes{{ end }}', "yes"),
    ("{{ with $labels.none }}{{ . }}{{ else }}none{{ end }}", "none"),
    ("{{ with $labels.job }}<{{ . }}>{{ end }}", "<train>"),
    ("{{ range $name, $value := .Labels }}{{ $name }}={{ $value }} {{ end }}", "__name__=up instance=box.example.org:9100 job=train path=/data/a1 "),
    ("{{ range .Labels }}{{ . }},{{ break }}{{ end }}", "up,"),
    ("{{ $x := $labels.job }}{{ if true }}{{ $x = `new` }}{{ end }}{{ $x }}", "new"),
    ("a  {{- /* said nothing */ -}}  b {{- ` c` }}", "ab c"),
    ("{{ $labels.job | toUpper | toLower | title }}", "Train"),
    ('{{ "hello big-world of iT" | title }}', "Hello Big-World Of IT"),
    ('{{ reReplaceAll "(\\\\w)(\\\\d)" "$2-${1}x" $labels.path }}', "/data/1-ax"),
    ('{{ match "^/da" $labels.path }} {{ match "^da" $labels.path }}', "true false"),
    ("{{ stripPort $labels.instance }} {{ stripDomain $labels.instance }}", "box.example.org box:9100"),
    ('{{ len "ab" }} {{ index $labels "job" }} {{ slice "abcd" 1 3 }}', "2 train bc"),
    ('{{ parseDuration "1h30m" }}', "5400"),
    ("{{ print 1 2 `a` 3 }}", "1 2a3"),
    ('{{ "<a&b>" | html }} {{ urlquery "a b&c" }}', "&lt;a&amp;b&gt; a+b%26c"),
    ("{{ eq $value 1 }}", None),
    ("{{ len $value }}", None),
]  # fmt: skip


@pytest.mark.parametrize(("template", "expected"), SAYS, ids=[template for template, _ in SAYS])
def test_a_template_says(template: str, expected: str | None) -> None:
    said = fill(compile_template(template), FACTS)

    if expected is None:
        assert said.startswith("<error expanding template: ")
    else:
        assert said == expected


def test_promtool_says_the_same(tmp_path: Path, promtool: Callable[..., Any]) -> None:
    """All of them at once, as annotations of one alert, in promtool's own unit test."""
    said = {f"a{n}": template for n, (template, expected) in enumerate(SAYS) if expected is not None}
    rule = {"alert": "A", "expr": "up == 1234567.5", "annotations": said}
    (tmp_path / "rules.yml").write_text(yaml.safe_dump({"groups": [{"name": "g", "rules": [rule]}]}))
    labels = ",".join(f'{name}="{value}"' for name, value in FACTS.labels.items() if name != "__name__")
    alert = {
        "exp_labels": {name: value for name, value in FACTS.labels.items() if name != "__name__"},
        "exp_annotations": {f"a{n}": expected for n, (_, expected) in enumerate(SAYS) if expected is not None},
    }
    story = {
        "input_series": [{"series": f"up{{{labels}}}", "values": "1234567.5x5"}],
        "alert_rule_test": [{"eval_time": "1m", "alertname": "A", "exp_alerts": [alert]}],
    }
    (tmp_path / "test.yml").write_text(yaml.safe_dump({"rule_files": ["rules.yml"], "tests": [story]}))

    done = promtool("test", "rules", "test.yml")

    assert done.returncode == 0, done.stdout + done.stderr


WRONG = [
    ("{{ $lables.job }}", "unknown variable `$lables`", "$lables", "`$labels`"),
    ("it is {{ $value | humanise }}", "unknown function `humanise`", "humanise", "`humanize`"),
    ("{{ .Lables.job }}", "unknown field `.Lables`", ".Lables", "`.Labels`"),
    ("{{ $value | tmpl }}", "the function `tmpl` is not supported in rules", "tmpl", None),
    ("{{ humanize }}", "`humanize` takes 1 argument, not 0", "humanize", None),
    ("{{ humanize 1.0 2.0 }}", "`humanize` takes 1 argument, not 2", "humanize", None),
    ("{{ if $value }}x", "this `if` has no `end`", "{{ if $value }}", "{{ end }}"),
    ("x{{ end }}", "`end` without an `if`, `range` or `with` before it", "{{ end }}", None),
    ("{{ if 1 }}{{ else }}{{ else }}{{ end }}", "a second `else`", "{{ else }}", None),
    ("{{ $value", "this action is not closed by }}", "{{", "{{ $value }}"),
    ('{{ "abc }}', "this text is not closed", '"abc }}', None),
    ("{{ }}", "an empty action", "{{ }}", "{{ $value }}"),
    ("{{ ($value }}", "this parenthesis is not closed", "(", None),
    ("{{ $value | }}", "nothing follows this `|`", "|", None),
    ("{{ $value 3 }}", "`$value` is no function and takes no arguments", "$value", None),
    ("{{ 3 | $value }}", "cannot pipe into `$value`, which is no function", "$value", None),
    ("{{ define `x` }}{{ end }}", "`define` is not supported in rules", "{{ define `x` }}", "write the text in place"),
    ("{{ break }}", "`break` outside of `range`", "{{ break }}", None),
    ("{{ $x := 1 }}{{ if 1 }}{{ $y := 2 }}{{ end }}{{ $y }}", "unknown variable `$y`", "$y", "`$x`"),
    ("{{ $value # }}", "unexpected '#' in an action", "#", None),
    ('{{ "\\q" }}', 'cannot read `"\\q"`', '"\\q"', None),
]


@pytest.mark.parametrize(("template", "message", "where", "hint"), WRONG, ids=[case[0] for case in WRONG])
def test_a_mistake_has_its_place(template: str, message: str, where: str, hint: str | None) -> None:
    with pytest.raises(TemplateError) as raised:
        compile_template(template)

    assert raised.value.message == message
    assert template[raised.value.start : raised.value.end] == where
    if hint is not None and where != "$y":
        assert raised.value.hint == hint


def test_query_asks_through_the_door_it_was_given() -> None:
    facts = Facts({}, 1.0, query=lambda text: [({"a": "y", "text": text}, 2.0), ({"a": "x"}, 1.0)])

    asked = '{{ with query "up" | sortByLabel "a" }}{{ . | first | label "a" }}={{ . | first | value }}{{ end }}'

    assert fill(compile_template(asked), facts) == "x=1"
    assert fill(compile_template('{{ range query "up" }}{{ .Labels.a }}:{{ .Value }} {{ end }}'), facts) == "y:2 x:1 "
    assert "nothing can be asked here" in fill(compile_template('{{ query "up" }}'), FACTS)


def test_a_long_text_is_refused_not_built() -> None:
    loop = compile_template("{{ range 60000 }}{{ range 60000 }}word{{ end }}{{ end }}")

    assert fill(loop, FACTS).startswith("<error expanding template: the text is longer than")


@given(st.text(alphabet='{}$.|() "`ifend-valuehmz:=/*', max_size=60))
def test_any_text_is_a_template_or_a_mistake_with_a_place(text: str) -> None:
    found: TemplateError | None = None
    try:
        fill(compile_template(text), FACTS)
    except TemplateError as error:
        found = error
    assert found is None or 0 <= found.start < found.end


@given(st.floats(allow_nan=False))
def test_a_value_reads_back_as_the_same_number(value: float) -> None:
    assert float(fill(compile_template("{{ $value }}"), Facts({}, value))) == value
