"""Asking real jobs, and what is never done to them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from sentinel.clock import SystemClock
from sentinel.jobs.control import Control
from sentinel.jobs.hand import LocalHand
from sentinel.jobs.register import Register
from sentinel.jobs.settings import Settings
from sentinel.jobs.trees import Forest
from sentinel.model.jobs import Channel, Job, JobSpec, JobState, ProcessId
from sentinel.model.requests import Delivery, Outcome, Request, RequestKind
from sentinel.system import processes
from tests.jobs.desk import until
from tests.jobs.test_register import Paper

WORKER = """
import os, signal, sys, time
name = sys.argv[1]
def heard(number, frame):
    with open(name + ".heard", "a") as file:
        file.write(f"{os.getpid()} {signal.Signals(number).name}\\n")
    if number == signal.SIGTERM and "stubborn" not in sys.argv:
        sys.exit(0)
for number in [signal.SIGUSR1, signal.SIGTERM][: int(sys.argv[2])]:
    signal.signal(number, heard)
if "forks" in sys.argv:
    child = os.fork()
open(f"{name}.{os.getpid()}.ready", "w").close()
while True:
    time.sleep(0.05)
"""


class Yard:
    """A control over real processes, started in a directory of their own."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.paper = Paper()
        settings = Settings(stop_grace_s=1.0, ack_poll_s=0.02)
        self.register = Register(self.paper, self.paper.events.append, SystemClock(), directory=root)
        self.control = Control(self.register, Forest(), lambda _: LocalHand(settings), settings)
        (root / "worker.py").write_text(WORKER)
        self._started: list[subprocess.Popen[bytes]] = []

    def job(self, *argv: str, ready: int = 1, channels: tuple[str, ...] = ("signal:USR1",), **spec: Any) -> Job:
        """Start it, wait until `ready` of its processes say so."""
        process = subprocess.Popen(argv, cwd=self.root, start_new_session=True)
        self._started.append(process)
        until(lambda: len(list(self.root.glob("*.ready"))) >= ready)
        made = JobSpec(
            argv,
            str(self.root),
            channels=tuple(Channel.parse(RequestKind.CHECKPOINT, text) for text in channels),
            **spec,
        )
        root = processes.identify(process.pid)
        assert root is not None
        return self.register.register(made, uid=os.getuid(), owner="me", adopt=root, pgid=process.pid).job

    def python(self, name: str, signals: int, *more: str, ready: int = 1, **spec: Any) -> Job:
        return self.job(sys.executable, "worker.py", name, str(signals), *more, ready=ready, **spec)

    async def ask(self, job: Job, kind: RequestKind = RequestKind.CHECKPOINT, within_s: float = 5.0) -> Delivery:
        now = time.time()
        request = Request("r1", job.id, job.name, 1, kind, None, "memory", None, "user:me", now, now + within_s)
        return await self.control.deliver(job, request)

    def heard(self, name: str) -> list[str]:
        path = self.root / f"{name}.heard"
        return path.read_text().splitlines() if path.exists() else []

    def end(self) -> None:
        for process in self._started:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@pytest.fixture
def yard(tmp_path: Path) -> Iterator[Yard]:
    made = Yard(tmp_path)
    yield made
    made.end()


async def test_the_leader_is_asked_once_and_its_forked_worker_never(yard: Yard) -> None:
    job = yard.python("a", 1, "forks", ready=2)
    assert job.root is not None

    delivery = await yard.ask(job)

    assert (delivery.outcome, delivery.pids) == (Outcome.ACKNOWLEDGED, (job.root.pid,))
    assert until(lambda: yard.heard("a")) == [f"{job.root.pid} SIGUSR1"]


async def test_behind_a_shell_both_workers_are_asked_once_and_the_shell_lives(yard: Yard) -> None:
    script = f"{sys.executable} worker.py a 1 & {sys.executable} worker.py b 1 & wait"
    job = yard.job("bash", "-c", script, ready=2)
    assert job.root is not None

    delivery = await yard.ask(job)

    assert len(delivery.pids) == 2
    assert job.root.pid not in delivery.pids
    until(lambda: len(yard.heard("a")) == 1 and len(yard.heard("b")) == 1)
    assert processes.same(job.root)


async def test_a_job_that_catches_nothing_is_left_alone_with_a_reason(yard: Yard) -> None:
    job = yard.python("a", 0)
    assert job.root is not None

    delivery = await yard.ask(job)

    assert delivery.outcome is Outcome.REFUSED
    assert "catches SIGUSR1, which would end it" in delivery.detail
    assert processes.same(job.root)


