"""What is read again, what waits for a restart, and what is said about both."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from .conftest import Household, until

pytestmark = pytest.mark.slow


def test_from_now_on_it_only_observes(household: Household) -> None:
    household.configure("mode: act\n")
    household.start()
    script = household.root / "asked.py"
    script.write_text(
        "import signal, time\nsignal.signal(signal.SIGUSR1, lambda *_: print('asked', flush=True))\n"
        "print('up', flush=True)\nwhile True: time.sleep(0.1)\n"
    )
    household.begin("run", "--name", "train", "--on-checkpoint", "signal:USR1", "--", sys.executable, str(script))
    until(lambda: (household.job("train") or {}).get("state") == "running", 20)

    household.configure("mode: observe\nsampling: {interval: 5s}\nstore: {retention: {raw: 1d}}\n")
    os.kill(household.daemon_pid, signal.SIGHUP)

    reloaded = until(lambda: household.events("sentinel.reloaded"), 10, "it has read its files again")[-1]
    assert "mode is observe from now on" in reloaded["message"]
    assert reloaded["data"]["needs_restart"] == ["sampling", "store"]
    assert "after a restart: sampling, store" in reloaded["message"]
    assert household.json("status")["mode"] == "observe"
    done = household.sentinel("checkpoint", "train", check=False)
    assert "only observes" in done.stdout + done.stderr


def test_what_is_wrong_with_a_file_is_an_event_and_on_the_status_until_it_is_mended(household: Household) -> None:
    household.configure("mode: act\n")
    household.start()
    household.configure("mode: obsrve\n")
    os.kill(household.daemon_pid, signal.SIGHUP)

    failed = until(lambda: household.events("sentinel.reload_failed"), 10, "it says what is wrong")[-1]
    assert failed["severity"] == "warning"
    assert "sentinel.yaml:1:7" in failed["message"]
    assert "sentinel.yaml:1:7" in household.sentinel("status", check=False).stdout

    household.configure("mode: act\n")
    os.kill(household.daemon_pid, signal.SIGHUP)
    until(lambda: household.events("sentinel.reloaded"), 10, "it has read its files again")
    assert "sentinel.yaml" not in household.sentinel("status").stdout


def test_a_hangup_before_it_is_ready_is_done_when_it_is(household: Household) -> None:
    household.configure("mode: act\n")
    code = (
        "import os, signal, sys\nfrom sentinel.daemon import lifecycle\nfrom sentinel import config\n"
        "load = config.load\n"
        "def hung_up(*a, **k):\n"
        "    found = load(*a, **k)\n"
        "    config.load = load\n"
        "    os.kill(os.getpid(), signal.SIGHUP)\n"
        "    return found\n"
        "config.load = hung_up\n"
        "sys.exit(lifecycle.main(lifecycle.Options()))\n"
    )
    with household.log.open("ab") as out:
        household._daemon = subprocess.Popen(
            [sys.executable, "-c", code], env=household.environ, stdout=out, stderr=out
        )
    until(household.answers, 20, "the daemon answers")

    until(lambda: household.events("sentinel.reloaded"), 10, "it has read its files again")
    assert "read again, mode act" in household.said()
