"""Who a process is, and which processes belong together, on real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sentinel.model.jobs import ProcessId
from sentinel.system import processes
from sentinel.system.processes import Processes, Stat, Tree


@contextmanager
def program(text: str, *, session: bool = False) -> Iterator[subprocess.Popen[str]]:
    """A Python program that has said one line, and is gone afterwards with all its process group."""
    child = subprocess.Popen(
        [sys.executable, "-c", text],
        stdout=subprocess.PIPE,
        stdin=subprocess.PIPE,
        text=True,
        start_new_session=session,
    )
    try:
        yield child
    finally:
        if session:
            with suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
        child.kill()
        child.communicate()


def said(child: subprocess.Popen[str]) -> str:
    assert child.stdout is not None
    return child.stdout.readline().strip()


def eventually(condition: Callable[[], bool], seconds: float = 5.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.005)


def stat(pid: int, ppid: int = 1, *, pgrp: int = 0, session: int = 0, start: int = 100, state: str = "S") -> Stat:
    return Stat(pid, "x", state, ppid, pgrp or pid, session or pid, 0, 0, 0, 1, start, 10)


def scan_of(*stats: Stat) -> dict[int, Stat]:
    return {one.pid: one for one in stats}


def root(pid: int = 10, start: int = 100) -> ProcessId:
    return ProcessId(pid, start, "boot")


def test_a_process_is_more_than_its_pid() -> None:
    with program("print('here'); input()") as child:
        said(child)
        known = processes.identify(child.pid)
        assert known is not None
        assert processes.same(known)
        assert not processes.same(ProcessId(known.pid, known.start_ticks + 1, known.boot_id))
        assert not processes.same(ProcessId(known.pid, known.start_ticks, "another boot"))
    assert not processes.same(known)


def test_a_zombie_is_nobody_to_talk_to() -> None:
    with program("print('here'); input()") as child:
        said(child)
        known = processes.identify(child.pid)
        assert known is not None
        child.kill()
        eventually(lambda: (seen := processes.read_stat(child.pid)) is not None and not seen.alive)
        assert not processes.same(known)
        assert processes.identify(child.pid) == known


def test_a_name_with_brackets_does_not_shift_the_fields() -> None:
    line = b"7 (a) S (b\n) R 1 2 3 0 -1 4194304 1 2 3 4 50 60 7 8 20 0 9 0 12345 1000 77 18446744073709551615 1 1\n"
    assert processes.parse_stat(line) == Stat(7, "a) S (b\n", "R", 1, 2, 3, 50, 60, 15, 9, 12345, 77, 1)


@given(st.binary(max_size=200))
def test_no_garbage_is_a_process(garbage: bytes) -> None:
    assert processes.parse_stat(garbage.replace(b") ", b"")) is None


def test_it_reads_what_a_process_holds() -> None:
    text = "import signal,os; signal.signal(signal.SIGUSR1, print); f=[open('/dev/null') for _ in range(40)]; print('here'); input()"
    with program(text) as child:
        said(child)
        mask = processes.signals_caught(child.pid)
        assert processes.catches(mask, signal.SIGUSR1)
        assert not processes.catches(mask, signal.SIGUSR2)
        assert (processes.open_files(child.pid) or 0) >= 43
        assert (processes.open_files_limit(child.pid) or 0) > 43
        assert processes.command_line(child.pid) == [sys.executable, "-c", text]
        assert processes.owner(child.pid) == os.getuid()
        assert (processes.proportional_bytes(child.pid) or 0) > 1 << 20
    assert processes.open_files(child.pid) is None
    assert processes.proportional_bytes(child.pid) is None
    assert processes.storage_bytes(child.pid) is None
    assert processes.signals_caught(child.pid) == 0
    assert processes.command_line(child.pid) == []


def test_what_is_written_counts(tmp_path: Path) -> None:
    text = f"f=open({str(tmp_path / 'out')!r},'wb'); f.write(b'x'*1000000); f.flush(); import os; os.fsync(f.fileno()); print('here'); input()"
    with program(text) as child:
        said(child)
        counted = processes.storage_bytes(child.pid)
        assert counted is not None
        assert counted[1] >= 1_000_000 or counted == (0, 0)  # tmpfs writes nothing


def test_grandchildren_belong_to_the_tree() -> None:
    text = "import os,time; a=os.fork(); b=os.fork(); os.write(1, b'%d\\n' % os.getpid()); input() if a and b else time.sleep(60)"
    with program(text, session=True) as child:
        pids = {int(said(child)) for _ in range(4)}
        known = processes.identify(child.pid)
        assert known is not None
        members = Tree(known).update(processes.scan())
        assert {member.pid for member in members} == pids
        assert members[0].pid == child.pid


def test_a_member_that_was_reparented_stays_a_member() -> None:
    text = (
        "import os,time\n"
        "if os.fork() == 0:\n"
        "    if os.fork() == 0:\n"
        "        os.setsid(); print(os.getpid(), flush=True); time.sleep(60)\n"
        "    time.sleep(60)\n"
        "input()"
    )
    with program(text, session=True) as child:
        grandchild = int(said(child))
        known, between = processes.identify(child.pid), processes.read_stat(grandchild)
        assert known is not None
        assert between is not None
        tree = Tree(known)
        assert len(tree.update(processes.scan())) == 3
        os.kill(between.ppid, signal.SIGKILL)
        eventually(lambda: (now := processes.read_stat(grandchild)) is not None and now.ppid != between.ppid)
        assert grandchild in {member.pid for member in tree.update(processes.scan())}
        os.kill(grandchild, signal.SIGKILL)


def test_a_member_seen_once_is_forgotten_when_its_pid_is_given_away() -> None:
    tree = Tree(root())
    tree.update(scan_of(stat(10), stat(11, 10, start=101)))
    assert [m.pid for m in tree.update(scan_of(stat(10), stat(11, 1, start=102)))] == [10]


def test_the_process_group_outlives_its_leader() -> None:
    tree = Tree(root(), pgid=10)
    tree.update(scan_of(stat(10), stat(11, 10, pgrp=10)))
    left = scan_of(stat(12, 1, pgrp=10, start=103))
    assert [m.pid for m in tree.update(left)] == [12]


def test_a_reused_root_takes_nobody_along() -> None:
    tree = Tree(root(), pgid=10)
    assert tree.update(scan_of(stat(10, start=500), stat(11, 10, pgrp=10, start=501))) == []


def test_a_process_older_than_the_root_is_no_companion() -> None:
    tree = Tree(root(), pgid=5)
    assert [m.pid for m in tree.update(scan_of(stat(10), stat(6, 1, pgrp=5, start=99)))] == [10]


def test_sentinel_is_never_a_member() -> None:
    ourselves = os.getpid()
    seen = scan_of(stat(10), stat(ourselves, 10, pgrp=10), stat(ourselves + 1, ourselves))
    assert [m.pid for m in Tree(root()).update(seen)] == [10]


@given(
    st.lists(st.tuples(st.integers(1, 30), st.integers(0, 30), st.integers(1, 30), st.integers(90, 110)), max_size=25)
)
def test_a_tree_ends_and_names_each_member_once(rows: list[tuple[int, int, int, int]]) -> None:
    """However tangled the parents are: /proc is no snapshot, so even circles can be read."""
    seen = scan_of(*(stat(pid, ppid, pgrp=pgrp, start=start) for pid, ppid, pgrp, start in rows))
    tree = Tree(root(), pgid=10)
    for _ in range(2):
        members = tree.update(seen)
        assert len({member.pid for member in members}) == len(members)
        assert {member.pid for member in members} == set(tree.pids)


def test_what_is_not_watched_is_read_once() -> None:
    looking = Processes()
    with program("print('here'); input()") as child:
        said(child)
        first = looking.look(full=True)[child.pid]
        child.send_signal(signal.SIGSTOP)
        eventually(lambda: (seen := processes.read_stat(child.pid)) is not None and seen.state == "T")
        assert looking.look()[child.pid] is first
        assert looking.look({child.pid})[child.pid].state == "T"
        child.send_signal(signal.SIGCONT)
    assert child.pid not in looking.look()


def test_without_proc_there_is_an_error_and_no_empty_answer(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        processes.scan(str(tmp_path / "nowhere"))
    assert processes.boot_id(str(tmp_path / "nowhere")) == ""


def test_a_process_whose_first_thread_has_ended_still_runs() -> None:
    program = (
        "import ctypes, sys, threading\n"
        "threading.Thread(target=sys.stdin.read, daemon=True).start()\n"
        "print('ready', flush=True)\n"
        "ctypes.CDLL(None).pthread_exit(None)"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        deadline = time.monotonic() + 10
        while (seen := processes.read_stat(child.pid)) is not None and seen.alive and time.monotonic() < deadline:
            time.sleep(0.01)
        who = processes.identify(child.pid)
        assert who is not None
        assert seen is not None
        assert (seen.state, seen.alive, processes.same(who)) == ("Z", False, True)
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert not processes.same(who)