async def test_a_pid_that_is_another_process_by_now_is_left_alone(yard: Yard) -> None:
    job = yard.python("a", 1)
    assert job.root is not None
    stale = ProcessId(job.root.pid, job.root.start_ticks - 100, job.root.boot_id)
    impostor = yard.register.register(job.spec, uid=0, owner="me", adopt=stale).job

    delivery = await yard.ask(impostor)

    assert delivery.outcome is Outcome.REFUSED
    assert f"pid {job.root.pid} belongs to another process by now" in delivery.detail
    assert (await yard.ask(impostor, RequestKind.STOP)).outcome is Outcome.REFUSED
    assert yard.heard("a") == []
    assert processes.same(job.root)


async def test_timeout_hides_who_would_get_it_and_a_pattern_tells(yard: Yard) -> None:
    argv = ("timeout", "99", sys.executable, "worker.py", "a", "1")
    hidden = yard.job(*argv)
    told = yard.job(*argv, ready=2, channels=(r"signal:USR1@worker\.py",))

    refused, done = await yard.ask(hidden), await yard.ask(told)

    assert refused.outcome is Outcome.REFUSED
    assert "signal:USR1@REGEX" in refused.detail
    assert done.outcome is Outcome.ACKNOWLEDGED
    until(lambda: len(yard.heard("a")) == 1)


async def test_what_was_not_declared_is_not_asked(yard: Yard) -> None:
    delivery = await yard.ask(yard.python("a", 1), RequestKind.DEGRADE)

    assert delivery.outcome is Outcome.REFUSED
    assert "--on-degrade" in delivery.detail


async def test_pause_and_resume_reach_the_whole_tree(yard: Yard) -> None:
    job = yard.job("bash", "-c", f"{sys.executable} worker.py a 0 forks & wait", ready=2)

    paused = await yard.ask(job, RequestKind.PAUSE)
    assert len(paused.pids) == 3
    until(lambda: all(_state(pid) == "T" for pid in paused.pids))
    assert _now(yard, job).state is JobState.PAUSED
    resumed = await yard.ask(job, RequestKind.RESUME)

    assert set(resumed.pids) == set(paused.pids)
    until(lambda: all(_state(pid) != "T" for pid in paused.pids))
    assert _now(yard, job).state is JobState.RUNNING


async def test_a_distributed_job_is_not_paused(yard: Yard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "4")
    delivery = await yard.ask(yard.python("a", 0), RequestKind.PAUSE)

    assert delivery.outcome is Outcome.REFUSED
    assert "WORLD_SIZE is 4" in delivery.detail


async def test_stop_lets_a_job_that_catches_term_end_by_itself(yard: Yard) -> None:
    job = yard.python("a", 2)

    stopping = asyncio.create_task(yard.ask(job, RequestKind.STOP))
    await asyncio.to_thread(until, lambda: yard.heard("a"))
    delivery = await stopping

    assert delivery.outcome is Outcome.DONE
    assert "after TERM" in delivery.detail
    assert _now(yard, job).state is JobState.STOPPING


async def test_stop_kills_what_does_not_end_within_the_grace_and_what_is_paused_too(yard: Yard) -> None:
    job = yard.python("a", 2, "stubborn", "forks", ready=2)
    await yard.ask(job, RequestKind.PAUSE)

    delivery = await yard.ask(job, RequestKind.STOP)

    assert delivery.outcome is Outcome.DONE
    assert "2 processes killed" in delivery.detail
    assert len(yard.heard("a")) >= 1  # it was continued, so that it could hear TERM


async def test_stop_goes_on_when_nobody_waits_for_it_any_more(yard: Yard) -> None:
    job = yard.python("a", 2, "stubborn")
    assert job.root is not None

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.3):
            await yard.ask(job, RequestKind.STOP)

    root = job.root
    await asyncio.to_thread(until, lambda: not processes.same(root))


async def test_a_dump_says_what_each_process_is_doing(yard: Yard) -> None:
    delivery = await yard.ask(yard.python("a", 0), RequestKind.DUMP)

    assert delivery.outcome is Outcome.DONE
    (dump,) = yard.root.glob("jobs/*/dump-*.txt")
    text = dump.read_text()
    assert str(dump) in delivery.detail
    assert "worker.py a 0" in text
    assert "thread" in text


async def test_an_attempt_that_is_over_is_not_asked(yard: Yard) -> None:
    job = yard.python("a", 1)
    yard.register.attempt_ended(job.id, attempt=1, exit_code=0, exit_signal=None, at=0.0)

    assert (await yard.ask(job)).outcome is Outcome.REFUSED


