"""Talking to systemd: readiness, status, watchdog. Source: sd_notify(3)."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping


class ServiceManager:
    """Tells the service manager how we are, where there is one; silent elsewhere.

    Args:
        environ: Where `NOTIFY_SOCKET` and `WATCHDOG_USEC` are looked up. They are taken
            out of `environ`, so that no child believes they are meant for it.
    """

    def __init__(self, environ: dict[str, str] | os._Environ[str] = os.environ) -> None:
        self._address = environ.pop("NOTIFY_SOCKET", "")
        self.watchdog_s = _watchdog(environ)
        for name in ("WATCHDOG_USEC", "WATCHDOG_PID"):
            environ.pop(name, None)
        self._socket: socket.socket | None = None

    @property
    def present(self) -> bool:
        """Whether a service manager listens."""
        return bool(self._address)

    def tell(self, *lines: str) -> None:
        """Send assignments such as `READY=1` or `STATUS=5 jobs`. A deaf manager is no fault of ours."""
        if not self._address:
            return
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        try:
            if self._socket is None:
                self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
            self._socket.sendto("\n".join(lines).encode(), address)
        except OSError:
            return


def _watchdog(environ: Mapping[str, str]) -> float | None:
    """How often the watchdog must be fed (seconds), or None where there is none for this process."""
    text, pid = environ.get("WATCHDOG_USEC", ""), environ.get("WATCHDOG_PID", "")
    if not text.isdigit() or (pid and pid != str(os.getpid())):
        return None
    return int(text) / 1e6
