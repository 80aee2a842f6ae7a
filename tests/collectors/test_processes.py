"""Jobs, on real process trees."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sentinel.collectors.gauges import Board
from sentinel.collectors.memory import (
    Budget,
    Constraint,
    GroupLimits,
    HostMemory,
    OomKills,
    SharedMemory,
    memory_fields,
    tightest,
)
from sentinel.collectors.monotone import TreeCounter
from sentinel.collectors.processes import Accounts, JobCollector
from sentinel.collectors.trees import Trees
from sentinel.model.families import JOB
from sentinel.model.jobs import Job, JobState, ProcessId
from sentinel.model.series import Batch
from sentinel.system.cgroups import Cgroups
from sentinel.system.processes import PAGE_BYTES, Stat, read_stat
from tests.collectors.conftest import Started, eventually, said, tell

MIB = 1 << 20
Start = Callable[..., Started]

EIGHT_WORKERS = """
import os, sys
shared = bytearray(os.urandom(1)) * (300 << 20)
for _ in range(8):
    if os.fork() == 0:
        sum(shared[::4096])      # a page that is read stays shared
        os.write(1, b'.')
        os.read(0, 1)
        os._exit(0)
got = 0
print('ready', flush=True)
input()
"""
LEAKER = """
held = []
print('ready', flush=True)
while (line := input()):
    held.append(bytearray(b'x') * (int(line) << 20))
    print('grown', flush=True)
"""
IDLE = "print('ready', flush=True); input()"


class Looking:
    """A collector over jobs that the test changes, and its last rows."""

    def __init__(self, *jobs: Job, cgroups: Cgroups | None = None) -> None:
        self.jobs: list[Job] = list(jobs)
        self.board = Board()
        self.collector = JobCollector(lambda: self.jobs, Trees(), self.board.facts, cgroups)
        self.at = 2000.0
        self.batches: Sequence[Batch] = ()

    def look(self, name: str = "train", seconds: float = 2.0) -> dict[str, float]:
        self.at += seconds
        self.batches = self.collector.collect(self.at)
        return self.batches[0].rows().get((name,), {})


@pytest.fixture
def no_cgroups(tmp_path: Path) -> Cgroups:
    return Cgroups(str(tmp_path))


def test_workers_that_share_pages_are_no_leak(start: Start, no_cgroups: Cgroups) -> None:
    job, child = start(EIGHT_WORKERS, memory_limit_bytes=1024 * MIB)
    assert child.stdout is not None
    os.read(child.stdout.fileno(), 1)
    looking = Looking(job, cgroups=no_cgroups)
    eventually(lambda: looking.look()["job_processes"] == 9)
    eventually(lambda: looking.look()["job_memory_rss_bytes"] > 2000 * MIB, seconds=20)
    seen = looking.look(seconds=30)
    assert 300 * MIB <= seen["job_memory_used_bytes"] < 420 * MIB
    assert seen["job_memory_limit_bytes"] == 1024 * MIB
    assert seen["job_memory_headroom_bytes"] == 1024 * MIB - seen["job_memory_used_bytes"]


def test_growth_is_seen_between_two_readings_of_pss(start: Start, no_cgroups: Cgroups) -> None:
    job, child = start(LEAKER, memory_limit_bytes=600 * MIB)
    looking = Looking(job, cgroups=no_cgroups)
    before = looking.look()["job_memory_used_bytes"]
    for step in range(1, 4):
        tell(child, "50")
        said(child)
        used = looking.look(seconds=0.25)["job_memory_used_bytes"]
        assert used - before == pytest.approx(50 * MIB * step, abs=5 * MIB)
    assert looking.look()["job_memory_headroom_bytes"] < 450 * MIB


def test_the_constraint_with_the_least_headroom_is_the_one_told(start: Start, no_cgroups: Cgroups) -> None:
    job, _ = start(IDLE, memory_limit_bytes=1 << 60)
    seen = Looking(job, cgroups=no_cgroups).look()
    assert seen["job_memory_limit_bytes"] == memory_fields()[b"MemTotal"], "the host is nearer than 2^60"
    assert seen["job_memory_used_bytes"] + seen["job_memory_headroom_bytes"] == seen["job_memory_limit_bytes"]


@pytest.fixture
def group() -> Iterator[str]:
    """A control group of our own below where we are, for real."""
    here = Cgroups().directory(os.getpid())
    if here is None:
        pytest.skip("no memory controller can be seen here")
    directory = f"{here}/sentinel-jobs-{os.getpid()}"
    try:
        os.mkdir(directory)
    except OSError as fault:
        pytest.skip(f"no control group can be made here: {fault}")
    yield directory
    eventually(lambda: not Path(directory, "cgroup.procs").read_text())
    os.rmdir(directory)


def test_a_real_control_group_kills_before_the_host_is_full(group: str, start: Start) -> None:
    limit = Path(group, "memory.limit_in_bytes" if Cgroups().version == 1 else "memory.max")
    try:
        limit.write_text(str(256 * MIB))
    except OSError as fault:
        pytest.skip(f"the memory controller is not delegated here: {fault}")
    job, child = start(LEAKER, memory_limit_bytes=600 * MIB)
    Path(group, "cgroup.procs").write_text(str(child.pid))
    tell(child, "100")
    said(child)
    looking = Looking(job)
    seen = looking.look()
    assert seen["job_memory_limit_bytes"] == 256 * MIB
    assert 100 * MIB <= seen["job_memory_used_bytes"] < 130 * MIB
    assert seen["job_cgroup_oom_kills_total"] == 0
    tell(child, "200")
    child.wait(10)
    assert looking.collector.oom_kills(job.id) == 1, "told before the next pass"
    after = looking.look()
    assert after["job_up"] == 0
    assert after["job_cgroup_oom_kills_total"] == 1


def test_processor_time_of_the_dead_counts_and_never_goes_back(start: Start) -> None:
    text = """
