"""Only whole checkpoints count."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path

import pytest

from sentinel.checkpoints.watch import Watcher, history, survey
from sentinel.model.checkpoints import CheckpointState
from sentinel.model.jobs import CheckpointDir

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

    (found,) = watcher.poll(NOW + 11)  # at once: what gets its final name is whole
    assert (found.step, found.finished) == (3, NOW)


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


def torch_like(path: Path, at: float, *, cut: int = 0) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", b"\x80\x02}q\x00X\x05\x00\x00\x00modelK\x01s." + b"x" * 0)
    written(path, path.read_bytes()[: -cut or None], at)


def test_how_long_it_took_is_from_its_temporary_name_to_its_last_byte(tmp_path: Path) -> None:
    watcher = Watcher([str(tmp_path)])
    watcher.poll(NOW)
    written(tmp_path / ".step-3.tmp", b"x", NOW + 1)
    watcher.poll(NOW + 1)
    written(tmp_path / ".step-3.tmp", b"xx", NOW + 8)
    watcher.poll(NOW + 8)
    (tmp_path / ".step-3.tmp").rename(tmp_path / "step-3.bin")

    (found,) = watcher.poll(NOW + 9)

    assert found.write_seconds == 7


def test_a_newer_torn_one_is_skipped_with_its_reason(tmp_path: Path) -> None:
    torch_like(tmp_path / "step-1.pt", NOW - 60)
    torch_like(tmp_path / "step-2.pt", NOW - 30)
    torch_like(tmp_path / "step-3.pt", NOW - 5, cut=40)
    (tmp_path / "step-4").mkdir()
    written(tmp_path / "step-4" / "checkpoint-is-incomplete.txt", b"", NOW - 1)
    os.utime(tmp_path / "step-4", (NOW - 1, NOW - 1))

    found = survey([str(tmp_path)], NOW)

    assert found.newest is not None
    assert found.newest.step == 2
    assert [(each.step, each.state) for each in found.skipped] == [
        (4, CheckpointState.BROKEN),
        (3, CheckpointState.BROKEN),
    ]
    assert "still being written" in found.skipped[0].reason
    assert "zip directory" in found.skipped[1].reason


def test_when_the_newest_is_removed_the_one_before_it_is_looked_into(tmp_path: Path) -> None:
    for step in range(5):
        torch_like(tmp_path / f"step-{step}.pt", NOW - 100 + step)
    watcher = Watcher([str(tmp_path)])
    watcher.poll(NOW)
    assert len(watcher.complete()) == 1  # the others were not needed
    assert watcher.kept() == 5

    (tmp_path / "step-4.pt").unlink()
    watcher.poll(NOW + 3)

    newest = watcher.newest()
    assert newest is not None
    assert (newest.step, watcher.kept()) == (3, 4)


def test_a_torn_one_that_was_overtaken_is_broken_at_once(tmp_path: Path) -> None:
    watcher = Watcher([str(tmp_path)])
    watcher.poll(NOW)
    torch_like(tmp_path / "step-1.pt", NOW + 1, cut=30)
    assert watcher.poll(NOW + 1) == []
    torch_like(tmp_path / "step-2.pt", NOW + 20)

    news = watcher.poll(NOW + 21)

    assert {(each.step, each.state) for each in news} >= {(2, CheckpointState.COMPLETE)}
    assert [each.state for each in [*news, *watcher.poll(NOW + 24)] if each.step == 1] == [CheckpointState.BROKEN]


@pytest.mark.parametrize(
    ("complete_when", "whole_at_once"),
    [("", True), ("rename", True), ("stable", False), ("marker:{name}.done", False)],
)
def test_the_owner_says_when_one_is_complete(tmp_path: Path, complete_when: str, whole_at_once: bool) -> None:
    watcher = Watcher([CheckpointDir(str(tmp_path), None, complete_when)])
    watcher.poll(NOW)
    torch_like(tmp_path / "step-1.pt", NOW + 1)

    assert bool(watcher.poll(NOW + 1)) is whole_at_once
    if complete_when == "stable":
        assert watcher.poll(NOW + 4)
    if complete_when.startswith("marker"):
        assert not watcher.poll(NOW + 400)
        (tmp_path / "step-1.pt.done").touch()
        assert watcher.poll(NOW + 401)


def test_what_lies_where_lightning_puts_it_is_found(tmp_path: Path) -> None:
    place = tmp_path / "lightning_logs" / "version_3" / "checkpoints"
    place.mkdir(parents=True)
    torch_like(place / "epoch=0-step=5.ckpt", NOW - 10)

    found = survey([str(tmp_path)], NOW).newest

    assert found is not None
    assert found.step == 5


def test_configuration_and_logs_beside_checkpoints_are_none(tmp_path: Path) -> None:
    for name in ("config.json", "tokenizer.json", "train.log", "events.out.tfevents.1.host", "state.db-wal", "latest"):
        written(tmp_path / name, b"{}", NOW)

    assert survey([str(tmp_path)], NOW + 10).newest is None


def test_the_history_tells_of_all_of_them(tmp_path: Path) -> None:
    torch_like(tmp_path / "step-1.pt", NOW - 900)
    torch_like(tmp_path / "step-2.pt", NOW - 600, cut=20)
    torch_like(tmp_path / "step-3.pt", NOW - 300)

    assert [(each.step, each.state.value) for each in history([str(tmp_path)], NOW)] == [
        (3, "complete"),
        (2, "broken"),
        (1, "complete"),
    ]


def test_a_look_is_bounded_and_the_newest_come_first(tmp_path: Path) -> None:
    for step in range(300):
        written(tmp_path / f"step-{step}.bin", b"x", NOW - 1000 + step)
    watcher = Watcher([str(tmp_path)], stats_per_look=50)

    watcher.poll(NOW)

    newest = watcher.newest()
    assert newest is not None
    assert newest.step == 299


def test_a_place_that_is_not_there_yet_is_no_fault(tmp_path: Path) -> None:
    watcher = Watcher([str(tmp_path / "later"), str(tmp_path / "also*" / "later")])
    assert watcher.poll(NOW) == []
    (tmp_path / "later").mkdir()
    torch_like(tmp_path / "later" / "step-1.pt", NOW + 1)

    assert [found.step for found in watcher.poll(NOW + 2)] == [1]


def test_room_made_beforehand_is_not_taken_for_the_whole(tmp_path: Path) -> None:
    watcher = Watcher([str(tmp_path)])
    watcher.poll(NOW)
    header = b'{"w":{"dtype":"U8","shape":[100],"data_offsets":[0,100]}}'
    written(tmp_path / "model.safetensors", len(header).to_bytes(8, "little") + header + bytes(100), NOW + 1)

    assert watcher.poll(NOW + 1) == []
    written(tmp_path / "model.safetensors", len(header).to_bytes(8, "little") + header + b"w" * 100, NOW + 2)
    assert watcher.poll(NOW + 2) == []
    assert [found.finished for found in watcher.poll(NOW + 4)] == [NOW + 2]


def test_a_directory_of_fewer_files_than_the_one_before_is_waited_for(tmp_path: Path) -> None:
    def ranks(name: str, count: int, at: float) -> None:
        (tmp_path / name).mkdir(exist_ok=True)
        for rank in range(count):
            written(tmp_path / name / f"rank{rank}.bin", b"x" * 10, at)
        os.utime(tmp_path / name, (at, at))

    ranks("step-1", 4, NOW - 100)
    watcher = Watcher([str(tmp_path)])
    watcher.poll(NOW)
    ranks("step-2", 3, NOW + 1)
    for second in (1, 3, 8, 20):
        assert watcher.poll(NOW + second) == []
    ranks("step-2", 4, NOW + 21)

    assert watcher.poll(NOW + 21) == []
    assert [found.step for found in watcher.poll(NOW + 27)] == [2]
