"""The expanding notation of input series."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sentinel.model.labels import Labels
from sentinel.rules.notation import STALE, NotationError, Point, read_series, read_values

NOTED: list[tuple[str, list[Point]]] = [
    ("", []),
    ("1 2.5 -3", [1.0, 2.5, -3.0]),
    ("0+10x3", [0.0, 10.0, 20.0, 30.0]),
    ("10-5x2", [10.0, 5.0, 0.0]),
    ("-1-1x1", [-1.0, -2.0]),
    ("7x2", [7.0, 7.0, 7.0]),
    ("7x0", [7.0]),
    ("_ 1 _x2 2", [None, 1.0, None, None, 2.0]),
    ("1 stale 2", [1.0, STALE, 2.0]),
    ("1e3 1_000 .5 Inf -Inf", [1000.0, 1000.0, 0.5, math.inf, -math.inf]),
    ("0x3", [0.0, 0.0, 0.0, 0.0]),
    ("0.1+0.1x2", [0.1, 0.2, 0.1 + 0.1 + 0.1]),
]


@pytest.mark.parametrize(("text", "points"), NOTED, ids=[repr(text) for text, _ in NOTED])
def test_values(text: str, points: list[Point]) -> None:
    assert read_values(text) == points


def test_nan_is_a_value() -> None:
    (point,) = read_values("NaN")
    assert isinstance(point, float)
    assert math.isnan(point)


@pytest.mark.parametrize(
    ("text", "where"),
    [("1 2 x", "x"), ("1+2", "1+2"), ("{{schema:1}} 2", "{{schema:1}}"), ("1 2,3", "2,3"), ("1x9999999", "1x9999999")],
)
def test_a_mistake_has_its_place(text: str, where: str) -> None:
    with pytest.raises(NotationError) as raised:
        read_values(text)

    assert text[raised.value.start : raised.value.end] == where


@pytest.mark.parametrize(
    ("text", "labels"),
    [
        ("up", {"__name__": "up"}),
        ('up{job="a",b="c d"}', {"__name__": "up", "job": "a", "b": "c d"}),
        ('{job="a"}', {"job": "a"}),
        ("{}", {}),
        ("", {}),
    ],
)
def test_series(text: str, labels: dict[str, str]) -> None:
    assert read_series(text) == Labels(labels)


@pytest.mark.parametrize("text", ['up{job=~"a"}', "up[5m]", "rate(up[5m])", "up{", "1"])
def test_what_is_no_series(text: str) -> None:
    with pytest.raises(NotationError):
        read_series(text)


@given(st.lists(st.integers(0, 99), min_size=1, max_size=20))
def test_values_come_back_as_they_were_written(values: list[int]) -> None:
    assert read_values(" ".join(str(value) for value in values)) == [float(value) for value in values]
