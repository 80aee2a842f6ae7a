"""A writer that is killed at any moment leaves no wrong "last good"."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest

from sentinel.checkpoints.formats import DEEP, Verdict, inspect
from sentinel.checkpoints.watch import Watcher, survey

pytestmark = pytest.mark.slow

WRITER = """
import json, os, struct, sys, zipfile
place, how, step = sys.argv[1], sys.argv[2], int(sys.argv[3])
print("ready", flush=True)
while True:
    step += 1
    size = 200_000
    if how == "zip":
        with zipfile.ZipFile(f"{place}/step-{step:06}.pt", "w") as archive:
            archive.writestr("archive/data.pkl", b"\\x80\\x02}q\\x00X\\x04\\x00\\x00\\x00stepJ" + struct.pack("<i", step) + b"s.")
            for part in range(8):
                archive.writestr(f"archive/data/{part}", bytes([step % 251]) * (size // 8))
    elif how == "safetensors":
        header = json.dumps({"w": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}).encode()
        with open(f"{place}/step-{step:06}.safetensors", "wb", buffering=0) as file:
            file.write(struct.pack("<Q", len(header)))
            file.write(header)
            for part in range(8):
                file.write(bytes([step % 251]) * (size // 8))
    else:
        with open(f"{place}/.state-{step:06}.json.tmp", "w") as file:
            json.dump({"messages": [], "step": step, "text": "x" * size}, file)
        os.replace(file.name, f"{place}/state-{step:06}.json")
"""


def loads(path: Path, step: int) -> bool:
    """Whether what is there is what was to be written, read by other means than ours."""
    if path.suffix == ".pt":
        with zipfile.ZipFile(path) as archive:
            whole = archive.testzip() is None and len(archive.namelist()) == 9
            return whole and archive.read("archive/data/7") == bytes([step % 251]) * 25_000
    if path.suffix == ".safetensors":
        return path.read_bytes().endswith(bytes([step % 251]) * 200_000)
    found = json.loads(path.read_text())
    return bool(found["step"] == step and len(found["text"]) == 200_000)


@pytest.mark.parametrize(("how", "kills"), [("zip", 40), ("safetensors", 30), ("rename", 30)])
def test_a_writer_killed_a_hundred_times(tmp_path: Path, how: str, kills: int) -> None:
    dice, step, torn = random.Random(11), 0, 0
    for _ in range(kills):
        writer = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", WRITER, str(tmp_path), how, str(step)], stdout=subprocess.PIPE
        )
        assert writer.stdout is not None
        writer.stdout.readline()
        time.sleep(dice.uniform(0.0, 0.03))
        writer.kill()
        writer.wait()
        writer.stdout.close()

        found = survey([str(tmp_path)], time.time() + 10)
        torn += len(found.skipped)
        if found.newest is not None:
            assert found.newest.step is not None
            assert loads(Path(found.newest.path), found.newest.step)
        entries = sorted(tmp_path.iterdir())
        step = max((int("".join(filter(str.isdigit, path.name))) for path in entries), default=step)
        for old in entries[:-2]:
            old.unlink()
    assert how == "rename" or torn > 0  # some kills came in the middle


def test_a_watcher_beside_a_writer_never_calls_a_part_whole(tmp_path: Path) -> None:
    writer = subprocess.Popen([sys.executable, "-I", "-S", "-c", WRITER, str(tmp_path), "zip", "0"])
    watcher, seen, until = Watcher([str(tmp_path)]), 0, time.monotonic() + 30
    try:
        while seen < 30 and time.monotonic() < until:
            for found in watcher.poll(time.time()):
                assert found.step is not None
                assert loads(Path(found.path), found.step)
                seen += 1
            for old in sorted(tmp_path.iterdir())[:-20]:
                old.unlink()
    finally:
        writer.kill()
        writer.wait()
    assert seen >= 30


def test_an_older_one_damaged_in_place_is_found_by_a_deep_look(tmp_path: Path) -> None:
    path = tmp_path / "step-1.pt"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", b"\x80\x02}.")
        archive.writestr("archive/data/0", b"x" * 50_000)
    with path.open("r+b") as file:
        file.seek(20_000)
        file.write(b"\0" * 4096)  # a page that never reached the disk

    assert inspect(path, DEEP).verdict is Verdict.TORN
