"""What the rules need from others."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Protocol

from sentinel.model.alerts import RuleSpec
from sentinel.model.series import Batch

if TYPE_CHECKING:
    from sentinel.promql.analysis import Reading
    from sentinel.promql.series import SeriesReader, Value

Append = Callable[[Batch], None]
"""Takes what a rule has written at once, so that the next rule of the group can read it."""

Sees = Callable[[RuleSpec], Collection[str] | None]
"""The names of the jobs whose series a rule may read; None: everything."""


class Deep(Protocol):
    """Answers what the reader of the rules does not reach back for, beside the thread of the engine."""

    def needed(self, readings: Sequence[Reading], at: float) -> bool:
        """Whether an expression that reads so, at `at` (Unix seconds), wants more than the reader has."""
        ...

    def ask(self, work: Callable[[SeriesReader], Value]) -> Future[Value]:
        """`work` on everything that was ever recorded, in a thread, one after the other and each within its budget."""
        ...
