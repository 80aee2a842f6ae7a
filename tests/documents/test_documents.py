"""Reading YAML: what is read, where it stands, and how mistakes are said."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sentinel import documents
from sentinel.documents import Kind, Node
from sentinel.errors import Problem

RULES = """\
groups:
  - name: gpu
    intervall: 15s
    rules:
      - alert: GpuIdle
        expr: |
          avg_over_time(gpu_utilisation[10m])
            < 0.05
        for: soon
        labels: {severity: warning, code: 429, version: 1.10}
"""


def good(text: str) -> Node:
    problems: list[Problem] = []
    node = documents.load(text, "a.yaml", problems)
    assert problems == []
    assert node is not None
    return node


def bad(text: str) -> list[Problem]:
    problems: list[Problem] = []
    documents.load(text, "a.yaml", problems)
    assert problems
    for problem in problems:
        assert str(problem).startswith("a.yaml")
    return problems


def at(node: Node, *path: str | int) -> Node:
    for step in path:
        node = node.sequence()[step] if isinstance(step, int) else node.mapping()[step][1]
    return node


def test_a_slip_in_a_key_names_the_key_that_was_meant() -> None:
    root = good(RULES)
    group = at(root, "groups", 0)

    group.fields("name", "interval", "rules", required=("name",))

    assert [str(problem) for problem in root.source.problems] == [
        "a.yaml:3:5: unknown key `intervall`\n    3 |     intervall: 15s\n      |     ^^^^^^^^^\n  try: `interval`"
    ]


def test_an_error_inside_a_block_points_at_its_place_in_the_file() -> None:
    expr = at(good(RULES), "groups", 0, "rules", 0, "expr")
    start = expr.value.index("gpu_utilisation")

    problem = expr.problem("unknown metric `gpu_utilisation`", start=start, end=start + 15)

    assert str(problem) == (
        "a.yaml:7:25: unknown metric `gpu_utilisation`\n"
        "    7 |           avg_over_time(gpu_utilisation[10m])\n"
        "      |                         ^^^^^^^^^^^^^^^"
    )
    assert expr.position_of(expr.value.index("0.05")) == (8, 15)


def test_all_mistakes_come_together_and_reading_goes_on() -> None:
    root = good("interval: soon\nlimit: -3\nname: [a]\nmode: observ\nsize: huge\non: maybe\n")
    fields = root.fields("interval", "limit", "name", "mode", "size", "on", required=("rules",))

    assert fields.duration("interval", 60.0) == 60.0
    assert fields.integer("limit", 1, least=0) == 1
    assert fields.text("name", "none") == "none"
    assert fields.choice("mode", ("act", "observe"), "act") == "act"
    assert fields.size("size", 5) == 5
    assert fields.boolean("on", True) is True
    messages = [problem.message for problem in root.source.problems]
    assert messages == [
        "`rules` is missing",
        "`interval` must be a duration, not 'soon'",
        "`limit` must be at least 0, not -3",
        "`name` must be text, not a list",
        "`mode` must be one of `act`, `observe`, not 'observ'",
        "`size` must be a size, not 'huge'",
        "`on` must be true or false, not 'maybe'",
    ]
    assert root.source.problems[4].hint == "`observe`"


def test_numbers_keep_within_their_bounds() -> None:
    root = good("{a: 0, b: 5, c: .inf, d: 1.5, e: 10, f: '3'}")
    fields = root.fields(*"abcdef")

    assert fields.duration("a", 60.0, above=0.0) == 60.0
    assert fields.duration("b", 60.0, above=0.0) == 5.0
    assert fields.number("c", 1.0) == 1.0
    assert fields.integer("d", 7) == 7
    assert fields.integer("e", 7, least=10, most=10) == 10
    assert fields.number("f", 1.0) == 1.0
    assert [problem.message for problem in root.source.problems] == [
        "`a` must be more than 0, not 0",
        "`c` must be finite, not .inf",
        "`d` must be a whole number, not '1.5'",
        "`f` must be a number, not text",
    ]


def test_text_stays_as_it_was_written() -> None:
    labels = at(good(RULES), "groups", 0, "rules", 0, "labels")

    assert labels.text_mapping() == {"severity": "warning", "code": "429", "version": "1.10"}


def test_values_read_as_what_they_look_like() -> None:
    root = good("{a: 1.5, b: 0x10, c: yes, d: ~, e: '1', f: [x, 2], g: 90, h: 1h30m, i: 600MiB, on: 1_000}")

    assert root.plain() == {
        "a": 1.5, "b": 16, "c": True, "d": None, "e": "1", "f": ["x", 2], "g": 90, "h": "1h30m", "i": "600MiB", "on": 1000,
    }  # fmt: skip
    fields = root.fields(*"abcdefghi", "on")
    assert (fields.duration("g"), fields.duration("h"), fields.size("i")) == (90.0, 5400.0, 600 << 20)
    assert "d" not in fields
    assert fields.texts("e", single=True) == ("1",)


def test_a_merge_fills_in_what_is_not_said() -> None:
    root = good("base: &base {a: 1, b: 2}\nmine: {<<: *base, b: 3}\n")

    assert at(root, "mine").plain() == {"a": 1, "b": 3}


def test_an_empty_file_is_a_document_without_a_value() -> None:
    assert good("").kind is Kind.NULL
    assert good("# nothing\n").kind is Kind.NULL


def test_interpolation_keeps_positions_and_looks_at_the_kind_anew() -> None:
    root = good("port: ${PORT}\nname: '${PORT}'\n")

    made = root.replaced(lambda node: node.value.replace("${PORT}", "80"))

    assert made.fields("port", "name").integer("port") == 80
    assert at(made, "name").kind is Kind.TEXT
    assert at(made, "port").problem("x", start=1).column == 7


POSITIONS = [
    ("plain", "a: foo bar"),
    ("plain over lines", "a: foo\n   and bar"),
    ("single", "a: 'it''s bar'"),
    ("single over lines", "a: 'foo\n\n   and bar'"),
    ("double", 'a: "\\u00e4\\x41\\n bar"'),
    ("double over lines", 'a: "foo \\\n   and\n  bar"'),
    ("literal", "a: |\n   foo\n\n     bar\n"),
    ("literal, kept", "a: |+\n   foo\n   bar\n\n"),
    ("literal with an indicator", "a: |2\n     foo\n    bar\n"),
    ("folded", "a: >-\n  foo\n  foo\n\n  bar\n"),
    ("folded, deeper lines", "a: >\n  foo\n     foo\n  bar\n"),
    ("behind an emoji", "a: {🚀🚀: bar}"),
    ("windows line ends", "a: |\r\n  foo\r\n  bar\r\n"),
]


@pytest.mark.parametrize("text", [text for _, text in POSITIONS], ids=[name for name, _ in POSITIONS])
def test_positions_in_every_style_of_scalar(text: str) -> None:
    root = good(text)
    node = next(iter(root.scalars()))

    line, column = node.position_of(node.value.index("bar"))

    assert root.source.lines[line - 1][column - 1 :].startswith("bar")


@given(
    lines=st.lists(st.text("ab '\"#:é🚀\\", max_size=8).map(str.strip), min_size=1, max_size=5),
    style=st.sampled_from(["|", ">", "'", '"']),
)
def test_every_character_is_found_where_it_stands(lines: list[str], style: str) -> None:
    if style in ("|", ">"):
        text = f"key: {style}\n" + "".join(f"   {line}\n" for line in lines)
    else:
        quoted = "\n   ".join(lines)
        quoted = quoted.replace("'", "''") if style == "'" else quoted.replace("\\", "\\\\").replace('"', '\\"')
        text = f"key: {style}{quoted}{style}\n"
    problems: list[Problem] = []
    root = documents.load(text, None, problems)
    assert root is not None, problems
    (node,) = root.scalars()

    places = [node.position_of(offset) for offset in range(len(node.value))]

    assert places == sorted(places)
    for char, (line, column) in zip(node.value, places, strict=True):
        if char not in " \n":
            written = root.source.lines[line - 1][column - 1]
            assert written == char or (style == '"' and written == "\\")


MISTAKES = [
    ("a tab", "a:\n\tb: 1\n", "a tab cannot indent YAML", 2),
    ("twice", "a: 1\nb: 2\na: 3\n", "`a` stands here twice", 3),
    ("two documents", "a: 1\n---\nb: 2\n", "a second document begins here", 2),
    ("a tag", "a: !!python/object:os.system x\n", "the tag `!!python/object:os.system` is not understood here", 1),
    ("an unknown alias", "a: *nope\n", "*nope is not defined", 1),
    ("itself", "a: &a [*a]\n", "*a contains itself", 1),
    ("a list as a key", "? [a, b]\n: 1\n", "a key must be text, not a list", 1),
    ("a control character", "a: 1\nb: \x1b[31m\n", "the character U+001B is not allowed in YAML", 2),
    ("a lone surrogate", "a: \ud800\n", "the character U+D800 is not allowed in YAML", 1),
    ("deep flow", "a: " + "[" * 50_000, "is nested deeper than 64 levels", 1),
    ("a colon", "a: b: c\n", "mapping values are not allowed in this context", 1),
    ("merge of text", "a: {<<: text}\n", "`<<` takes a mapping, not text", 1),
]


@pytest.mark.parametrize(
    ("text", "message", "line"), [case[1:] for case in MISTAKES], ids=[case[0] for case in MISTAKES]
)
def test_a_mistake_is_said_with_its_place(text: str, message: str, line: int) -> None:
    problem = bad(text)[0]

    assert message in problem.message
    assert problem.line == line
    assert "\x1b" not in str(problem)


def test_a_bomb_of_aliases_does_not_go_off() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12)]

    (problem,) = bad("\n".join(lines))

    assert "aliases counted in full" in problem.message


def test_many_mistakes_are_cut_short() -> None:
    problems = bad("a: 1\n" * 500)

    assert len(problems) == 101
    assert "more than 100 problems" in problems[-1].message


FILES = [
    ("latin-1", "name: J\xfcrgen\n".encode("latin-1"), "a.yaml:1:8: byte 0xfc is not UTF-8"),
    ("utf-16", "a: 1".encode("utf-16"), "is UTF-16"),
    ("too large", b"a: 1\n" * 1_000_000, "is larger than 4 MiB"),
]


@pytest.mark.parametrize(("raw", "message"), [case[1:] for case in FILES], ids=[case[0] for case in FILES])
def test_a_file_that_is_no_text_of_ours(tmp_path: Path, raw: bytes, message: str) -> None:
    (tmp_path / "a.yaml").write_bytes(raw)
    problems: list[Problem] = []

    assert documents.read(tmp_path / "a.yaml", problems) is None
    assert message in str(problems[0])


def test_what_is_no_file_is_said(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    problems: list[Problem] = []

    assert documents.read(tmp_path / "none.yaml", problems) is None
    assert documents.read(tmp_path, problems) is None
    documents.read(tmp_path / "fifo", problems)
    assert "No such file" in problems[0].message
    assert "directory" in problems[1].message


def test_a_byte_order_mark_shifts_nothing(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("name: x\n", encoding="utf-8-sig")
    problems: list[Problem] = []

    root = documents.read(tmp_path / "a.yaml", problems)

    assert root is not None
    assert problems == []
    assert at(root, "name").column == 7


@given(st.text(max_size=200))
@example("a: |999\n x")
@example('"\\')
@example("? ")
@example("&a")
@example("%YAML 9.9\n---\na")
@example("\u2028a: 1\x85b: [")
@example("a: !<tag:yaml.org,2002:int> x")
def test_no_text_brings_it_down(text: str) -> None:
    """Whatever the text: a tree or a problem, and each place lies in the file."""
    problems: list[Problem] = []
    root = documents.load(text, None, problems)

    assert root is not None or problems
    for node in [] if root is None else root.scalars():
        for offset in range(len(node.value) + 1):
            node.position_of(offset)
        for read in (node.number, node.integer, node.boolean, node.duration, node.size, node.text, node.plain):
            read()
        node.problem("x", start=0, end=len(node.value))
    assert all(isinstance(str(problem), str) for problem in problems)


@given(st.text("[]{}:,-&*!|>'\"%@`#? \n\tab1", max_size=60))
def test_no_punctuation_brings_it_down(text: str) -> None:
    test_no_text_brings_it_down.hypothesis.inner_test(text)  # type: ignore[attr-defined]
