"""Regular expressions of matchers: RE2, always anchored at both ends."""

from __future__ import annotations

import functools
import re
from typing import Any

from sentinel.promql.match import Match, Matcher

_LITERALS = re.compile(r"[A-Za-z0-9_:/ -]+(?:\|[A-Za-z0-9_:/ -]+)*")


_LONGEST_WORDS = 200


class BadPattern(ValueError):
    """RE2 cannot compile it; the message is RE2's."""


@functools.lru_cache(maxsize=1024)
def compiled(text: str) -> Any:
    """The pattern, to be used with `fullmatch`; a dot matches newlines too.

    Raises:
        BadPattern: It is no pattern.
    """
    import re2  # 10 ms; only where a pattern is used

    options = re2.Options()
    options.log_errors = False
    options.dot_nl = True
    try:
        return re2.compile(text, options)
    except UnicodeEncodeError:
        raise BadPattern("it is no valid UTF-8") from None
    except re2.error as fault:
        words = fault.args[0] if fault.args else fault
        if isinstance(words, bytes):
            words = words.decode("utf-8", "replace")
        raise BadPattern(str(words)[:_LONGEST_WORDS]) from None


def literals(text: str) -> tuple[str, ...] | None:
    """The alternatives of a pattern such as `a|b|c` that needs no regular expression at all, else None."""
    return tuple(text.split("|")) if _LITERALS.fullmatch(text) else None


def matches(matcher: Matcher, value: str) -> bool:
    """Whether a label with this value ("" for none) meets the condition."""
    match matcher.match:
        case Match.EQUAL:
            return value == matcher.value
        case Match.NOT_EQUAL:
            return value != matcher.value
        case Match.REGEX:
            return compiled(matcher.value).fullmatch(value) is not None
        case Match.NOT_REGEX:
            return compiled(matcher.value).fullmatch(value) is None
