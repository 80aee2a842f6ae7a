"""What recording rules would have recorded, laid over what was."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sentinel.model.labels import METRIC_NAME, Labels
from sentinel.promql.regex import matches
from sentinel.promql.series import Block, Course, Floats, Mask, Matcher, SeriesReader
from sentinel.rules.ruleset import Rule

_TICKS_OF_LOOKBACK = 3


@dataclass(slots=True, eq=False)
class _Record:
    labels: tuple[Labels, ...]
    times: Floats
    values: Floats
    kept: Mask
    lookback_s: float


class Pieces:
    """History, read once for all rules, one piece of time after the other. Not for several threads.

    Args:
        reader: What was recorded.
        back_s: How far back before a piece the rules look (seconds).
    """

    def __init__(self, reader: SeriesReader, back_s: float) -> None:
        self._reader = reader
        self.widest_lookback_s: float = getattr(reader, "widest_lookback_s", 600.0)
        self._back_s = back_s
        self._begin = self._end = 0.0
        self._known: dict[tuple[Matcher, ...], Sequence[Block]] = {}

    def turn(self, start: float, end: float) -> None:
        """From now on this piece (Unix seconds)."""
        back = min(max(self._back_s, self.widest_lookback_s), end - start)
        self._begin, self._end = start - back - 1.0, end + 1.0
        self._known.clear()

    def select(self, matchers: tuple[Matcher, ...], start: float, end: float) -> Sequence[Block]:
        """As the reader."""
        if start < self._begin or end > self._end:
            return self._reader.select(matchers, start, end)
        known = self._known.get(matchers)
        if known is None:
            known = self._known[matchers] = self._reader.select(matchers, self._begin, self._end)
        return [cut for block in known if (cut := _cut(block, start, end)) is not None]


def _cut(block: Block, start: float, end: float) -> Block | None:
    first, last = np.searchsorted(block.times, start), np.searchsorted(block.times, end, side="right")
    if first >= last:
        return None
    piece = slice(int(first), int(last))
    return Block(
        block.labels,
        block.times[piece],
        block.values[:, piece],
        block.present[:, piece],
        block.stale[:, piece],
        block.lookback_s,
    )


class Overlay:
    """History with other recording rules in force. Not for several threads.

    Args:
        reader: What was recorded.
        rules: The recording rules: what is known under their names is theirs alone.
        keep_s: How long what they record is kept for (seconds).
    """

    def __init__(self, reader: SeriesReader, rules: Sequence[Rule], keep_s: float) -> None:
        self._reader = reader
        self._names = frozenset(rule.name for rule in rules)
        self._keep_s = keep_s
        self._records: dict[Rule, _Record] = {}
        self.widest_lookback_s: float = getattr(reader, "widest_lookback_s", 600.0)

    def record(self, rule: Rule, found: Course, interval_s: float) -> None:
        """What a rule has found from one time on, to be read by the rules after it."""
        added = {**{name: template.text for name, template in rule.labels}, METRIC_NAME: rule.name}
        labels = tuple(one.merged(added) for one in found.labels)
        old = self._records.get(rule)
        if old is None:
            lookback_s = _TICKS_OF_LOOKBACK * interval_s
            self.widest_lookback_s = max(self.widest_lookback_s, lookback_s)
            self._records[rule] = _Record(labels, found.times, found.values, found.kept, lookback_s)
            return
        since = int(np.searchsorted(old.times, found.times[0] - self._keep_s))
        every = tuple(dict.fromkeys((*old.labels, *labels)))
        rows = {one: row for row, one in enumerate(every)}
        times = np.concatenate([old.times[since:], found.times])
        values, kept = np.full((len(every), len(times)), np.nan), np.zeros((len(every), len(times)), dtype=np.bool_)
        border = len(old.times) - since
        before, after = [rows[one] for one in old.labels], [rows[one] for one in labels]
        values[before, :border], kept[before, :border] = old.values[:, since:], old.kept[:, since:]
        values[after, border:], kept[after, border:] = found.values, found.kept
        self._records[rule] = _Record(every, times, values, kept, old.lookback_s)

    def select(self, matchers: tuple[Matcher, ...], start: float, end: float) -> Sequence[Block]:
        """All series that match, those of the rules as the rules say."""
        name = next((each for each in matchers if each.name == METRIC_NAME and each.match.value == "="), None)
        found: list[Block] = []
        if name is None or name.value not in self._names:
            blocks = self._reader.select(matchers, start, end)
            found = [
                block for block in blocks if block.labels and block.labels[0].get(METRIC_NAME, "") not in self._names
            ]
        for record in self._records.values():
            rows = [
                row
                for row, labels in enumerate(record.labels)
                if all(matches(each, labels.get(each.name, "")) for each in matchers)
            ]
            first, last = np.searchsorted(record.times, [start, end + 5e-4])
            if rows and first < last:
                kept = record.kept[rows, first:last]
                ended = ~kept & np.logical_or.accumulate(record.kept[rows, :last], axis=1)[:, first:]
                labels = tuple(record.labels[row] for row in rows)
                values = record.values[rows, first:last]
                found.append(Block(labels, record.times[first:last], values, kept, ended, record.lookback_s))
        return found
