"""Descriptors handed from one process to another over a Unix socket (SCM_RIGHTS)."""

from __future__ import annotations

import array
import json
import os
import socket
import struct
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

_LARGEST = 64 * 1024
_MOST = 8


class Peer(NamedTuple):
    """Who is on the other side, as the kernel says. The pid is worth nothing: do not use it."""

    uid: int
    gid: int


def send(connection: socket.socket, message: Mapping[str, Any], descriptors: Sequence[int] = ()) -> None:
    """One message: a line of JSON, with up to eight descriptors, in one piece."""
    data = json.dumps(message, separators=(",", ":")).encode() + b"\n"
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))] if descriptors else []
    sent = connection.sendmsg([data], rights)
    if sent < len(data):
        connection.sendall(data[sent:])


def receive(connection: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """The next message and its descriptors, closed on exec. EOFError at the end.

    Raises:
        EOFError: The other side has gone.
        ValueError: What came is no message of ours; descriptors are closed.
    """
    descriptors: list[int] = []
    data = b""
    try:
        while not data.endswith(b"\n"):
            part, ancillary, _, _ = connection.recvmsg(_LARGEST, socket.CMSG_SPACE(_MOST * 4), socket.MSG_CMSG_CLOEXEC)
            for level, kind, content in ancillary:
                if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                    numbers = array.array("i")
                    numbers.frombytes(content[: len(content) - len(content) % numbers.itemsize])
                    descriptors += numbers
            if not part:
                raise EOFError
            data += part
            if len(data) > _LARGEST:
                raise ValueError("a message longer than any of ours")
        message = json.loads(data)
        if not isinstance(message, dict):
            raise ValueError("not a message of ours")  # noqa: TRY004 - the caller cares that it is no message, not why
    except BaseException:
        for number in descriptors:
            os.close(number)
        raise
    return message, descriptors


def peer_of(connection: socket.socket) -> Peer:
    """The user on the other side."""
    _, uid, gid = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return Peer(uid, gid)
