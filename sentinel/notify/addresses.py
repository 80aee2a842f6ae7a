"""Addresses: URLs with secrets in them. They are named by a hash and shown with the secret part masked."""

from __future__ import annotations

import hashlib
import re
from urllib.parse import urlsplit

_WITH_HOST = re.compile(
    r"(mailtos?|jsons?|xmls?|forms?|https?|gotifys?|ntfys?|matrixs?|mqtts?|mmosts?|rockets?|xmpps?|syslog|rsyslog)"
)
"""Schemes whose host is a host. Elsewhere (slack, discord, tgram, …) it is half of the secret."""


def key(url: str) -> str:
    """A name for an address that says nothing about it: 12 hex digits."""
    return hashlib.sha256(url.encode()).hexdigest()[:12]


def masked(url: str) -> str:
    """The address for people: scheme, and host where that is no secret.

    `mailto://***@smtp.example.com:25`, `slack://***`.
    """
    scheme, colon, _ = url.partition("://")
    if not colon or not re.fullmatch(r"[A-Za-z][A-Za-z0-9+.-]{0,30}", scheme):
        return "***"
    if not _WITH_HOST.fullmatch(scheme.lower()):
        return f"{scheme}://***"
    try:
        parts = urlsplit(f"x://{url.partition('://')[2]}")
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return f"{scheme}://***"
    secret = "***@" if parts.username or parts.password else ""
    more = "/***" if parts.path.strip("/") or parts.query else ""
    return f"{scheme}://{secret}{host}{f':{port}' if port else ''}{more}"
