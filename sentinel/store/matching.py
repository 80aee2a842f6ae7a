"""Which label sets a selector means."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable

from sentinel.errors import UsageError
from sentinel.model.labels import METRIC_NAME, Labels
from sentinel.promql.series import Match, Matcher

Test = Callable[[str], bool]


def matches(labels: Labels, matchers: Iterable[Matcher]) -> bool:
    """Whether all conditions hold; a label that is not there is an empty one."""
    return all(condition(matcher)(labels.get(matcher.name, "")) for matcher in matchers)


def split(matchers: tuple[Matcher, ...]) -> tuple[Test | str | None, tuple[Matcher, ...]]:
    """The condition on the metric's name (the name itself, a test, or None), and the rest."""
    named = tuple(matcher for matcher in matchers if matcher.name == METRIC_NAME)
    rest = tuple(matcher for matcher in matchers if matcher.name != METRIC_NAME)
    if not named:
        return None, rest
    if len(named) == 1 and named[0].match is Match.EQUAL:
        return named[0].value, rest
    tests = [condition(matcher) for matcher in named]
    return (lambda name: all(test(name) for test in tests)), rest


@functools.lru_cache(maxsize=4096)
def condition(matcher: Matcher) -> Test:
    """A matcher as a test of one value. Regular expressions are anchored at both ends, as in Prometheus.

    Raises:
        UsageError: The regular expression cannot be read.
    """
    value = matcher.value
    match matcher.match:
        case Match.EQUAL:
            return value.__eq__
        case Match.NOT_EQUAL:
            return value.__ne__
        case Match.REGEX:
            return _pattern(value)
        case Match.NOT_REGEX:
            test = _pattern(value)
            return lambda text: not test(text)


def _pattern(expression: str) -> Test:
    import re2  # linear time, whatever the expression

    options = re2.Options()
    options.log_errors = False
    options.dot_nl = True
    try:
        fullmatch = re2.compile(expression, options).fullmatch
    except re2.error as error:
        detail = error.args[0] if error.args else error
        text = detail.decode(errors="replace") if isinstance(detail, bytes) else str(detail)
        raise UsageError(f"the regular expression {expression!r} cannot be read: {text}") from None
    return lambda text: fullmatch(text) is not None
