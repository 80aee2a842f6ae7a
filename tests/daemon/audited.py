"""A daemon whose every open, connection and command, as Python sees them, is written down.

`python audited.py FILE daemon …` runs `sentinel daemon …` and appends one JSON line per audit event to FILE.
"""

from __future__ import annotations

import json
import os
import sys

_HEARD = ("open", "os.", "glob.", "shutil.", "subprocess.", "socket.connect", "socket.sendto", "tempfile.", "sqlite3.")


def main() -> int:
    """Install the hook, then be sentinel."""
    log = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def hear(event: str, arguments: tuple[object, ...]) -> None:
        if event.startswith(_HEARD):
            os.write(log, json.dumps([event, repr(arguments)[:2000]]).encode() + b"\n")

    sys.addaudithook(hear)
    from sentinel.cli.main import main as sentinel

    return sentinel(sys.argv[2:])


if __name__ == "__main__":
    sys.exit(main())
