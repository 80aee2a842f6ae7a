"""When a line says that it was written."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime

_ISO = re.compile(r"(\d{4})[-/](\d\d)[-/](\d\d)[T _](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?\s?(Z|UTC|[+-]\d\d:?\d\d)?")
_SYSLOG = re.compile(r"\b(Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) +(\d{1,2}) (\d\d):(\d\d):(\d\d)\b")
_UNIX = re.compile(r"(?:\"(?:ts|time|timestamp)\": ?|^)(1\d{9}(?:\.\d+)?)\b")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_LOOK_AT = 160


def time_of(line: str) -> float | None:
    """Unix seconds, or None where the line carries no time. A time without a zone is local time."""
    head = line[:_LOOK_AT]
    try:
        if (found := _ISO.search(head)) is not None:
            year, month, day, hour, minute, second = (int(found[place]) for place in range(1, 7))
            fraction = float(f"0.{found[7]}") if found[7] else 0.0
            if (zone := found[8]) is None:
                return time.mktime((year, month, day, hour, minute, second, 0, 0, -1)) + fraction
            at = datetime(year, month, day, hour, minute, second, tzinfo=UTC).timestamp() + fraction
            return at if zone in {"Z", "UTC"} else at - _offset(zone)
        if (found := _SYSLOG.search(head)) is not None:
            now = time.localtime()
            month = _MONTHS.index(found[1]) + 1
            year = now.tm_year - (month > now.tm_mon)
            return time.mktime((year, month, int(found[2]), int(found[3]), int(found[4]), int(found[5]), 0, 0, -1))
        if (found := _UNIX.search(head)) is not None:
            return float(found[1])
    except (ValueError, OverflowError):
        return None
    return None


def _offset(zone: str) -> float:
    sign = -1 if zone[0] == "-" else 1
    return sign * (int(zone[1:3]) * 3600 + int(zone[-2:]) * 60)