import os, time
print('ready', flush=True)
while input():
    pid = os.fork()
    if pid == 0:
        end = time.process_time() + 0.15
        while time.process_time() < end: pass
        os._exit(0)
    os.waitpid(pid, 0)
    print('done', flush=True)
"""
    job, child = start(text)
    looking = Looking(job)
    before = looking.look()["job_cpu_seconds_total"]
    for _ in range(2):
        tell(child, "go")
        said(child)
        after = looking.look()["job_cpu_seconds_total"]
        assert after - before >= 0.13
        before = after
    child.kill()
    child.wait()
    assert looking.look()["job_cpu_seconds_total"] == before


def test_a_zombie_is_counted_and_is_no_process(start: Start) -> None:
    job, child = start("import os\nif os.fork() == 0: os._exit(0)\nprint('ready', flush=True); input()")
    looking = Looking(job)
    eventually(lambda: looking.look()["job_zombies"] == 1)
    assert looking.look()["job_processes"] == 1
    assert looking.look()["job_uninterruptible"] == 0
    child.kill()
    eventually(lambda: (stat := read_stat(child.pid)) is not None and not stat.alive)
    assert looking.look()["job_up"] == 0, "a zombie leader is no life"


def test_a_process_that_cannot_be_interrupted_is_counted(start: Start, tmp_path: Path) -> None:
    """A parent waits so for a spawned child that has not executed its program yet: here, one stuck at a FIFO."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    job, _ = start(
        "import os, sys\n"
        "print('ready', flush=True)\n"
        f"stuck = (os.POSIX_SPAWN_OPEN, 0, {str(fifo)!r}, os.O_RDONLY, 0)\n"
        "os.posix_spawn(sys.executable, [sys.executable, '-c', ''], os.environ, file_actions=[stuck])"
    )
    looking = Looking(job)
    eventually(lambda: looking.look()["job_uninterruptible"] == 1)


def test_open_files_are_those_of_the_process_nearest_its_limit(start: Start) -> None:
    job, _ = start(
        "import os, resource\n"
        "files = [open('/dev/null') for _ in range(60)]\n"
        "r, w = os.pipe()\n"
        "if os.fork() == 0:\n"
        "    for f in files[20:]: f.close()\n"
        "    resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40)); os.write(w, b'.'); input()\n"
        "os.read(r, 1); print('ready', flush=True); input()"
    )
    seen = Looking(job).look()
    assert seen["job_max_fds"] == 40
    assert 23 <= seen["job_open_fds"] <= 30


def test_what_is_written_counts(start: Start, tmp_path: Path) -> None:
    text = f"""
import os
print('ready', flush=True); input()
with open({str(tmp_path / "out")!r}, 'wb') as f: f.write(b'x' * 3000000); f.flush(); os.fsync(f.fileno())
print('written', flush=True); input()
"""
    job, child = start(text)
    looking = Looking(job)
    before = looking.look()
    tell(child)
    said(child)
    after = looking.look()
    if after["job_written_bytes_total"] == 0:
        pytest.skip("the temporary directory is in memory")
    assert after["job_written_bytes_total"] - before["job_written_bytes_total"] >= 3_000_000


