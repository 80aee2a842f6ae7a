"""What a reload changes at once, and what waits for the next start. Pure."""

from __future__ import annotations

from dataclasses import replace

from sentinel.config.settings import Settings

_AT_START = {
    "sampling": "sampling",
    "patterns": "patterns",
    "jobs": "adoptions",
    "store": "store",
    "api": "api",
}
"""Keys of the file whose settings are read once, when the daemon starts, and the field each becomes."""


def taken(inforce: Settings, fresh: Settings) -> Settings:
    """What is in force after a reload: the new, but for what needs a restart."""
    return replace(fresh, **{field: getattr(inforce, field) for field in (*_AT_START.values(), "jobs")})


def waiting(inforce: Settings, fresh: Settings) -> list[str]:
    """The keys of the file that have changed and need a restart."""
    return [key for key, field in _AT_START.items() if getattr(inforce, field) != getattr(fresh, field)]
