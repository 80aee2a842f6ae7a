"""Where each character of a scalar's value stands in the file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sentinel.documents.source import Source

Unit = tuple[str, int, int]
"""A character of the value as the file spells it, and its line and column from 1."""

_ESCAPES = {"0": "\0", "a": "\a", "b": "\b", "t": "\t", "\t": "\t", "n": "\n", "v": "\v", "f": "\f", "r": "\r"}
_ESCAPES |= {"e": "\x1b", "N": "\x85", "_": "\xa0", "L": "\u2028", "P": "\u2029"}
_WIDTHS = {"x": 2, "u": 4, "U": 8}


def align(
    value: str, style: str, source: Source, start: tuple[int, int], end: tuple[int, int]
) -> list[tuple[int, int]]:
    """The line and column of each character of `value`, and of the place after its last.

    Escapes are undone, indentation and folded line breaks are stepped over: the
    file's characters are walked beside the value's, and white space that the
    value does not have is skipped.

    Args:
        value: As YAML read it.
        style: `|`, `>`, `'`, `"` or "" for plain.
        source: The lines of the file.
        start: Line and column of its first character, indicator included.
        end: Line and column after its last.
    """
    units = _block(value, source.lines, start, end) if style in ("|", ">") else _flow(source.lines, style, start, end)
    places: list[tuple[int, int]] = []
    last = start
    unit = next(units, None)
    for char in value:
        while unit is not None and not _same(char, unit[0]) and unit[0] in " \t\n":
            unit = next(units, None)
        if unit is not None:
            last = unit[1], unit[2]
            unit = next(units, None)
        places.append(last)
    places.append((unit[1], unit[2]) if unit is not None else (last[0], last[1] + 1) if value else start)
    return places


def _same(char: str, written: str) -> bool:
    return char == written or (written == "\n" and char in " \n\x85\u2028\u2029")


def _block(value: str, lines: Sequence[str], start: tuple[int, int], end: tuple[int, int]) -> Iterator[Unit]:
    """What stands below the header of a literal or folded scalar, without its indentation."""
    header = lines[start[0] - 1][start[1] : start[1] + 2]
    below = range(start[0], min(end[0], len(lines)))
    depths = _depths([lines[index] for index in below])
    indent = depths[0] if depths else 0
    if any(char.isdigit() for char in header):
        # An explicit indicator counts from the parent, which is not known here; what the value kept tells.
        indent = max(0, min(depths, default=0) - min(_depths(value.split("\n")), default=0))
    for index in below:
        for column, char in enumerate(lines[index][indent:], indent + 1):
            yield char, index + 1, column
        yield "\n", index + 1, len(lines[index]) + 1


def _depths(lines: Sequence[str]) -> list[int]:
    return [len(text) - len(text.lstrip(" ")) for text in lines if text.strip(" ")]


def _flow(lines: Sequence[str], style: str, start: tuple[int, int], end: tuple[int, int]) -> Iterator[Unit]:
    """What stands between the quotes, or from the first to the last character of a plain scalar."""
    skip = 1 if style else 0
    for row in range(start[0], end[0] + 1):
        text = lines[row - 1] if row <= len(lines) else ""
        index = start[1] - 1 + skip if row == start[0] else 0
        stop = end[1] - 1 - skip if row == end[0] else len(text)
        joined = False
        while index < stop:
            char, width = text[index], 1
            if style == "'" and char == "'":
                width = 2
            elif style == '"' and char == "\\":
                if index + 1 >= len(text):
                    joined = True  # an escaped line break leaves nothing behind
                    break
                char, width = _escape(text, index)
            yield char, row, index + 1
            index += width
        if row < end[0] and not joined:
            yield "\n", row, len(text) + 1


def _escape(text: str, index: int) -> tuple[str, int]:
    code = text[index + 1]
    if digits := _WIDTHS.get(code):
        try:
            return chr(int(text[index + 2 : index + 2 + digits], 16)), digits + 2
        except (ValueError, OverflowError):
            return code, 2
    return _ESCAPES.get(code, code), 2
