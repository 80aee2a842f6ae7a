"""How the API is offered beside its Unix socket."""

from __future__ import annotations

from dataclasses import dataclass


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
