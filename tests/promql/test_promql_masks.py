"""Holds, clear, dark: what a filter does to elements that the rules still want to hear of."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from sentinel.model.labels import Labels
from sentinel.promql import EvaluationError, Note, evaluate, evaluate_range, parse, select_range
from sentinel.promql.frames import _Memory
from sentinel.promql.series import Block, Matcher, Scalar, Text, Vector
from tests.promql.memory import STALE, MemoryReader

NOW = 1_800_000_000.0


def series(name: str, **labels: str) -> Labels:
    return Labels({"__name__": name, **labels})


def world() -> MemoryReader:
    """Two jobs; `b` never said anything about its limit, and a third one has ended."""
    times = [NOW - 4, NOW - 2, NOW]
    reader = MemoryReader(lookback_s=6.0)
    reader.add(series("used", job="a"), [(time, 50.0) for time in times])
    reader.add(series("used", job="b"), [(time, 90.0) for time in times])
    reader.add(series("used", job="ended"), [(NOW - 4, 99.0), (NOW - 2, STALE)])
    reader.add(series("limit", job="a"), [(time, 100.0) for time in times])
    return reader


HOLDS, CLEAR = True, False


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("used", {"a": HOLDS, "b": HOLDS}),
        ("used > 80", {"a": CLEAR, "b": HOLDS}),
        ("80 < used", {"a": CLEAR, "b": HOLDS}),
        ("used > bool 80", {"a": HOLDS, "b": HOLDS}),
        ("-(used > 80)", {"a": CLEAR, "b": HOLDS}),
        ("abs(used > 80) + 1", {"a": CLEAR, "b": HOLDS}),
        ("used / limit", {"a": HOLDS}),
        ("used / limit > 0.9", {"a": CLEAR}),
        ("(used > 80) / limit", {"a": CLEAR}),
        ("used / (limit > 500)", {"a": CLEAR}),
        ("used and limit", {"a": HOLDS}),
        ("used and limit > 500", {"a": CLEAR}),
        ("used > 80 and used", {"a": CLEAR, "b": HOLDS}),
        ("used unless limit", {"a": CLEAR, "b": HOLDS}),
        ("used unless limit > 500", {"a": HOLDS, "b": HOLDS}),
        ("used > 80 or limit", {"a": HOLDS, "b": HOLDS}),
        ("used > 80 or used", {"a": HOLDS, "b": HOLDS}),
        ("used > 95 or used > 80", {"a": CLEAR, "b": HOLDS}),
        ("sum by (job) (used > 80)", {"a": CLEAR, "b": HOLDS}),
        ("count by (job) (used > 80)", {"a": CLEAR, "b": HOLDS}),
        ("topk(1, used)", {"a": CLEAR, "b": HOLDS}),
        ("max_over_time((used > 80)[4s:2s])", {"a": CLEAR, "b": HOLDS}),
        ("count_over_time(used[4s])", {"a": HOLDS, "b": HOLDS}),
        ("rate(used[4s]) > 0", {"a": CLEAR, "b": CLEAR}),
        ("timestamp(used) < 0", {"a": CLEAR, "b": CLEAR}),
        ('label_replace(used > 80, "x", "y", "", "")', {"a": CLEAR, "b": HOLDS}),
        ("nothing", {}),
        ("nothing > 1", {}),
        ("used and nothing", {}),
        ("used unless nothing", {"a": HOLDS, "b": HOLDS}),
    ],
)
def test_what_is_masked_is_clear_and_what_is_absent_is_dark(text: str, expected: dict[str, bool]) -> None:
    found = evaluate(parse(text), world(), NOW)

    assert isinstance(found, Vector)
    assert {labels["job"]: bool(kept) for labels, kept in zip(found.labels, found.kept, strict=True)} == expected


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("sum(used > 95)", CLEAR),
        ("sum(used > 80)", HOLDS),
        ("absent(nothing)", HOLDS),
        ("absent(used)", CLEAR),
        ("absent(used > 95)", HOLDS),
        ("absent_over_time(used[10s])", CLEAR),
        ("absent_over_time(nothing[10s])", HOLDS),
        ("quantile(0.5, used > 95)", CLEAR),
        ("scalar(used > 80) == bool 90 + vector(0)", HOLDS),
    ],
)
def test_one_element_for_all(text: str, holds: bool) -> None:
    found = evaluate(parse(text), world(), NOW)

    assert isinstance(found, Vector)
    assert list(found.kept) == [holds]


def test_the_samples_are_what_prometheus_would_answer() -> None:
    found = evaluate(parse("sum by (job) (used > 80) * 2"), world(), NOW)

    assert isinstance(found, Vector)
    assert found.samples() == [(Labels({"job": "b"}), 180.0)]


def test_a_block_says_itself_how_long_a_sample_stands_for_it() -> None:
    reader = world()

    assert len(evaluate(parse("used"), reader, NOW + 5.9).labels) == 2  # type: ignore[union-attr]
    assert len(evaluate(parse("used"), reader, NOW + 6.0).labels) == 0  # type: ignore[union-attr]
    assert len(evaluate(parse("used"), reader, NOW + 6.0, lookback_s=300).labels) == 2  # type: ignore[union-attr]


def test_the_label_sets_stay_the_same_objects_from_round_to_round() -> None:
    """What is derived from labels is derived once, for as long as no series comes or goes."""
    reader, expr = world(), parse("sum by (job) (rate(used[10s])) > 1")
    first, second = evaluate(expr, reader, NOW), evaluate(expr, reader, NOW + 1)

    assert isinstance(first, Vector)
    assert isinstance(second, Vector)
    assert first.labels is second.labels


def test_an_answer_is_no_view_of_the_reader_s_memory() -> None:
    values, present = np.array([[1.0], [2.0]]), np.ones((2, 1), dtype=bool)
    labels = (series("m", x="1"), series("m", x="2"))

    class Buffer:
        def select(self, _matchers: tuple[Matcher, ...], _start: float, _end: float) -> list[Block]:
            return [Block(labels, np.array([NOW]), values, present, ~present)]

    found = evaluate(parse("m"), Buffer(), NOW)
    values[:] = 9.0
    present[:] = False

    assert isinstance(found, Vector)
    assert found.samples() == [(labels[0], 1.0), (labels[1], 2.0)]


def test_masked_partners_are_not_many() -> None:
    """Of several partners the one that is kept counts; only two of those are an error."""
    reader = MemoryReader()
    reader.add(series("left", job="a"), [(NOW, 1.0)])
    reader.add(series("right", job="a", rank="0"), [(NOW, 5.0)])
    reader.add(series("right", job="a", rank="1"), [(NOW, 7.0)])

    found = evaluate(parse("left * on (job) (right > 6)"), reader, NOW)
    assert isinstance(found, Vector)
    assert found.samples() == [(Labels({"job": "a"}), 7.0)]

    with pytest.raises(EvaluationError, match="many-to-many matching not allowed"):
        evaluate(parse("left * on (job) right"), reader, NOW)


def test_numbers_and_strings_are_answers_too() -> None:
    assert evaluate(parse("1 + 2 * 3"), world(), NOW) == Scalar(7.0)
    assert evaluate(parse("time()"), world(), NOW) == Scalar(NOW)
    assert evaluate(parse('("x")'), world(), NOW) == Text("x")


def test_a_range_query_keeps_only_what_holds() -> None:
    found = evaluate_range(parse("used > 80"), world(), NOW - 4, NOW, 2, lookback_s=6)

    assert found.labels == (series("used", job="b"), series("used", job="ended"))
    assert found.present.tolist() == [[True, True, True], [True, False, False]]


def test_a_bare_range_gives_its_samples() -> None:
    found = select_range(parse("used[3s]"), world(), NOW)

    assert found.labels == (series("used", job="a"), series("used", job="b"))
    assert found.times.tolist() == [NOW - 2, NOW]
    with pytest.raises(EvaluationError, match="no range vector"):
        select_range(parse("used"), world(), NOW)


@pytest.mark.parametrize("text", ["used[5m]", '"x"'])
def test_a_range_query_refuses_what_has_no_value_at_a_moment(text: str) -> None:
    with pytest.raises(EvaluationError, match="a range query needs a number or an instant vector"):
        evaluate_range(parse(text), world(), NOW, NOW + 1, 1)


def test_remarks_are_handed_out_where_they_are_wanted() -> None:
    notes: list[Note] = []
    evaluate(parse("rate(used[10s])"), world(), NOW, notes=notes)

    assert [str(note.level) for note in notes] == ["info"]
    assert '"used"' in notes[0].message


def test_reading_an_expression_does_not_load_numpy() -> None:
    program = (
        "import sys; from sentinel.promql import parse, canonical; parse('a > 1'); sys.exit('numpy' in sys.modules)"
    )

    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_what_is_remembered_of_ended_series_is_forgotten() -> None:
    now = 0.0
    memory = _Memory(lambda: now)
    made: list[str] = []

    def ask(labels: tuple[Labels, ...]) -> str:
        def make() -> str:
            made.append(labels[0]["x"])
            return labels[0]["x"]

        name = ("x", id(labels))
        found = memory.young.get(name) or memory.add(name, (labels,), make)
        return str(found[1])

    hot = (series("m", x="hot"),)
    for number in range(100):
        now += 10
        assert ask(hot) == "hot"
        assert ask((series("m", x=str(number)),) * 3_000) == str(number)

    assert made.count("hot") == 1
    assert len(memory.young) < 10
