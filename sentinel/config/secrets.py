"""Values from elsewhere: `${NAME}` from the environment anywhere, `file:PATH` where a secret is expected."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping

from sentinel.documents import Node

_VARIABLE = re.compile(r"\$(\$|\{([^}]*)\})")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
LARGEST_SECRET = 64 * 1024


class Interpolation:
    """Fills in `${NAME}`; `$$` stands for one `$`.

    Attributes:
        used: The names of variables used, by the path of the value.
        unfilled: Where the values stand that could not be filled in (line, column).
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self.used: dict[str, list[str]] = {}
        self.unfilled: set[tuple[int, int]] = set()

    def __call__(self, node: Node) -> str | None:
        """The new text of a scalar; None where nothing is to be filled in. Mistakes are reported on the node."""
        if "$" not in node.value or not _VARIABLE.search(node.value):
            return None

        def fill(found: re.Match[str]) -> str:
            if found[1] == "$":
                return "$"
            name = found[2]
            if not _NAME.fullmatch(name):
                node.report(f"`{found[0]}` names no environment variable", start=found.start(), end=found.end())
                self.unfilled.add((node.line, node.column))
                return found[0]
            if name not in self._environ:
                node.report(
                    f"the environment variable `{name}` is not set",
                    f"export {name}=… before the daemon starts, or write $$ for a dollar sign",
                    start=found.start(),
                    end=found.end(),
                )
                self.unfilled.add((node.line, node.column))
                return ""
            self.used.setdefault(node.name, []).append(name)
            return self._environ[name]

        return _VARIABLE.sub(fill, node.value)


def secret(node: Node, *, trusted_only: bool) -> str | None:
    """A text that may stand in a file of its own: `file:/etc/sentinel/token` gives that file's first line.

    Args:
        node: The value.
        trusted_only: Whether the file must be root's, and nobody else's to write.
    """
    text = node.text()
    if text is None or not text.startswith("file:") or text.startswith("file://"):
        return text
    path = text.removeprefix("file:")
    if not os.path.isabs(path):
        node.report(f"`{path}` must be an absolute path", "file:/etc/sentinel/token")
        return None
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as fault:
        node.report(f"{path} cannot be read: {fault.strerror}")
        return None
    with os.fdopen(descriptor, "rb") as file:
        if trusted_only and (reason := distrust(os.fstat(file.fileno()))):
            node.report(f"{path}: {reason}", f"chown root {path}; chmod 600 {path}")
            return None
        content = file.read(LARGEST_SECRET).decode("utf-8", "replace")
    found = content.strip().split("\n", 1)[0].strip()
    if not found:
        node.report(f"{path} is empty")
        return None
    return found


def distrust(found: os.stat_result) -> str | None:
    """Why a root daemon must not believe a file; None where it may."""
    if not stat.S_ISREG(found.st_mode):
        return "is not a regular file"
    if found.st_uid != 0:
        return "a root daemon believes only files of root, and this one is not"
    if found.st_mode & 0o022:
        return "a root daemon believes only files that nobody else can write to"
    return None