def test_what_a_worker_wrote_is_counted_once_through_its_death(tmp_path: Path) -> None:
    """A zombie may not be read without root; what it wrote appears at its parent when it is reaped."""

    def io(pid: int, written: int | None) -> None:
        (tmp_path / str(pid)).mkdir(exist_ok=True)
        if written is None:
            (tmp_path / str(pid) / "io").unlink()
        else:
            (tmp_path / str(pid) / "io").write_text(f"rchar: 1\nread_bytes: 0\nwrite_bytes: {written}\ncancelled: 0\n")

    accounts = Accounts({}, Budget(), Cgroups(str(tmp_path)), str(tmp_path))
    parent, worker, zombie = stat(7, 1), stat(8, 1), stat(8, 1, state="Z")

    def written(*members: Stat) -> float | None:
        return accounts.read(100.0, list(members))["job_written_bytes_total"]

    io(7, 100)
    io(8, 50)
    assert written(parent, worker) == 150
    io(8, None)
    assert written(parent, zombie) == 150
    io(7, 155)
    assert written(parent) == 155
    assert written() == 155


def test_what_the_daemon_knows_joins_the_row(start: Start) -> None:
    job, _ = start(IDLE)
    looking = Looking(replace(job, attempt=3, degrade_level=1))
    looking.board.set(JOB, ("train",), job_step=42.0, job_last_output_timestamp_seconds=1990.0)
    seen = looking.look()
    assert seen["job_step"] == 42
    assert seen["job_attempts_total"] == 3
    assert seen["job_degrade_level"] == 1
    assert seen["job_runtime_seconds"] == looking.at - 1000
    assert seen["job_up"] == 1


def test_an_ended_job_keeps_its_state_and_loses_all_else(start: Start) -> None:
    job, _ = start(IDLE)
    looking = Looking(job)
    looking.look()
    looking.jobs = [replace(job, state=JobState.FAILED, ended=2003.0)]
    assert looking.look() == {"job_up": 0.0}
    states = looking.batches[1].rows()
    assert states["train", "failed"] == {"job_state": 1.0}
    assert states["train", "running"] == {"job_state": 0.0}
    looking.jobs = []
    assert looking.look() == {}
    assert list(looking.batches[0].covers) == [("train",)], "stale once"
    looking.look()
    assert list(looking.batches[0].covers) == []


def test_a_name_that_is_used_again_is_the_living_jobs(start: Start) -> None:
    job, _ = start(IDLE)
    old = replace(job, id="old", state=JobState.SUCCEEDED, created=5.0)
    assert Looking(job, old).look()["job_up"] == 1
    assert Looking(old, job).look()["job_up"] == 1


def test_a_job_that_has_not_started_has_no_life_to_tell_of(start: Start) -> None:
    job, _ = start(IDLE)
    seen = Looking(replace(job, root=None, state=JobState.STARTING, attempt_started=None)).look()
    assert "job_up" not in seen
    assert seen["job_attempts_total"] == 1


def test_endangered_jobs_are_looked_at_alone(start: Start, no_cgroups: Cgroups) -> None:
    first, child = start(LEAKER, "leak", memory_limit_bytes=600 * MIB)
    second, _ = start(IDLE, "calm")
    looking = Looking(first, second, cgroups=no_cgroups)
    before = looking.look("leak")["job_memory_used_bytes"]
    tell(child, "60")
    said(child)
    (batch,) = looking.collector.collect_only(looking.at + 0.25, frozenset({"leak"}))
    assert batch.covers == (("leak",),)
    assert batch.rows()["leak",]["job_memory_used_bytes"] - before == pytest.approx(60 * MIB, abs=5 * MIB)
    assert looking.collector.collect_only(looking.at + 0.5, frozenset({"nobody"})) == ()


def test_the_processes_of_two_jobs_are_told_apart_and_are_not_ours(start: Start) -> None:
    one, _ = start(IDLE, "one")
    two, _ = start(IDLE, "two")
    trees = Trees()
    trees.update(100.0, [one, two])
    assert one.root is not None
    assert two.root is not None
    assert trees.owners == {one.root.pid: "one", two.root.pid: "two"}
    assert {stat.pid for stat in trees.own} >= {os.getpid()}
    assert not {one.root.pid, two.root.pid} & {stat.pid for stat in trees.own}


