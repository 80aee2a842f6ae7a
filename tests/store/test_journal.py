"""What was acknowledged is there, whatever happens to the process or the disk."""

from __future__ import annotations

import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sentinel.clock import ManualClock
from sentinel.model.journal import JournalUnavailable
from sentinel.store.journal import JournalFile

CHILD = """
import sys
from pathlib import Path
from sentinel.clock import SystemClock
from sentinel.store.journal import JournalFile
journal = JournalFile(Path(sys.argv[1]), SystemClock())
for number in range(int(sys.argv[2]), 1_000_000):
    journal.append("job", {"number": number, "padding": "x" * (number * 37 % 900)})
    print(number, flush=True)
    if number % 97 == 0:
        journal.compact(("job", dict(record.data)) for record in journal.replay())
"""


SmallDisk = Callable[[str], Path]
Fill = Callable[[Path], Path]


def opened(path: Path) -> JournalFile:
    return JournalFile(path, ManualClock())


def numbers(journal: JournalFile) -> list[object]:
    return [record.data.get("number") for record in journal.replay()]


def test_records_come_back_in_order_and_numbers_go_on(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    journal = opened(path)
    journal.append("job", {"number": 1})
    journal.append("alert", {"number": 2, "text": "ä\n\0"})
    journal.close()

    again = opened(path)
    again.append("job", {"number": 3})

    records = list(again.replay())
    assert [(record.seq, record.kind, record.data["number"]) for record in records] == [
        (1, "job", 1),
        (2, "alert", 2),
        (3, "job", 3),
    ]
    assert records[1].data["text"] == "ä\n\0"
    assert records[0].at == ManualClock().now()
    assert path.stat().st_mode & 0o777 == 0o600
    assert again.damaged == 0


def test_compaction_keeps_what_it_is_given_and_the_numbers_go_on(tmp_path: Path) -> None:
    journal = opened(tmp_path / "journal")
    for number in range(5):
        journal.append("job", {"number": number})
    journal.compact([("job", {"number": 4})])
    journal.append("job", {"number": 5})
    journal.close()

    again = opened(tmp_path / "journal")

    assert [(record.seq, record.data["number"]) for record in again.replay()] == [(6, 4), (7, 5)]
    again.compact([])
    again.close()
    last = opened(tmp_path / "journal")
    last.append("job", {"number": 6})
    assert [record.seq for record in last.replay()] == [8, 9]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["journal"]


def test_it_wants_to_be_compacted_when_it_has_grown(tmp_path: Path) -> None:
    journal = opened(tmp_path / "journal")
    wanted = []
    for number in (1, 2):
        journal.append("job", {"number": number, "padding": "x" * (1 << 20)})
        wanted.append(journal.wants_compaction)
    journal.compact([("job", {"number": 2})])
    wanted.append(journal.wants_compaction)

    assert wanted == [False, True, False]


@settings(max_examples=60, deadline=None)
@given(cut=st.integers(0, 250), garbage=st.binary(max_size=40))
def test_a_torn_tail_costs_only_itself(tmp_path_factory: pytest.TempPathFactory, cut: int, garbage: bytes) -> None:
    path = tmp_path_factory.mktemp("torn") / "journal"
    journal = opened(path)
    ends = []
    for number in range(4):
        journal.append("job", {"number": number})
        ends.append(journal.size_bytes)
    journal.close()
    cut = min(cut, ends[-1])
    raw = path.read_bytes()
    path.write_bytes(raw[:cut] + garbage)
    whole = [number for number, end in enumerate(ends) if end <= cut]

    again = opened(path)
    assert numbers(again)[: len(whole)] == whole
    again.append("job", {"number": 99})
    again.close()

    last = opened(path)
    assert numbers(last) == [*whole, 99]
    assert last.damaged == 0  # what was torn has been cleared


def test_damage_in_the_middle_costs_one_line(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    journal = opened(path)
    for number in range(3):
        journal.append("job", {"number": number})
    journal.close()
    path.write_bytes(path.read_bytes().replace(b'"number":1', b'"number":7'))

    again = opened(path)

    assert numbers(again) == [0, 2]
    assert again.damaged == 1


@pytest.mark.slow
def test_fifty_kills_lose_nothing_acknowledged(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    chance = random.Random(7)
    promised = -1
    for _ in range(50):
        command = [sys.executable, "-c", CHILD, str(path), str(promised + 1)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
            assert child.stdout is not None
            for _ in range(chance.randrange(1, 60)):
                promised = int(child.stdout.readline())
            child.send_signal(signal.SIGKILL)
            rest = child.stdout.read()
        journal = opened(path)
        found = numbers(journal)
        journal.close()
        promised = max([promised, *(int(line) for line in rest.split("\n")[:-1])])
        assert found == list(range(len(found)))
        assert len(found) > promised
        promised = len(found) - 1
    assert promised > 500


def test_a_full_disk_refuses_with_words_and_goes_on_when_there_is_room(small_disk: SmallDisk, fill: Fill) -> None:
    disk = small_disk("2m")
    journal = opened(disk / "journal")
    journal.append("job", {"number": 0})
    hog = fill(disk)

    for number in range(1, 50):
        journal.append("job", {"number": number, "padding": "x" * 1000})
    refused = 50
    with pytest.raises(JournalUnavailable, match="No space left on device"):  # noqa: PT012 - until it does
        while refused < 1000:
            journal.append("job", {"number": refused, "padding": "x" * 1000})
            refused += 1
    assert refused > 100
    with pytest.raises(JournalUnavailable):
        journal.compact([("job", {"number": 0, "padding": "x" * 1000})])
    hog.unlink()
    journal.append("job", {"number": refused})
    journal.close()

    assert numbers(opened(disk / "journal")) == list(range(refused + 1))


def test_a_journal_that_cannot_be_opened_opens_once_it_can(tmp_path: Path) -> None:
    journal = opened(tmp_path / "later" / "journal")

    assert list(journal.replay()) == []
    with pytest.raises(JournalUnavailable, match="No such file"):
        journal.append("job", {"number": 1})
    (tmp_path / "later").mkdir()
    journal.append("job", {"number": 2})

    assert numbers(journal) == [2]


def test_a_full_disk_at_the_start_is_no_reason_not_to_start(small_disk: SmallDisk, fill: Fill) -> None:
    disk = small_disk("1m")
    hog = fill(disk)
    journal = opened(disk / "journal")

    with pytest.raises(JournalUnavailable):
        journal.append("job", {"number": 1})
    hog.unlink()
    journal.append("job", {"number": 2})

    assert numbers(journal) == [2]


def test_one_that_was_removed_takes_no_record_until_it_is_begun_anew(tmp_path: Path) -> None:
    path = tmp_path / "state" / "journal"
    path.parent.mkdir()
    journal = opened(path)
    journal.append("job", {"number": 1})
    wanted_before = journal.wants_compaction
    shutil.rmtree(path.parent)

    assert (wanted_before, journal.wants_compaction) == (False, True)
    with pytest.raises(JournalUnavailable, match="removed"):
        journal.append("job", {"number": 2})
    journal.compact([("job", {"number": 1})])
    journal.append("job", {"number": 3})

    assert numbers(opened(path)) == [1, 3]
    assert not journal.removed


def test_a_record_left_to_the_next_is_replayed_after_our_own_death(tmp_path: Path) -> None:
    journal = opened(tmp_path / "journal")
    journal.append("event", {"number": 1}, synced=False)
    journal.append("job", {"number": 2})

    assert numbers(opened(tmp_path / "journal")) == [1, 2]
