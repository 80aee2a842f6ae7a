"""The Prometheus text format, version 0.0.4: series as they stand at one moment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from sentinel.api.numbers import sample
from sentinel.model.families import METRICS
from sentinel.model.labels import METRIC_NAME, Labels
from sentinel.promql.series import Block


def exposition(blocks: Sequence[Block], at: float, timestamps: bool = False) -> str:
    """The newest sample of every series in `blocks`, grouped by metric.

    A series that has ended, or whose newest sample is older than its lookback
    allows, is left out. So is one that comes twice.

    Args:
        blocks: What the window or the store has.
        at: The moment (Unix seconds).
        timestamps: Whether to write when each was measured, as `/federate` does.
    """
    found: dict[str, dict[Labels, str]] = {}
    for block in blocks:
        for labels, value, measured in _newest(block, at):
            suffix = f" {round(measured * 1000)}" if timestamps else ""
            found.setdefault(labels.get(METRIC_NAME, ""), {}).setdefault(labels, f"{sample(value)}{suffix}")
    lines: list[str] = []
    for name in sorted(found):
        metric = METRICS.get(name)
        if metric is not None and not timestamps:
            lines.append(f"# HELP {name} {_help(metric.help)}")
        lines.append(f"# TYPE {name} {metric.kind.value if metric and not timestamps else 'untyped'}")
        lines += sorted(f"{name}{_labels(labels)} {text}" for labels, text in found[name].items())
    return "\n".join([*lines, ""])


def _newest(block: Block, at: float) -> list[tuple[Labels, float, float]]:
    width = int(np.searchsorted(block.times, at, side="right"))
    if not width or not len(block.labels):
        return []
    marked = block.present[:, :width] | block.stale[:, :width]
    last = width - 1 - np.argmax(marked[:, ::-1], axis=1)
    rows = np.arange(len(block.labels))
    good = block.present[rows, last] & (at - block.times[last] < block.lookback_s)
    return [
        (block.labels[row], float(block.values[row, last[row]]), float(block.times[last[row]]))
        for row in np.flatnonzero(good)
    ]


def _labels(labels: Mapping[str, str]) -> str:
    pairs = [f'{name}="{_quoted(value)}"' for name, value in labels.items() if name != METRIC_NAME]
    return "{" + ",".join(pairs) + "}" if pairs else ""


def _quoted(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _help(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")
