"""What is said about a job on the command line is looked at before the job begins."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from sentinel.errors import UsageError
from sentinel.jobs.options import add_options, spec_from
from sentinel.model.jobs import CheckpointDir, JobSpec


def said(*words: str, cwd: Path, notify: str = "") -> JobSpec:
    """The job that these options declare."""
    parser = argparse.ArgumentParser()
    add_options(parser)
    return spec_from(parser.parse_args(words), ["true"], cwd=str(cwd), notify=notify)


def refusal(*words: str, cwd: Path, notify: str = "") -> str:
    """What is said against these options."""
    with pytest.raises(UsageError) as refused:
        said(*words, cwd=cwd, notify=notify)
    return str(refused.value)


def test_a_checkpoint_directory_may_say_how_often(tmp_path: Path) -> None:
    (tmp_path / "odd:name").mkdir()

    assert said("--checkpoints", "ckpt:30m", cwd=tmp_path).checkpoints == (CheckpointDir(f"{tmp_path}/ckpt", 1800.0),)
    assert said("--checkpoints", "odd:name", cwd=tmp_path).checkpoints == (CheckpointDir(f"{tmp_path}/odd:name"),)
    assert said("--checkpoints", "a:b/c", cwd=tmp_path).checkpoints == (CheckpointDir(f"{tmp_path}/a:b/c"),)


def test_what_was_meant_as_a_duration_does_not_become_a_directory(tmp_path: Path) -> None:
    assert refusal("--checkpoints", "ckpt:zz", cwd=tmp_path) == (
        "--checkpoints: 'zz' is not a duration, and there is no directory 'ckpt:zz'\n"
        "  try: --checkpoints ckpt:30m; where the colon belongs to the name, make the directory first"
    )


@pytest.mark.parametrize(
    ("channel", "words"),
    [
        ("exec:save > log", "would hand `>` to it as a word\n  try: exec:sh -c 'save > log'"),
        ("exec:true && true", "would hand `&&` to it"),
        ("exec:./nosuch now", "command not found: {cwd}/nosuch (no such file)"),
        ("exec:nosuch-anywhere", "in no directory of PATH"),
        ("exec:./plain", "{cwd}/plain is not executable\n  try: chmod +x {cwd}/plain"),
        ("exec:'", "cannot be split into words"),
    ],
)
def test_a_program_that_cannot_be_started_is_said_when_it_is_declared(tmp_path: Path, channel: str, words: str) -> None:
    (tmp_path / "plain").touch()

    assert words.format(cwd=tmp_path) in refusal("--on-checkpoint", channel, cwd=tmp_path)


def test_a_program_may_take_what_only_looks_like_a_shells(tmp_path: Path) -> None:
    channel = "exec:sh -c 'kill -USR1 $(cat pid) | tee log'"

    assert said("--on-checkpoint", channel, cwd=tmp_path).channels[0].target == channel.removeprefix("exec:")
    assert said("--on-degrade", "exec:true http://x/?a=1&b=2", cwd=tmp_path).channels


def test_an_address_that_is_none_is_said_with_where_it_comes_from(tmp_path: Path) -> None:
    assert refusal("--notify", "me", cwd=tmp_path).startswith("--notify: 'me' is not an address")
    assert refusal(cwd=tmp_path, notify="ntfy://x you").startswith("SENTINEL_NOTIFY: 'you' is not an address")
