"""Cells: what is shown is what was given, in exactly the room there is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from sentinel.tui import cells
from sentinel.tui.snapshot import Memory
from sentinel.tui.text import BAD, CALM, DIM, WARN, bar, cell, fit, literal, of, span

MIB, GIB = 1024.0**2, 1024.0**3


@given(st.text(max_size=60), st.integers(0, 40), st.booleans())
def test_a_cell_is_as_wide_as_its_column(text: str, width: int, right: bool) -> None:
    assert cell_len(fit(literal(text), width, right=right)) == width


@given(st.text(max_size=200))
def test_nothing_that_a_job_wrote_reaches_the_terminal_as_a_command(text: str) -> None:
    assert literal(text).isprintable()


@pytest.mark.parametrize("name", ["[red]x[/]", "[/]", "[@click=app.quit]go[/]", "$var", "\\[b]"])
def test_what_looks_like_markup_is_text(name: str) -> None:
    assert cell(name, 30).plain.rstrip() == name


def test_control_characters_are_replaced_and_lines_joined() -> None:
    assert literal("a\x1b[31mb\x07\u202ec\nd") == "a�[31mb��c d"


@given(st.floats(allow_nan=True, allow_infinity=True) | st.none(), st.integers(0, 60))
def test_a_bar_fills_its_room_whatever_the_ratio(ratio: float | None, width: int) -> None:
    assert bar(ratio, width).cell_len == width


def test_a_little_is_seen_and_everything_is_full() -> None:
    assert bar(0.0001, 10).plain == "╸─────────"
    assert bar(0.5, 10).plain == "━━━━━─────"
    assert bar(1.7, 4).plain == "━━━━"
    assert bar(None, 3).plain == "───"


@pytest.mark.parametrize(
    ("used", "limit", "said"),
    [
        (412 * MIB, 600 * MIB, "412/600 MiB"),
        (84.2 * GIB, 140 * GIB, "84.2/140 GiB"),
        (38 * MIB, 251 * GIB, "38M/251 GiB"),
        (0.0, 600 * MIB, "0/600 MiB"),
        (412 * MIB, None, "412 MiB"),
        (None, 600 * MIB, "—"),
    ],
)
def test_use_and_limit_share_a_unit(used: float | None, limit: float | None, said: str) -> None:
    assert of(used, limit) == said


@given(st.floats(0, 1e15), st.floats(0, 1e15))
def test_use_and_limit_fit_their_column(used: float, limit: float) -> None:
    assert len(of(used, limit)) <= 13


@given(st.floats(0, 1e8))
def test_a_span_fits_five_cells(seconds: float) -> None:
    assert len(span(seconds)) <= 5


@pytest.mark.parametrize(
    ("memory", "said", "style"),
    [
        (Memory(used=570, limit=600, growth=0.0), "steady", DIM),
        (Memory(used=1, limit=2, growth=20 * MIB, full_in=9.4), "full in 9 s", BAD),
        (Memory(used=1, limit=2, growth=20 * MIB, full_in=600), "full in 10 min", WARN),
        (Memory(used=1, limit=2, growth=20 * MIB, full_in=18000), "full in 5 h", CALM),
        (Memory(used=1, limit=2, growth=None), "…", DIM),
    ],
)
def test_colour_says_where_it_is_going_not_where_it_stands(memory: Memory, said: str, style: str) -> None:
    assert cells.forecast(memory) == (said, style)


def test_a_machine_that_fills_up_is_no_reason_to_shout_at_one_job() -> None:
    memory = Memory(used=1, limit=2, growth=20 * MIB, full_in=600)

    assert cells.forecast(memory, machine=True) == ("full in 10 min", DIM)
