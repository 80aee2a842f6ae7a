"""Desks for the stories of jobs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.jobs.desk import Desk


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
