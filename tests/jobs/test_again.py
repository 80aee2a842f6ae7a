"""Attempts after the first: retried with judgement, resumed, given up with a reason. Real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from sentinel.model.jobs import JobState
from tests.jobs.desk import Desk, running, until

STUBBORN = """
import os, sys
with open("attempts", "a") as file:
    file.write(" ".join([os.environ["SENTINEL_ATTEMPT"], os.environ["SENTINEL_DEGRADE_LEVEL"], *sys.argv[1:]]) + "\\n")
if len(open("attempts").readlines()) < int(open("needs").read()):
    print(open("says").read())
    sys.exit(3)
"""


def a_job(desk: Desk, needs: int, says: str = "") -> str:
    (desk.root / "needs").write_text(str(needs))
    (desk.root / "says").write_text(says)
    return desk.script("stubborn.py", STUBBORN)


def test_it_is_tried_again_until_it_ends_well(served: Desk) -> None:
    done = served.run("--retries", "3", "--", "python3", a_job(served, 3))

    assert done.returncode == 0
    assert served.read("attempts") == "1 0\n2 0\n3 0\n"
    assert "attempt 1 ended with exit code 3; retry 1 of 3 in " in done.stderr
    job = served.job("stubborn")
    assert (job["state"], job["attempt"]) == ("succeeded", 3)
    assert [(one["attempt"], one["outcome"], one["verdict"]) for one in job["past"]] == [
        (1, "failed", "unknown"), (2, "failed", "unknown"), (3, "succeeded", ""),
    ]  # fmt: skip
    assert len(served.events("job.waiting")) == 4  # each says first that it waits, then until when
    assert [Path(path).parent.name for path in job["output"]] == ["attempt-3", "attempt-3"]


def test_without_a_daemon_the_exit_status_decides(desk: Desk) -> None:
    done = desk.run("--retries", "1", "--", "python3", a_job(desk, 2))

    assert done.returncode == 0
    assert desk.read("attempts") == "1 0\n2 0\n"


def test_when_they_are_used_up_it_says_so_and_ends_with_the_jobs_own_code(served: Desk) -> None:
    done = served.run("--retries", "1", "--", "python3", a_job(served, 9))

    assert done.returncode == 3
    assert "gives up: all 1 retries are used up" in done.stderr
    job = served.job("stubborn")
    assert job["state"] == "failed"
    assert "all 1 retries are used up" in job["cause"]
    assert len(job["past"]) == 2


@pytest.mark.parametrize("with_daemon", [True, False])
def test_what_would_fail_again_is_not_tried_again(desk: Desk, with_daemon: bool) -> None:
    if with_daemon:
        desk.start_daemon()
    done = desk.run("--retries", "5", "--", "python3", "-c", "import no_such_module")

    assert done.returncode == 1
    assert "unchanged it would fail again; what must change: install what is missing" in done.stderr


def test_the_budget_of_time_ends_it(served: Desk) -> None:
    began = time.monotonic()
    done = served.run("--retries", "9", "--budget", "1s", "--", "python3", a_job(served, 99))

    assert done.returncode == 3
    assert "the time budget of 1s leaves no room" in done.stderr
    assert time.monotonic() - began < 10


def test_the_next_attempt_is_told_the_newest_checkpoint(desk: Desk) -> None:
    desk.environ["SMALL_RESUME_FROM"] = "/ckpt/step-9"
    desk.start_daemon()

    done = desk.run("--retries", "1", "--", "python3", a_job(desk, 2), "{checkpoint}")

    assert done.returncode == 0
    assert ", from /ckpt/step-9" in done.stderr
    assert desk.read("attempts") == "1 0 /ckpt/step-9\n2 0 /ckpt/step-9\n"


def test_gpu_memory_that_is_not_free_ends_it_with_a_name(served: Desk) -> None:
    (served.state / "full").touch()
    job = served.begin("--retries", "1", "--", "python3", a_job(served, 2))
    until(lambda: served.job("stubborn").get("state") == "waiting")
    time.sleep(1.5)
    assert served.read("attempts") == "1 0\n"  # it waits for the board

    (served.state / "full").unlink()

    assert job.wait(15) == 0
    assert served.read("attempts") == "1 0\n2 0\n"


def test_stopping_a_job_that_waits_ends_it(served: Desk) -> None:
    job = served.begin("--retries", "3", "--", "python3", a_job(served, 9, "429 Too Many Requests"))
    until(lambda: served.job("stubborn").get("next_attempt"))
    ask(served, "stop")

    assert job.wait(15) == 3
    assert served.job("stubborn")["state"] == "stopped"
    assert job.stderr is not None
    assert "somebody asked for its end" in job.stderr.read().decode()


@pytest.mark.parametrize(("name", "state"), [("SIGINT", "stopped"), ("SIGTERM", "preempted")])
def test_a_signal_while_it_waits_ends_the_waiting(served: Desk, name: str, state: str) -> None:
    job = served.begin("--retries", "3", "--", "python3", a_job(served, 9))
    until(lambda: served.job("stubborn").get("next_attempt"))
    job.send_signal(signal.Signals[name])

    assert job.wait(15) == 3
    assert served.job("stubborn")["state"] == state


def test_a_restart_ends_the_attempt_and_begins_the_next_uncounted(served: Desk) -> None:
    program = served.script(
        "train.py", "import os, time\nopen(f'up-{os.environ[\"SENTINEL_ATTEMPT\"]}', 'w')\ntime.sleep(60)"
    )
    job = served.begin("--", "python3", program)
    until((served.root / "up-1").exists)
    until(lambda: served.job("train").get("state") == "running")

    assert ask(served, "restart", "train")["answer"] == "done"

    until((served.root / "up-2").exists)
    until(lambda: served.job("train")["attempt"] == 2)
    known = served.job("train")
    assert (known["state"], known["restarting"], known["past"][0]["outcome"]) == ("running", False, "restarted")
    assert job.poll() is None
    ask(served, "stop", "train")
    assert job.wait(15) == 128 + 15
    assert served.job("train")["state"] == "stopped"


def test_a_killed_supervisor_ends_the_waiting_too_and_it_is_said(served: Desk) -> None:
    (served.state / "full").touch()
    job = served.begin("--retries", "3", "--", "python3", a_job(served, 9))
    until(lambda: served.job("stubborn").get("next_attempt"))

    job.kill()

    until(lambda: served.job("stubborn")["state"] == "failed")
    assert "its supervisor died before the next attempt" in served.job("stubborn")["cause"]


def test_the_daemon_dies_between_two_attempts_and_learns_everything(served: Desk) -> None:
    (served.state / "full").touch()
    job = served.begin("--retries", "3", "--", "python3", a_job(served, 2))
    until(lambda: served.job("stubborn").get("next_attempt"))
    served.kill_daemon()
    (served.state / "full").unlink()
    until(lambda: "2 0" in served.read("attempts"))

    served.start_daemon()

    assert job.wait(30) == 0
    until(lambda: served.job("stubborn")["state"] == "succeeded")
    assert served.job("stubborn")["attempt"] == 2


def test_children_that_a_failed_leader_leaves_are_ended_before_the_next_attempt(served: Desk) -> None:
    program = served.script(
        "leaves.py",
        "import os, subprocess, sys\n"
        "if os.environ['SENTINEL_ATTEMPT'] == '1':\n"
        "    child = subprocess.Popen(['sleep', '60'])\n"
        "    open('child', 'w').write(str(child.pid))\n"
        "    sys.exit(1)\n",
    )
    done = served.run("--retries", "1", "--", "python3", program)

    assert done.returncode == 0
    assert "1 processes that it left behind were ended" in done.stderr
    assert not running(int(served.read("child")))


SAVES = """
import os, signal, sys, time
def save(number, frame):
    open("saved", "a").write(signal.Signals(number).name + "\\n")
    print("saved", flush=True)
