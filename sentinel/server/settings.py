"""How the API is offered beside its Unix socket."""

from __future__ import annotations

from dataclasses import dataclass

from sentinel.errors import UsageError


@dataclass(frozen=True, slots=True)
class Settings:
    """`api:` of the configuration.

    Attributes:
        listen: `HOST:PORT` for reading over TCP; empty: the Unix socket only.
        token: What a client over TCP must show. Never empty where `listen` is set.
        query_timeout_s: How long one query may take.
        most_clients: Connections at once, all together.
    """

    listen: str = ""
    token: str = ""
    query_timeout_s: float = 30.0
    most_clients: int = 256


def address(text: str) -> tuple[str, int]:
    """Host and port of `HOST:PORT`, `[::1]:PORT` or `:PORT` (all addresses).

    Raises:
        UsageError: It is none of these.
    """
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdigit() or not 0 <= int(port) < 65536:
        raise UsageError(f"{text!r} is not an address to listen at", hint="127.0.0.1:9464")
    return host.strip("[]") or "0.0.0.0", int(port)