def test_a_counter_goes_on_after_a_restart_of_sentinel(start: Start) -> None:
    job, _ = start(IDLE)
    looking = Looking(job)
    looking.collector.restore(job.id, "job_cpu_seconds_total", 500.0)
    seen = looking.look()["job_cpu_seconds_total"]
    assert seen == pytest.approx(500.0, abs=0.01)
    os.kill(job.root.pid if job.root else 0, signal.SIGKILL)
    assert looking.look()["job_cpu_seconds_total"] >= seen


def stat(pid: int, rss_mib: int, state: str = "S", faults: int = 0) -> Stat:
    return Stat(pid, "x", state, 1, 1, 1, 0, 0, 0, 1, 100, rss_mib * MIB // PAGE_BYTES, faults)


class Pss:
    """Counts how often it is read; each reading takes `cost` seconds."""

    def __init__(self, cost: float = 0.0, **sizes_mib: int) -> None:
        self.sizes: dict[int, int | None] = {int(pid[1:]): size * MIB for pid, size in sizes_mib.items()}
        self.reads = 0
        self.cost = cost
        self.now = 0.0

    def read(self, pid: int) -> int | None:
        self.reads += 1
        self.now += self.cost
        return self.sizes[pid]

    def memory(self, budget: Budget | None = None) -> SharedMemory:
        return SharedMemory(self.read, budget, lambda: self.now)


def test_pss_is_read_every_ten_seconds_while_pages_fault() -> None:
    """A forked worker that writes to shared pages grows without any change of RSS."""
    pss = Pss(_7=100)
    memory = pss.memory()
    for at in range(0, 21, 2):
        assert memory.update(at, [stat(7, 120, faults=10_000 * at)]) == 100 * MIB
    assert pss.reads == 3


def test_a_tree_in_which_nothing_faults_is_left_alone_for_a_minute() -> None:
    pss = Pss(_7=100)
    memory = pss.memory()
    for at in range(0, 122, 2):
        memory.update(at, [stat(7, 120, faults=at)])
    assert pss.reads == 3


def test_pss_is_read_at_once_when_the_tree_grows_or_has_a_newcomer() -> None:
    pss = Pss(_7=100, _8=20)
    memory = pss.memory()
    memory.update(0, [stat(7, 120)])
    assert memory.update(0.5, [stat(7, 220)]) == 200 * MIB, "moved by RSS"
    assert pss.reads == 1
    pss.sizes[7] = 190 * MIB
    assert memory.update(2, [stat(7, 220)]) == 190 * MIB
    assert memory.update(4, [stat(7, 220), stat(8, 200)]) == 210 * MIB
    assert memory.update(6, [stat(7, 220)]) == 190 * MIB, "a dead worker takes its share along"


def test_pss_of_a_huge_process_is_read_as_seldom_as_it_is_dear() -> None:
    pss = Pss(cost=0.09, _7=100)
    memory = pss.memory()
    for at in range(0, 60, 2):
        memory.update(at, [stat(7, 120 + 40 * at)])
    assert pss.reads == 4, "0.09 s every eighteen seconds is half a percent of a core"


def test_all_trees_share_one_allowance() -> None:
    budget = Budget()
    pss = Pss(cost=0.03, _7=100)
    memories = [pss.memory(budget) for _ in range(5)]
    for at in range(0, 100, 2):
        for memory in memories:
            memory.update(at, [stat(7, 120, faults=10_000 * at)])
    assert pss.reads == 5 * 2, "0.15 s together: every 75 seconds"
    for memory in memories[1:]:
        memory.close()
    for at in range(100, 130, 2):
        memories[0].update(at, [stat(7, 120, faults=10_000 * at)])
    assert pss.reads == 5 * 2 + 2, "and alone every fifteen"


def test_what_takes_long_to_read_delays_no_pass() -> None:
    """A first reading that takes long has no answer yet, and RSS in its place would be a false alarm."""
    go_on = threading.Event()

    def read(pid: int) -> int:
        go_on.wait(10)
        return 4000 * MIB

    memory = SharedMemory(read)
    huge = [stat(7, 8000)]
    assert memory.update(0, huge) is None
    assert memory.update(2, huge) is None
    go_on.set()
    eventually(lambda: memory.update(4, huge) == 4000 * MIB)
    assert memory.update(6, [stat(7, 8050)]) == 4050 * MIB


def test_where_pss_may_not_be_read_rss_stands_for_it() -> None:
    pss = Pss()
    pss.sizes[7] = None
    assert pss.memory().update(0, [stat(7, 120), stat(8, 999, state="Z")]) == 120 * MIB


def test_of_limits_the_nearest_to_its_end_decides() -> None:
    low = Constraint("cgroup", 90.0, 100.0)
    assert tightest([Constraint("host", 500.0, 1000.0), low, Constraint("declared", 10.0, 60.0)]) is low
    assert tightest([]) is None
    over = Constraint("declared", 70.0, 60.0)
    assert tightest([low, over]) is over


def test_without_memavailable_the_host_is_no_constraint(tmp_path: Path) -> None:
    (tmp_path / "meminfo").write_text("MemTotal: 100 kB\nMemFree: 50 kB\nrest: 1 kB\n")
    assert HostMemory(str(tmp_path)).read() is None


def test_jobs_in_the_daemons_own_container_share_its_limit(tmp_path: Path) -> None:
    """All say "/": the container's use is everybody's, read once per pass."""
    at = tmp_path / "sys/fs/cgroup"
    at.mkdir(parents=True)
    for name, text in (("memory.max", "1000"), ("memory.current", "700"), ("memory.stat", "inactive_file 100\n")):
        (at / name).write_text(text)
    (at / "memory.events").write_text("oom 1\noom_kill 1\n")
    proc = tmp_path / "proc"
    for pid in ("self", "7", "8"):
        (proc / pid).mkdir(parents=True)
        (proc / pid / "cgroup").write_text("0::/\n")
    (proc / "self/mountinfo").write_text("35 24 0:30 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n")
    limits = GroupLimits(Cgroups(str(proc), str(tmp_path)))
    limits.begin(100.0)
    assert limits.constraints([stat(7, 1), stat(8, 1)]) == [Constraint("cgroup", 600.0, 1000.0)]
    assert limits.groups([stat(7, 1), stat(8, 1)]) == {str(at)}
    kills = OomKills(Cgroups(str(proc), str(tmp_path)))
    root = ProcessId(7, 100, "boot")
    assert kills.update(root, {str(at)}) == 0, "the kill of before is none of theirs"
    (at / "memory.events").write_text("oom 3\noom_kill 3\n")
    assert kills.of_attempt() == 2
    assert kills.update(root, set()) == 2, "the tree is gone, its group still tells"
    assert kills.update(ProcessId(9, 200, "boot"), {str(at)}) == 2
    assert kills.of_attempt() == 0, "the next attempt"
    assert kills.update(ProcessId(9, 200, "boot"), {str(tmp_path)}) is None, "a group that tells nothing"
    (at / "memory.current").write_text("800")
    assert limits.constraints([stat(8, 1)]) == [Constraint("cgroup", 600.0, 1000.0)]
    limits.begin(102.0)
    assert limits.constraints([stat(8, 1)]) == [Constraint("cgroup", 700.0, 1000.0)]


def test_a_death_within_the_tree_moves_the_number_and_loses_nothing() -> None:
    counter = TreeCounter()
    parent, worker, orphan = (1, 1), (2, 1), (3, 1)
    assert counter.update({parent: 10, worker: 5, orphan: 7}, {parent: 0, worker: 0, orphan: 0}) == 22
    assert counter.update({parent: 10, orphan: 7}, {parent: 6, orphan: 0}) == 23, "the worker was reaped with 6"
    assert counter.update({parent: 11}, {parent: 6}) == 24, "the orphan was reaped by somebody else"
    assert counter.update({}, {}) == 24
    assert counter.update({(4, 2): 3}, {(4, 2): 0}) == 27, "the next attempt goes on"


@given(st.lists(st.dictionaries(st.tuples(st.integers(1, 5), st.just(1)), st.floats(0, 100), max_size=5), max_size=12))
def test_a_tree_counter_never_goes_back(passes: list[dict[tuple[int, int], float]]) -> None:
    counter = TreeCounter(base=3.0)
    totals = [counter.update(own) for own in passes]
    assert totals == sorted(totals)
    assert not totals or totals[0] >= 3.0
