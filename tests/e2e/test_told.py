"""The end of a job is always told, and settings change only for the better."""

from __future__ import annotations

import os
import signal
import sys
import time

import pytest

from .conftest import Household, Mailbox, until

pytestmark = pytest.mark.slow


def test_a_failure_is_told_with_its_cause_and_last_decisive_line(household: Household, mailbox: Mailbox) -> None:
    household.start()
    code = "print('epoch 1'); raise RuntimeError('CUDA out of memory. Tried to allocate 2.00 GiB')"

    done = household.sentinel(
        "run", "--name", "train", "--notify", mailbox.url, "--", sys.executable, "-c", code, check=False
    )

    assert done.returncode == 1
    assert "epoch 1" in done.stdout
    assert "Tried to allocate" in done.stderr
    until(lambda: mailbox.letters, 20, "the letter")
    assert "train" in mailbox.subjects()[0]
    assert "failed" in mailbox.subjects()[0].lower()
    assert "CUDA out of memory. Tried to allocate 2.00 GiB" in mailbox.text(0)
    time.sleep(2)
    assert len(mailbox.letters) == 1


def test_addresses_that_nothing_can_be_sent_to_are_said_before_the_job_begins(household: Household) -> None:
    household.start()
    household.environ["SENTINEL_NOTIFY"] = "json://127.0.0.1:9/x"

    done = household.sentinel(
        "run", "--notify", "foo://secret", "--", sys.executable, "-c", "print('runs all the same')"
    )

    assert "✗ told          1 address of yours, but not foo://***: no such kind of address" in done.stderr
    assert "secret" not in done.stderr
    assert "runs all the same" in done.stdout


def test_success_is_told_to_whom_the_environment_names(household: Household, mailbox: Mailbox) -> None:
    household.start()
    household.environ["SENTINEL_NOTIFY"] = mailbox.url

    household.sentinel("run", "--name", "short", "--", sys.executable, "-c", "print('done')")

    until(lambda: mailbox.letters, 20, "the letter")
    assert "short" in mailbox.subjects()[0]
    assert "failed" not in mailbox.subjects()[0].lower()


def test_a_job_that_ends_while_the_daemon_is_dead_is_told_after_its_restart(
    household: Household, mailbox: Mailbox
) -> None:
    household.configure(f"notify: {{receivers: [{{name: me, urls: ['{mailbox.url}']}}], route: {{receiver: me}}}}\n")
    household.start()
    supervisor = household.begin(
        "run", "--name", "night", "--no-daemon", "--", sys.executable, "-c", "import time; time.sleep(6); exit(3)"
    )
    until(lambda: (household.job("night") or {}).get("state") == "running", 20)
    household.kill_daemon()
    assert supervisor.wait(20) == 3

    household.start()

    until(lambda: mailbox.letters, 30, "the letter")
    assert "night" in mailbox.subjects()[0]
    job = household.job("night")
    assert job is not None
    assert job["state"] in {"failed", "lost"}


def test_a_bad_file_changes_nothing_on_hangup_and_is_said(household: Household) -> None:
    household.configure("sampling: {interval: 1s}\n")
    household.start()
    household.configure("sampling: {intervall: 1s}\nnotify: {recievers: []}\n")

    os.kill(household.daemon_pid, signal.SIGHUP)

    until(lambda: "intervall" in household.said(), 10, "the problem is said")
    assert "sentinel.yaml:1:12" in household.said()
    assert "try: `interval`" in household.said()
    assert "recievers" in household.said()
    assert household.answers()


def test_a_good_file_is_taken_over_on_hangup(household: Household, mailbox: Mailbox) -> None:
    household.configure("mode: act\n")
    household.start()
    rules = household.root / "mine.yaml"
    rules.write_text("groups: [{name: mine, rules: [{alert: Always, expr: vector(1), labels: {severity: info}}]}]\n")
    household.configure(
        f"rules: ['{rules}']\nnotify: {{receivers: [{{name: me, urls: ['{mailbox.url}']}}], route: {{receiver: me}}}}\n"
    )

    os.kill(household.daemon_pid, signal.SIGHUP)

    until(lambda: [a for a in household.client().get("/v1/alerts") if a["rule"] == "Always"], 30, "the new rule")
    household.sentinel("notify", "test", "me")
    until(lambda: mailbox.letters, 10, "the test message")


def test_dry_run_only_says_what_it_would_do(household: Household) -> None:
    household.start()
    script = household.root / "deafening.py"
    script.write_text(
        "import signal, time\nsignal.signal(signal.SIGUSR1, lambda *_: print('asked', flush=True))\n"
        "print('up', flush=True)\nwhile True: time.sleep(0.1)\n"
    )
    household.begin(
        "run", "--name", "dry", "--dry-run", "--on-checkpoint", "signal:USR1", "--", sys.executable, str(script)
    )
    until(lambda: (household.job("dry") or {}).get("state") == "running", 20)
    rules = household.root / "rules.yaml"
    rules.write_text(
        "groups:\n  - name: mine\n    interval: 1s\n    rules:\n      - alert: Always\n        expr: job_up > 0\n"
        "        actions: [{request: checkpoint}]\n"
    )
    household.configure(f"rules: ['{rules}']\n")
    os.kill(household.daemon_pid, signal.SIGHUP)

    suppressed = until(
        lambda: [r for r in household.requests("dry") if r["answer"] == "suppressed"], 20, "what it would have done"
    )

    assert "dry" in suppressed[0]["detail"].lower()
    output = (household.job("dry") or {})["output"][0]
    with open(output) as log:
        assert "asked" not in log.read()
