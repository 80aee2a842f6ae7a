"""Who asks, and what they may see and do."""

from __future__ import annotations

import base64
import contextlib
import grp
import hmac
import ipaddress
import os
import pwd
import socket
import struct
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sentinel.errors import SentinelError
from sentinel.model.alerts import Alert
from sentinel.model.events import Event
from sentinel.model.jobs import Job
from sentinel.model.labels import Labels
from sentinel.promql.series import Block, Matcher, SeriesReader
from sentinel.server.core import Core

NOBODY = 65534
"""What the kernel says of a uid that it cannot translate into our user namespace."""
GROUP = "sentinel"
_SO_PEERGROUPS = 59
_MOST_GROUPS = 256  # CPython lends getsockopt 1,024 bytes at most

READING_POSTS = frozenset(f"/api/v1/{name}" for name in ("query", "query_range", "series", "labels", "format_query"))
"""Paths where Prometheus's clients read by POST."""


class Refused(SentinelError):
    """The request is refused before anybody looks at it.

    Attributes:
        status: 401 or 403.
    """

    def __init__(self, message: str, *, status: int = 403, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.status = status


@dataclass(frozen=True, slots=True)
class Peer:
    """The process at the other end of a Unix socket, as the kernel vouches for it. Its pid is never used."""

    uid: int
    gid: int
    groups: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Viewer:
    """What one peer may see and do.

    Attributes:
        uid: Its user id; None over TCP.
        name: Its user name.
        everything: Whether it sees the jobs of all users.
        controls: Whether it may do more than read.
    """

    uid: int | None
    name: str
    everything: bool
    controls: bool = True

    @property
    def by(self) -> str:
        """How the journal names it."""
        return f"user:{self.name}"

    def sees(self, job: Job) -> bool:
        """Whether a job is its own, or it sees all."""
        return self.everything or job.uid == self.uid

    def sees_event(self, event: Event) -> bool:
        """What belongs to nobody is the host's, which everybody may see."""
        return self.everything or event.uid is None or event.uid == self.uid

    def sees_alert(self, alert: Alert, core: Core) -> bool:
        """An alert about a job is visible with the job; one about none is the host's."""
        return self.everything or alert.job is None or alert.job in self._names(core)

    def reader(self, core: Core) -> SeriesReader:
        """The series it may see. To be called on the event loop; the answer may be used in a thread."""
        return core.reader() if self.everything else VisibleReader(core.reader(), self._names(core))

    def _names(self, core: Core) -> frozenset[str]:
        """Names that only jobs of its own have had.

        What is known by a job's name alone, series and alerts, of a name that
        jobs of several users had cannot be told apart, and is shown to neither.
        """
        owners: dict[str, set[int]] = {}
        for job in core.jobs(ended=True):
            owners.setdefault(job.name, set()).add(job.uid)
        return frozenset(name for name, uids in owners.items() if uids == {self.uid})


def known(reader: SeriesReader, matchers: tuple[Matcher, ...], start: float, end: float) -> set[Labels]:
    """The label sets with a sample in that time; quick where the reader keeps a list, else by reading them all."""
    listed: Callable[..., set[Labels]] | None = getattr(reader, "known", None)
    if listed is not None:
        return listed(matchers, start, end)
    found: set[Labels] = set()
    for block in reader.select(matchers, start, end):
        inside = (block.times >= start) & (block.times <= end)
        found.update(labels for labels, row in zip(block.labels, block.present, strict=True) if row[inside].any())
    return found


class VisibleReader:
    """Series about no job at all, or about one of `jobs`."""

    def __init__(self, inner: SeriesReader, jobs: Collection[str]) -> None:
        self._inner = inner
        self._jobs = jobs

    def known(self, matchers: tuple[Matcher, ...], start: float, end: float) -> set[Labels]:
        """The label sets, less what must not be seen."""
        found = known(self._inner, matchers, start, end)
        return {labels for labels in found if (job := labels.get("job")) is None or job in self._jobs}

    def select(self, matchers: tuple[Matcher, ...], start: float, end: float) -> Sequence[Block]:
        """As the inner reader, less what must not be seen."""
        kept: list[Block] = []
        for block in self._inner.select(matchers, start, end):
            rows = [
                index
                for index, labels in enumerate(block.labels)
                if (job := labels.get("job")) is None or job in self._jobs
            ]
            if len(rows) == len(block.labels):
                kept.append(block)
            elif rows:
                kept.append(
                    Block(
                        tuple(block.labels[index] for index in rows),
                        block.times,
                        block.values[rows],
                        block.present[rows],
                        block.stale[rows],
                        block.lookback_s,
                    )
                )
        return kept


class Access:
    """Turns a connection into a viewer, or refuses it.

    Args:
        system: Whether the daemon serves several users.
        token: What a client over TCP must show; empty refuses them all.
        uid: The daemon's own.
    """

    def __init__(self, *, system: bool, token: str = "", uid: int | None = None) -> None:
        self._system = system
        self._token = token
        self._uid = os.getuid() if uid is None else uid
        self._hosts = {"localhost", socket.gethostname().lower(), socket.getfqdn().lower() if token else ""}

    def admit(self, scope: Mapping[str, Any]) -> Viewer:
        """The viewer behind an ASGI scope.

        Raises:
            Refused: It may do nothing here.
        """
        peer = scope["state"].get("peer")
        return self._remote(scope) if peer is None else self.of_peer(peer)

    def of_peer(self, peer: Peer) -> Viewer:
        """What a local peer may see."""
        if peer.uid == NOBODY:
            raise Refused("a user that this machine cannot name may do nothing here")
        name = user_name(peer.uid)
        if peer.uid in {0, self._uid}:
            return Viewer(peer.uid, name, everything=True)
        if not self._system:
            raise Refused(f"this daemon belongs to {user_name(self._uid)}, not to {name}")
        return Viewer(peer.uid, name, everything=_group_id() in peer.groups | {peer.gid})

    def _remote(self, scope: Mapping[str, Any]) -> Viewer:
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        if not self._known_host(headers.get(b"host", "")):
            raise Refused("the Host header names neither this machine nor an address", hint="use the IP address")
        right = hmac.compare_digest(_token_of(headers.get(b"authorization", "")).encode(), self._token.encode())
        if not self._token or not right:
            raise Refused("a token is needed here", status=401, hint="Authorization: Bearer TOKEN (api.token)")
        if scope["method"] not in {"GET", "HEAD"} and scope["path"] not in READING_POSTS:
            raise Refused("over TCP the API only reads", hint="use the Unix socket")
        return Viewer(None, "tcp", everything=True, controls=False)

    def _known_host(self, header: str) -> bool:
        """Whether a browser cannot have been led here by a name of somebody else's (DNS rebinding)."""
        host = header.lower()
        if host.startswith("["):
            host = host[1:].partition("]")[0]
        elif host.count(":") == 1:
            host = host.partition(":")[0]
        if host in self._hosts and host:
            return True
        try:
            ipaddress.ip_address(host)
        except ValueError:
            return False
        return True


def _token_of(header: str) -> str:
    """The token in an Authorization header: of `Bearer`, or the password of `Basic`, as older clients need it."""
    scheme, _, shown = header.partition(" ")
    if scheme.lower() == "bearer":
        return shown.strip()
    if scheme.lower() == "basic":
        with contextlib.suppress(ValueError):
            return base64.b64decode(shown.strip(), validate=True).decode("utf-8", "replace").partition(":")[2]
    return ""


def peer_of(connection: Any) -> Peer:
    """Who is at the other end of a connected Unix socket.

    Args:
        connection: Anything with `getsockopt`.
    """
    _, uid, gid = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    groups: frozenset[int]
    try:
        raw = connection.getsockopt(socket.SOL_SOCKET, _SO_PEERGROUPS, 4 * _MOST_GROUPS)
        groups = frozenset(struct.unpack(f"{len(raw) // 4}I", raw))
    except OSError:  # more groups than fit, or a kernel before 4.13
        with contextlib.suppress(KeyError):
            return Peer(uid, gid, frozenset(os.getgrouplist(pwd.getpwuid(uid).pw_name, gid)))
        groups = frozenset()
    return Peer(uid, gid, groups)


def user_name(uid: int) -> str:
    """The name of a user, or the number where there is no name."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _group_id() -> int | None:
    try:
        return grp.getgrnam(GROUP).gr_gid
    except KeyError:
        return None
