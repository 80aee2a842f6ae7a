"""Our own words on stderr."""

from __future__ import annotations

import contextlib
import os
import threading

from sentinel.jobs.terminal import Terminal


class Voice:
    """Says things on stderr, from any thread, readable on a raw terminal too."""

    def __init__(self, terminal: Terminal | None = None) -> None:
        self._terminal = terminal
        self._lock = threading.Lock()

    def say(self, text: str) -> None:
        """A line with our name before it."""
        self.write(f"sentinel: {text}\n")

    def write(self, text: str) -> None:
        """As it is."""
        if self._terminal is not None and self._terminal.raw:
            text = text.replace("\n", "\r\n")
        with self._lock, contextlib.suppress(OSError):
            os.write(2, text.encode("utf-8", "replace"))
