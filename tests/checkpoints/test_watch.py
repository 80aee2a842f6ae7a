"""Only whole checkpoints count."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path

from sentinel.checkpoints.watch import Watcher
from sentinel.model.checkpoints import CheckpointState

NOW = 1_800_000_000.0


def written(path: Path, data: bytes, at: float) -> None:
    path.write_bytes(data)
    os.utime(path, (at, at))


def test_the_newest_whole_one_is_found_with_its_step(tmp_path: Path) -> None:
    written(tmp_path / "step-100.bin", b"x" * 10, NOW - 900)
    written(tmp_path / "step-200.bin", b"x" * 20, NOW - 300)
    watcher = Watcher([str(tmp_path)])
    watcher.poll(NOW)

    newest = watcher.newest()

    assert newest is not None
    assert (newest.step, newest.size_bytes, newest.finished) == (200, 20, NOW - 300)


def test_one_still_being_written_is_neither_fresh_nor_broken(tmp_path: Path) -> None:
    watcher = Watcher([str(tmp_path)])
    written(tmp_path / "step-1.bin", b"x", NOW - 100)
    watcher.poll(NOW)
    for second in range(5):
        written(tmp_path / "step-2.bin", b"x" * (second + 1), NOW + second)
        assert watcher.poll(NOW + second) == []

    assert watcher.newest() is not None
    assert watcher.newest().step == 1  # type: ignore[union-attr]
    assert [found.step for found in watcher.poll(NOW + 10)] == [2]


def test_a_temporary_name_does_not_count_until_it_is_renamed(tmp_path: Path) -> None:
    watcher = Watcher([str(tmp_path)])
    watcher.poll(NOW)
    written(tmp_path / "step-3.pt.tmp", b"x" * 10, NOW)
    assert watcher.poll(NOW + 10) == []

    (tmp_path / "step-3.pt.tmp").rename(tmp_path / "step-3.pt")
    watcher.poll(NOW + 11)

    assert [found.step for found in watcher.poll(NOW + 13)] == [3]


def test_a_torn_zip_is_skipped_and_at_last_called_broken(tmp_path: Path) -> None:
    whole = tmp_path / "step-1.pt"
    with zipfile.ZipFile(whole, "w") as archive:
        archive.writestr("archive/data.pkl", b"\x80\x02}." * 100)
    os.utime(whole, (NOW - 500, NOW - 500))
    written(tmp_path / "step-2.pt", whole.read_bytes()[:-30], NOW - 300)
    watcher = Watcher([str(tmp_path)])

    states = {found.step: found.state for found in watcher.poll(NOW)}

    assert states == {1: CheckpointState.COMPLETE, 2: CheckpointState.BROKEN}
    assert watcher.newest().step == 1  # type: ignore[union-attr]


def test_one_rewritten_in_place_is_new_again(tmp_path: Path) -> None:
    watcher = Watcher([str(tmp_path)])
    written(tmp_path / "last.ckpt", b"x" * 10, NOW - 60)
    watcher.poll(NOW)
    written(tmp_path / "last.ckpt", b"x" * 12, NOW + 5)

    watcher.poll(NOW + 5)

    assert [found.finished for found in watcher.poll(NOW + 8)] == [NOW + 5]
