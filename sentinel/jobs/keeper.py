"""A small process that drains an orphaned pty into the job's log until the job closes it.

`python -m sentinel.jobs.keeper DESCRIPTOR LIMIT LOG`
"""

from __future__ import annotations

import os
import sys

from sentinel.jobs.logfile import LogFile

_CHUNK = 64 * 1024


def main(arguments: list[str]) -> int:
    """Read until the terminal is hung up."""
    master, limit, path = int(arguments[0]), int(arguments[1]), arguments[2]
    os.set_blocking(master, True)
    with LogFile(path, limit) as log:
        while True:
            try:
                data = os.read(master, _CHUNK)
            except OSError:  # EIO: nobody has the other side open any more
                return 0
            if not data:
                return 0
            log.write(data)
            log.cap()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
