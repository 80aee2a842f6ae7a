"""The unit really starts under a real systemd: ready, fed, restarted, reloaded, stopped."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sentinel.paths import shipped

SHARED = Path(os.environ.get("SENTINEL_SHARED", Path(__file__).parents[2] / ".." / "shared"))
RUNNER = SHARED / "tools" / "with-systemd"

SCRIPT = r"""
set -eu
mkdir -p /run/systemd/system
sed -e "s|^ExecStart=.*|ExecStart=$PYTHON -m sentinel daemon --system|" -e 's|^WatchdogSec=.*|WatchdogSec=4s|' \
    -e "/^\[Service\]/a Environment=PYTHONPATH=$SOURCE" "$UNIT" > /run/systemd/system/sentinel.service
systemctl daemon-reload
systemctl start sentinel          # Type=notify: returns once it is ready
say() { printf '%s: %s\n' "$1" "$2"; }
say active "$(systemctl is-active sentinel)"
say status "$(systemctl show -p StatusText --value sentinel)"
say socket "$(stat -c '%a %U' /run/sentinel/sentinel.sock)"
say state "$(stat -c '%a %U' /var/lib/sentinel)"
first=$(systemctl show -p MainPID --value sentinel)
say seen "$($PYTHON -m sentinel query --json 'count(host_memory_total_bytes)' | tr -d ' \n')"
sleep 6                           # longer than the watchdog: it is fed
say fed "$([ "$(systemctl show -p MainPID --value sentinel)" = "$first" ] && echo yes || echo no)"
systemctl reload sentinel
say reloaded "$(systemctl is-active sentinel)"
kill -STOP "$first"               # a daemon that observes nothing feeds no watchdog
for _ in $(seq 60); do
  sleep 0.5
  next=$(systemctl show -p MainPID --value sentinel)
  [ "$next" != "$first" ] && [ "$next" != 0 ] && [ "$(systemctl is-active sentinel)" = active ] && break
done
say restarted "$([ "$next" != "$first" ] && echo yes || echo no)"
systemctl stop sentinel
say stopped "$(systemctl show -p Result --value sentinel)"
"""


@pytest.mark.systemd
@pytest.mark.slow
@pytest.mark.skipif(os.getuid() != 0, reason="starting a systemd of its own needs root")
@pytest.mark.skipif(not RUNNER.exists(), reason=f"{RUNNER} is not here")
@pytest.mark.skipif(not Path("/lib/systemd/systemd").exists(), reason="there is no systemd on this machine")
def test_the_service_starts_is_fed_is_restarted_and_stops(tmp_path: Path) -> None:
    source = Path(sys.modules["sentinel"].__file__ or "").parents[1]
    done = subprocess.run(
        [RUNNER, "-t", "100", "bash", "-c", SCRIPT],
        env={
            **{key: value for key, value in os.environ.items() if not key.startswith("SENTINEL_")},
            "PYTHON": sys.executable,
            "SOURCE": str(source),
            "UNIT": str(shipped("systemd") / "sentinel.service"),
        },
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    if done.returncode == 125:
        pytest.skip(f"systemd does not start here: {done.stderr}")
    said = dict(line.split(": ", 1) for line in done.stdout.splitlines() if ": " in line)

    assert said.get("active") == "active", done.stdout + done.stderr
    assert said["status"] == "watching 0 jobs"
    assert said["socket"] == "666 root"
    assert said["state"] == "700 root"
    assert '"1"' in said["seen"]
    assert said["fed"] == "yes"
    assert said["reloaded"] == "active"
    assert said["restarted"] == "yes"
    assert said["stopped"] == "success"
