"""The one door for signals, with real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sentinel.model.jobs import ProcessId
from sentinel.system import processes, signals

CATCHES = "import signal, time\nsignal.signal(10, lambda *_: print('heard', flush=True))\nprint('ready', flush=True)\nwhile True: time.sleep(9)"
CATCHES_NOTHING = "import time\nprint('ready', flush=True)\ntime.sleep(99)"
Start = Callable[[str], "subprocess.Popen[str]"]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts Python programs that say when they are ready."""
    started: list[subprocess.Popen[str]] = []

    def begin(program: str) -> subprocess.Popen[str]:
        process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        return process

    yield begin
    for process in started:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def who(process: subprocess.Popen[str]) -> ProcessId:
    found = processes.identify(process.pid)
    assert found is not None
    return found


def test_who_catches_it_gets_it(start: Start) -> None:
    one, other = start(CATCHES), start(CATCHES)

    sent = signals.request([who(one), who(other)], signal.SIGUSR1)

    assert sent == signals.Sent((one.pid, other.pid))
    for process in (one, other):
        assert process.stdout is not None
        assert process.stdout.readline() == "heard\n"


def test_who_does_not_catch_it_lives_on(start: Start) -> None:
    process = start(CATCHES_NOTHING)

    sent = signals.request([who(process)], signal.SIGUSR1)

    assert sent.pids == ()
    assert sent.refused == {process.pid: f"process {process.pid} does not catch SIGUSR1, which would end it"}
    assert process.poll() is None


def test_a_pid_that_was_given_to_another_is_not_touched(start: Start) -> None:
    process = start(CATCHES)
    now = who(process)
    before = ProcessId(now.pid, now.start_ticks - 1, now.boot_id)

    assert "belongs to another process by now" in signals.request([before], signal.SIGUSR1).reasons
    assert "belongs to another process by now" in signals.control([before], signal.SIGKILL).reasons
    assert process.poll() is None


def test_a_process_of_another_boot_is_not_touched(start: Start) -> None:
    now = who(start(CATCHES))

    assert (
        "before the machine was started again"
        in signals.control([ProcessId(now.pid, now.start_ticks, "another")], signal.SIGTERM).reasons
    )


def test_the_dead_and_the_gone_are_said(start: Start) -> None:
    process = start(CATCHES)
    identity = who(process)
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)

    assert signals.control([identity], signal.SIGCONT).refused == {process.pid: f"process {process.pid} has ended"}
    process.wait()
    assert signals.control([identity], signal.SIGCONT).refused == {process.pid: f"process {process.pid} is gone"}


def test_one_that_cannot_be_asked_keeps_nobody_else_from_being_asked(start: Start) -> None:
    good, bad = start(CATCHES), start(CATCHES_NOTHING)

    sent = signals.request([who(bad), who(good)], signal.SIGUSR1)

    assert sent.pids == (good.pid,)
    assert list(sent.refused) == [bad.pid]


def test_sentinel_never_signals_itself() -> None:
    me = processes.identify(os.getpid())
    assert me is not None

    assert "sentinel itself" in signals.control([me], signal.SIGTERM).reasons


def test_what_asks_for_something_is_no_control() -> None:
    with pytest.raises(ValueError, match="SIGUSR1 is a request"):
        signals.control([], signal.SIGUSR1)


def test_stop_and_continue_need_no_handler(start: Start) -> None:
    process = start(CATCHES_NOTHING)

    def state() -> str:
        found = processes.read_stat(process.pid)
        return found.state if found else ""

    signals.control([who(process)], signal.SIGSTOP)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED)
    assert state() == "T"
    signals.control([who(process)], signal.SIGCONT)
    os.waitid(os.P_PID, process.pid, os.WCONTINUED)
    assert state() != "T"


def test_a_group_is_reached_through_its_leader_only() -> None:
    leader = subprocess.Popen(["sh", "-c", "sleep 99 & sleep 99; :"], start_new_session=True)
    follower = subprocess.Popen(["sleep", "99"])
    try:
        lead, follow = processes.identify(leader.pid), processes.identify(follower.pid)
        assert lead
        assert follow
        with signals.Held(follow) as held, pytest.raises(signals.NotSent, match="does not lead"):
            held.send_to_group(signal.SIGTERM)
        with signals.Held(lead) as held:
            held.send_to_group(signal.SIGTERM)
        assert leader.wait(10) == -signal.SIGTERM
        assert follower.poll() is None
    finally:
        follower.kill()
        follower.wait()
        leader.kill()
        leader.wait()


def test_nothing_else_in_sentinel_sends_signals() -> None:
    """The door is the only one: who needs another says so here."""
    ways = ("os.kill(", "os.killpg(", "pidfd_send_signal(", "signal.raise_signal(")
    package = Path(signals.__file__).parents[1]
    found = {
        str(path.relative_to(package)) for path in package.rglob("*.py") if any(way in path.read_text() for way in ways)
    }

    # These end a child of their own that they have not waited for yet, so its pid can be nobody else's.
    assert found - {"system/frames.py", "jobs/schedulers.py"} == {"system/signals.py"}
