"""Nothing lost, nothing twice: whatever happens to the file."""

from __future__ import annotations

import os
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from sentinel.logs.tail import Tail, Tailer


def lines(tail: Tail | Tailer) -> list[str]:
    return [line.decode() for chunk in tail.read() for line in chunk.lines]


def test_a_file_created_late_is_read_from_its_start(tmp_path: Path) -> None:
    tail = Tail(str(tmp_path / "log"), from_end=True)
    assert lines(tail) == []

    (tmp_path / "log").write_text("one\ntwo\n")

    assert lines(tail) == ["one", "two"]


def test_what_was_there_before_is_skipped_when_asked(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("old\n")
    tail = Tail(str(path), from_end=True)
    assert lines(tail) == []

    with path.open("a") as file:
        file.write("new\n")

    assert lines(tail) == ["new"]


def test_a_line_written_in_pieces_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("CUDA out ")
    tail = Tail(str(path))
    assert lines(tail) == []

    with path.open("a") as file:
        file.write("of memory\n")

    assert lines(tail) == ["CUDA out of memory"]


def test_rotation_by_rename_loses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("1\n")
    tail = Tail(str(path))
    assert lines(tail) == ["1"]
    with path.open("a") as old:
        old.write("2\n")
        path.rename(tmp_path / "log.1")
        old.write("3\nunfinished")
        old.flush()
        path.write_text("4\n")

        assert lines(tail) == ["2", "3", "unfinished", "4"]


def test_truncation_in_place_begins_again(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("1\n2\n")
    tail = Tail(str(path))
    assert lines(tail) == ["1", "2"]

    os.truncate(path, 0)
    assert lines(tail) == []
    with path.open("a") as file:
        file.write("3\n")

    assert lines(tail) == ["3"]


def test_a_restart_goes_on_where_it_stopped(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("1\n2\npart")
    tail = Tail(str(path))
    assert lines(tail) == ["1", "2"]
    position = tail.position()

    with path.open("a") as file:
        file.write("ial\n")
    again = Tail(str(path), position)

    assert lines(again) == ["partial"]
    assert again.position() is not None
    assert again.position().lines == 3  # type: ignore[union-attr]


def test_a_reused_inode_is_another_file(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("a\nb\nc\n")
    tail = Tail(str(path))
    assert lines(tail) == ["a", "b", "c"]
    position = tail.position()

    path.write_text("x\ny\nz\nmore\n")  # the same inode, other contents
    again = Tail(str(path), position)

    assert lines(again) == ["x", "y", "z", "more"]


def test_a_progress_bar_is_its_last_state(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b" 10%|#\r 50%|##\r100%|###\r\nnext\r\n")

    assert lines(Tail(str(path))) == ["100%|###", "next"]


def test_an_endless_line_is_cut_and_the_next_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"x" * 10_000_000 + b"\nafter\n")

    tail = Tail(str(path))
    got = lines(tail) + lines(tail)  # a look is bounded, so that one file cannot starve the others

    assert got[-1] == "after"
    assert len(got) == 2
    assert len(got[0]) <= 64 * 1024


def test_a_glob_finds_files_that_come_later(tmp_path: Path) -> None:
    tailer = Tailer([str(tmp_path / "rank*.log")])
    tailer.look_for_files()
    (tmp_path / "rank0.log").write_text("zero\n")
    tailer.look_for_files()

    assert lines(tailer) == ["zero"]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(["ab", "\n", "c\n", "\r", "é"]), max_size=30), st.integers(1, 5))
def test_however_it_is_written_every_line_comes_once(pieces: list[str], every: int) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "log"
        path.touch()
        tail = Tail(str(path))
        got: list[str] = []
        with path.open("a", newline="") as file:
            for index, piece in enumerate(pieces):
                file.write(piece)
                file.flush()
                if index % every == 0:
                    got += lines(tail)
        got += lines(tail)
        tail.close()

        whole = "".join(pieces).split("\n")[:-1]
        assert got == [line.removesuffix("\r").rpartition("\r")[2] for line in whole]
