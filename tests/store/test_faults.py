"""Full disks, damaged files, a kill: what was promised is kept, what is lost is told."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from sentinel.clock import ManualClock
from sentinel.model.events import Event, event
from sentinel.model.families import HOST_DISK
from sentinel.model.series import Entity
from sentinel.store.database import StoreUnavailable
from sentinel.store.settings import Settings
from sentinel.store.store import Store

SmallDisk = Callable[[str], Path]
Fill = Callable[[Path], Path]
T0 = ManualClock().now()
SLOW = Settings(flush_s=3600.0)

CHILD = """
import sys, time
from pathlib import Path
from sentinel.clock import SystemClock
from sentinel.model.families import HOST_DISK
from sentinel.store.settings import Settings
from sentinel.store.store import Store
store = Store.open(Path(sys.argv[1]), Settings(flush_s=3600.0), SystemClock(), lambda event: None)
first = int(sys.argv[2])
for number in range(first, first + 1_000_000):
    store.put(HOST_DISK.batch(float(number), {("/",): (number, 1, 1, 0)}))
    if store.flush():
        print(number, flush=True)
"""


class House:
    """A store in a directory, with the events it told."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.events: list[Event] = []
        self.clock = ManualClock()
        self.open()

    def open(self) -> None:
        self.store = Store.open(self.directory, SLOW, self.clock, self.events.append)

    @property
    def told(self) -> list[str]:
        return [each.kind for each in self.events]

    def put(self, first: int, count: int, *, width: int = 50) -> None:
        """Samples that do not compress."""
        noise = np.random.default_rng(first)
        for number in range(first, first + count):
            rows: dict[Entity, tuple[float, ...]] = {(f"/{n}",): (number, *noise.random(3)) for n in range(width)}
            self.store.put(HOST_DISK.batch(T0 + number, rows))

    def times(self) -> list[object]:
        return [at for (at,) in self.store.sql("SELECT DISTINCT ts FROM host_disk ORDER BY ts").rows]


@pytest.fixture
def houses() -> Iterator[Callable[[Path], House]]:
    made: list[House] = []

    def build(directory: Path) -> House:
        made.append(House(directory))
        return made[-1]

    yield build
    for house in made:
        house.store.close()


def test_a_commit_that_finds_the_disk_full_is_repeated_when_there_is_room(
    small_disk: SmallDisk, fill: Fill, houses: Callable[[Path], House]
) -> None:
    house = houses(small_disk("8m"))
    house.put(0, 3)
    assert house.store.flush()
    hog = fill(house.directory)

    house.put(3, 3)
    assert not house.store.flush()
    house.put(6, 3)
    house.store.put_event(event("job.running", "x", at=T0))
    assert not house.store.flush()
    assert house.told == ["store.unavailable"]
    assert "No space left" in house.events[0].message
    assert len(house.times()) == 3  # reading goes on
    hog.unlink()
    assert house.store.flush()

    assert house.times() == [T0 + number for number in range(9)]
    assert house.store.sql("SELECT count(*) FROM host_disk").rows == [(9 * 50,)]
    assert len(house.store.events(0)) == 1
    assert house.told == ["store.unavailable", "store.recovered"]


def test_a_checkpoint_that_finds_the_disk_full_breaks_the_instance_and_it_is_opened_anew(
    small_disk: SmallDisk, fill: Fill, houses: Callable[[Path], House]
) -> None:
    house = houses(small_disk("8m"))
    house.put(0, 200)
    assert house.store.flush()
    hog = fill(house.directory)

    house.store.maintain()  # checkpoints
    house.put(200, 5)
    house.store.flush()
    assert "store.unavailable" in house.told
    hog.unlink()
    assert house.store.flush()
    house.store.maintain()

    assert house.times() == [T0 + number for number in range(205)]
    assert house.store.sql("SELECT count(*) FROM host_disk").rows == [(205 * 50,)]
    assert house.told[-1] == "store.recovered"
    house.store.close()
    house.open()
    assert len(house.times()) == 205


def test_a_batch_that_broke_the_instance_is_neither_lost_nor_doubled(
    tmp_path: Path, houses: Callable[[Path], House], monkeypatch: pytest.MonkeyPatch
) -> None:
    import duckdb

    house = houses(tmp_path)
    writer = house.store._writer
    real = writer._append
    broken: list[int] = []

    for landed in (False, True):

        def append(queue: object, key: object, landed: bool = landed) -> None:
            real(queue, key)  # type: ignore[arg-type]
            if not broken:
                broken.append(1)
                if landed:
                    house.store._database.root.commit()
                raise duckdb.FatalException("database has been invalidated")

        monkeypatch.setattr(writer, "_append", append)
        first = 10 * landed
        house.put(first, 2)
        house.store.flush()
        broken.clear()
        monkeypatch.setattr(writer, "_append", real)
        house.put(first + 2, 1)
        assert house.store.flush()

    assert house.store.sql("SELECT ts, count(*) FROM host_disk GROUP BY ts ORDER BY ts").rows == [
        (T0 + number, 50) for number in (0, 1, 2, 10, 11, 12)
    ]
    assert house.told == ["store.unavailable", "store.recovered"] * 2


