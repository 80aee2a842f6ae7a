"""Durations and sizes, as people write them and read them."""

from __future__ import annotations

import math
import re

from sentinel.errors import UsageError

_DURATION = re.compile(r"(?:(\d+)y)?(?:(\d+)w)?(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?(?:(\d+)ms)?")
_SECONDS = (365 * 86400.0, 7 * 86400.0, 86400.0, 3600.0, 60.0, 1.0, 0.001)
_DECIMAL = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|sec|m|min|h|d|w)?")
_ONE = {"ms": 0.001, "s": 1.0, "sec": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgtpe]?)(i?)b?", re.IGNORECASE)
_POWERS = "kmgtpe"


def parse_duration(text: str) -> float:
    """Seconds in `1h30m`, `90s`, `1.5h`, `250ms`, or a bare number of seconds.

    Raises:
        UsageError: It is no duration.
    """
    cleaned = text.strip()
    if cleaned and (found := _DURATION.fullmatch(cleaned)):
        return sum(int(part) * unit for part, unit in zip(found.groups(), _SECONDS, strict=True) if part)
    if found := _DECIMAL.fullmatch(cleaned):
        return float(found[1]) * _ONE[found[2] or "s"]
    raise UsageError(f"{text!r} is not a duration", hint="30s, 5m, 1h30m, 7d")


def parse_size(text: str) -> int:
    """Bytes in `600MiB`, `2GiB`, `512M` (powers of 1024, as ulimit and docker read it) or `10GB` (powers of 1000).

    Raises:
        UsageError: It is no size.
    """
    found = _SIZE.fullmatch(text.strip())
    if not found:
        raise UsageError(f"{text!r} is not a size", hint="600MiB, 2GiB, 10GB")
    number, prefix, binary = found.groups()
    decimal = bool(prefix) and not binary and text.strip().lower().endswith("b")
    base = 1000 if decimal else 1024
    return int(float(number) * base ** (_POWERS.index(prefix.lower()) + 1 if prefix else 0))


def format_bytes(count: float) -> str:
    """`1.5 GiB`, three significant digits."""
    if not math.isfinite(count):
        return str(count)
    size, unit = abs(count), "B"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB", "PiB"):
        if size < 1024 or unit == "PiB":
            break
        size /= 1024
    sign = "-" if count < 0 else ""
    digits = 0 if unit == "B" or size >= 100 else 1 if size >= 10 else 2
    return f"{sign}{size:.{digits}f} {unit}"


def format_duration(seconds: float) -> str:
    """`2h 5m`, `45s`, `1.2s`, `30ms`: the two largest units."""
    if not math.isfinite(seconds):
        return str(seconds)
    sign, left = ("-", -seconds) if seconds < 0 else ("", seconds)
    if left < 1:
        return f"{sign}{left * 1000:.0f}ms" if left else "0s"
    if left < 10 and left != int(left):
        return f"{sign}{left:.1f}s"
    parts: list[str] = []
    whole = round(left)
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m"), (1, "s")):
        count, whole = divmod(whole, size)
        if count or parts:
            parts.append(f"{count}{unit}" if count else "")
        if len(parts) == 2:
            break
    return sign + " ".join(part for part in parts if part)
