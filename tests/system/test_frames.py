"""A child process that may hang, and a parent that never does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sentinel.system.frames import Child, Gone, Overdue, Refused, python

HOME = str(Path(__file__).resolve().parents[2])
SERVE = f"""
import os, sys, time
sys.path.append({HOME!r})
from sentinel.system.frames import serve
def handle(request):
    match request:
        case {{"echo": value}}: return value
        case {{"sleep": seconds}}: time.sleep(seconds); return "slept"
        case {{"raise": text}}: raise ValueError(text)
        case {{"exit": code}}: os._exit(code)
        case {{"print": text}}: print(text, flush=True); return "printed"
        case {{"big": size}}: return "x" * size
        case "pid": return os.getpid()
"""


@pytest.fixture
def make() -> Iterator[Callable[..., Child]]:
    made: list[Child] = []

    def child(text: str = SERVE + "sys.exit(serve(handle))", deadline_s: float = 10.0) -> Child:
        made.append(
            Child([sys.executable, "-c", text], name="the test child", deadline_s=deadline_s, stderr=subprocess.DEVNULL)
        )
        return made[-1]

    yield child
    for one in made:
        one.close()


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def eventually(condition: Callable[[], bool], seconds: float = 6.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.01)


def test_calls_are_answered_by_one_child(make: Callable[..., Child]) -> None:
    child = make()
    assert child.pid is None
    assert child.call({"echo": {"ü": [1, 2.5, None]}}) == {"ü": [1, 2.5, None]}
    pid = child.call("pid")
    assert pid == child.call("pid") == child.pid
    assert os.getsid(pid) == pid, "Ctrl-C in our terminal is ours alone"


def test_frames_larger_than_a_pipe_pass_both_ways(make: Callable[..., Child]) -> None:
    child = make()
    assert child.call({"echo": "x" * 300_000}) == "x" * 300_000
    assert len(child.call({"big": 300_000})) == 300_000


def test_what_a_library_prints_breaks_no_frame(make: Callable[..., Child]) -> None:
    assert make().call({"print": "hello"}) == "printed"


def test_an_error_of_the_handler_is_an_answer(make: Callable[..., Child]) -> None:
    child = make()
    with pytest.raises(Refused, match="no such thing"):
        child.call({"raise": "no such thing"})
    assert child.call({"echo": 1}) == 1


def test_a_call_that_hangs_costs_the_child_its_life_and_nobody_elses(make: Callable[..., Child]) -> None:
    child = make()
    first = child.call("pid")
    began = time.monotonic()
    with pytest.raises(Overdue, match="the test child did not answer in time"):
        child.call({"sleep": 60}, deadline_s=0.2)
    assert time.monotonic() - began < 2
    assert gone(first)
    assert child.call("pid") != first


def test_a_child_that_dies_in_a_call_says_how(make: Callable[..., Child]) -> None:
    child = make()
    with pytest.raises(Gone, match="exit code 3"):
        child.call({"exit": 3})
    assert child.call({"echo": 1}) == 1


def test_a_child_killed_between_two_calls_is_replaced(make: Callable[..., Child]) -> None:
    child = make()
    first = child.call("pid")
    os.kill(first, signal.SIGKILL)
    eventually(lambda: child.pid is None)
    assert child.call("pid") != first


def test_an_idle_child_ends_and_the_next_call_starts_another(make: Callable[..., Child]) -> None:
    child = make(SERVE + "sys.exit(serve(handle, idle_s=0.05))")
    first = child.call("pid")
    eventually(lambda: child.pid is None)
    assert child.call("pid") != first


def test_something_that_speaks_no_frames_is_refused(make: Callable[..., Child]) -> None:
    with pytest.raises(Gone, match="no frame"):
        make("print('Usage: something else entirely', flush=True); input()").call("pid")


def test_a_command_that_does_not_exist_is_said(make: Callable[..., Child]) -> None:
    with pytest.raises(Gone, match="cannot be started"):
        Child(["/nonexistent/program"]).call("pid")


def test_closing_ends_the_child_even_in_a_call(make: Callable[..., Child]) -> None:
    child = make()
    pid = child.call("pid")
    ends: list[Exception] = []

    def call() -> None:
        try:
            child.call({"sleep": 60})
        except Gone as end:
            ends.append(end)

    thread = threading.Thread(target=call)
    thread.start()
    eventually(child._lock.locked)
    child.close(grace_s=0.1)
    thread.join(5)
    assert not thread.is_alive()
    assert len(ends) == 1
    assert gone(pid)


def test_when_the_parent_is_killed_a_hanging_child_ends_too() -> None:
    parent = subprocess.Popen(
        [
            sys.executable,
            "-c",
            (
                f"import sys; sys.path.append({HOME!r})\nfrom sentinel.system.frames import Child\n"
                f"c = Child([sys.executable, '-c', {SERVE + 'sys.exit(serve(handle))'!r}])\n"
                "print(c.call('pid'), flush=True); c.call({'sleep': 60}, deadline_s=100)"
            ),
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    parent.kill()
    parent.communicate()
    eventually(lambda: gone(child))


def test_our_own_modules_start_from_any_directory(tmp_path: Path) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit('the wrong json')")
    command = python("sentinel.system.frames")
    command[3] = command[3].replace("import main; sys.exit(main())", "import serve; print('found')")
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == "found\n"
