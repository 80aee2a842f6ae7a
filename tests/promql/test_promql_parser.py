"""What the parser says about what it cannot read, and that it never crashes."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sentinel.promql import PromQLError, canonical, longest_range_s, metric_names, parse
from sentinel.promql.errors import Refused
from sentinel.promql.tree import Binary, Number, Selector, Unary
from tests.promql.strategies import vectors


@dataclasses.dataclass
class Mistake:
    text: str
    column: int
    message: str
    hint: str | None = None


MISTAKES = [
    Mistake("", 1, "the expression is empty"),
    Mistake("up ==", 6, "unexpected end of the expression; expected an expression"),
    Mistake("up = 1", 4, "unexpected `=`", "`==` compares"),
    Mistake("sum(up", 7, "unexpected end of the expression; expected `,`, `)` or an operator"),
    Mistake("rtae(up[5m])", 1, "unknown function `rtae`", "`rate`"),
    Mistake("1 + avg_over_tme(up[5m])", 5, "unknown function `avg_over_tme`", "`avg_over_time`"),
    Mistake("a unles b", 3, "unexpected `unles`", "`unless`"),
    Mistake("rate(up)", 6, "argument 1 of `rate` must be a range vector, not an instant vector", "a range behind"),
    Mistake("abs(up[5m])", 5, "argument 1 of `abs` must be an instant vector, not a range vector"),
    Mistake("rate(up[5m], 3)", 1, "`rate` takes one argument, not 2"),
    Mistake("topk(up)", 1, "`topk` takes 2 arguments, not 1", "`topk(3, metric)`"),
    Mistake("up{job=train}", 8, "unexpected `train`; expected a quoted string"),
    Mistake("up{job}", 7, "unexpected `}`; expected `=`, `!=`, `=~` or `!~`"),
    Mistake('up{job=="x"}', 7, "unexpected `==`", "`=` compares labels"),
    Mistake('up{job=~"("}', 9, "bad regular expression: missing ): ("),
    Mistake("{}", 1, "this selector would select every series"),
    Mistake('{job=~".*"}', 1, "this selector would select every series"),
    Mistake("up[5m] offset", 14, "unexpected end of the expression; expected a duration"),
    Mistake("up[5x]", 4, "bad number or duration `5x`"),
    Mistake("up[1m1h]", 4, "bad duration `1m1h`"),
    Mistake("up[0s]", 4, "a range must be longer than 0"),
    Mistake("(up)[5m]", 5, "a range needs a plain selector in front of it", "a subquery: `[5m:]`"),
    Mistake("up offset 5m [5m]", 14, "offset and @ stand behind the range"),
    Mistake("sum(up) offset 5m", 9, "`offset` must stand right behind a selector"),
    Mistake("up @ later", 6, "unexpected `later`; expected a Unix time"),
    Mistake("1 > 2", 3, "two numbers are compared with `bool`", "`> bool`"),
    Mistake("up + bool up", 4, "`bool` goes with comparisons only"),
    Mistake("up and 1", 4, "`and` needs an instant vector on both sides"),
    Mistake("up and on(a) group_left up", 4, "`group_left` does not go with `and`"),
    Mistake("up or fill(1) up", 4, "`fill` does not go with `or`"),
    Mistake("up + on(a) group_left(a) up", 4, "label `a` stands in on() and in group_left() at once"),
    Mistake("up group_left up", 4, "unexpected `group_left`"),
    Mistake("up + group_left up", 6, "unexpected `group_left`; expected `on(…)` or `ignoring(…)` before it"),
    Mistake("up[5m] + 1", 1, "`+` needs numbers or instant vectors on both sides, not a range vector"),
    Mistake("sum by (a:b) (up)", 9, "unexpected `a:b`; expected a label name or `)`"),
    Mistake('"never closed', 1, "this string has no end"),
    Mistake(r'"\q"', 2, "unknown escape `\\q`"),
    Mistake("up “x”", 4, "unexpected character '“'", "plain quotes"),
    Mistake("up && up", 4, "unexpected character '&'", "`and`"),
    Mistake("abs(up,)", 7, "no argument after this comma"),
    Mistake('label_replace(up, "", "", "", "")', 19, "`label_replace` needs a label name here"),
    Mistake('up{"other"}', 4, "the metric's name is given twice"),
]
REFUSED = [
    ("histogram_count(up)", "native histograms"),
    ("info(up)", "`info` is refused"),
    ("up[5m] smoothed", "`smoothed` is experimental"),
    ("up anchored", "`anchored` is experimental"),
    ("up[5m + 1m]", "duration expressions"),
    ("up offset (1m)", "duration expressions"),
    ("up[step()]", "duration expressions"),
    ("limit_ratio(0.5, up)", "`limit_ratio` is experimental"),
    ("holt_winters(up[5m], 0.5, 0.5)", "double_exponential_smoothing"),
]


def refused(text: str) -> PromQLError | None:
    try:
        parse(text)
    except PromQLError as fault:
        return fault
    return None


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.text)
def test_a_mistake_is_named_at_its_place(mistake: Mistake) -> None:
    with pytest.raises(PromQLError) as caught:
        parse(mistake.text)

    fault = caught.value
    assert fault.message.startswith(mistake.message)
    assert fault.position(mistake.text) == (1, mistake.column)
    if mistake.hint:
        assert fault.hint is not None
        assert fault.hint.startswith(mistake.hint)


@pytest.mark.parametrize(("text", "words"), REFUSED)
def test_what_sentinel_leaves_out_is_refused_by_name(text: str, words: str) -> None:
    with pytest.raises(Refused) as caught:
        parse(text)

    assert words in str(caught.value)


def test_a_problem_shows_the_line_and_a_caret() -> None:
    text = "sum(\n  rtae(up[5m])\n)"
    with pytest.raises(PromQLError) as caught:
        parse(text)

    assert str(caught.value.problem(text, "rules/gpu.yaml")) == (
        "rules/gpu.yaml:2:3: unknown function `rtae`\n    2 |   rtae(up[5m])\n      |   ^^^^\n  try: `rate`"
    )


@pytest.mark.parametrize(
    "text",
    [
        "(" * 50_000 + "1" + ")" * 50_000,
        "-" * 50_000 + "1",
        "+".join(["up"] * 20_000),
        "(" * 5_000,
        "abs(" * 3_000 + "up",
        " or ".join(["up"] * 500),
        "up" + "[5m:]" * 3_000,
        '"' + "x" * 1_000_000 + '"',
        "x" * 1_000_000,
        "9" * 60_000,
        "up[" + "9" * 5_000 + "y]",
        "up @ " + "9" * 400,
        "\x00up",
        "up\u202e",
        "🦙",
        "ｕｐ",
        'up{job="\ud800"}',
        'up{a=~"' + "(" * 30_000 + '"}',
        'up{a=~"(a{1000}){1000}"}',
        "1" + "0" * 400,
    ],
    ids=lambda text: ascii(text[:12]),
)  # fmt: skip
def test_the_absurd_is_an_answer_and_never_a_crash(text: str) -> None:
    fault = refused(text)

    assert fault is None or len(str(fault.problem(text))) < 1_000


def test_what_is_deep_but_allowed_can_be_printed_and_read_again() -> None:
    text = "(" * 90 + "up" + ")" * 90

    assert canonical(parse(text)) == text
    with pytest.raises(PromQLError, match="nests too deep"):
        parse(f"({'(' * 100}up{')' * 100})")


@given(st.text(max_size=60))
@settings(max_examples=300, deadline=None)
def test_any_text_is_read_or_refused(text: str) -> None:
    if fault := refused(text):
        assert 0 <= fault.start < fault.end
    else:
        assert canonical(parse(canonical(parse(text)))) == canonical(parse(text))


TOKENS = ["up", "sum", "by", "(", ")", "[5m]", "{", "}", "job", "=", '"x"', "+", "-", "==", "bool", "on", "offset", "5m",
          "@", "1", ",", "and", "rate", ":", "group_left", "fill", "without", "[1m:]", "start()", "topk", "'a'", "!~"]  # fmt: skip


@given(st.lists(st.sampled_from(TOKENS), max_size=14))
@settings(max_examples=300, deadline=None)
def test_any_row_of_tokens_is_read_or_refused(words: list[str]) -> None:
    text = " ".join(words)
    if fault := refused(text):
        assert 0 <= fault.start <= len(text)
    else:
        assert parse(canonical(parse(text))) == parse(text)


@given(vectors())
@settings(max_examples=200, deadline=None)
def test_printing_and_reading_again_gives_the_same(text: str) -> None:
    expr = parse(text)

    assert parse(canonical(expr)) == expr


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("SUM(up)BY(job)", "sum by (job) (up)"),
        ("sum without() (up)", "sum without () (up)"),
        ('up{job="a",x!~"b"}[90s] offset -1h @ 5', 'up{job="a", x!~"b"}[1m30s] @ 5 offset -1h'),
        ('{"odd name", "odd label"="\\xff\\n"}', '{"odd name", "odd label"="\\xff\\n"}'),
        ("a+on(x)group_left()b", "a + on (x) group_left () b"),
        ("a>bool ignoring(x)fill_left(-Inf)fill_right(2)b", "a > bool ignoring (x) fill_left (-Inf) fill_right (2) b"),
        ("quantile(.9,a)", "quantile(0.9, a)"),
        ("a[1h:]", "a[1h:]"),
        ("-a^-2", "-a ^ -2"),
        ("`raw \\ text`", '"raw \\\\ text"'),
        ("1e300", "1e+300"),
        ("40d", "3456000"),
        (":leading:colon{}", ":leading:colon"),
        ("sum", "sum"),
        ("by + offset", "by + offset"),
    ],
)
def test_there_is_one_way_to_write_it(text: str, printed: str) -> None:
    assert canonical(parse(text)) == printed
    assert canonical(parse(printed)) == printed


def test_a_sign_binds_like_a_product() -> None:
    expr = parse("-2 ^ 2")
    assert isinstance(expr, Unary)
    assert isinstance(expr.expr, Binary)

    expr = parse("-2 * 3")
    assert isinstance(expr, Binary)
    assert isinstance(expr.left, Unary)


def test_powers_go_from_the_right_and_the_rest_from_the_left() -> None:
    expr = parse("2 ^ 3 ^ 2")
    assert isinstance(expr, Binary)
    assert expr.left == Number(2.0)

    expr = parse("2 - 3 - 2")
    assert isinstance(expr, Binary)
    assert expr.right == Number(2.0)


def test_every_node_knows_its_place() -> None:
    text = "sum by (job) (rate(up[5m])) > 3"
    expr = parse(text)
    assert isinstance(expr, Binary)

    assert text[expr.left.span.start : expr.left.span.end] == "sum by (job) (rate(up[5m]))"
    assert text[expr.op_span.start : expr.op_span.end] == ">"


def test_what_an_expression_reads_is_known_without_data() -> None:
    expr = parse('rate(a[5m] offset 1m) / max_over_time((b{x="1"})[1h:1m]) + {__name__=~"c|d"} + {job="x"}')

    assert metric_names(expr) == {"a", "b", "c", "d"}
    assert longest_range_s(expr) == 3600 + 300
    assert longest_range_s(parse("1 + 1")) == 0


def test_a_quoted_name_is_the_metric_s_name() -> None:
    expr = parse('{"http.requests", job="x"}')

    assert isinstance(expr, Selector)
    assert expr.name == "http.requests"


@pytest.mark.parametrize(
    "text", ["start_timestamp(up)", "up@st", "rate(up[5m] @ st)", "ignore_start_times(rate(up[5m]))"]
)
def test_start_timestamps_are_refused_by_name(text: str) -> None:
    with pytest.raises(Refused, match="start timestamps"):
        parse(text)