def test_a_disk_that_is_full_at_the_start_is_no_reason_not_to_start(
    small_disk: SmallDisk, fill: Fill, houses: Callable[[Path], House]
) -> None:
    disk = small_disk("4m")
    hog = fill(disk)
    house = houses(disk)
    house.put(0, 2)

    assert not house.store.flush()
    assert house.told == ["store.unavailable"]
    assert house.store.size_bytes() == 0
    with pytest.raises(StoreUnavailable):
        house.store.sql("SELECT 1")
    hog.unlink()
    assert house.store.flush()
    assert len(house.times()) == 2


def test_a_damaged_log_is_moved_aside_and_told(tmp_path: Path, houses: Callable[[Path], House]) -> None:
    house = houses(tmp_path)
    house.put(0, 2)
    house.store.maintain()
    house.put(2, 2)
    house.store.flush()
    killed = tmp_path / "killed"
    killed.mkdir()
    # By another process: opening the file in this one would drop its lock.
    subprocess.run(["cp", tmp_path / "store.duckdb", tmp_path / "store.duckdb.wal", killed], check=True)
    wal = killed / "store.duckdb.wal"
    damaged = bytearray(wal.read_bytes())
    damaged[len(damaged) // 2] ^= 0xFF
    wal.write_bytes(damaged)

    house = houses(killed)

    assert house.told == ["store.damaged"]
    assert house.events[0].severity == "critical"
    assert house.times() == [T0, T0 + 1]
    assert [path.name for path in killed.glob("*.damaged-*")] == ["store.duckdb.wal.damaged-20270115T080000Z"]
    house.put(9, 1)
    assert house.store.flush()


@pytest.mark.parametrize("damage", [b"", b"not a database" * 1000])
def test_a_damaged_file_is_moved_aside_with_its_log_and_a_fresh_one_begun(
    tmp_path: Path, houses: Callable[[Path], House], damage: bytes
) -> None:
    house = houses(tmp_path)
    house.put(0, 2)
    house.store.close()
    (tmp_path / "store.duckdb").write_bytes(damage)
    (tmp_path / "store.duckdb.wal").write_bytes(b"of the same age")

    house.open()

    assert house.told == ["store.damaged"]
    assert house.times() == []
    assert len(list(tmp_path.glob("*.damaged-*"))) == 2
    house.put(0, 1)
    assert house.store.flush()


def test_a_log_without_its_file_is_kept_and_told(tmp_path: Path, houses: Callable[[Path], House]) -> None:
    (tmp_path / "store.duckdb.wal").write_bytes(b"whose file is gone")

    house = houses(tmp_path)

    assert house.told == ["store.damaged"]
    assert (tmp_path / "store.duckdb.wal.damaged-20270115T080000Z").read_bytes() == b"whose file is gone"


def started(directory: Path, first: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", CHILD, str(directory), str(first)], stdout=subprocess.PIPE, text=True
    )


def test_another_process_that_has_the_file_is_waited_for_and_a_kill_loses_nothing_acknowledged(
    tmp_path: Path, houses: Callable[[Path], House]
) -> None:
    promised = -1
    with started(tmp_path, 0) as child:
        assert child.stdout is not None
        promised = int(child.stdout.readline())
        house = houses(tmp_path)
        assert house.told == ["store.unavailable"]
        for _ in range(20):
            promised = int(child.stdout.readline())
        child.send_signal(signal.SIGKILL)
        rest = child.stdout.read()
    promised = max([promised, *(int(line) for line in rest.split("\n")[:-1])])

    assert house.store.flush()
    assert house.told == ["store.unavailable", "store.recovered"]
    times = house.times()
    assert times == [float(number) for number in range(len(times))]
    assert len(times) > promised


@pytest.mark.slow
def test_many_kills_lose_nothing_acknowledged(tmp_path: Path) -> None:
    have = 0
    for round_ in range(12):
        with started(tmp_path, have) as child:
            assert child.stdout is not None
            promised = have - 1
            for _ in range(1 + round_ % 7):
                promised = int(child.stdout.readline())
            time.sleep(round_ * 0.004)  # somewhere in the middle of a commit
            child.send_signal(signal.SIGKILL)
            rest = child.stdout.read()
        promised = max([promised, *(int(line) for line in rest.split("\n")[:-1])])
        house = House(tmp_path)
        times = house.times()
        house.store.close()
        assert house.told == []
        assert times == [float(number) for number in range(len(times))]
        assert len(times) > promised
        have = len(times)


def test_readers_are_sent_away_when_it_closes(tmp_path: Path) -> None:
    import threading

    house = House(tmp_path)
    failed: list[BaseException] = []

    def ask() -> None:
        try:
            house.store.sql("SELECT count(*) FROM range(1000000) a, range(1000000) b", deadline_s=60)
        except StoreUnavailable as error:
            failed.append(error)

    readers = [threading.Thread(target=ask) for _ in range(3)]
    for reader in readers:
        reader.start()
    give_up = time.monotonic() + 10
    while len(house.store._database._readers) < 3 and time.monotonic() < give_up:
        time.sleep(0.01)
    house.store.close()
    for reader in readers:
        reader.join(timeout=10)

    assert [str(error).splitlines()[0] for error in failed] == ["the store was closed during the query"] * 3
