"""What an event captures from its line: bytes, waiting times, tokens, statuses, ranks."""

# ruff: noqa: E501 - a regular expression reads best in one line
from __future__ import annotations

import re
from typing import Any

from sentinel.logs.masking import clean
from sentinel.logs.patterns import Pattern, compiled
from sentinel.model.logs import LogKind

_SIZE = r"(?P<value>[\d,]+(?:\.\d+)?) ?(?P<unit>[KMGT]i?B|bytes|[kKMGT]B?\b)?"
_UNITS = {"": 1, "B": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_LONGEST = 256

_COMMON: dict[LogKind, tuple[tuple[str, re.Pattern[str]], ...]] = {
    LogKind.GPU_OOM: (
        ("bytes_wanted", re.compile(rf"(?i)(?:tried to allocate|trying to allocate|allocating|requested size was|of size|failed to allocate(?: request for)?) {_SIZE}")),
        ("bytes_free", re.compile(rf"(?i)of which {_SIZE} is free|; {_SIZE.replace('value', 'v2').replace('unit', 'u2')} free")),
        ("gpu", re.compile(r"(?i)\b(?:GPU|device|CUDA) ?:?(?P<value>\d+)\b")),
    ),
    LogKind.HOST_OOM: (
        ("bytes_wanted", re.compile(rf"(?i)(?:tried to allocate|unable to allocate|memory allocation of|requires more system memory \(|cannot allocate vector of size) ?{_SIZE}")),
        ("bytes_free", re.compile(rf"(?i)than is available \({_SIZE}")),
        ("pid", re.compile(r"(?i)(?:kill(?:ed|ing)? process|pid[: ]) ?(?P<value>\d+)")),
    ),
    LogKind.RATE_LIMITED: (
        ("retry_after_seconds", re.compile(r"(?i)(?:try again|retry|retrying|wait)\D{0,40}?(?:after|in) (?P<value>(?:[\d.]+ ?(?:ms|h|m|sec(?:ond)?s?|s|min(?:ute)?s?) ?)+)|retry[-_ ]after[\"']?\s*[:=]\s*[\"']?(?P<v2>[\d.]+)|retryDelay[\"']?: ?[\"'](?P<v3>[\d.]+s)")),
        ("limit", re.compile(r"(?i)\bLimit:? (?P<value>\d+)")),
    ),
    LogKind.CONTEXT_LENGTH: (
        ("limit", re.compile(r"(?i)maximum context length is (?P<value>\d+)|> (?P<v2>\d+) ?(?:maximum|\b)|context size \((?P<v3>\d+)|context window of (?P<v4>\d+)|tokens allowed \((?P<v5>\d+)|n_ctx\W+(?P<v6>\d+)")),
        ("tokens", re.compile(r"(?i)you requested (?P<value>\d+) tokens|too long: (?P<v2>\d+) tokens|token count \((?P<v3>\d+)|requested tokens \((?P<v4>\d+)|request \((?P<v5>\d+) tokens|n_prompt_tokens\W+(?P<v6>\d+)")),
    ),
    LogKind.GPU_FAULT: (("xid", re.compile(r"\bXid \([^)]*\): (?P<value>\d+)")),),
    LogKind.NUMERIC_ANOMALY: (("loss_scale", re.compile(r"(?i)reducing (?:loss scale )?to (?P<value>[\d.e+-]+)")),),
    LogKind.DISK_FULL: (("path", re.compile(r"No space left on device: '(?P<value>[^']{1,200})'")),),
    LogKind.CHECKPOINT_SAVED: (
        ("path", re.compile(r"(?i)(?:\bto|\bin|\bat|saved:?|Saved) [`'\"]?(?P<value>/?[\w.+~-]*/[\w./+=~-]+)")),
        ("step", re.compile(r"(?i)(?:checkpoint-|global_?step[ _-]?|\bstep[ =:]+|iteration +|iter_0*)(?P<value>\d+)")),
    ),
    LogKind.CHECKPOINT_FAILED: (("path", re.compile(r"(?i)['`\"](?P<value>/?[\w.+~-]*/[\w./+=~-]+)['`\"]")),),
}  # fmt: skip
_ALWAYS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("status", re.compile(r"(?i)(?:HTTP(?:/\d(?:\.\d)?)?\"?|error(?: code)?|status(?:[_ -]?code)?|code)[\"']?\s*[:=(]?\s*[\"']?(?P<value>[45]\d\d)\b|\b(?P<v2>429|40[0-9]|50[0-4]|529) (?:Client|Server|Too|Service|Bad|Gateway|Payment|\{)")),
    ("rank", re.compile(r"(?i)\[?rank[ :]?(?P<value>\d+)\]?")),
)  # fmt: skip
_WITH_STATUS = frozenset({
    LogKind.RATE_LIMITED, LogKind.QUOTA_EXHAUSTED, LogKind.OVERLOADED, LogKind.CONTEXT_LENGTH, LogKind.TIMEOUT
})  # fmt: skip


def captured(pattern: Pattern, search: Any, raw: bytes) -> dict[str, object]:
    """The fields of a line that `pattern` matched."""
    text = raw.decode("utf-8", "replace")
    found: dict[str, object] = {}
    assert pattern.kind is not None
    for name, regex in (*_COMMON.get(pattern.kind, ()), *_ALWAYS):
        if name == "status" and pattern.kind not in _WITH_STATUS:
            continue
        if (match := regex.search(text)) is not None:
            _put(found, name, match.groupdict())
    if pattern.fields or "(?P<" in pattern.regex:
        match = search.search(raw)
        for name, value in match.groupdict().items() if match else ():
            if value:
                found[_text(name)] = _number(_text(value))
        for name, expression in pattern.fields.items():
            if (match := compiled(expression).search(raw)) and match.groups() and match.group(1):
                found[name] = _number(_text(match.group(1)))
    tokens, limit = found.get("tokens"), found.get("limit")
    if isinstance(tokens, int) and isinstance(limit, int) and tokens > limit:
        found["tokens_over"] = tokens - limit
    return found


def _put(found: dict[str, object], name: str, groups: dict[str, str | None]) -> None:
    value = next((each for key, each in groups.items() if each and key[0] == "v"), None)
    if value is None:
        return
    if name.startswith("bytes_"):
        unit = next((each for key, each in groups.items() if each and key[0] == "u"), "") or ""
        scale = 1 if unit == "bytes" else _UNITS.get(unit[:1].upper(), 1)
        found[name] = int(float(value.replace(",", "")) * scale)
    elif name == "retry_after_seconds":
        found[name] = _seconds(value)
    else:
        found[name] = _number(value)


def _seconds(text: str) -> float:
    parts = re.findall(r"([\d.]+) ?([a-z]*)", text.lower())
    return sum(float(number.strip(".") or 0) * _scale(unit) for number, unit in parts)


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


def _scale(unit: str) -> float:
    return 0.001 if unit == "ms" else _SECONDS.get(unit[:1], 1.0)


def _number(text: str) -> object:
    try:
        return float(text) if any(char in text for char in ".eE") else int(text)
    except ValueError:
        return clean(text, _LONGEST)