# The other channels


@pytest.mark.parametrize(
    ("answer", "outcome", "words"),
    [
        ("r1", Outcome.ACKNOWLEDGED, "has its id"),
        ("r1 done step 7", Outcome.DONE, "step 7"),
        ('{"id": "r1", "answer": "refused", "detail": "saving already"}', Outcome.REFUSED, "saving already"),
        ("r0", Outcome.SENT, "no "),
    ],
)
async def test_a_file_is_answered_beside_it(yard: Yard, answer: str, outcome: Outcome, words: str) -> None:
    path = yard.root / "ask"
    (yard.root / "ask.ack").write_text("an old one")
    job = yard.python("a", 0, channels=(f"file:{path}",))

    asking = asyncio.create_task(yard.ask(job, within_s=0.5))
    await asyncio.to_thread(until, path.exists)
    said = json.loads(path.read_text())  # whole from the first moment
    (yard.root / "ask.ack").write_text(answer)
    delivery = await asking

    assert said == {
        "id": "r1", "job": job.name, "attempt": 1, "request": "checkpoint", "level": None, "reason": "memory",
        "alert": None, "deadline": said["deadline"],
    }  # fmt: skip
    assert delivery.outcome is outcome
    assert words in delivery.detail
    assert not list(yard.root.glob("*.tmp"))


@pytest.mark.parametrize(("code", "outcome"), [(0, Outcome.DONE), (75, Outcome.REFUSED), (2, Outcome.FAILED)])
async def test_a_program_answers_with_its_exit_code(yard: Yard, code: int, outcome: Outcome) -> None:
    program = yard.root / "ask.py"
    program.write_text(
        "import json, os, sys\nsaid = json.load(sys.stdin)\n"
        "print(said['id'], os.environ['SENTINEL_REQUEST'], os.environ.get('SECRET'), sys.argv[2])\n"
        "sys.exit(int(sys.argv[1]))\n"
    )
    job = yard.python("a", 0, channels=(f"exec:{sys.executable} {program} {code} 'two words;'",))

    delivery = await yard.ask(job)

    assert delivery.outcome is outcome
    assert "r1 checkpoint None two words;" in delivery.detail


async def test_a_program_that_does_not_end_is_killed_with_its_children(yard: Yard) -> None:
    job = yard.python("a", 0, channels=("exec:sh -c 'echo $$ > asked; sleep 99; :'",))

    delivery = await yard.ask(job, within_s=0.5)

    assert delivery.outcome is Outcome.FAILED
    assert "was killed" in delivery.detail
    asked = int((yard.root / "asked").read_text())
    assert processes.read_stat(asked) is None


async def test_a_program_that_is_not_there_is_said(yard: Yard) -> None:
    delivery = await yard.ask(yard.python("a", 0, channels=("exec:/no/such/program",)))

    assert delivery == Delivery(Outcome.FAILED, "cannot run /no/such/program: No such file or directory")


@pytest.fixture
def listener() -> Iterator[Callable[[int], str]]:
    """An HTTP server that answers with a given status and keeps what it was told."""
    servers: list[HTTPServer] = []

    def listen(status: int) -> str:
        class Answers(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                said = json.loads(self.rfile.read(int(self.headers["content-length"])))
                self.send_response(status)
                self.end_headers()
                self.wfile.write(f"about {said['id']}".encode())

            def log_message(self, *_: object) -> None:
                pass

        server = HTTPServer(("127.0.0.1", 0), Answers)
        servers.append(server)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{server.server_port}/ask"

    yield listen
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        (200, Outcome.DONE),
        (204, Outcome.DONE),
        (202, Outcome.ACKNOWLEDGED),
        (409, Outcome.REFUSED),
        (500, Outcome.FAILED),
    ],
)
async def test_an_address_answers_with_its_status(
    yard: Yard, listener: Callable[[int], str], status: int, outcome: Outcome
) -> None:
    delivery = await yard.ask(yard.python("a", 0, channels=(listener(status),)))

    assert delivery.outcome is outcome
    assert f"HTTP {status}" in delivery.detail


async def test_an_address_where_nobody_listens_is_said(yard: Yard) -> None:
    delivery = await yard.ask(yard.python("a", 0, channels=("http://127.0.0.1:9/ask",)))

    assert delivery.outcome is Outcome.FAILED
    assert "does not answer" in delivery.detail


def _state(pid: int) -> str:
    found = processes.read_stat(pid)
    return found.state if found else ""


def _now(yard: Yard, job: Job) -> Job:
    found = yard.register.find(job.id)
    assert found is not None
    return found
