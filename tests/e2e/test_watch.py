"""A process that runs already is adopted, asked, and its neighbours are left alone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from .conftest import Household, until

pytestmark = pytest.mark.slow


def test_stopping_an_adopted_process_leaves_the_group_of_its_shell_alone(household: Household) -> None:
    household.start()
    # A script without job control: everything it starts is in one process group.
    script = "sleep 100 & echo $!; exec sleep 101"
    shell = subprocess.Popen(["bash", "-c", script], stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        assert shell.stdout is not None
        pid = int(shell.stdout.readline())
        household.sentinel("watch", "--pid", str(pid), "--name", "napper")
        until(lambda: (household.job("napper") or {}).get("state") == "running", 20)

        household.sentinel("stop", "napper")

        until(lambda: (household.job("napper") or {}).get("ended"), 20, "it ends")
        time.sleep(1)
        assert shell.poll() is None
    finally:
        os.killpg(shell.pid, signal.SIGKILL)
        shell.wait()
        if shell.stdout:
            shell.stdout.close()


def test_an_adopted_process_answers_and_its_end_is_noticed(household: Household) -> None:
    household.start()
    code = (
        "import signal, time\nsignal.signal(signal.SIGUSR1, lambda *_: print('asked', flush=True))\n"
        "print('up', flush=True)\nwhile True: time.sleep(0.1)"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        household.sentinel("watch", "--pid", str(process.pid), "--name", "old", "--on-checkpoint", "signal:USR1")

        household.sentinel("checkpoint", "old")

        assert process.stdout.readline() == "asked\n"
    finally:
        process.kill()
        process.wait()
        if process.stdout:
            process.stdout.close()
    until(lambda: (household.job("old") or {}).get("state") == "lost", 20, "its end is noticed")


def test_what_the_configuration_names_is_adopted_when_it_appears(household: Household) -> None:
    marker = f"adopt-me-{os.getpid()}"
    household.configure(f"jobs:\n  - name: found\n    match: {{cmdline: '{marker}'}}\n")
    household.start()
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)", marker])
    try:
        until(lambda: (household.job("found") or {}).get("state") == "running", 30, "it is adopted")
        job = household.job("found")
        assert job is not None
        assert job["root"]["pid"] == process.pid
    finally:
        process.kill()
        process.wait()
