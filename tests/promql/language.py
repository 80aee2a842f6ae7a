"""Prometheus's test language: `load`, `clear`, `eval` and what they expect, as data."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from sentinel.model.labels import Labels
from sentinel.promql.tokens import Kind, Token, tokens

STALE = "stale"
_LOAD = re.compile(r"load(_with_nhcb)?\s+(\S+)\s*$")
_INSTANT = re.compile(r"eval(?:_(fail|ordered|warn|info))?\s+instant\s+(?:at\s+(\S+)\s+)?(.+)$", re.DOTALL)
_RANGE = re.compile(
    r"eval(?:_(fail|warn|info))?\s+range\s+from\s+(\S+)\s+to\s+(\S+)\s+step\s+(\S+?)\s+(.+)$", re.DOTALL
)
_EXPECT = re.compile(r"expect\s+(ordered|fail|warn|no_warn|info|no_info)(?:\s+(msg|regex)\s*:\s*(.*))?\s*$")
_EXPECT_RANGE = re.compile(r"expect\s+range\s+vector\s+from\s+(\S+)\s+to\s+(\S+)\s+step\s+(\S+)\s*$")
_ITEM = re.compile(
    r"""(?P<blank>_)(?:x(?P<blanks>\d+))?$
      | (?P<value>stale|[+-]?(?:inf|nan)|[+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?)
        (?:(?P<step>[+-](?:inf|nan|(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?)))?
        (?:x(?P<times>\d+))?$""",
    re.VERBOSE | re.IGNORECASE,
)  # fmt: skip

Sample = float | str | None
"""A number, "stale", or nothing."""


class NotThisLanguage(ValueError):
    """A line that the test language does not know."""


@dataclass
class Series:
    """One line of series: labels and values; `native` where there are native histograms among them."""

    labels: Labels
    values: list[Sample]
    native: bool = False


@dataclass
class Load:
    """`load STEP` and its series."""

    step_s: float
    series: list[Series]
    native_too: bool


@dataclass
class Clear:
    """`clear`."""


@dataclass
class Wanted:
    """One `expect` line with its message or pattern."""

    what: str
    how: str | None = None
    words: str = ""


@dataclass
class Case:
    """One `eval`.

    Attributes:
        line: Where it stands, from 1.
        expr: The expression.
        start, end, step: Unix seconds; the same start and end and step 0 for an instant.
        wanted: What else is expected: fail, ordered, warn, ….
        series: The expected series.
        scalar: The expected number, for an instant.
        text: The expected string.
        over: start, end, step where an instant answers a range vector.
        native: Whether it speaks of native histograms.
        ignored: Whether the file itself says to leave it out.
    """

    line: int
    expr: str
    start: float
    end: float
    step: float
    wanted: list[Wanted] = field(default_factory=list)
    series: list[Series] = field(default_factory=list)
    scalar: float | None = None
    text: str | None = None
    over: tuple[float, float, float] | None = None
    native: bool = False
    ignored: bool = False

    @property
    def instant(self) -> bool:
        """Whether it is an instant query."""
        return self.step == 0

    def expects(self, what: str) -> bool:
        """Whether there is such an `expect` line."""
        return any(wanted.what == what for wanted in self.wanted)


Command = Load | Clear | Case


def read(path: Path) -> Iterator[Command]:
    """The commands of one file, in order."""
    lines = path.read_text(encoding="utf-8").split("\n")
    at = 0
    ignoring = False
    while at < len(lines):
        line = lines[at].strip()
        first = at
        at += 1
        if not line or line.startswith("#"):
            continue
        body: list[str] = []
        while at < len(lines) and lines[at].strip():
            inner = lines[at].strip()
            if lines[at][0] not in " \t" and _starts_command(inner):
                break
            if not inner.startswith("#"):
                body.append(inner)
            at += 1
        if line in {"ignore", "resume"}:
            ignoring = line == "ignore"
        elif line == "clear":
            yield Clear()
        elif found := _LOAD.match(line):
            yield Load(seconds(found[2]), [_series(each) for each in body], bool(found[1]))
        elif line.startswith("eval"):
            case = _case(line, body, first + 1)
            case.ignored = ignoring
            yield case
        else:
            raise NotThisLanguage(f"{path.name}:{first + 1}: {line[:80]}")


def _starts_command(line: str) -> bool:
    return bool(re.match(r"(load(_with_nhcb)?\s|clear\s*$|eval(_\w+)?\s|ignore\s*$|resume\s*$)", line))


def seconds(text: str) -> float:
    """A duration such as `1m30s`, or a plain number of seconds."""
    sign = -1.0 if text.startswith("-") else 1.0
    token = tokens(text.lstrip("+-"))[0]
    return sign * token.value


def _case(line: str, body: list[str], number: int) -> Case:
    if found := _RANGE.match(line):
        legacy, start, end, step, expr = found.groups()
        case = Case(number, expr.strip(), seconds(start), seconds(end), seconds(step))
    elif found := _INSTANT.match(line):
        legacy, at, expr = found.groups()
        moment = seconds(at) if at else 0.0
        case = Case(number, expr.strip(), moment, moment, 0.0)
    else:
        raise NotThisLanguage(f"line {number}: {line[:80]}")
    if legacy:
        case.wanted.append(Wanted(legacy))
    for each in body:
        _expectation(case, each)
    return case


def _expectation(case: Case, line: str) -> None:
    if found := _EXPECT_RANGE.match(line):
        case.over = (seconds(found[1]), seconds(found[2]), seconds(found[3]))
    elif line.startswith("expect string"):
        case.text = _unquoted(line.removeprefix("expect string").strip())
    elif found := _EXPECT.match(line):
        case.wanted.append(Wanted(found[1], found[2], (found[3] or "").strip()))
    elif line.startswith(("expected_fail_message", "expected_fail_regexp")):
        word, _, words = line.partition(" ")
        case.wanted.append(Wanted("fail", "msg" if word.endswith("message") else "regex", words.strip()))
    elif line.startswith("expect "):
        raise NotThisLanguage(f"line {case.line}: {line}")
    elif "{{" in line:
        case.native = True
    elif _ITEM.match(line) and case.instant:
        case.scalar = float(line)
    else:
        case.series.append(_series(line))


def _unquoted(text: str) -> str:
    return tokens(text)[0].text


def _series(line: str) -> Series:
    """`name{label="value"} 1 2 3`."""
    cut = _end_of_labels(line)
    labels = _labels(line[:cut].strip())
    rest = line[cut:].strip()
    if "{{" in rest:
        return Series(labels, _values(_without_native(rest)), native=True)
    return Series(labels, _values(rest))


def _end_of_labels(line: str) -> int:
    quote = ""
    depth = at = 0
    while at < len(line):
        char = line[at]
        if quote:
            if char == "\\" and quote != "`":
                at += 1
            elif char == quote:
                quote = ""
        elif char in "\"'`":
            quote = char
        elif char == "{":
            depth += 1
        elif char == "}":
            depth -= 1
            if not depth:
                return at + 1
        elif char in " \t" and not depth and not re.match(r"\s*\{[^{]", line[at:]):
            return at
        at += 1
    return len(line)


def _labels(text: str) -> Labels:
    found: dict[str, str] = {}
    parts = [token for token in tokens(text) if token.kind is not Kind.END]
    if parts and parts[0].kind is Kind.NAME:
        found["__name__"] = parts[0].text
        parts = parts[1:]
    at = 1
    while at < len(parts) - 1:
        name = parts[at]
        if parts[at + 1].text == "=" and parts[at + 1].kind is Kind.OPERATOR:
            found[name.text] = parts[at + 2].text
            at += 4
        else:
            found["__name__"] = name.text
            at += 2
    return Labels(found)


def _without_native(text: str) -> str:
    """The values with one blank in the place of each native histogram."""
    repeated = re.compile(r"\{\{[^}]*\}\}(?:\s*[+-]\s*\{\{[^}]*\}\})?(?:x(\d+))?")
    return repeated.sub(lambda found: " ".join(["_"] * (int(found[1]) + 1 if found[1] else 1)), text)


def _values(text: str) -> list[Sample]:
    made: list[Sample] = []
    for item in text.split():
        found = _ITEM.match(item)
        if not found:
            raise NotThisLanguage(f"value {item!r}")
        if found["blank"]:
            made += [None] * int(found["blanks"] or 1)
        elif found["value"].lower() == STALE:
            made += [STALE] * (int(found["times"]) + 1 if found["times"] else 1)
        else:
            value = float(found["value"])
            step = float(found["step"]) if found["step"] else 0.0
            for _ in range(int(found["times"]) + 1 if found["times"] else 1):
                made.append(value)
                value += step
    return made


__all__ = ["Case", "Clear", "Command", "Load", "Series", "Token", "Wanted", "read", "seconds"]
