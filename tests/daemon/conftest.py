"""Machines with several users."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from .machine import ALICE, BOB, Machine, Sink, User, becoming


@pytest.fixture
def machine() -> Iterator[Machine]:
    """A system's daemon that runs, as root."""
    if os.getuid() != 0:
        pytest.skip("becoming another user needs root")
    if becoming(ALICE) is None:
        pytest.skip("no other user can run this python, or there is no setpriv")
    made = Machine()
    try:
        made.start()
        yield made
    finally:
        made.end()


@pytest.fixture
def alice(machine: Machine) -> User:
    """A user without any rights."""
    return User(machine, ALICE)


@pytest.fixture
def bob(machine: Machine) -> User:
    """Another one."""
    return User(machine, BOB)


@pytest.fixture
def sink() -> Iterator[Sink]:
    """Takes messages."""
    made = Sink()
    yield made
    made.close()
