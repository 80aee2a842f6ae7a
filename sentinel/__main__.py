"""`python -m sentinel` and the command `sentinel`."""

from __future__ import annotations

import sys

from sentinel.cli.main import main

__all__ = ["main"]

if __name__ == "__main__":
    sys.exit(main())
