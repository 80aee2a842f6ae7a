"""Hooks are real programs: what they are given, and how little they can do to us."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

from sentinel.actions.hooks import LONGEST_OUTPUT, distrusted, environment, run, stdin
from tests.actions.world import NOW, a_rule, an_alert

ALERT = an_alert(a_rule(), NOW)


async def test_a_hook_gets_an_argument_vector_a_small_environment_and_the_alert() -> None:
    tell = "import json, os, sys; print(json.dumps([sys.argv[1:], dict(os.environ), json.load(sys.stdin)]))"
    ended = await run((sys.executable, "-c", tell, "$(reboot); x"), environment(ALERT, "llama"), stdin(ALERT), 20)
    assert ended.code == 0
    argv, env, alert = json.loads(ended.output)
    assert argv == ["$(reboot); x"]
    assert env["SENTINEL_ALERT"] == "MemoryLow"
    assert env["SENTINEL_JOB_NAME"] == "llama"
    assert "SENTINEL_STATE_DIR" not in env
    assert set(env) <= {*environment(ALERT, None), "LC_CTYPE"}
    assert alert["id"] == ALERT.id


async def test_a_hook_that_hangs_is_killed() -> None:
    begun = time.monotonic()
    ended = await run((sys.executable, "-c", "import time; print('on it', flush=True); time.sleep(60)"), {}, b"", 1.0)
    assert ended.code is None
    assert ended.output == "on it (killed after 1 s)"
    assert time.monotonic() - begun < 20


async def test_a_grandchild_that_keeps_the_pipe_does_not_keep_us() -> None:
    begun = time.monotonic()
    ended = await run(("/bin/sh", "-c", "sleep 30 & echo started"), {"PATH": os.environ["PATH"]}, b"", 1.0)
    assert "started" in ended.output
    assert time.monotonic() - begun < 15


async def test_its_output_is_bounded_and_its_failure_is_told() -> None:
    ended = await run((sys.executable, "-c", "print('x' * 100000); raise SystemExit(3)"), {}, b"", 20)
    assert ended.code == 3
    assert len(ended.output) <= LONGEST_OUTPUT


async def test_a_hook_that_is_not_there_is_told() -> None:
    ended = await run(("/no/such/hook",), {}, b"", 1.0)
    assert ended.code is None
    assert "cannot be started" in ended.output


def test_root_trusts_only_what_belongs_to_root_and_nobody_else_may_write(tmp_path: Path) -> None:
    hook = tmp_path / "page"
    hook.write_text("#!/bin/sh\n")
    hook.chmod(0o777)
    assert "others may write" in (distrusted((str(hook),), 0) or "")
    assert "not an absolute path" in (distrusted(("page",), 0) or "")
    assert "No such file" in (distrusted((str(tmp_path / "none"),), 0) or "")
    assert distrusted(("page",), 1000) is None
    assert distrusted(("/bin/sh",), 0) is None
