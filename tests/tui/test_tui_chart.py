"""The chart: the curve, the limit, the forecast, and what happened, all where they belong."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from sentinel.tui.chart import ASKED_FOR, CHECKPOINT, Curve, Mark, draw

NOW = 1_800_000_000.0
MIB = 1024.0**2


def leak(seconds: int, *, growth: float = 2 * MIB) -> list[tuple[float, float]]:
    return [(NOW - seconds + t, 100 * MIB + growth * t) for t in range(seconds + 1)]


def curve(**more: object) -> Curve:
    made: dict[str, object] = {
        "points": leak(100), "limit": 420 * MIB, "growth": 2 * MIB, "now": NOW, "back_s": 120.0, "ahead_s": 80.0, "marks": (),
    }  # fmt: skip
    return Curve(**{**made, **more})  # type: ignore[arg-type]


@settings(max_examples=60)
@given(
    st.lists(st.tuples(st.floats(NOW - 500, NOW + 500), st.floats(0, 1e13)), max_size=40).map(sorted),
    st.none() | st.floats(1, 1e13),
    st.none() | st.floats(-1e9, 1e9),
    st.integers(0, 120),
    st.integers(0, 40),
)
def test_it_never_leaves_its_frame(
    points: list[tuple[float, float]], limit: float | None, growth: float | None, width: int, height: int
) -> None:
    lines = draw(curve(points=points, limit=limit, growth=growth), width, height)

    assert len(lines) == max(height, 1)
    assert all(line.cell_len <= max(width, 0) for line in lines)


def test_the_limit_is_a_line_with_its_number() -> None:
    lines = [line.plain for line in draw(curve(), 80, 20)]

    (limit,) = [line for line in lines if "420 MiB" in line]
    assert limit.count("╌") > 60


def test_a_limit_far_away_does_not_flatten_the_curve() -> None:
    lines = [line.plain for line in draw(curve(limit=250 * 1024 * MIB, growth=0.0), 80, 20)]

    assert not any("╌" in line for line in lines)
    assert any("⣿" in line for line in lines[:10])


def test_the_forecast_runs_from_now_up_to_the_limit() -> None:
    with_forecast = draw(curve(), 80, 20)
    without = draw(curve(growth=0.0), 80, 20)
    now = 9 + int(120 / 200 * 71)

    right = "".join(line.plain[now + 2 :] for line in with_forecast[:-2])
    assert sum("⠀" < char <= "⣿" for char in right) > 8
    assert not any("⠀" < char <= "⣿" for line in without[:-2] for char in line.plain[now + 2 :])


def test_marks_stand_under_their_moment() -> None:
    marks = [Mark(NOW - 60, *CHECKPOINT), Mark(NOW - 500, *ASKED_FOR), Mark(NOW, *ASKED_FOR)]
    lane = draw(curve(marks=marks), 80, 20)[-2].plain

    assert lane[9 + int(60 / 200 * 71)] == "▲"
    assert lane.count("◆") == 1


def test_a_gap_in_the_measurements_stays_a_gap() -> None:
    points = [point for point in leak(100) if not NOW - 70 < point[0] < NOW - 30]
    bottom = draw(curve(points=points), 80, 20)[-3].plain
    middle = 9 + int(70 / 200 * 71)

    assert bottom[middle] == " "
    assert bottom[9 + int(30 / 200 * 71)] != " "
