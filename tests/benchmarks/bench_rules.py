"""How long one round of 60 rules over 2,000 series takes, and a range query over a day.

    python tests/benchmarks/bench_rules.py

The window is 30 minutes of 1 s samples (1,800 columns), with a few series that
ended and a few gaps. Two mixes: the 2,000 series spread over families as in a
daemon, so that a rule reads between 8 and 512 of them; and every rule over all
2,000 series at once. The goal for the first is 15 ms, at most 40 ms.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))  # so that it runs from anywhere, without being installed

import numpy as np

from sentinel.model.labels import Labels
from sentinel.promql import evaluate, evaluate_range, parse
from sentinel.promql.regex import matches
from sentinel.promql.series import Block, Matcher
from sentinel.promql.tree import Expr

COLUMNS = 1_800
NOW = 1_800_000_000.0
ROUNDS = 30

TEMPLATES = (
    "{m} > 0.95",
    "{m} / {l} > 0.9",
    "avg_over_time({m}[30s]) > 0.8",
    "max_over_time({m}[1m]) > 0.99",
    "rate({c}[30s]) > 5",
    "increase({c}[1m]) > 100",
    "deriv({m}[30s]) < 0",
    "predict_linear({m}[1m], 900) < 0",
    "{l} / -(deriv({m}[30s]) < 0) < 60 and deriv({m}[10s]) < 0.5 * deriv({m}[30s]) and {m} < 0.75 * {l}",
    "sum by (job) ({m}) > 10",
    "avg without (instance) ({m}) < 0.01",
    "max by (job) (rate({c}[30s])) > 10",
    "{m} * on (job, instance) group_left (node) {i} > 0.9",
    "absent({m})",
    "min_over_time({m}[30s]) > 0.5 unless {l} < 1",
    "changes({m}[30s]) == 0",
    "count by (job) ({m} > 0.5) > 3",
    "topk(5, {m}) > 0.9",
    "quantile by (job) (0.9, {m}) > 0.95",
    "time() - {m} > 900",
)


class Window:
    """A reader over one array per metric, as the daemon's window is, which remembers what a selector matches."""

    def __init__(self, families: Sequence[tuple[str, int]]) -> None:
        rng = np.random.default_rng(7)
        self._times = (NOW - np.arange(COLUMNS, 0, -1) + 1).astype(np.float64)
        self._blocks: dict[str, Block] = {}
        self._matching: dict[tuple[Matcher, ...], tuple[Block, np.ndarray] | None] = {}
        for prefix, rows in families:
            present = np.ones((rows, COLUMNS), dtype=bool)
            stale = np.zeros((rows, COLUMNS), dtype=bool)
            # One row in a hundred has ended, one in fifty has a gap now and then.
            for row in range(0, rows, 100):
                present[row, -200:] = False
                stale[row, -200] = True
            for row in range(1, rows, 50):
                present[row, rng.integers(0, COLUMNS, 40)] = False
            for kind in "mlci":
                name = f"{prefix}_{kind}" + ("_total" if kind == "c" else "")
                more = {"node": "a"} if kind == "i" else {}
                labels = tuple(
                    Labels({"__name__": name, "job": f"job{row % 16}", "instance": str(row), **more})
                    for row in range(rows)
                )
                walk = rng.random((rows, COLUMNS))
                values = np.cumsum(walk, axis=1) if kind == "c" else walk
                self._blocks[name] = Block(labels, self._times, values, present, stale, 6.0)

    def select(self, matchers: tuple[Matcher, ...], start: float, end: float) -> Sequence[Block]:
        if matchers not in self._matching:
            name = next(matcher.value for matcher in matchers if matcher.name == "__name__")
            block = self._blocks[name]
            rows = [
                row for row, one in enumerate(block.labels) if all(matches(m, one.get(m.name, "")) for m in matchers)
            ]
            assert len(rows) == len(block.labels), "the benchmark selects whole families"
            self._matching[matchers] = (block, np.array(rows))
        found = self._matching[matchers]
        assert found is not None
        block = found[0]
        first, last = np.searchsorted(block.times, [start, end + 1e-9])
        return [
            Block(
                block.labels, block.times[first:last], block.values[:, first:last], block.present[:, first:last],
                block.stale[:, first:last], block.lookback_s,
            )
        ]  # fmt: skip


def rules(prefixes: Sequence[str]) -> list[Expr]:
    """Sixty rules: every template, over the families in turn."""
    made = []
    for place in range(60):
        prefix = prefixes[place % len(prefixes)]
        template = TEMPLATES[place % len(TEMPLATES)]
        names = {kind: f"{prefix}_{kind}" + ("_total" if kind == "c" else "") for kind in "mlci"}
        made.append(parse(template.format(**names)))
    return made


def measure(title: str, families: Sequence[tuple[str, int]]) -> float:
    """The median round, in milliseconds."""
    window = Window(families)
    expressions = rules([prefix for prefix, _ in families])
    rounds = []
    slowest: dict[int, float] = {}
    for _ in range(ROUNDS):
        begin = time.perf_counter()
        for place, expr in enumerate(expressions):
            before = time.perf_counter()
            evaluate(expr, window, NOW)
            slowest[place] = time.perf_counter() - before
        rounds.append((time.perf_counter() - begin) * 1000)
    median = statistics.median(rounds[1:])
    print(
        f"{title}: first {rounds[0]:.1f} ms, then best {min(rounds[1:]):.1f}, median {median:.1f}, worst {max(rounds[1:]):.1f}"
    )
    if "-v" in sys.argv:
        for place, seconds in sorted(slowest.items(), key=lambda item: -item[1])[:12]:
            print(f"    {seconds * 1e6:7.0f} us  {TEMPLATES[place % len(TEMPLATES)]}")
    return median


class Day:
    """A day of 15 s or 1 s samples of eight series."""

    def __init__(self, step: float) -> None:
        count = int(86_400 / step)
        self._times = (NOW - np.arange(count, 0, -1) * step + step).astype(np.float64)
        self._labels = tuple(Labels({"__name__": "day_total", "gpu": str(row)}) for row in range(8))
        self._values = np.cumsum(np.random.default_rng(3).random((8, count)), axis=1)
        self._present = np.ones((8, count), dtype=bool)
        self._stale = np.zeros((8, count), dtype=bool)

    def select(self, _: tuple[Matcher, ...], start: float, end: float) -> Sequence[Block]:
        first, last = np.searchsorted(self._times, [start, end + 1e-9])
        cut = slice(first, last)
        return [Block(self._labels, self._times[cut], self._values[:, cut], self._present[:, cut], self._stale[:, cut])]


def day() -> None:
    """Range queries over a day at 15 s steps."""
    for step in (15.0, 1.0):
        reader = Day(step)
        for text in ("day_total", "rate(day_total[1m])", "avg_over_time(day_total[5m])", "sum(rate(day_total[1m]))"):
            expr = parse(text)
            took = []
            for _ in range(5):
                begin = time.perf_counter()
                evaluate_range(expr, reader, NOW - 86_400 + 15, NOW, 15)
                took.append((time.perf_counter() - begin) * 1000)
            print(f"24 h at 15 s over 8 series of {step:g} s samples, {text}: {statistics.median(took):.1f} ms")


def main() -> int:
    """All of it."""
    spread = [("gpu", 64), ("throttle", 64), ("job", 64), ("host", 2), ("disk", 16), ("process", 200), ("log", 90)]
    measure("60 rules, 2,000 series in families", spread)
    measure("60 rules, each over all of 500 series a metric", [("all", 500)])
    measure("60 rules, each over all of 2,000 series a metric", [("all", 2_000)])
    day()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
