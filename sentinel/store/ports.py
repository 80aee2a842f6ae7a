"""What the store needs from others."""

from __future__ import annotations

from collections.abc import Callable

from sentinel.model.events import Event

Publish = Callable[[Event], None]
"""The hub; called from the writer's thread too."""
