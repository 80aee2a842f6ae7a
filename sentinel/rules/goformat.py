"""Numbers and verbs as Go's fmt writes them, because templates promise it."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from decimal import Decimal

_VERB = re.compile(r"%([-+# 0]*)(\*|\d+)?(?:\.(\*|\d*))?(.)?", re.DOTALL)


def plain(value: object) -> str:
    """`value` as `{{ . }}` prints it."""
    match value:
        case None:
            return "<no value>"
        case bool():
            return "true" if value else "false"
        case float():
            return shortest(value)
        case list() | tuple():
            return "[" + " ".join(plain(item) for item in value) + "]"
        case dict():
            return "map[" + " ".join(f"{key}:{plain(value[key])}" for key in sorted(value)) + "]"
        case _:
            return str(value)


def shortest(value: float) -> str:
    """The fewest digits that read back the same; with an exponent from 1e+06 on and below 1e-04."""
    return _special(value) or _from_digits(*_digits(value), threshold=6)


def general(value: float, precision: int | None) -> str:
    """Go's %g: `precision` significant digits without trailing zeros; None: as many as needed."""
    if special := _special(value):
        return special
    if precision is None:
        return shortest(value)
    precision = max(precision, 1)
    text = f"{value:.{precision - 1}e}"
    mantissa, exponent = text.split("e")
    sign = "-" if mantissa.startswith("-") else ""
    digits = mantissa.lstrip("-").replace(".", "").rstrip("0") or "0"
    return _from_digits(sign, digits, int(exponent), threshold=precision)


def sprintf(pattern: str, values: list[object]) -> str:
    """`pattern` filled as Go's fmt.Sprintf does, its complaints included."""
    rest = list(values)
    out: list[str] = []
    end = 0
    for found in _VERB.finditer(pattern):
        out.append(pattern[end : found.start()])
        end = found.end()
        out.append(_one(found, rest))
    out.append(pattern[end:])
    if rest:
        out.append("%!(EXTRA " + ", ".join(f"{_go_type(value)}={plain(value)}" for value in rest) + ")")
    return "".join(out)


def _one(found: re.Match[str], rest: list[object]) -> str:
    flags, width_text, precision_text, verb = found.groups()
    if verb is None:
        return "%!(NOVERB)"
    if verb == "%":
        return "%"
    if width_text == "*":
        width_text = str(rest.pop(0)) if rest else "0"
    if precision_text == "*":
        precision_text = str(rest.pop(0)) if rest else "0"
    if not rest:
        return f"%!{verb}(MISSING)"
    value = rest.pop(0)
    precision = None if precision_text is None else int(precision_text or 0)
    text = _verb(verb, value, precision, flags)
    if text is None:
        return f"%!{verb}({_go_type(value)}={plain(value)})"
    if "+" in flags and isinstance(value, int | float) and not text.startswith("-"):
        text = "+" + text
    width = int(width_text or 0)
    if "-" in flags:
        return text.ljust(width)
    if "0" in flags and isinstance(value, int | float):
        return text.zfill(width)
    return text.rjust(width)


def _verb(verb: str, value: object, precision: int | None, flags: str) -> str | None:
    if verb == "v":
        return general(value, precision) if isinstance(value, float) and precision is not None else plain(value)
    if verb == "T":
        return _go_type(value)
    if verb == "t":
        return plain(value) if isinstance(value, bool) else None
    if isinstance(value, bool):
        return None
    if verb in "sq":
        if not isinstance(value, str):
            return None
        text = value if precision is None else value[:precision]
        return quoted(text) if verb == "q" else text
    if isinstance(value, float):
        return _float_verb(verb, value, precision)
    if isinstance(value, int):
        return _integer_verb(verb, value, flags)
    if isinstance(value, str) and verb in "xX":
        text = value.encode().hex()
        return text.upper() if verb == "X" else text
    return None


def _float_verb(verb: str, value: float, precision: int | None) -> str | None:
    if verb not in "eEfFgG":
        return None
    if special := _special(value):
        return special
    match verb.lower():
        case "f":
            return f"{value:.{6 if precision is None else precision}f}"
        case "e":
            text = f"{value:.{6 if precision is None else precision}e}"
        case _:
            text = general(value, precision)
    return text.upper() if verb.isupper() else text


def _integer_verb(verb: str, value: int, flags: str) -> str | None:
    prefix = "#" if "#" in flags else ""
    made: dict[str, Callable[[], str]] = {
        "d": lambda: str(value),
        "b": lambda: f"{value:{prefix}b}",
        "o": lambda: f"{value:o}",
        "x": lambda: f"{value:{prefix}x}",
        "X": lambda: f"{value:{prefix}X}",
        "c": lambda: chr(value),
    }
    return made[verb]() if verb in made else None


def quoted(text: str) -> str:
    """Go's %q for text."""
    import json

    return json.dumps(text, ensure_ascii=False)


def _special(value: float) -> str | None:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return None


def _digits(value: float) -> tuple[str, str, int]:
    """Sign, significant digits and decimal exponent of the shortest form."""
    sign, digits, exponent = Decimal(repr(value)).as_tuple()
    text = "".join(str(digit) for digit in digits)
    scale = len(text) - 1 + int(exponent)
    kept = text.lstrip("0")
    if not kept:
        return "-" if sign else "", "0", 0
    scale -= len(text) - len(kept)
    return "-" if sign else "", kept.rstrip("0"), scale


def _from_digits(sign: str, digits: str, exponent: int, *, threshold: int) -> str:
    if exponent < -4 or exponent >= threshold:
        tail = "." + digits[1:] if len(digits) > 1 else ""
        return f"{sign}{digits[0]}{tail}e{'-' if exponent < 0 else '+'}{abs(exponent):02d}"
    if exponent < 0:
        return f"{sign}0.{'0' * (-exponent - 1)}{digits}"
    whole = digits[: exponent + 1].ljust(exponent + 1, "0")
    tail = digits[exponent + 1 :]
    return f"{sign}{whole}.{tail}" if tail else f"{sign}{whole}"


def _go_type(value: object) -> str:
    match value:
        case bool():
            return "bool"
        case float():
            return "float64"
        case int():
            return "int"
        case str():
            return "string"
        case None:
            return "<nil>"
        case _:
            return "map[string]string" if isinstance(value, dict) else "[]interface {}"
