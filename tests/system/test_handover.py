"""Descriptors through a socket."""

from __future__ import annotations

import os
import socket

import pytest

from sentinel.system import handover


def test_a_descriptor_arrives_and_is_closed_on_exec() -> None:
    ours, theirs = socket.socketpair()
    reading, writing = os.pipe()
    with ours, theirs:
        handover.send(ours, {"job": "j1"}, [writing])
        os.close(writing)
        message, (got,) = handover.receive(theirs)
        assert message == {"job": "j1"}
        assert not os.get_inheritable(got)
        os.write(got, b"through")
        assert os.read(reading, 10) == b"through"
        os.close(got)
        os.close(reading)


def test_the_end_and_nonsense_are_told_apart() -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        ours.sendall(b"[1]\n")
        with pytest.raises(ValueError, match="not a message"):
            handover.receive(theirs)
        ours.close()
        with pytest.raises(EOFError):
            handover.receive(theirs)


def test_the_kernel_names_the_peer() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert handover.peer_of(ours) == (os.getuid(), os.getgid())
