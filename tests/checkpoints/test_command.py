"""`sentinel checkpoints`: what people and scripts see."""

from __future__ import annotations

import json
import os
import zipfile
from pathlib import Path

import pytest

from sentinel.cli.main import main

STATE = b"\x80\x02}q\x00(X\x05\x00\x00\x00modelK\x01X\x0b\x00\x00\x00global_stepK\x07u."


def written(path: Path, age_s: float, *, cut: int = 0) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", STATE)
    path.write_bytes(path.read_bytes()[: -cut or None])
    at = 1_700_000_000 - age_s
    os.utime(path, (at, at))
    return path


def test_a_whole_one_is_described_and_is_no_finding(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path / "last.pt", 60)

    assert main(["checkpoints", "inspect", str(path), "--deep", "--json"]) == 0

    said = json.loads(capsys.readouterr().out)
    assert {"path", "format", "step", "size_bytes", "valid", "reason", "contents", "missing", "verdict"} <= said.keys()
    assert (said["valid"], said["step"], said["contents"]) == (True, 7, ["model", "step"])
    assert "moments" in said["verdict"]


def test_a_broken_one_is_a_finding(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path / "last.pt", 60, cut=30)

    assert main(["checkpoints", "inspect", str(path)]) == 1

    assert "broken, the zip directory" in capsys.readouterr().out


def test_what_is_not_there_is_bad_usage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["checkpoints", "inspect", str(tmp_path / "none.pt")]) == 2
    assert "No such file" in capsys.readouterr().err


def test_a_directory_of_several_is_its_newest_whole_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for step, age in ((100, 300), (200, 200)):
        place = tmp_path / f"checkpoint-{step}"
        place.mkdir()
        written(place / "model.pt", age)
        os.utime(place, (1_700_000_000 - age,) * 2)
    assert main(["checkpoints", "inspect", str(tmp_path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["path"].endswith("checkpoint-200")

    (tmp_path / "latest").write_text("checkpoint-100\n")
    main(["checkpoints", "inspect", str(tmp_path), "--json"])
    assert json.loads(capsys.readouterr().out)["path"].endswith("checkpoint-100")
    (tmp_path / "latest").write_text("../../etc")
    main(["checkpoints", "inspect", str(tmp_path), "--json"])
    assert json.loads(capsys.readouterr().out)["path"].endswith("checkpoint-200")


def test_the_history_of_a_directory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written(tmp_path / "step-1.pt", 900)
    written(tmp_path / "step-2.pt", 600, cut=20)
    written(tmp_path / "step-3.pt", 300)

    assert main(["checkpoints", "list", str(tmp_path), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert [(each["state"], each["step"]) for each in said["checkpoints"]] == [
        ("complete", 7),
        ("broken", 2),
        ("complete", 7),
    ]
    assert said["recommended"] is None

    assert main(["checkpoints", "list", str(tmp_path)]) == 0
    assert "STATE" in (out := capsys.readouterr().out)
    assert "no advice before a write was seen" in out


def test_names_do_not_command_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path / "step-1\x1b[31m.pt", 60)

    main(["checkpoints", "inspect", str(path)])
    main(["checkpoints", "list", str(tmp_path)])

    assert "\x1b" not in capsys.readouterr().out
