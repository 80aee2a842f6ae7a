"""`sentinel watch`: a process that runs already becomes a job, and its end is noticed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from tests.jobs.desk import ROOT, Desk, until


def test_a_running_process_is_watched_until_it_ends(served: Desk) -> None:
    with (served.root / "its.log").open("wb") as log:
        program = served.script("train.py", "import time\ntime.sleep(99)")
        process = served.process(sys.executable, program, stdout=log, start_new_session=True)

    done = served.watch("--pid", str(process.pid), "--checkpoints", "ckpt:30m", "--on-checkpoint", "signal:USR1")

    assert (done.returncode, done.stdout) == (0, "train\n")
    assert "checkpoint by signal:USR1" in done.stderr
    job = served.job("train")
    assert (job["state"], job["adopted"], job["root"]["pid"]) == ("running", True, process.pid)
    assert job["spec"]["logs"] == [str(served.root / "its.log")]
    assert [(one["path"], one["interval_s"]) for one in job["spec"]["checkpoints"]] == [
        (str(served.root / "ckpt"), 1800.0)
    ]
    process.kill()
    process.wait()
    ended = until(lambda: (now := served.job("train"))["state"] == "lost" and now)
    assert ended["cause"] == "ended; nobody could see how"


def test_its_end_is_noticed_even_while_its_parent_does_not_wait_for_it(served: Desk) -> None:
    process = served.process("sleep", "99")
    served.watch("--pid", str(process.pid), "--name", "nap")

    process.kill()  # and not waited for: a zombie

    until(lambda: served.job("nap")["state"] == "lost")


def test_a_process_is_found_by_its_command_line(served: Desk) -> None:
    script = served.script("fine_tune.py", "import os, time\nos.fork()\ntime.sleep(99)")
    process = served.process(sys.executable, script)

    def found() -> bool:
        return served.watch("--match", rf"{served.root}/fine_tune\.py").returncode == 0

    until(found)
    assert served.job("fine_tune")["root"]["pid"] == process.pid


def test_of_several_that_match_one_must_be_chosen(served: Desk) -> None:
    script = served.script("twin.py", "import time\ntime.sleep(99)")
    pids = [served.process(sys.executable, script).pid for _ in range(2)]

    until(lambda: "2 processes match" in served.watch("--match", script).stderr)
    done = served.watch("--match", script)

    assert done.returncode == 2
    assert all(str(pid) in done.stderr for pid in pids)


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (["--pid", "x"], 2, "'x' is not a process id"),
        (["--pid", "4194303"], 1, "there is no process 4194303"),
        (["--match", "("], 2, "bad regular expression"),
        (["--match", "no such thing anywhere"], 1, "none of your processes matches"),
    ],
)
def test_what_cannot_be_watched_is_said(desk: Desk, args: list[str], code: int, words: str) -> None:
    done = desk.watch(*args)

    assert done.returncode == code
    assert words in done.stderr


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be somebody else")
def test_the_process_of_somebody_else_is_refused() -> None:
    program = (
        "import os, sys\nfrom sentinel.cli import watch\nos.setuid(65534)\n"
        "try:\n    watch._by_pid(sys.argv[1])\nexcept watch.UsageError as refusal:\n    print(refusal)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(os.getpid())],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert f"process {os.getpid()} belongs to user 0, not to you" in done.stdout


def test_a_watched_process_is_asked_like_any_job(served: Desk) -> None:
    program = (
        "import signal, time\nsignal.signal(10, lambda *_: open('heard', 'w').close())\n"
        "open('ready', 'w').close()\nwhile True: time.sleep(0.05)"
    )
    process = served.process(sys.executable, served.script("train.py", program))
    until((served.root / "ready").exists)
    served.watch("--pid", str(process.pid), "--on-checkpoint", "signal:USR1")
    job = served.job("train")

    answer = served.ask(
        "/v1/deliver",
        {"id": "r1", "job_id": job["id"], "job": "train", "attempt": 1, "kind": "checkpoint", "level": None,
         "reason": "", "alert": None, "by": "user:me", "created": 0, "deadline": 4e9},
    )  # fmt: skip

    assert (answer["outcome"], answer["pids"]) == ("acknowledged", [process.pid])
    until((served.root / "heard").exists)
    assert process.poll() is None
    process.send_signal(signal.SIGKILL)
