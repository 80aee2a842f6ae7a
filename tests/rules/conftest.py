"""Debian's promtool as a second opinion, where it is installed."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

Promtool = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def promtool(tmp_path: Path) -> Promtool:
    """Runs promtool in the test's own directory."""
    found = shutil.which("promtool")
    if found is None:
        pytest.skip("promtool is not installed (apt-get install prometheus)")

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [found, *arguments], check=False, cwd=tmp_path, capture_output=True, text=True, timeout=60
        )

    return run
