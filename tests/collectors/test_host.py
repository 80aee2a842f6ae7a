"""The machine, as this one is and as files say it is."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from sentinel.collectors.disks import DiskCollector
from sentinel.collectors.gauges import Board
from sentinel.collectors.host import HostCollector
from sentinel.collectors.itself import OwnCollector
from sentinel.collectors.trees import Trees
from sentinel.model.families import HOST, SENTINEL
from sentinel.system.mounts import Prober
from tests.collectors.conftest import eventually


class Machine:
    """/proc made of files."""

    def __init__(self, directory: Path) -> None:
        self.proc = directory
        self.write(
            "meminfo", "MemTotal: 1000 kB\nMemFree: 1 kB\nMemAvailable: 400 kB\nSwapTotal: 50 kB\nSwapFree: 20 kB\nx\n"
        )
        self.cpu(100, 700, 0)
        self.write("loadavg", "1.50 1.00 0.50 1/99 1234\n")
        self.write("vmstat", "nr_free_pages 5\noom_kill 4\nlast 1\n")
        self.write(
            "net/dev",
            "Inter-|   Receive\n face |bytes\n    lo: 1 0 0 0 0 0 0 0 1 0\n  eth0:123 0 0 0 0 0 0 0 456 0\nvethab: 9 0 0 0 0 0 0 0 9 0\n",
        )
        for resource in ("cpu", "memory", "io"):
            self.write(
                f"pressure/{resource}",
                "some avg10=12.50 avg60=5.00 avg300=1.00 total=1\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n",
            )

    def write(self, path: str, text: str) -> None:
        (self.proc / path).parent.mkdir(parents=True, exist_ok=True)
        (self.proc / path).write_text(text)

    def cpu(self, user: int, idle: int, iowait: int) -> None:
        self.write(
            "stat", f"cpu  {user} 0 0 {idle} {iowait} 0 0 0 50 0\ncpu0 1\nintr 5\nbtime 1700000000\nprocesses 7\n"
        )

    def host(self) -> HostCollector:
        return HostCollector(proc=str(self.proc), shm=str(self.proc))


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_every_file_becomes_base_units(machine: Machine) -> None:
    host = machine.host()
    first = host.collect(100.0)[0].rows()[()]
    assert "host_cpu_utilization_ratio" not in first, "it takes two looks"
    machine.cpu(150, 720, 30)
    general, pressure, network = host.collect(102.0)
    seen = general.rows()[()]
    assert 0 <= seen.pop("host_shm_used_ratio") <= 1
    assert seen == {
        "host_memory_total_bytes": 1_024_000,
        "host_memory_available_bytes": 409_600,
        "host_swap_used_bytes": 30_720,
        "host_cpu_utilization_ratio": 0.5,
        "host_load1": 1.5,
        "host_oom_kills_total": 4,
        "host_boot_time_seconds": 1_700_000_000,
    }
    assert len(pressure.labels) == 18
    assert pressure.rows()["memory", "some", "10s"] == {"host_pressure_ratio": 0.125}
    assert network.rows() == {
        ("eth0",): {"host_network_receive_bytes_total": 123, "host_network_transmit_bytes_total": 456}
    }


def test_a_device_that_is_gone_is_stale_once(machine: Machine) -> None:
    host = machine.host()
    host.collect(100.0)
    machine.write("net/dev", "a\nb\n")
    assert host.collect(102.0)[2].covers == (("eth0",),)
    assert list(host.collect(104.0)[2].covers) == []


def test_a_kernel_that_tells_less_costs_only_what_it_does_not_tell(tmp_path: Path) -> None:
    host = HostCollector(proc=str(tmp_path), shm=str(tmp_path / "nowhere"))
    assert host.supported().off == ("host_pressure_ratio",)
    general, pressure, network = host.collect(100.0)
    assert general.rows() == {(): {}}
    assert pressure.labels == network.labels == ()


def test_this_machine() -> None:
    host = HostCollector()
    host.collect(100.0)
    seen = host.collect(102.0)[0].rows()[()]
    assert 0 < seen["host_memory_available_bytes"] < seen["host_memory_total_bytes"]
    assert seen["host_memory_total_bytes"] == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert seen["host_boot_time_seconds"] > 1_500_000_000


def test_what_an_idle_hour_costs_joins_the_row(machine: Machine) -> None:
    board = Board()
    board.set(HOST, (), host_idle_cost_total=2.5)
    host = HostCollector(board.facts, str(machine.proc), str(machine.proc))
    assert host.collect(100.0)[0].rows()[()]["host_idle_cost_total"] == 2.5


MOUNTINFO = (
    "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n"
    "2 1 0:5 / /proc rw - proc proc rw\n"
    "3 1 0:60 / {net} rw - nfs4 server:/export rw\n"
    "4 1 0:61 / {gone} rw - tmpfs tmpfs rw\n"
)


def test_a_hung_mount_is_dark_and_delays_nobody(tmp_path: Path) -> None:
    alive = threading.Event()

    def ask(point: str) -> os.statvfs_result:
        alive.wait(30)
        return os.statvfs(point)

    net = tmp_path / "net"
    net.mkdir()
    (tmp_path / "self").mkdir()
    (tmp_path / "self/mountinfo").write_text(MOUNTINFO.format(net=net, gone=tmp_path / "nowhere"))
    prober = Prober(ask)
    disks = DiskCollector(deadline_s=0.05, prober=prober, proc=str(tmp_path))
    (batch,) = disks.collect(100.0)
    root = batch.rows()["/",]
    here = os.statvfs("/")
    assert root["host_disk_total_bytes"] == here.f_blocks * here.f_frsize
    assert root["host_disk_free_bytes"] == pytest.approx(here.f_bavail * here.f_frsize, rel=0.05)
    assert root["host_disk_read_only"] == 0
    assert batch.labels == (("/",),), "and the local one that vanished is no fault"
    assert (str(net),) in batch.covers
    alive.set()
    eventually(lambda: not prober.overdue)
    eventually(lambda: (str(net),) in disks.collect(110.0)[0].labels)


def test_sentinel_counts_its_children(tmp_path: Path) -> None:
    trees = Trees()
    board = Board()
    board.set(SENTINEL, (), sentinel_store_lag_seconds=1.5)
    own = OwnCollector(trees, board.facts)
    assert "sentinel_memory_bytes" not in own.collect(100.0)[0].rows()[()], "nobody has looked yet"
    trees.update(100.0, [])
    seen = own.collect(102.0)[0].rows()[()]
    assert seen["sentinel_memory_bytes"] > 10 << 20
    assert seen["sentinel_cpu_seconds_total"] > 0
    assert seen["sentinel_store_lag_seconds"] == 1.5
