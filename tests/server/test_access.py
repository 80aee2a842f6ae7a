"""Who asks, and what they may see and do."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sentinel.model.jobs import Job, JobState, ProcessId
from sentinel.server.access import NOBODY, Access, Peer, Refused, Viewer, peer_of
from sentinel.server.listen import Listener, TcpListener, UnixListener
from sentinel.server.settings import Settings
from tests.server.small import ME, NOW, Running, SmallDaemon

ALICE, BOB = 40_001, 40_002
TOKEN = "correct horse battery"


def test_the_kernel_says_who_is_at_the_other_end() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX)
    with ours, theirs:
        peer = peer_of(ours)

    assert (peer.uid, peer.gid) == (os.getuid(), os.getgid())
    assert peer.groups >= set(os.getgroups())


def test_a_daemon_of_one_user_is_that_users_and_roots() -> None:
    access = Access(system=False, uid=ALICE)

    assert access.of_peer(Peer(ALICE, ALICE)).everything
    assert access.of_peer(Peer(0, 0)).everything
    with pytest.raises(Refused, match=f"belongs to {ALICE}, not to {BOB}"):
        access.of_peer(Peer(BOB, BOB))


def test_on_a_system_daemon_everybody_is_admitted_and_only_root_sees_everything() -> None:
    access = Access(system=True, uid=0)

    assert access.of_peer(Peer(0, 0)).everything
    assert not access.of_peer(Peer(BOB, BOB)).everything
    assert access.of_peer(Peer(BOB, BOB)).uid == BOB


@pytest.mark.parametrize("system", [True, False])
def test_a_user_that_the_kernel_cannot_name_may_do_nothing(system: bool) -> None:
    with pytest.raises(Refused, match="cannot name"):
        Access(system=system, uid=NOBODY).of_peer(Peer(NOBODY, 0))


class TestVisibility:
    """A system daemon with jobs of two users."""

    @pytest.fixture
    def daemon(self) -> SmallDaemon:
        daemon = SmallDaemon()
        daemon.system = True
        daemon.add_job("a", uid=ALICE)
        daemon.add_job("b", uid=BOB)
        daemon.measure("job", {("a",): {"job_up": 1}, ("b",): {"job_up": 1}})
        daemon.measure("host", {(): {"host_load1": 0.5}})
        return daemon

    def series(self, viewer: Viewer, daemon: SmallDaemon) -> set[str]:
        blocks = viewer.reader(daemon).select((), NOW - 60, NOW)
        shown = {
            repr(labels) for block in blocks for row, labels in enumerate(block.labels) if block.present[row].any()
        }
        assert all(len(block.values) == len(block.labels) == len(block.present) for block in blocks)
        return shown

    def test_a_user_sees_the_host_and_the_series_of_its_own_jobs(self, daemon: SmallDaemon) -> None:
        assert self.series(Viewer(ALICE, "alice", everything=False), daemon) == {"host_load1", 'job_up{job="a"}'}

    def test_root_sees_the_series_of_all(self, daemon: SmallDaemon) -> None:
        assert len(self.series(Viewer(0, "root", everything=True), daemon)) == 3

    def test_a_name_that_two_users_had_is_shown_to_neither(self, daemon: SmallDaemon) -> None:
        daemon.add_job("a", uid=BOB)

        assert self.series(Viewer(ALICE, "alice", everything=False), daemon) == {"host_load1"}

    def test_events_and_alerts_go_with_their_jobs(self, daemon: SmallDaemon) -> None:
        alice = Viewer(ALICE, "alice", everything=False)

        assert alice.sees_event(daemon.happen("job.running", "x", uid=ALICE))
        assert alice.sees_event(daemon.happen("gpu.xid", "x"))
        assert not alice.sees_event(daemon.happen("job.running", "x", uid=BOB))
        assert alice.sees_alert(daemon.add_alert("a"), daemon)
        assert alice.sees_alert(daemon.add_alert(None), daemon)
        assert not alice.sees_alert(daemon.add_alert("b"), daemon)
        daemon.add_job("a", uid=BOB, state=JobState.FAILED)
        assert not alice.sees_alert(daemon.all_alerts[0], daemon)


@pytest.mark.skipif(os.getuid() != 0, reason="becoming another user needs root")
class TestAsAnotherUser:
    """A real peer with another uid, at the socket of a system daemon."""

    @pytest.fixture
    def running(self, daemon: SmallDaemon, directory: Path) -> Iterator[Running]:
        daemon.system = True
        directory.chmod(0o755)
        with Running(daemon, [UnixListener(directory / "s.sock", shared=True)]) as running:
            yield running

    @pytest.fixture
    def jobs(self, daemon: SmallDaemon) -> tuple[Job, Job]:
        return daemon.add_job("a", uid=ALICE), daemon.add_job("b", uid=BOB)

    @pytest.mark.usefixtures("jobs")
    def test_a_user_sees_its_own_jobs_only(self, running: Running) -> None:
        assert [job["name"] for job in as_user(ALICE, running, "GET", "/v1/jobs")[1]] == ["a"]
        assert [job["name"] for job in as_user(ALICE, running, "GET", "/v1/overview")[1]["jobs"]] == ["a"]
        assert as_user(ALICE, running, "GET", "/v1/jobs/b")[0] == 404
        assert as_user(0, running, "GET", "/v1/jobs/b")[0] == 200

    def test_a_user_cannot_ask_or_answer_for_the_jobs_of_another(self, running: Running, jobs: tuple[Job, Job]) -> None:
        mine, other = jobs
        assert as_user(ALICE, running, "POST", f"/v1/jobs/{mine.id}/requests", {"request": "stop"})[0] == 200
        assert as_user(ALICE, running, "POST", f"/v1/jobs/{other.id}/requests", {"request": "stop"})[0] == 404
        asked = as_user(BOB, running, "POST", f"/v1/jobs/{other.id}/requests", {"request": "stop"})[1]
        assert as_user(ALICE, running, "POST", f"/v1/requests/{asked['id']}", {"answer": "done"})[0] == 404
        assert [each["job"] for each in as_user(ALICE, running, "GET", "/v1/requests")[1]] == ["a"]
        assert len(as_user(0, running, "GET", "/v1/requests")[1]) == 2
        assert as_user(ALICE, running, "POST", f"/v1/jobs/{other.id}/end", {"exit_code": 0})[0] == 404

    @pytest.mark.parametrize(
        ("method", "path"),
        [
            ("GET", "/metrics"),
            ("GET", "/federate?match[]=up"),
            ("POST", "/v1/sql"),
            ("POST", "/v1/reload"),
            ("POST", "/v1/notify/test"),
            ("GET", "/v1/outbox"),
        ],
    )
    def test_what_is_for_root_and_the_group_only(self, running: Running, method: str, path: str) -> None:
        assert as_user(ALICE, running, method, path)[0] == 403

    def test_a_silence_of_a_user_is_about_its_own_jobs(self, running: Running, daemon: SmallDaemon) -> None:
        made = as_user(ALICE, running, "POST", "/v1/silences", {"matchers": ["severity=warning"]})[1]

        assert daemon.all_silences[0].uid == ALICE
        assert as_user(BOB, running, "DELETE", f"/v1/silences/{made['id']}")[0] == 404
        assert as_user(ALICE, running, "DELETE", f"/v1/silences/{made['id']}")[0] == 200

    def test_a_silence_of_the_whole_machine_is_not_a_users_to_end(self, running: Running) -> None:
        made = as_user(0, running, "POST", "/v1/silences", {"matchers": ["severity=warning"]})[1]

        assert as_user(ALICE, running, "DELETE", f"/v1/silences/{made['id']}")[0] == 403
        assert as_user(0, running, "DELETE", f"/v1/silences/{made['id']}")[0] == 200

    def test_events_of_others_are_not_shown(self, running: Running, daemon: SmallDaemon) -> None:
        running.daemon_call(lambda: daemon.happen("job.running", "mine", uid=ALICE))
        running.daemon_call(lambda: daemon.happen("job.running", "not mine", uid=BOB))
        running.daemon_call(lambda: daemon.happen("gpu.xid", "the host's"))

        seen = as_user(ALICE, running, "GET", "/v1/events")[1]
        assert [event["message"] for event in seen] == ["mine", "the host's"]

    def test_an_attempt_is_of_ones_own_process_or_of_the_supervisors_child(
        self, running: Running, daemon: SmallDaemon
    ) -> None:
        job = daemon.add_job("a", uid=ALICE)
        process = {"pid": os.getpid(), "start_ticks": 1, "boot_id": "x"}
        path = f"/v1/jobs/{job.id}/attempts"

        assert as_user(ALICE, running, "POST", path, {"root": process})[0] == 403
        daemon._change(job, supervisor=ProcessId(os.getppid(), 1, "x"))  # as with sudo
        assert as_user(ALICE, running, "POST", path, {"root": process})[0] == 200

    def test_a_process_is_registered_by_its_own_user(self, running: Running, daemon: SmallDaemon) -> None:
        process = {"pid": os.getpid(), "start_ticks": 1, "boot_id": "x"}
        body = {"spec": {"argv": ["a"], "cwd": "/"}, "adopt": process}

        status, said = as_user(ALICE, running, "POST", "/v1/jobs", body)

        assert (status, said["error"]["message"]) == (403, f"process {os.getpid()} belongs to root")
        assert daemon.all_jobs == []

    def test_nobody_may_do_nothing(self, running: Running) -> None:
        assert as_user(NOBODY, running, "GET", "/-/healthy")[0] == 403


class TestOverTcp:
    """The reading port."""

    @pytest.fixture
    def running(self, daemon: SmallDaemon, directory: Path) -> Iterator[Running]:
        listeners: list[Listener] = [UnixListener(directory / "s.sock"), TcpListener("127.0.0.1", 0)]
        with Running(daemon, listeners, Settings(token=TOKEN)) as running:
            yield running

    @pytest.mark.parametrize("host", ["127.0.0.1", "localhost:9464", "[::1]:9464", "10.0.0.7"])
    def test_with_the_token_it_reads(self, running: Running, host: str) -> None:
        assert over_tcp(running, "GET", "/v1/jobs", host=host)[0] == 200

    @pytest.mark.parametrize("token", ["", "wrong", TOKEN + "x", TOKEN[:-1]])
    def test_without_the_token_it_does_nothing(self, running: Running, token: str) -> None:
        status, said = over_tcp(running, "GET", "/-/healthy", token=token)

        assert status == 401
        assert "token" in said["error"]["message"]

    @pytest.mark.parametrize("host", ["evil.example", "evil.example:9464", "", "127.0.0.1.evil.example"])
    def test_a_name_of_somebody_else_is_refused(self, running: Running, host: str) -> None:
        assert over_tcp(running, "GET", "/v1/jobs", host=host)[0] == 403

    @pytest.mark.parametrize(
        ("method", "path"),
        [
            ("POST", "/v1/jobs"),
            ("POST", "/v1/jobs/train/requests"),
            ("POST", "/v1/sql"),
            ("POST", "/v1/reload"),
            ("DELETE", "/v1/silences/x"),
        ],
    )
    def test_it_only_reads(self, running: Running, daemon: SmallDaemon, method: str, path: str) -> None:
        daemon.add_job("train")

        assert over_tcp(running, method, path)[0] == 403

    def test_an_error_under_prometheus_paths_is_in_prometheus_words(self, running: Running) -> None:
        status, said = over_tcp(running, "GET", "/api/v1/alerts", token="")

        assert (status, said["status"], said["errorType"]) == (401, "error", "unauthorized")


def test_without_a_token_in_the_configuration_tcp_admits_nobody() -> None:
    scope = {
        "state": {},
        "headers": [(b"host", b"127.0.0.1"), (b"authorization", b"Bearer ")],
        "method": "GET",
        "path": "/v1/jobs",
    }
    with pytest.raises(Refused, match="token"):
        Access(system=False, token="", uid=ME).admit(scope)


def over_tcp(
    running: Running, method: str, path: str, *, host: str = "127.0.0.1", token: str = TOKEN
) -> tuple[int, Any]:
    """One request to the TCP listener."""
    (address,) = running.server.listening.addresses
    with socket.create_connection(address, timeout=10) as connection:
        return talk(connection, method, path, None, f"Host: {host}\r\nAuthorization: Bearer {token}\r\n")


def as_user(uid: int, running: Running, method: str, path: str, body: object = None) -> tuple[int, Any]:
    """One request by a process of another user."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            if uid:
                os.setgroups([])
                os.setresgid(uid, uid, uid)
                os.setresuid(uid, uid, uid)
            with socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(10)
                connection.connect(str(running.socket_path))
                said = talk(connection, method, path, body, "Host: sentinel\r\n")
            os.write(writing, json.dumps(said).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as answer:
        text = answer.read()
    os.waitpid(child, 0)
    status, said = json.loads(text)
    return status, said


def talk(connection: socket.socket, method: str, path: str, body: object, headers: str) -> tuple[int, Any]:
    content = b"" if body is None else json.dumps(body).encode()
    head = f"{method} {path} HTTP/1.1\r\n{headers}Connection: close\r\nContent-Length: {len(content)}\r\n\r\n"
    connection.sendall(head.encode() + content)
    said = b"".join(iter(lambda: connection.recv(65536), b""))
    first, _, rest = said.partition(b"\r\n\r\n")
    try:
        return int(first.split()[1]), json.loads(rest)
    except ValueError:
        return int(first.split()[1]), rest.decode()