signal.signal(signal.SIGUSR1, save)
def end(number, frame):
    open("saved", "a").write("TERM\\n")
    sys.exit(5)
signal.signal(signal.SIGTERM, end)
open("up", "w")
while True:
    time.sleep(0.05)
"""


@pytest.mark.parametrize("with_daemon", [True, False])
def test_a_time_limit_warns_asks_for_a_checkpoint_and_stops(desk: Desk, with_daemon: bool) -> None:
    if with_daemon:
        desk.start_daemon()
    began = time.monotonic()
    done = desk.run("--timeout", "3s", "--on-checkpoint", "signal:USR1", "--", "python3", desk.script("s.py", SAVES))

    assert done.returncode == 5
    assert 2.5 < time.monotonic() - began < 15
    assert desk.read("saved") == "SIGUSR1\nTERM\n"
    assert "until its time limit of 3s; then it is stopped" in done.stderr
    assert "its time limit of 3s is over: it is stopped" in done.stderr
    if with_daemon:
        assert "its time limit was over, so sentinel stopped it" in desk.job("s")["cause"]


def test_a_silent_job_is_stopped_after_its_stall_limit_and_a_talking_one_is_not(desk: Desk) -> None:
    silent = desk.run("--stall-timeout", "2s", "--", "sh", "-c", "echo begins; sleep 60")
    talking = desk.run(
        "--stall-timeout", "2s", "--", "sh", "-c", "for i in 1 2 3 4 5 6 7 8; do echo $i; sleep 0.5; done"
    )

    assert silent.returncode == 128 + 15
    assert "2s without progress are over: it is stopped" in silent.stderr
    assert talking.returncode == 0


def test_a_scheduler_that_wants_the_machine_back_gets_it_after_a_checkpoint(served: Desk) -> None:
    job = served.begin(
        "--retries", "5", "--on-checkpoint", "signal:USR1", "--", "python3", served.script("s.py", SAVES)
    )
    until((served.root / "up").exists)
    until(lambda: served.job("s").get("state") == "running")

    job.send_signal(signal.SIGTERM)
    until(lambda: "SIGUSR1" in served.read("saved"))
    assert "TERM" not in served.read("saved").splitlines()
    job.send_signal(signal.SIGTERM)  # a second word is the last

    assert job.wait(10) == 5
    assert served.read("saved") == "SIGUSR1\nTERM\n"
    assert (served.job("s")["state"], len(served.job("s")["past"])) == ("preempted", 1)


def test_another_signal_can_mean_it_too(served: Desk) -> None:
    job = served.begin("--preempt-signal", "USR2", "--", "python3", served.script("s.py", SAVES + "\n"))
    until((served.root / "up").exists)

    job.send_signal(signal.SIGUSR2)

    assert job.wait(10) == 128 + signal.SIGUSR2
    until(lambda: served.job("s")["state"] == JobState.PREEMPTED.value)


def test_before_slurm_ends_it_a_checkpoint_is_asked_for(served: Desk) -> None:
    served.environ |= {"SLURM_JOB_ID": "7", "SLURM_JOB_END_TIME": str(int(time.time()) + 100)}
    job = served.begin("--on-checkpoint", "signal:USR1", "--", "python3", served.script("s.py", SAVES))
    until((served.root / "up").exists)

    until(lambda: "SIGUSR1" in served.read("saved"))  # it is nearer than twice the write time and a minute
    job.terminate()
    until(lambda: served.read("saved").count("SIGUSR1") == 2)
    job.terminate()
    said = job.communicate(timeout=15)[1].decode()
    assert "the scheduler ends this job in " in said
    assert "the scheduler ends it in " in said  # the banner


def test_what_runs_afterwards_runs_once_with_the_outcome(desk: Desk) -> None:
    hook = "sh -c 'echo $SENTINEL_OUTCOME $SENTINEL_EXIT_CODE >> after'"
    failed = ["--exit-grace", "0s", "--on-exit", f"failed:{hook}", "--on-exit", "finished:touch never"]

    assert desk.run(*failed, "--", "false").returncode == 1
    assert (
        desk.run("--exit-grace", "0s", "--on-exit", f"gave-up:{hook}", "--retries", "1", "--", "false").returncode == 1
    )
    assert desk.run("--exit-grace", "0s", "--on-exit", hook, "--", "true").returncode == 0

    assert desk.read("after") == "failed 1\ngave-up 1\nfinished 0\n"
    assert not (desk.root / "never").exists()


def test_a_hold_keeps_it_from_running(desk: Desk) -> None:
    argv = [*desk.command()[:3], "hold", "1h"]
    assert subprocess.run(argv, env=desk.environ, capture_output=True, check=True, text=True).stdout
    done = desk.run("--exit-grace", "1s", "--on-exit", "touch never", "--", "true")

    assert "`sentinel hold` holds it" in done.stderr
    assert not (desk.root / "never").exists()


def test_a_command_that_fails_is_tried_three_times_and_told(served: Desk) -> None:
    done = served.run("--exit-grace", "0s", "--on-exit", "sh -c 'echo x >> tries; exit 1'", "--", "true")

    assert done.returncode == 0
    assert served.read("tries") == "x\nx\nx\n"
    assert "--on-exit failed 3 times: sh ended with 1" in done.stderr
    assert "hook_failed" in (served.state / "said.jsonl").read_text()


def test_a_detached_job_leaves_the_terminal_and_says_its_name(served: Desk) -> None:
    done = served.run(
        "--detach", "--", "python3", served.script("train.py", "import time; print('up'); time.sleep(60)")
    )

    assert (done.returncode, done.stdout) == (0, "train\n")
    until(lambda: served.job("train").get("state") == "running")
    known = served.job("train")
    until(lambda: Path(known["output"][0]).read_text() == "up\n")
    supervisor = known["supervisor"]["pid"]
    assert os.getsid(supervisor) != os.getsid(0)
    ask(served, "stop", "train")
    until(lambda: not running(supervisor))


def test_a_detached_job_that_cannot_begin_says_so_at_once(served: Desk) -> None:
    assert served.run("--detach", "--name", "unwelcome", "--", "true").returncode == 2
    assert served.run("--detach", "--", "no-such-command").returncode == 127


def ask(desk: Desk, what: str, name: str = "stubborn") -> dict[str, str]:
    body = {"request": what, "reason": "a test", "timeout_seconds": 10.0, "wait": 10.0}
    answer: dict[str, str] = desk.ask(f"/v1/jobs/{desk.job(name)['id']}/requests", body)
    return answer
