"""The lexer: text to tokens with their places."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from sentinel.promql.errors import PromQLError

MAX_LENGTH = 65_536
"""Longest expression accepted, in characters."""


class Kind(StrEnum):
    """What a token is; the value is how an error names it."""

    NAME = "name"
    NUMBER = "number"
    DURATION = "duration"
    STRING = "string"
    OPERATOR = "operator"
    PUNCTUATION = "punctuation"
    END = "end of the expression"


@dataclass(frozen=True, slots=True)
class Token:
    """One token.

    Attributes:
        kind: What it is.
        text: As written; a string as it reads after its escapes.
        start: Offset of its first character.
        end: Offset just after its last.
        value: Of a number or a duration, in seconds; else 0.
    """

    kind: Kind
    text: str
    start: int
    end: int
    value: float = 0.0

    def shown(self) -> str:
        """How an error names it."""
        match self.kind:
            case Kind.END:
                return self.kind.value
            case Kind.STRING:
                return f"string {_short(self.text)!r}"
            case Kind.NUMBER | Kind.DURATION:
                return f"{self.kind.value} `{_short(self.text)}`"
            case _:
                return f"`{_short(self.text)}`"


_LONE = re.compile("[\ud800-\udfff]")
_SPACE = re.compile(r"(?:[ \t\r\n]+|#[^\n]*)+")
_NAME = re.compile(r"[A-Za-z_:][A-Za-z0-9_:]*")
_DURATION = re.compile(r"(?:[0-9]+(?:ms|[smhdwy]))+(?![A-Za-z0-9_.])")
_HEX = re.compile(r"0[xX][0-9a-fA-F_]+")
_DECIMAL = re.compile(r"(?:[0-9][0-9_]*(?:\.[0-9_]*)?|\.[0-9][0-9_]*)(?:[eE][+-]?[0-9][0-9_]*)?")
_TAIL = re.compile(r"[A-Za-z0-9_.]+")
_PARTS = re.compile(r"([0-9]+)(ms|[smhdwy])")
_OPERATORS = ("=~", "!~", "!=", "==", ">=", "<=", "+", "-", "*", "/", "%", "^", ">", "<", "=", "@")
_PUNCTUATION = "(){}[],:"
_UNITS = {"y": 31_536_000.0, "w": 604_800.0, "d": 86_400.0, "h": 3_600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_ORDER = tuple(_UNITS)
_SIMPLE = {
    "a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "\\": "\\", '"': '"', "'": "'",
}  # fmt: skip
_COUNTED = {"x": 2, "u": 4, "U": 8}


def tokens(text: str) -> list[Token]:
    """All tokens of `text`, the last one of kind END.

    Raises:
        PromQLError: A character, number or string that cannot be read, or too long a text.
    """
    if len(text) > MAX_LENGTH:
        raise PromQLError(f"the expression is {len(text):,} characters long", 0, 1, expected=f"at most {MAX_LENGTH:,}")
    if lone := _LONE.search(text):
        raise PromQLError("half a character: this is no valid Unicode", lone.start(), lone.end())
    found: list[Token] = []
    at = 0
    brackets = 0
    while True:
        if space := _SPACE.match(text, at):
            at = space.end()
        if at >= len(text):
            found.append(Token(Kind.END, "", at, at))
            return found
        # A name may begin with a colon, but not where a range is written.
        colon = brackets > 0 and text[at] == ":"
        token = Token(Kind.PUNCTUATION, ":", at, at + 1) if colon else _next(text, at)
        brackets += {"[": 1, "]": -1}.get(token.text, 0) if token.kind is Kind.PUNCTUATION else 0
        found.append(token)
        at = token.end


def _next(text: str, at: int) -> Token:
    char = text[at]
    if char in "\"'`":
        return _string(text, at)
    if char in "0123456789" or (char == "." and text[at + 1 : at + 2].isdecimal()):
        return _number(text, at)
    if name := _NAME.match(text, at):
        return Token(Kind.NAME, name[0], at, name.end())
    for operator in _OPERATORS:
        if text.startswith(operator, at):
            return Token(Kind.OPERATOR, operator, at, at + len(operator))
    if char in _PUNCTUATION:
        return Token(Kind.PUNCTUATION, char, at, at + 1)
    raise PromQLError(f"unexpected character {char!r}", at, at + 1, hint=_look_alike(char))


def _number(text: str, at: int) -> Token:
    if found := _DURATION.match(text, at):
        return Token(Kind.DURATION, found[0], at, found.end(), duration(found[0], at))
    found = _HEX.match(text, at) or _DECIMAL.match(text, at)
    if found is None:
        raise PromQLError(f"bad number {_short(text[at:])!r}", at, at + 1)
    end = found.end()
    if tail := _TAIL.match(text, end):
        word = text[at : tail.end()]
        raise PromQLError(
            f"bad number or duration `{_short(word)}`",
            at,
            tail.end(),
            expected="a number such as 1.5e3, or "
            "a duration such as 1h30m (units y w d h m s ms, largest first, whole numbers)",
        )
    return Token(Kind.NUMBER, found[0], at, end, _value(found[0], at, end))


def _value(word: str, start: int, end: int) -> float:
    plain = word.replace("_", "")
    try:
        if plain[:2] in {"0x", "0X"}:
            return float(int(plain, 16))
        if len(plain) > 1 and plain[0] == "0" and plain.isdecimal():
            # A leading zero means octal where the digits allow it, as in Prometheus.
            return float(int(plain, 8)) if set(plain) <= set("01234567") else float(plain)
        return float(plain)
    except (ValueError, OverflowError):
        raise PromQLError(f"bad number `{_short(word)}`", start, end) from None


def duration(word: str, start: int = 0) -> float:
    """Seconds in a duration such as `1h30m`.

    Raises:
        PromQLError: Units repeated or out of order, or nothing that long exists.
    """
    total = 0.0
    last = -1
    for number, unit in _PARTS.findall(word):
        rank = _ORDER.index(unit)
        if rank <= last:
            raise PromQLError(
                f"bad duration `{_short(word)}`",
                start,
                start + len(word),
                expected="each unit once, largest first (y w d h m s ms)",
            )
        last = rank
        total += float(number[:20]) * _UNITS[unit]
    if total > _LONGEST:
        raise PromQLError(f"duration `{_short(word)}` is out of range", start, start + len(word))
    return round(total, 3)


def _string(text: str, at: int) -> Token:
    quote = text[at]
    if quote == "`":
        end = text.find("`", at + 1)
        if end < 0:
            raise PromQLError("this string has no end", at, min(len(text), at + 40), expected="a closing `")
        return Token(Kind.STRING, text[at + 1 : end], at, end + 1)
    parts: list[str] = []
    raw = bytearray()
    here = at + 1
    while True:
        char = text[here : here + 1]
        if char in {"", "\n"}:
            raise PromQLError("this string has no end", at, min(len(text), at + 40), expected=f"a closing {quote}")
        if raw and not (char == "\\" and text[here + 1 : here + 2] in {"x", *"01234567"}):
            parts.append(raw.decode("utf-8", "surrogateescape"))
            raw.clear()
        if char == quote:
            return Token(Kind.STRING, "".join(parts), at, here + 1)
        if char != "\\":
            parts.append(char)
            here += 1
            continue
        here = _escape(text, here, quote, parts, raw)


def _escape(text: str, here: int, quote: str, parts: list[str], raw: bytearray) -> int:
    """Read the escape at `here` into `parts`, or bytes of UTF-8 into `raw`; the offset after it."""
    letter = text[here + 1 : here + 2]
    if letter in _SIMPLE and not (letter in "\"'" and letter != quote):
        parts.append(_SIMPLE[letter])
        return here + 2
    if letter in _COUNTED:
        digits = text[here + 2 : here + 2 + _COUNTED[letter]]
        if len(digits) == _COUNTED[letter] and set(digits) <= set("0123456789abcdefABCDEF"):
            code = int(digits, 16)
            if letter == "x":
                raw.append(code)
                return here + 4
            if code <= 0x10FFFF and not 0xD800 <= code < 0xE000:
                parts.append(chr(code))
                return here + 2 + len(digits)
    if re.fullmatch(r"[0-3][0-7]{2}", digits := text[here + 1 : here + 4]):
        raw.append(int(digits, 8))
        return here + 4
    raise PromQLError(
        f"unknown escape `{_short(text[here : here + 2])}` in a string",
        here,
        here + 2,
        hint="write `\\\\` for one backslash, or put the string in backticks",
    )


def _short(text: str) -> str:
    return text if len(text) <= 40 else text[:37] + "..."


def _look_alike(char: str) -> str | None:
    if char in "“”„«»‘’":
        return "plain quotes, \" or '"
    if char in "–—−":
        return "a plain minus, -"
    if char == "&":
        return "`and`"
    if char == "|":
        return "`or`"
    if char == "!":
        return "`!=` or `!~`, or `unless`"
    if char == ";":
        return "no semicolon; an expression has no end mark"
    return None


_LONGEST = 292 * 31_536_000.0
