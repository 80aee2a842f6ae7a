"""Desks for the stories of jobs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.jobs.desk import Desk
from tests.store.conftest import fill, small_disk

__all__ = ["desk", "fill", "served", "small_disk"]


@pytest.fixture
def desk() -> Iterator[Desk]:
    """A desk without a daemon."""
    made = Desk()
    yield made
    made.end()


@pytest.fixture
def served(desk: Desk) -> Desk:
    """A desk with a daemon."""
    desk.start_daemon()
    return desk
