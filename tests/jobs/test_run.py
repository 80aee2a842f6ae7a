"""`sentinel run` with real processes, without a terminal."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from sentinel.jobs.logfile import LogFile
from sentinel.jobs.output import Sink, Tail
from sentinel.system import holes, processes
from tests.jobs.desk import Desk, running, until

COUNTS = """
import signal, sys, time
open("pid", "w").write(str(__import__("os").getpid()))
for number in range(int(sys.argv[1])):
    print("line", number)
    time.sleep(0.01)
"""
WAITS = """
import os, signal, sys, time
def heard(number, frame):
    with open("heard", "a") as file:
        file.write(signal.Signals(number).name + "\\n")
    if number == signal.SIGTERM:
        sys.exit(7)
for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2):
    signal.signal(number, heard)
open("pid", "w").write(str(os.getpid()))
while True:
    time.sleep(0.05)
"""


@pytest.mark.parametrize("code", [0, 3, 255])
def test_a_job_ends_sentinel_with_its_own_code(desk: Desk, code: int) -> None:
    done = desk.run("--quiet", "--", "sh", "-c", f"exit {code}")

    assert done.returncode == code


def test_a_job_that_dies_of_a_signal_ends_it_with_128_and_the_number(desk: Desk) -> None:
    assert desk.run("--quiet", "--", "sh", "-c", "kill -TERM $$").returncode == 128 + 15


def test_stdout_and_stderr_stay_apart_and_stdin_passes_through(desk: Desk) -> None:
    done = desk.run("--quiet", "--", "sh", "-c", "cat; echo trouble >&2", input="hello\n")

    assert done.stdout == "hello\n"
    assert done.stderr.splitlines()[-1] == "trouble"


def test_where_both_are_one_pipe_the_order_is_kept(desk: Desk) -> None:
    done = desk.run(
        "--quiet", "--", "sh", "-c", "for i in 1 2 3; do echo o$i; echo e$i >&2; done",
        capture_output=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip

    assert done.stdout.splitlines()[-6:] == ["o1", "e1", "o2", "e2", "o3", "e3"]


def test_the_job_writes_into_its_log_itself_and_python_does_not_buffer(served: Desk) -> None:
    program = served.script(
        "train.py",
        "import os, time; print('here'); open('fd','w').write(os.readlink('/proc/self/fd/1')); time.sleep(60)",
    )
    served.begin("--", "python3", program)

    log = Path(until(lambda: served.read("fd")))
    assert log.name == "stdout.log"
    assert until(log.read_text) == "here\n"  # although it has neither ended nor flushed
    assert served.job("train")["output"] == [str(log), str(log.with_name("stderr.log"))]


def test_much_output_arrives_whole_through_a_slow_pipe(desk: Desk) -> None:
    done = desk.run("--quiet", "--", "sh", "-c", "seq 1 400000")

    assert done.stdout.split() == [str(number) for number in range(1, 400001)]


def test_a_job_outlives_the_reader_of_its_output(desk: Desk) -> None:
    job = desk.begin(
        "--quiet", "--", "sh", "-c", "for i in $(seq 30); do echo $i; sleep 0.02; done; echo through > done"
    )
    assert job.stdout is not None
    job.stdout.readline()
    job.stdout.close()

    assert job.wait(15) == 0
    assert desk.read("done") == "through\n"


@pytest.mark.parametrize("name", ["SIGHUP", "SIGINT", "SIGUSR1", "SIGUSR2", "SIGTERM"])
def test_signals_to_sentinel_reach_the_job(desk: Desk, name: str) -> None:
    job = desk.begin("--quiet", "--", "python3", desk.script("waits.py", WAITS))
    until(lambda: desk.read("pid"))

    job.send_signal(signal.Signals[name])

    until(lambda: name in desk.read("heard"))
    if name == "SIGTERM":
        assert job.wait(10) == 7


def test_nohup_holds_for_the_job_too(desk: Desk) -> None:
    job = desk.begin("--quiet", "--", "sh", "-c", "echo $$ > pid; exec sleep 60", preexec_fn=_ignore_hup)
    pid = int(until(lambda: desk.read("pid")))
    until(lambda: Path(f"/proc/{pid}/comm").read_text() == "sleep\n")

    assert int(_status(pid, "SigIgn"), 16) & ~_LIBC == 1 << (signal.SIGHUP - 1)
    assert job.poll() is None


def test_nothing_that_python_ignores_is_ignored_by_the_job(desk: Desk) -> None:
    done = desk.run("--quiet", "--", "grep", "SigIgn", "/proc/self/status")

    assert int(done.stdout.split()[1], 16) & ~_LIBC == 0


def test_the_job_leads_a_group_and_inherits_no_descriptor_of_ours(desk: Desk) -> None:
    done = desk.run("--quiet", "--", "sh", "-c", "ls /proc/self/fd | wc -l; cut -d' ' -f1,5,6 /proc/$$/stat")

    descriptors, ids = done.stdout.splitlines()
    assert int(descriptors) <= 4  # 0, 1, 2 and the directory that ls reads
    assert len(set(ids.split())) == 1


def test_the_job_learns_who_it_is_and_nothing_else_is_touched(served: Desk) -> None:
    done = served.run("--name", "llama", "--", "env", "-0")

    environ = dict(pair.split("=", 1) for pair in done.stdout.rstrip("\0").split("\0"))
    job = served.job("llama")
    assert {
        key: environ.pop(key) for key in list(environ) if key.startswith("SENTINEL_") and key != "SENTINEL_STATE_DIR"
    } == {
        "SENTINEL_JOB_ID": job["id"],
        "SENTINEL_JOB_NAME": "llama",
        "SENTINEL_SOCKET": str(served.socket),
        "SENTINEL_ATTEMPT": "1",
        "SENTINEL_RESUME_FROM": "",
        "SENTINEL_DEGRADE_LEVEL": "0",
    }
    assert environ.pop("PYTHONUNBUFFERED") == "1"
    assert environ == {key: value for key, value in served.environ.items() if key != "SENTINEL_SOCKET"}


def test_the_newest_checkpoint_goes_into_the_command(desk: Desk) -> None:
    desk.environ["SMALL_RESUME_FROM"] = "/ckpt/step-7"
    desk.start_daemon()

    done = desk.run("--", "sh", "-c", "echo --resume {checkpoint} $SENTINEL_RESUME_FROM")

    assert done.stdout == "--resume /ckpt/step-7 /ckpt/step-7\n"
    assert "newest checkpoint" not in done.stderr
    assert "resumes from /ckpt/step-7" in done.stderr


def test_a_command_that_is_not_there_is_said_as_a_shell_says_it(desk: Desk) -> None:
    (desk.root / "plain").write_text("#!/bin/sh\n")

    missing = desk.run("--", "no-such-command")
    plain = desk.run("--", "./plain")
    directory = desk.run("--", "/tmp")

    assert (missing.returncode, plain.returncode, directory.returncode) == (127, 126, 126)
    assert "command not found: no-such-command (in no directory of PATH)" in missing.stderr
    assert "chmod +x ./plain" in plain.stderr
    assert "/tmp is a directory" in directory.stderr


def test_a_script_without_an_interpreter_runs_as_it_does_from_a_shell(desk: Desk) -> None:
    path = desk.root / "old"
    path.write_text("echo ran $1\n")
    path.chmod(0o755)

    assert desk.run("--quiet", "--", "./old", "well").stdout == "ran well\n"


def test_everything_that_is_wrong_is_said_at_once(desk: Desk) -> None:
    done = desk.run(
        "--memory-limit", "lots", "--on-checkpoint", "signal:FOO", "--degrade-levels", "0", "--cost-per-hour", "x",
        "--name", "a b", "--notify", "me", "--rules", "none.yaml", "--", "true",
    )  # fmt: skip

    assert done.returncode == 2
    for option in ("memory-limit", "on-checkpoint", "degrade-levels", "cost-per-hour", "name", "notify", "rules"):
        assert f"--{option}" in done.stderr
    assert "Traceback" not in done.stderr


def test_what_the_daemon_will_not_have_is_said_and_not_started(served: Desk) -> None:
    done = served.run("--name", "unwelcome", "--", "touch", "ran")

    assert done.returncode == 2
    assert "that is no rule file" in done.stderr
    assert not (served.root / "ran").exists()


def test_a_job_runs_without_any_daemon_and_says_so(desk: Desk) -> None:
    done = desk.run("--", "echo", "works")

    assert (done.returncode, done.stdout) == (0, "works\n")
    assert "✓" not in done.stderr
    assert "nothing, and nobody is asked or told" in done.stderr


def test_the_life_of_a_job_is_journalled_and_told(served: Desk) -> None:
    assert served.run("--", "sh", "-c", "exit 4").returncode == 4

    job = served.job("sh")
    assert (job["state"], job["exit_code"], job["cause"]) == ("failed", 4, "exit code 4")
    kinds = [event["kind"] for kind in ("job.starting", "job.running", "job.failed") for event in served.events(kind)]
    assert kinds == ["job.starting", "job.running", "job.failed"]


def test_a_second_job_of_the_same_name_is_renamed_and_says_so(served: Desk) -> None:
    program = served.script("train.py", WAITS)
    served.begin("--", "python3", program)
    until(lambda: served.read("pid"))
    (served.root / "pid").unlink()

    second = served.begin("--", "python3", program)
    until(lambda: served.read("pid"))
    second.terminate()
    assert second.wait(10) == 7
    assert second.stderr is not None
    assert "train-2 (train runs already)" in second.stderr.read().decode()


@pytest.mark.parametrize("to", ["pipe", "file"])
def test_a_killed_supervisor_does_not_take_the_job_with_it(served: Desk, to: str) -> None:
    program = served.script("train.py", COUNTS)
    target = (served.root / "out").open("wb") if to == "file" else None
    job = served.begin("--", "python3", program, "100", stdout=target or subprocess.PIPE)
    until(lambda: served.job("train").get("root"))

    job.kill()

    until(lambda: served.events("sentinel.supervisor_lost"))
    until(lambda: served.job("train")["state"] == "lost")
    known = served.job("train")
    log = Path(known["output"][0]).read_text()
    assert log.splitlines() == [f"line {number}" for number in range(100)]
    assert known["cause"] == "ended; nobody could see how"
    if target:
        target.close()


def test_the_job_and_its_supervisor_outlive_the_daemon_and_find_the_next(served: Desk) -> None:
    program = served.script("train.py", "import sys\nsys.stdin.readline()\nsys.exit(5)")
    job = served.begin("--", "python3", program, stdin=subprocess.PIPE)
    until(lambda: served.job("train").get("root"))
    before = served.job("train")
    served.kill_daemon()

    served.start_daemon()
    until(lambda: len(served.events("job.running")) >= 1 and served.daemon)
    assert job.stdin is not None
    job.stdin.write(b"\n")
    job.stdin.flush()

    assert job.wait(20) == 5
    until(lambda: served.job("train")["state"] == "failed")
    after = served.job("train")
    assert (after["id"], after["exit_code"]) == (before["id"], 5)
    assert not served.events("sentinel.supervisor_lost")


def test_a_daemon_that_was_away_at_the_end_reads_how_it_was(served: Desk) -> None:
    program = served.script("train.py", "import sys\nsys.stdin.readline()\nsys.exit(9)")
    job = served.begin("--", "python3", program, stdin=subprocess.PIPE)
    until(lambda: served.job("train").get("root"))
    served.kill_daemon()
    job.communicate(b"\n", timeout=20)

    served.start_daemon()

    until(lambda: served.job("train")["state"] == "failed")
    after = served.job("train")
    assert after["exit_code"] == 9


def _orphaned() -> bool:
    """Whether our process group is one that SIGTSTP does not stop: nobody in this session could continue it (POSIX)."""
    seen, mine, session = processes.scan(), os.getpgrp(), os.getsid(0)
    parents = [seen.get(stat.ppid) for stat in seen.values() if stat.pgrp == mine]
    return not any(parent and parent.pgrp != mine and parent.session == session for parent in parents)


def test_a_job_that_is_paused_by_its_supervisors_ctrl_z_goes_on_with_it(desk: Desk) -> None:
    if _orphaned():
        pytest.skip("SIGTSTP stops nobody in an orphaned process group, which this one is")
    job = desk.begin("--quiet", "--", "python3", desk.script("waits.py", WAITS))
    pid = int(until(lambda: desk.read("pid")))

    job.send_signal(signal.SIGTSTP)
    until(lambda: _state(pid) == "T" and _state(job.pid) == "T")
    job.send_signal(signal.SIGCONT)

    until(lambda: _state(pid) == "S" and _state(job.pid) == "S")


def test_the_log_is_capped_the_oldest_part_first(desk: Desk) -> None:
    with LogFile(str(desk.root / "log"), 4 << 20) as log:
        for number in range(12):
            log.write(bytes([65 + number]) * (1 << 20))
            log.cap()
        assert log.size == 12 << 20
        assert log.dropped >= 4 << 20
        assert holes.first_data(log.descriptor) == log.dropped
        assert log.read_at((12 << 20) - 1, 10) == b"L"
    assert os.stat(desk.root / "log").st_blocks * 512 <= 8 << 20


def test_a_full_disk_takes_the_oldest_of_the_log_and_not_the_job(
    small_disk: Callable[[str], Path], fill: Callable[[Path], Path]
) -> None:
    disk = small_disk("4m")
    with LogFile(str(disk / "log"), 64 << 20) as log, (disk / "log").open("ab", buffering=0) as job:
        for _ in range(100):
            job.write(b"a" * 8192)
            log.cap()
        fill(disk)
        for _ in range(400):
            assert job.write(b"b" * 8192) == 8192
            log.cap()

        assert log.size == 500 * 8192
        assert log.dropped > 100 * 8192
        assert log.read_at(log.dropped, 1) == b"b"


def test_a_job_says_a_word_on_a_full_disk_and_lives(
    desk: Desk, small_disk: Callable[[str], Path], fill: Callable[[Path], Path]
) -> None:
    disk = small_disk("4m")
    fill(disk)
    desk.environ["SENTINEL_STATE_DIR"] = str(disk)
    ran = desk.run("--quiet", "--", "sh", "-c", "echo said; exit 7")

    assert (ran.returncode, ran.stdout) == (7, "said\n")


def test_a_reader_that_is_too_slow_for_the_log_is_told_and_gets_no_zeros(desk: Desk) -> None:
    reading, writing = os.pipe()
    with LogFile(str(desk.root / "log"), 1 << 20) as log:
        tail = Tail(log, Sink(writing))
        log.write(b"x" * (1 << 19))
        tail.pump()  # as much as fits waits in the sink
        log.write(b"y" * (8 << 20))
        tail.pump()
        shown = bytearray()
        while tail.behind:
            tail.sink.flush()
            shown += os.read(reading, 65536)
            tail.pump()

    assert set(shown) == {ord("x"), ord("y")}
    assert shown.count(b"x") + shown.count(b"y") + tail.lost_bytes == (8 << 20) + (1 << 19)
    assert tail.lost_bytes > 0
    os.close(reading)
    os.close(writing)


def test_a_supervisor_stays_small_and_imports_nothing_heavy(desk: Desk) -> None:
    job = desk.begin("--quiet", "--", "sh", "-c", "touch up; exec sleep 60")
    until((desk.root / "up").exists)

    assert int(_status(job.pid, "VmRSS")) < 25 * 1024
    heavy = "asyncio http.client numpy duckdb textual starlette apprise re2 yaml subprocess ctypes"
    program = f"import sys, sentinel.cli.run; print([m for m in '{heavy}'.split() if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], env=desk.environ, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_the_end_is_written_down_beside_the_log(desk: Desk) -> None:
    desk.run("--quiet", "--", "sh", "-c", "exit 6")

    (found,) = desk.state.glob("jobs/*/attempt-1/end.json")
    assert json.loads(found.read_text())["exit_code"] == 6


_LIBC = 0b11 << 31
"""Signals 32 and 33 belong to the C library, whose posix_spawn ignores them."""


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]


def _status(pid: int, key: str) -> str:
    return next(
        line.split()[1] for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith(key)
    )


def _ignore_hup() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)


def test_a_pid_that_is_gone_is_not_running() -> None:
    assert not running(2**22 - 1)
