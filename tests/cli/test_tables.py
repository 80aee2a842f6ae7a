"""Tables fit."""

from __future__ import annotations

import io

from hypothesis import given
from hypothesis import strategies as st

from sentinel.cli.colours import Paint, paint
from sentinel.cli.tables import Cell, Column, bar, cut, display_width, left_out, plain, table, wrapped

PLAIN = Paint(on=False)
COLUMNS = [
    Column("NAME", least=4, weight=9),
    Column("STATE", weight=5),
    Column("SIZE", right=True, weight=7),
    Column("WORDS", least=5, weight=2),
]


def test_with_room_everything_is_shown() -> None:
    rows: list[list[str | Cell]] = [["a", Cell("fine"), "10", "some words"], ["bb", "bad", "9", ""]]

    assert table(COLUMNS, rows, width=80, paint=PLAIN) == [
        "NAME  STATE  SIZE  WORDS",
        "a     fine     10  some words",
        "bb    bad       9",
    ]


def test_without_room_columns_are_cut_and_then_left_out() -> None:
    rows = [["a-long-name", "fine", "10", "some words to read"]]

    assert table(COLUMNS, rows, width=30, paint=PLAIN)[1] == "a-long…  fine     10  some wo…"
    assert table(COLUMNS, rows, width=20, paint=PLAIN)[1] == "a-long…  fine     10"
    assert table(COLUMNS, rows, width=12, paint=PLAIN)[1] == "a-lon…    10"


@given(
    st.lists(st.tuples(*[st.text(max_size=30)] * 4), max_size=5),
    st.integers(10, 120),
)
def test_no_line_is_wider_than_the_terminal(rows: list[tuple[str, str, str, str]], width: int) -> None:
    columns = [Column(column.title, column.right, 4, column.weight) for column in COLUMNS]

    for line in table(columns, rows, width=width, paint=PLAIN):
        assert display_width(line) <= width
        assert line.isprintable()


@given(st.text(), st.integers(1, 40))
def test_what_is_cut_fits(text: str, width: int) -> None:
    assert display_width(cut(text, width)) <= width


def test_wide_characters_take_two_cells() -> None:
    assert display_width("日本") == 4
    assert cut("日本語", 5) == "日本…"
    assert table([Column("A"), Column("B")], [["日本", "x"], ["y", "z"]], width=80, paint=PLAIN) == [
        "A     B", "日本  x", "y     z",
    ]  # fmt: skip


def test_what_a_job_wrote_cannot_command_the_terminal() -> None:
    assert plain("a\x1b[31mb\nc\x07") == "a�[31mb c�"


def test_bars() -> None:
    assert bar(0.5, 4) == "██░░"
    assert bar(2, 4) == "████"
    assert bar(None, 4) == bar(float("nan"), 4) == "····"


def test_colours_are_for_terminals_only() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    assert paint(Terminal(), {"TERM": "xterm"}).on
    assert not paint(Terminal(), {"TERM": "xterm", "NO_COLOR": "1"}).on
    assert not paint(Terminal(), {"TERM": "dumb"}).on
    assert not paint(io.StringIO(), {"TERM": "xterm"}).on
    assert Paint(on=True)("a", "red") == "\x1b[31ma\x1b[0m"
    assert Paint(on=True)("a", "") == "a"


def test_colours_do_not_count_as_width() -> None:
    rows: list[list[str | Cell]] = [[Cell("a", "red"), "b"]]

    assert table([Column("LONG"), Column("B")], rows, width=80, paint=Paint(on=True))[1] == "\x1b[31ma\x1b[0m     b"


def test_text_is_wrapped_between_words() -> None:
    assert wrapped("one two three", 9, "  ") == ["  one two", "  three"]
    assert wrapped("a-word-too-long b", 8, "    ") == ["    a-word-too-long", "    b"]
    assert wrapped("", 8) == [""]


def test_columns_without_room_are_named() -> None:
    columns, rows = [Column("a", least=3), Column("b", weight=1)], [["x" * 9, "y" * 9]]

    assert left_out(columns, rows, width=80) == []
    assert left_out(columns, rows, width=9) == ["b"]
