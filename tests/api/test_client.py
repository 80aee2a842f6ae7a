"""The small HTTP client, against a server that says exactly what a test wants."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sentinel.api.client import ApiError, Client, Unreachable, path_with, quote
from sentinel.api.numbers import sample

Serve = Callable[[list[bytes]], "Scripted"]


class Scripted:
    """Answers each connection with a fixed text, and remembers what it was sent."""

    def __init__(self, path: Path, answers: list[bytes]) -> None:
        self.path = path
        self.heard: list[bytes] = []
        self._answers = answers
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(str(path))
        self._socket.listen(8)
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        for said in self._answers:
            connection, _ = self._socket.accept()
            with connection:
                self.heard.append(connection.recv(65536))
                connection.sendall(said)

    def close(self) -> None:
        self._thread.join(10)
        self._socket.close()


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    made: list[Scripted] = []

    def start(answers: list[bytes]) -> Scripted:
        made.append(Scripted(tmp_path / f"{len(made)}.sock", answers))
        return made[-1]

    yield start
    for each in made:
        each.close()


def response(body: bytes, *, status: str = "200 OK", kind: str = "application/json", more: str = "") -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n{more}\r\n"
    return head.encode() + body


def chunked(*chunks: bytes, kind: str = "application/json") -> bytes:
    head = f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nTransfer-Encoding: chunked\r\n\r\n"
    return head.encode() + b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in [*chunks, b""])


def test_json_comes_back_as_data(serve: Serve) -> None:
    server = serve([response(b'{"a": [1, null]}')])

    with Client(server.path) as client:
        assert client.get("/v1/x") == {"a": [1, None]}
    assert server.heard[0].startswith(b"GET /v1/x HTTP/1.1\r\nHost: sentinel\r\n")


def test_text_comes_back_as_text(serve: Serve) -> None:
    server = serve([response("ä 1\n".encode(), kind="text/plain")])

    with Client(server.path) as client:
        assert client.get("/metrics") == "ä 1\n"


def test_a_body_is_sent_as_json(serve: Serve) -> None:
    server = serve([response(b"{}")])

    with Client(server.path) as client:
        client.post("/v1/x", {"a": "ü"})

    head, _, body = server.heard[0].partition(b"\r\n\r\n")
    assert json.loads(body) == {"a": "ü"}
    assert f"Content-Length: {len(body)}".encode() in head


def test_an_answer_in_chunks_is_put_together(serve: Serve) -> None:
    server = serve([chunked(b'{"a":', b" 1", b"}")])

    with Client(server.path) as client:
        assert client.get("/") == {"a": 1}


def test_a_stream_yields_objects_whatever_the_pieces_and_skips_heartbeats(serve: Serve) -> None:
    server = serve([chunked(b'{"a"', b": 1}\n\n{", b'"a": 2}\n', b"\n")])

    with Client(server.path) as client, client.stream("/") as stream:
        assert [line["a"] for line in stream] == [1, 2]


def test_a_refusal_carries_the_servers_words_and_hint(serve: Serve) -> None:
    body = b'{"error": {"message": "no job \'x\'", "hint": "`y`", "kind": "not_found"}}'
    server = serve([response(body, status="404 Not Found")])

    with Client(server.path) as client, pytest.raises(ApiError) as refused:
        client.get("/v1/jobs/x")

    error = refused.value
    assert (error.status, error.kind, error.exit_code) == (404, "not_found", 1)
    assert str(error) == "no job 'x'\n  try: `y`"


def test_a_refusal_in_prometheus_words(serve: Serve) -> None:
    server = serve([response(b'{"status":"error","errorType":"bad_data","error":"oh"}', status="400 Bad Request")])

    with Client(server.path) as client, pytest.raises(ApiError) as refused:
        client.get("/api/v1/query")

    assert (refused.value.message, refused.value.kind, refused.value.exit_code) == ("oh", "bad_data", 2)


@pytest.mark.parametrize("body", [b"", b"oops", b"{", b"[]"])
def test_a_refusal_without_reason_is_still_said(serve: Serve, body: bytes) -> None:
    server = serve([response(body, status="500 Internal Server Error")])

    with Client(server.path) as client, pytest.raises(ApiError, match="answered 500"):
        client.get("/")


def test_a_kept_connection_that_the_server_closed_is_replaced(serve: Serve) -> None:
    server = serve([response(b"1"), response(b"2")])

    with Client(server.path) as client:
        assert [client.get("/"), client.get("/")] == [1, 2]


def test_a_request_is_never_sent_twice(serve: Serve) -> None:
    server = serve([b"", response(b"2")])

    with Client(server.path) as client:
        with pytest.raises(Unreachable, match="before it had answered"):
            client.post("/v1/jobs/x/requests", {})
        assert client.post("/again") == 2
    assert [words.split()[1] for words in server.heard] == [b"/v1/jobs/x/requests", b"/again"]


def test_on_a_kept_connection_that_breaks_only_reading_is_tried_again(tmp_path: Path) -> None:
    path = tmp_path / "s.sock"
    heard: list[bytes] = []

    def answer_once_then_break() -> None:
        for _ in range(3):
            connection, _ = listening.accept()
            with connection:
                heard.append(connection.recv(65536))
                connection.sendall(response(b"1"))
                heard.append(connection.recv(65536))

    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen(1)
        server = threading.Thread(target=answer_once_then_break)
        server.start()
        with Client(path) as client:
            assert client.get("/a") == client.get("/b") == 1
            with pytest.raises(Unreachable):
                client.post("/c")
            assert client.get("/d") == 1
        server.join(10)
    assert [words.split()[1] for words in heard if words] == [b"/a", b"/b", b"/b", b"/c", b"/d"]


@pytest.mark.parametrize(
    "said",
    [
        b"SSH-2.0-OpenSSH\r\n\r\n",
        b"HTTP/1.1 abc\r\n\r\n",
        b"x" * 100_000,
        b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        response(b"{"),
    ],
)
def test_something_that_is_no_http_is_said(serve: Serve, said: bytes) -> None:
    server = serve([said])

    with Client(server.path) as client, pytest.raises(Unreachable, match="does not speak HTTP"):
        client.get("/")


def test_a_stream_of_something_else_is_said(serve: Serve) -> None:
    server = serve([chunked(b"{}\nnonsense\n")])

    with Client(server.path) as client, client.stream("/") as stream:
        assert next(stream) == {}
        with pytest.raises(Unreachable, match="does not speak HTTP"):
            next(stream)


def test_a_daemon_that_does_not_answer_in_time_is_given_up(tmp_path: Path) -> None:
    path = tmp_path / "s.sock"
    with socket.socket(socket.AF_UNIX) as deaf:
        deaf.bind(str(path))
        deaf.listen(1)
        with Client(path, timeout_s=0.1) as client, pytest.raises(Unreachable, match="does not answer in time"):
            client.get("/")
        with Client(path, timeout_s=0.1) as client, pytest.raises(Unreachable, match="does not answer in time"):
            client.stream("/")


def test_nobody_there_is_said_with_the_path_and_a_hint(tmp_path: Path) -> None:
    path = tmp_path / "s.sock"

    with Client(path) as client, pytest.raises(Unreachable) as refused:
        client.get("/")

    assert refused.value.message == f"cannot reach the daemon at {path}: no such file"
    assert "sentinel daemon" in (refused.value.hint or "")


def test_a_dead_socket_is_said(tmp_path: Path) -> None:
    path = tmp_path / "s.sock"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))

    with Client(path) as client, pytest.raises(Unreachable, match="nobody listens there"):
        client.get("/")


def test_queries_are_quoted() -> None:
    assert path_with("/v1/events", job="a b/ü", kind=None, since=1.5) == "/v1/events?job=a%20b%2F%C3%BC&since=1.5"
    assert path_with("/x", **{"match[]": ["a", "b"]}) == "/x?match%5B%5D=a&match%5B%5D=b"
    assert path_with("/x") == "/x"


@given(st.text())
def test_quoting_agrees_with_the_standard_library(text: str) -> None:
    from urllib.parse import quote as standard

    assert quote(text) == standard(text, safe="") if text.isprintable() else True


@given(st.floats())
def test_samples_read_back_the_same_and_have_no_exponent(value: float) -> None:
    text = sample(value)

    assert "e" not in text
    assert float(text) == value or value != value  # noqa: PLR0124 - NaN


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.0, "1"), (-0.0, "-0"), (0.1, "0.1"), (1e-7, "0.0000001"), (1e21, "1" + 21 * "0"),
        (float("inf"), "+Inf"), (float("-inf"), "-Inf"), (float("nan"), "NaN"),
    ],
)  # fmt: skip
def test_samples_are_written_as_prometheus_does(value: float, text: str) -> None:
    assert sample(value) == text


def test_importing_it_loads_nothing_heavy() -> None:
    code = "import sys, sentinel.api.connect; print(*sorted(sys.modules))"
    loaded = set(
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    )

    assert not loaded & {
        "asyncio",
        "http.client",
        "ssl",
        "email",
        "urllib.request",
        "subprocess",
        "numpy",
        "typing_extensions",
    }
