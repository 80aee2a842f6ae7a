"""Where a job is started from."""

from __future__ import annotations

import shlex
import subprocess

from tests.jobs.desk import Desk


def test_a_working_directory_that_is_gone_keeps_no_job_from_running(desk: Desk) -> None:
    (desk.root / "gone").mkdir()
    line = f"cd gone; rmdir ../gone; {shlex.join(desk.command('--quiet', '--', 'sh', '-c', 'exit 5'))}"

    assert subprocess.run(["sh", "-c", line], env=desk.environ, cwd=desk.root, check=False).returncode == 5
