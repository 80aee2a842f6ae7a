"""Rules that look further back than the window: the store answers them, in a thread of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

from sentinel.promql import limits
from sentinel.store.database import StoreUnavailable
from sentinel.store.layered import layered
from sentinel.store.store import Store
from sentinel.store.window import Window

if TYPE_CHECKING:
    from sentinel.promql.analysis import Reading
    from sentinel.promql.series import Block, Matcher, SeriesReader, Value


class DeepReader:
    """Implements `rules.ports.Deep`. One rule after the other, so that however slow they are, they cost one thread.

    Args:
        window: The newest part.
        store: The rest.
        told: Called in the thread whenever an answer is there.
        budget_s: How long one rule may take.
    """

    def __init__(self, window: Window, store: Store, told: Callable[[], None], *, budget_s: float) -> None:
        self._window = window
        self._store = store
        self._told = told
        self._budget_s = budget_s
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="long rules")

    def needed(self, readings: Sequence[Reading], at: float) -> bool:
        """Whether the window has lost, or never had, some of what is read."""
        return not all(self._window.reaches(one.selector.matchers, one.begins(at)) for one in readings)

    def ask(self, work: Callable[[SeriesReader], Value]) -> Future[Value]:
        """`work` on window and store together."""
        answer = self._pool.submit(self._work, work)
        answer.add_done_callback(lambda _: self._told())
        return answer

    def close(self) -> None:
        """Answer no more."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _work(self, work: Callable[[SeriesReader], Value]) -> Value:
        window = self._window
        try:
            with limits.within(self._budget_s):
                return work(layered(window.detached(), _Willing(self._store.history(window.lookback_s), window)))
        except TimeoutError:
            raise StoreUnavailable(f"it took longer than {self._budget_s:g} s to look so far back") from None


class _Willing:
    """History, except that rules within the window's span do without while the store is away."""

    def __init__(self, history: SeriesReader, window: Window) -> None:
        self._history = history
        self._window = window

    def select(self, matchers: tuple[Matcher, ...], start: float, end: float) -> Sequence[Block]:
        """What the store has."""
        try:
            return self._history.select(matchers, start, end)
        except StoreUnavailable:
            if start < self._window.horizon:
                raise
            return ()
