"""`/v1/` over a real socket, with our own client."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from sentinel.api.client import ApiError, Client, Unreachable, path_with
from sentinel.model.alerts import AlertState
from sentinel.model.events import Event
from sentinel.model.jobs import JobSpec, JobState
from sentinel.model.requests import Answer
from sentinel.model.wire import encode
from sentinel.server import v1
from sentinel.server.access import user_name
from sentinel.system.processes import identify
from tests.server.small import NOW, Running, SmallDaemon, until


def test_the_overview_shows_jobs_with_their_memory_and_alerts(client: Client, daemon: SmallDaemon) -> None:
    daemon.add_job("train")
    daemon.add_job("old", state=JobState.SUCCEEDED)
    alert = daemon.add_alert("train")

    seen = client.get("/v1/overview")

    assert [job["name"] for job in seen["jobs"]] == ["train"]
    assert seen["jobs"][0]["memory"]["full_in_seconds"] == 50.0
    assert seen["jobs"][0]["alerts"] == [alert.id]
    assert seen["alerts"][0]["severity"] == "critical"
    assert seen["alerts"][0]["annotations"]["summary"] == "train runs out of memory in 45s"
    assert seen["health"]["rules"]["count"] == 1
    assert seen["time"] == NOW


def test_jobs_that_have_ended_are_listed_when_asked_for(client: Client, daemon: SmallDaemon) -> None:
    daemon.add_job("train")
    daemon.add_job("old", state=JobState.SUCCEEDED)

    assert [job["name"] for job in client.get("/v1/jobs")] == ["train"]
    assert [job["name"] for job in client.get("/v1/jobs?all=1")] == ["train", "old"]
    assert client.get("/v1/jobs/old")["state"] == "succeeded"


def test_an_unknown_job_is_answered_with_the_nearest_name(client: Client, daemon: SmallDaemon) -> None:
    daemon.add_job("train")

    with pytest.raises(ApiError) as refused:
        client.get("/v1/jobs/trian")

    assert (refused.value.status, refused.value.kind) == (404, "not_found")
    assert refused.value.message == "no job 'trian'"
    assert refused.value.hint == "`train`"


def test_secrets_in_a_job_are_not_shown(client: Client, daemon: SmallDaemon) -> None:
    daemon.add_job("train", notify=("slack://TokenA/TokenB/TokenC",))

    shown = client.get("/v1/jobs/train")["spec"]

    assert shown["notify"] == ["slack://***"]


def test_a_supervisor_registers_starts_and_ends_a_job(client: Client, daemon: SmallDaemon) -> None:
    daemon.add_job("train")
    spec = encode(JobSpec(argv=("sleep", "1"), cwd="/", name="train"))
    me = encode(identify(os.getpid()))

    made = client.post("/v1/jobs", {"spec": spec, "supervisor": me, "protocol": 1})
    job = made["job"]

    assert (job["name"], made["renamed_from"]) == ("train-2", "train")
    assert job["uid"] == os.getuid()
    assert made["socket"] == client.socket_path

    started = client.post(f"/v1/jobs/{job['id']}/attempts", {"root": me, "pgid": 7, "output": ["/log"], "attempt": 1})
    assert (started["state"], started["pgid"], started["output"]) == ("running", 7, ["/log"])

    ended = client.post(f"/v1/jobs/{job['id']}/end", {"attempt": 1, "exit_code": 0, "exit_signal": None, "at": NOW})
    assert (ended["state"], ended["ended"]) == ("succeeded", NOW)


def test_a_command_that_is_no_text_registers_like_any_other_and_spoils_no_list(
    client: Client, daemon: SmallDaemon
) -> None:
    spec = encode(JobSpec(argv=("cat", "caf\udce9", "\U0001f600"), cwd="/", name="bytes"))
    registered = client.post("/v1/jobs", {"spec": spec, "supervisor": encode(identify(os.getpid())), "protocol": 1})

    assert registered["job"]["name"] == "bytes"
    assert daemon.all_jobs[-1].spec.argv == ("cat", "caf?", "\U0001f600"), "what no database takes goes no further"
    daemon.all_jobs[-1] = replace(daemon.all_jobs[-1], spec=JobSpec(("caf\udce9",), "/", name="bytes"))
    assert client.get("/v1/jobs")[-1]["spec"]["argv"] == ["caf?"]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"spec": {}, "protocol": 1, "supervisor": {"pid": 1}}, "JobSpec.argv is required"),
        ({"spec": {"argv": ["a"], "cwd": "/"}}, "a job has either a supervisor or a process to adopt"),
        ({"spec": 5}, "`spec` must be an object, not int"),
        ({"spec": {"argv": ["a"], "cwd": "/"}, "supervisor": {"pid": "x"}}, "ProcessId.pid must be int, not str"),
    ],
)
def test_a_registration_that_makes_no_sense_says_why(client: Client, body: object, message: str) -> None:
    with pytest.raises(ApiError) as refused:
        client.post("/v1/jobs", body)

    assert (refused.value.status, refused.value.message) == (400, message)


def test_a_supervisor_of_a_newer_protocol_is_told_to_restart_the_daemon(client: Client) -> None:
    with pytest.raises(ApiError) as refused:
        client.post("/v1/jobs", {"protocol": 2})

    assert refused.value.status == 409
    assert "protocol 2" in refused.value.message


def test_a_request_is_asked_and_waited_for(client: Client, daemon: SmallDaemon) -> None:
    job = daemon.add_job("train")

    asked = client.post("/v1/jobs/train/requests", {"request": "checkpoint", "wait": 5})

    assert (asked["state"], asked["answer"], asked["effect"]) == ("closed", "done", "observed")
    assert asked["reason"] == f"{user_name(os.getuid())} asked for it"
    assert [each["id"] for each in client.get("/v1/requests?job=train")] == [asked["id"]]
    assert client.get(f"/v1/requests/{asked['id']}")["job_id"] == job.id


def test_only_what_exists_can_be_asked(client: Client, daemon: SmallDaemon) -> None:
    daemon.add_job("train")

    with pytest.raises(ApiError) as refused:
        client.post("/v1/jobs/train/requests", {"request": "explode"})

    assert refused.value.status == 400
    assert "restart" in (refused.value.hint or "")


def test_a_job_answers_a_request_by_itself_and_its_words_are_masked(client: Client, daemon: SmallDaemon) -> None:
    daemon.add_job("train")
    asked = client.post("/v1/jobs/train/requests", {"request": "degrade"})
    assert asked["state"] == "planned"

    said = {"answer": "refused", "detail": "no, password=hunter2hunter2"}
    answered = client.post(f"/v1/requests/{asked['id']}", said)

    assert answered["answer"] == Answer.REFUSED
    assert "hunter2" not in answered["detail"]


def test_events_are_filtered_by_job_kind_and_time(client: Client, daemon: SmallDaemon, running: Running) -> None:
    running.daemon_call(lambda: daemon.happen("job.running", "one", job="a", at=NOW - 100))
    running.daemon_call(lambda: daemon.happen("job.failed", "two", job="a"))
    running.daemon_call(lambda: daemon.happen("jobless.x", "three"))

    def messages(**wanted: object) -> list[str]:
        return [event["message"] for event in client.get(path_with("/v1/events", **wanted))]

    assert messages() == ["one", "two", "three"]
    assert messages(kind="job") == ["one", "two"]
    assert messages(kind="job.failed") == ["two"]
    assert messages(job="a", since=NOW - 50) == ["two"]
    assert messages(limit=1) == ["three"]


def test_a_follower_hears_what_was_and_then_what_happens_each_once(
    client: Client, daemon: SmallDaemon, running: Running
) -> None:
    running.daemon_call(lambda: daemon.happen("job.running", "before"))

    with client.stream("/v1/events?follow=1&since=1") as stream:
        assert next(stream)["message"] == "before"
        running.daemon_call(lambda: daemon.happen("job.failed", "after"))
        assert next(stream)["message"] == "after"
        running.daemon_call(daemon.hub.close)
        assert list(stream) == []


def test_what_happens_while_the_past_is_told_is_told_once(
    client: Client, daemon: SmallDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    remembered = daemon.events

    async def meanwhile(*, since: float, limit: int, keep: Callable[[Event], bool]) -> Sequence[Event]:
        daemon.happen("job.running", "meanwhile")
        found = await remembered(since=since, limit=limit, keep=keep)
        daemon.happen("job.running", "last")
        return found

    monkeypatch.setattr(daemon, "events", meanwhile)

    with client.stream("/v1/events?follow=1&since=1") as stream:
        assert [next(stream)["message"], next(stream)["message"]] == ["meanwhile", "last"]


def test_a_follower_hears_only_what_it_asked_for(client: Client, daemon: SmallDaemon, running: Running) -> None:
    with client.stream("/v1/events?follow=1&job=a&kind=job") as stream:
        until(lambda: daemon.hub.listeners)
        running.daemon_call(lambda: daemon.happen("job.running", "other", job="b"))
        running.daemon_call(lambda: daemon.happen("alert.firing", "other", job="a"))
        running.daemon_call(lambda: daemon.happen("job.running", "mine", job="a"))
        assert next(stream)["message"] == "mine"


def test_a_follower_without_since_hears_only_what_happens(
    client: Client, daemon: SmallDaemon, running: Running
) -> None:
    running.daemon_call(lambda: daemon.happen("job.running", "before"))

    with client.stream("/v1/events?follow=1") as stream:
        until(lambda: daemon.hub.listeners)
        running.daemon_call(lambda: daemon.happen("job.failed", "after"))
        assert next(stream)["message"] == "after"


def test_a_silent_stream_has_heartbeats_and_one_without_is_dead(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(v1, "HEARTBEAT_S", 0.1)
    stream = client.stream("/v1/events?follow=1", silence_s=0.6)
    listener = threading.Thread(target=lambda: list(stream))
    listener.start()
    listener.join(1.5)
    assert listener.is_alive()  # it lives on what the server says in between
    stream.close()
    listener.join(10)

    monkeypatch.setattr(v1, "HEARTBEAT_S", 60.0)
    with client.stream("/v1/events?follow=1", silence_s=0.2) as dead, pytest.raises(Unreachable):
        next(dead)


def test_numbers_that_are_none_are_null(client: Client, daemon: SmallDaemon, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(daemon, "host", lambda: {"load1": float("nan")})

    assert client.get("/v1/overview")["host"] == {"load1": None}


def test_a_follower_that_goes_away_is_forgotten(client: Client, daemon: SmallDaemon) -> None:
    stream = client.stream("/v1/events?follow=1")
    until(lambda: daemon.hub.listeners)

    stream.close()

    until(lambda: not daemon.hub.listeners)


def test_a_stream_closed_from_another_thread_ends(client: Client, daemon: SmallDaemon) -> None:
    stream = client.stream("/v1/events?follow=1")
    until(lambda: daemon.hub.listeners)
    closer = threading.Thread(target=stream.close)

    closer.start()

    assert list(stream) == []
    closer.join()


def test_an_alert_is_acknowledged_by_a_part_of_its_id(client: Client, daemon: SmallDaemon) -> None:
    alert = daemon.add_alert("train")
    daemon.add_alert("other", AlertState.RESOLVED)

    assert client.post(f"/v1/alerts/{alert.id[:6]}/ack")["acknowledged_by"].startswith("user:")
    assert len(client.get("/v1/alerts")) == 1
    assert len(client.get("/v1/alerts?all=1")) == 2
    with pytest.raises(ApiError, match="no open alert"):
        client.post(f"/v1/alerts/{alert.id[:3]}/ack")


def test_a_silence_begins_and_ends(client: Client, daemon: SmallDaemon) -> None:
    made = client.post("/v1/silences", {"matchers": ["job=train", "severity=~'warn.*'"], "seconds": 60})

    assert made["ends"] == NOW + 60
    assert [each["id"] for each in client.get("/v1/silences")] == [made["id"]]
    assert daemon.all_silences[0].matchers[1].value == "warn.*"

    client.delete(f"/v1/silences/{made['id']}")
    assert client.get("/v1/silences") == []
    with pytest.raises(ApiError, match="no silence"):
        client.delete(f"/v1/silences/{made['id']}")


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({}, "at least one condition"),
        ({"matchers": ["train"]}, "not a condition on a label"),
        ({"matchers": ["job=~'('"]}, "bad regular expression"),
        ({"matchers": ["job=train"], "seconds": -1}, "a year at most"),
    ],
)
def test_a_silence_that_makes_no_sense_is_refused(client: Client, body: object, words: str) -> None:
    with pytest.raises(ApiError, match=words) as refused:
        client.post("/v1/silences", body)

    assert refused.value.status == 400


def test_rules_show_the_state_of_their_alerts(client: Client, daemon: SmallDaemon) -> None:
    assert client.get("/v1/rules")[0]["state"] == "inactive"

    daemon.add_alert("train")

    (rule,) = client.get("/v1/rules")
    assert (rule["name"], rule["state"], rule["value"]) == ("MemoryExhaustionImminent", "firing", 45.0)


def test_sql_answers_with_a_table(client: Client) -> None:
    table = client.post("/v1/sql", {"statement": "SELECT 1", "limit": 1})

    assert table == {"columns": ["n", "name"], "types": ["BIGINT", "VARCHAR"], "rows": [[1, "a"]], "truncated": True}
    with pytest.raises(ApiError, match="only SELECT"):
        client.post("/v1/sql", {"statement": "DROP TABLE x"})
    with pytest.raises(ApiError, match="there is no statement"):
        client.post("/v1/sql", {"statement": " "})


def test_a_body_that_is_too_large_is_refused(client: Client) -> None:
    with pytest.raises(ApiError) as refused:
        client.post("/v1/sql", {"statement": "x" * (1 << 20)})

    assert (refused.value.status, refused.value.kind) == (413, "too_large")


def test_health_reload_receivers_and_outbox(client: Client) -> None:
    assert client.get("/v1/health")["ready"] is True
    assert client.post("/v1/reload") == {"rules": 1}
    assert client.post("/v1/notify/test", {"receiver": "oncall"})["ok"] is True
    with pytest.raises(ApiError, match="no receiver 'x'") as refused:
        client.post("/v1/notify/test", {"receiver": "x"})
    assert refused.value.hint == "`oncall`"
    assert client.get("/v1/outbox") == []


@pytest.mark.parametrize(("path", "status"), [("/v1/nothing", 404), ("/v1/sql", 405), ("/api/v1/nothing", 404)])
def test_what_is_not_there_is_said_in_the_right_dialect(client: Client, path: str, status: int) -> None:
    with pytest.raises(ApiError) as refused:
        client.get(path)

    assert refused.value.status == status
    assert refused.value.kind in {"not_found", "method_not_allowed"}


@pytest.mark.parametrize("body", [b"{", b"[]", b"\xff", b"[" * 100_000])
def test_a_body_that_is_no_object_is_refused(running: Running, body: bytes) -> None:
    import socket

    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(10)
        connection.connect(str(running.socket_path))
        head = f"POST /v1/sql HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
        connection.sendall(head.encode() + body)
        said = b"".join(iter(lambda: connection.recv(65536), b""))

    assert said.startswith(b"HTTP/1.1 400 ")


def test_a_backtest_is_handed_on_as_it_was_asked(client: Client) -> None:
    files = [{"name": "a.yaml", "text": "groups: []"}]
    seen = client.post("/v1/rules/backtest", {"files": files, "since": 3600, "step": 15, "timeout": 60})

    assert seen == {"files": ["a.yaml"], "since": 3600.0, "step": 15.0, "budget": 60.0}
    for wrong in ({"since": 0}, {"since": 60, "files": ["a.yaml"]}, {"since": 60, "timeout": 1e9}):
        with pytest.raises(ApiError):
            client.post("/v1/rules/backtest", wrong)
