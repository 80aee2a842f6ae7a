"""The talk with the daemon, with a small daemon of our own that comes and goes."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from sentinel.api.client import ApiError, Unreachable
from sentinel.jobs.link import Attempt, Ending, Link
from sentinel.model.jobs import JobSpec, ProcessId
from tests.jobs.desk import until

ROOT, SUPERVISOR = ProcessId(100, 5, "b"), ProcessId(99, 4, "b")
SPEC = JobSpec(("python", "train.py"), "/", name="train")
RUNNING = Attempt(1, ROOT, 100, ("/log",))


class Daemon:
    """What a daemon hears, while there is one."""

    def __init__(self) -> None:
        self.here = True
        self.refuses: int | None = None
        self.heard: list[tuple[str, Any]] = []
        self.started = 0
        self._lock = threading.Lock()

    @property
    def socket_path(self) -> str:
        return "/run/x.sock"

    def connect(self, *, start: bool, quiet: bool) -> Daemon:
        if start and not self.here:
            self.started += 1
            self.here = True
        if not self.here:
            raise Unreachable("cannot reach the daemon at /run/x.sock: no such file")
        return self

    def post(self, path: str, body: Any = None, *, timeout_s: float | None = None) -> Any:
        if not self.here:
            raise Unreachable("it went away")
        if self.refuses is not None:
            raise ApiError("no such job", status=self.refuses)
        with self._lock:
            self.heard.append((path, body))
        return {"job": {"id": "j1", "name": "train"}, "directory": "/state/jobs/j1"}

    def get(self, path: str, *, timeout_s: float | None = None) -> Any:
        raise Unreachable(f"nothing is asked in these stories, not even {path}")

    def close(self) -> None:
        pass

    def paths(self) -> list[str]:
        with self._lock:
            return [path for path, _ in self.heard]


def a_link(daemon: Daemon, said: list[str], *, start: bool = False) -> Link:
    return Link(daemon.connect, SPEC, SUPERVISOR, start=start, say=said.append)


def test_the_whole_talk() -> None:
    daemon, said = Daemon(), list[str]()
    link = a_link(daemon, said)

    met = link.register()
    link.started(RUNNING)
    link.ended(Ending(1, 3, None, 7.0))

    assert met is not None
    assert (met.id, met.directory) == ("j1", "/state/jobs/j1")
    assert link.finish()
    assert daemon.paths() == ["/v1/jobs", "/v1/jobs/j1/attempts", "/v1/jobs/j1/end"]
    assert daemon.heard[-1][1] == {"attempt": 1, "exit_code": 3, "exit_signal": None, "at": 7.0}
    assert said == []


def test_what_was_badly_declared_is_raised_and_what_was_merely_refused_is_trouble() -> None:
    daemon = Daemon()
    daemon.refuses = 400
    with pytest.raises(ApiError):
        a_link(daemon, []).register()

    daemon.refuses = 409
    link = a_link(daemon, [])
    assert link.register() is None
    assert link.trouble == "no such job"


def test_without_any_daemon_the_end_waits_for_none() -> None:
    daemon = Daemon()
    daemon.here = False
    link = a_link(daemon, [])

    assert link.register() is None
    link.started(RUNNING)
    link.ended(Ending(1, 0, None, 7.0))

    link.finish()  # returns at once, or this test takes long
    assert daemon.paths() == []


def test_a_daemon_that_comes_later_is_told_everything() -> None:
    daemon, said = Daemon(), list[str]()
    daemon.here = False
    link = a_link(daemon, said)
    assert link.register() is None
    link.started(RUNNING)

    daemon.here = True
    until(lambda: daemon.paths() == ["/v1/jobs", "/v1/jobs/j1/attempts"])

    link.ended(Ending(1, 0, None, 7.0))
    assert link.finish()
    assert said == ["a daemon is there: this is job train"]


def test_a_daemon_that_died_is_started_again_to_be_told_the_end() -> None:
    daemon, said = Daemon(), list[str]()
    link = a_link(daemon, said, start=True)
    link.register()
    link.started(RUNNING)
    until(lambda: len(daemon.paths()) == 2)
    daemon.here = False

    link.ended(Ending(1, 0, None, 7.0))

    assert link.finish()
    assert daemon.started == 1
    assert daemon.paths()[-1] == "/v1/jobs/j1/end"


def test_a_job_that_the_daemon_does_not_know_any_more_has_nothing_to_tell_it() -> None:
    daemon = Daemon()
    link = a_link(daemon, [])
    link.register()
    link.started(RUNNING)
    until(lambda: len(daemon.paths()) == 2)
    daemon.refuses = 404

    link.ended(Ending(1, 0, None, 7.0))

    assert link.finish()
