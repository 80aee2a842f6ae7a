"""GPUs, through the real pynvml on a fake driver, and through the demo's file."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sentinel.collectors.gpu import GpuCollector, device_holders
from sentinel.collectors.gpu_sources import DriverGpus, GpuReading, SimulatedGpus
from sentinel.collectors.ports import Unavailable
from sentinel.collectors.trees import Trees
from sentinel.errors import SentinelError
from sentinel.model.series import Batch
from sentinel.system.frames import Overdue
from tests.collectors.conftest import eventually
from tests.fake_nvml.fake_nvml import GIB, FakeDriver, board

Rows = dict[str, dict[tuple[str, ...], dict[str, float]]]


@pytest.fixture
def gpus(driver: FakeDriver) -> Iterator[DriverGpus]:
    source = DriverGpus(deadline_s=5.0, env=driver.env)
    yield source
    source.close()


def rows_of(batches: list[Batch]) -> Rows:
    return {batch.family.name: batch.rows() for batch in batches}


def only(readings: list[GpuReading]) -> GpuReading:
    assert len(readings) == 1
    return readings[0]


def is_gone(pid: int) -> bool:
    return not os.path.exists(f"/proc/{pid}")


def test_a_healthy_board_tells_everything_in_base_units(driver: FakeDriver, gpus: DriverGpus) -> None:
    driver.says("count 1", *board(0, "process 4242 10737418240", "process 4343 -"))
    assert only(gpus.read()) == GpuReading(
        gpu="0",
        uuid="GPU-0",
        model="NVIDIA Fake 80GB",
        minor=0,
        memory_used_bytes=41 * GIB,
        memory_total_bytes=80 * GIB,
        memory_reserved_bytes=GIB,
        busy_ratio=0.87,
        memory_busy_ratio=0.31,
        temperature_celsius=61,
        memory_temperature_celsius=70,
        slowdown_celsius=87,
        power_watts=312.5,
        power_limit_watts=700,
        energy_joules=9000,
        pcie_replays=3,
        recovery_action=0,
        clocks_hertz={"graphics": 1.98e9, "sm": 1.98e9, "memory": 1.98e9},
        throttled={
            "idle": False,
            "app_clocks": False,
            "sw_power": True,
            "hw_slowdown": False,
            "sync_boost": False,
            "sw_thermal": False,
            "hw_thermal": True,
            "power_brake": False,
            "display": False,
        },
        processes={"4242": 10 * GIB, "4343": None},
    )
    assert not gpus.off


def test_what_a_board_cannot_do_is_absent_and_never_zero(driver: FakeDriver, gpus: DriverGpus) -> None:
    lacking = ("power", "busy", "temperature", "reserved", "reasons", "memory_temperature", "action")
    driver.says(
        "count 1",
        *board(
            0,
            "error nvmlDeviceGetComputeRunningProcesses_v3 4",
            "error nvmlDeviceGetGraphicsRunningProcesses_v3 4",
            without=lacking,
        ),
    )
    reading = only(gpus.read())
    assert reading.up
    for name in ("power_watts", "busy_ratio", "temperature_celsius", "memory_reserved_bytes", "recovery_action"):
        assert getattr(reading, name) is None, name
    assert reading.throttled == {}
    assert reading.processes is None
    assert reading.memory_used_bytes == 41 * GIB, "version 1 answers where version 2 is unknown"
    told = {metric: why for _, metric, why in gpus.off}
    assert told["gpu_power_watts"] == "not supported"
    assert "no permission" in told["gpu_process_memory_bytes"]
    support = GpuCollector(gpus, Trees()).supported()
    assert support.available
    assert "gpu_throttled" in support.off


def test_what_cannot_be_had_is_asked_once(driver: FakeDriver, gpus: DriverGpus) -> None:
    driver.says("count 1", *board(0, without=("power",)))
    assert only(gpus.read()).power_watts is None
    driver.says("count 1", *board(0))
    assert only(gpus.read()).power_watts is None


def test_no_data_this_time_is_asked_again(driver: FakeDriver, gpus: DriverGpus) -> None:
    driver.says("count 1", *board(0, "error nvmlDeviceGetPowerUsage 21"))
    assert only(gpus.read()).power_watts is None
    driver.says("count 1", *board(0))
    assert only(gpus.read()).power_watts == 312.5
    assert not gpus.off


def test_a_board_that_shares_the_hosts_memory_tells_the_hosts(driver: FakeDriver, gpus: DriverGpus) -> None:
    driver.says("count 1", *board(0, without=("total", "free", "reserved")))
    reading = only(gpus.read())
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert reading.memory_total_bytes == total
    assert 0 < (reading.memory_used_bytes or 0) < total


def test_a_lost_board_is_down_under_its_own_name_and_the_others_live(driver: FakeDriver, gpus: DriverGpus) -> None:
    driver.says("count 2", *board(0), *board(1))
    gpus.read()
    driver.says("count 2", *board(0), *board(1, "error nvmlDeviceGetHandleByIndex_v2 15"))
    first, second = gpus.read()
    assert first.up
    assert (second.up, second.uuid, second.memory_used_bytes) == (False, "GPU-1", None)
    assert "fallen off the bus" in second.fault
    driver.says("count 2", *board(0), *board(1, "error nvmlDeviceGetUtilizationRates 16"))
    assert "needs a reset" in gpus.read()[1].fault
    driver.says("count 2", *board(0), *board(1))
    assert gpus.read()[1].up


def test_mig_instances_have_memory_and_processes_of_their_own(driver: FakeDriver, gpus: DriverGpus) -> None:
    driver.says(
        "count 1",
        *board(0, "mig 100 101"),
        *board(100, "process 77 1073741824", gi=7, ci=0, total=20 * GIB, free=15 * GIB),
        *board(101, gi=9, ci=1, total=20 * GIB, free=20 * GIB),
    )
    whole, one, two = gpus.read()
    assert whole.mig == ""
    assert (one.uuid, one.mig, one.memory_used_bytes, one.processes) == ("GPU-0", "7/0", 5 * GIB, {"77": GIB})
    assert (two.mig, two.memory_used_bytes, two.busy_ratio) == ("9/1", 0, None)


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        (["init 9"], "driver is not loaded"),
        (["init 18"], "kernel module is still the old one"),
        (["count 0"], "shows no GPU"),
    ],
)
def test_a_machine_without_a_driver_says_why_and_keeps_no_child(
    driver: FakeDriver, gpus: DriverGpus, lines: list[str], reason: str
) -> None:
    driver.says(*lines)
    with pytest.raises(Unavailable, match=reason):
        gpus.read()
    assert gpus.child_pid is None
    driver.says("count 1", *board(0))
    assert len(gpus.read()) == 1, "a fresh child sees the driver that came"


def test_a_machine_without_the_library_says_so(tmp_path: Path) -> None:
    empty = {name: value for name, value in os.environ.items() if name != "LD_LIBRARY_PATH"}
    source = DriverGpus(env=empty)
    try:
        support = GpuCollector(source, Trees()).supported()
    finally:
        source.close()
    if support.available:
        pytest.skip("this machine has a driver")
    assert "no NVIDIA driver" in support.reason


def test_a_hung_driver_costs_its_deadline_and_is_left_alone_for_a_while(driver: FakeDriver) -> None:
    now = 0.0
    source = DriverGpus(deadline_s=1.0, env=driver.env, monotonic=lambda: now)
    driver.says("count 1", *board(0))
    source.read()
    hung = source.child_pid
    driver.says("count 1", *board(0, "hang nvmlDeviceGetTemperature"))
    assert GpuCollector(source, Trees()).supported().available, "a fault, not a machine without GPUs"
    assert hung is not None
    eventually(lambda: is_gone(hung))
    began = time.monotonic()
    with pytest.raises(Overdue, match="half a minute"):
        source.read()
    assert time.monotonic() - began < 0.5
    assert source.child_pid is None
    driver.says("count 1", *board(0))
    now = 31.0
    assert len(source.read()) == 1
    source.close()


class Trees1(Trees):
    """Trees in which the owners are said."""

    def __init__(self, owners: dict[int, str]) -> None:
        super().__init__()
        self.owners = owners


@pytest.fixture
def simulate(tmp_path: Path) -> Callable[..., SimulatedGpus]:
    path = tmp_path / "gpus.json"

    def say(*boards: dict[str, object]) -> SimulatedGpus:
        fresh = path.with_suffix(".new")
        fresh.write_text(json.dumps({"gpus": boards}))
        fresh.replace(path)
        return SimulatedGpus(path)

    return say


def test_memory_belongs_to_the_job_whose_tree_has_the_pid(simulate: Callable[..., SimulatedGpus]) -> None:
    ours, stranger, dead = os.getpid(), os.getppid(), 4_194_303
    source = simulate(
        {"gpu": 0, "uuid": "GPU-a", "model": "X", "processes": {str(ours): 5, "17": 6, str(stranger): 7, str(dead): 8}},
        {"gpu": 1, "uuid": "GPU-b", "model": "X", "busy_ratio": 0.5, "processes": {str(ours): 9}},
    )
    trees = Trees1({ours: "train", 17: "train"})
    found = rows_of(list(GpuCollector(source, trees).collect(100.0)))
    assert found["job_gpu"] == {
        ("train", "0", "GPU-a", ""): {"job_gpu_memory_bytes": 11.0},
        ("train", "1", "GPU-b", ""): {"job_gpu_memory_bytes": 9.0},
    }
    assert found["gpu_process"]["0", "GPU-a", "X", "", str(stranger)] == {"gpu_process_memory_bytes": 7.0}
    assert found["gpu"]["0", "GPU-a", "X", ""]["gpu_orphan_memory_bytes"] >= 8.0
    assert found["gpu"]["1", "GPU-b", "X", ""] == {
        "gpu_up": 1.0,
        "gpu_utilization_ratio": 0.5,
        "gpu_orphan_memory_bytes": 0.0,
    }


def test_a_job_that_left_its_gpu_is_stale_there_once(simulate: Callable[..., SimulatedGpus]) -> None:
    trees = Trees1({7: "train"})
    source = simulate({"gpu": 0, "uuid": "GPU-a", "processes": {"7": 5}})
    collector = GpuCollector(source, trees)
    collector.collect(100.0)
    simulate({"gpu": 0, "uuid": "GPU-a", "processes": {}})
    batches = {batch.family.name: batch for batch in collector.collect(102.0)}
    assert batches["job_gpu"].labels == ()
    assert batches["job_gpu"].covers == (("train", "0", "GPU-a", ""),)
    assert {batch.family.name: batch for batch in collector.collect(104.0)}["job_gpu"].covers == ()


class HostPids(SimulatedGpus):
    """As in a container: the pids are the host's."""

    pids_resolve = False


def test_in_a_container_what_a_board_holds_belongs_to_the_only_job_on_it(tmp_path: Path) -> None:
    path = tmp_path / "gpus.json"
    reading = {"uuid": "GPU-a", "memory_used_bytes": 50, "memory_reserved_bytes": 8, "processes": {"7": 5}}
    path.write_text(json.dumps({"gpus": [{"gpu": 0, "minor": 0, **reading}, {"gpu": 1, "minor": 1, **reading}]}))
    for pid, devices in ((7, [0]), (8, [0, 1]), (9, [1])):
        (tmp_path / f"proc/{pid}/fd").mkdir(parents=True)
        for number in devices:
            os.symlink(f"/dev/nvidia{number}", tmp_path / f"proc/{pid}/fd/{number}")
        os.symlink("/dev/nvidia-uvm", tmp_path / f"proc/{pid}/fd/5")
    collector = GpuCollector(HostPids(path), Trees1({7: "a", 8: "a", 9: "b"}), str(tmp_path / "proc"))
    support = collector.supported()
    assert "gpu_process_memory_bytes" in support.off
    assert "do not resolve" in support.reason
    found = rows_of(list(collector.collect(100.0)))
    assert found["job_gpu"] == {("a", "0", "GPU-a", ""): {"job_gpu_memory_bytes": 42.0}}, "on board 1 there are two"
    assert found["gpu_process"] == {}
    assert "gpu_orphan_memory_bytes" not in found["gpu"]["0", "GPU-a", "", ""]
    assert device_holders({7: "a", 12345: "gone"}, str(tmp_path / "proc")) == {0: {"a"}}


def test_a_simulated_file_may_be_missing_broken_or_half_written(tmp_path: Path) -> None:
    path = tmp_path / "gpus.json"
    source = SimulatedGpus(path)
    with pytest.raises(Unavailable):
        source.read()
    path.write_text('{"gpus": [{"gpu"')
    with pytest.raises(SentinelError, match="does not describe GPUs"):
        source.read()
    path.write_text('{"gpus": [{"gpu": 3, "uuid": "GPU-x", "busy_ratio": 1}]}')
    assert only(source.read()) == GpuReading("3", "GPU-x", busy_ratio=1.0)
    path.write_text("")
    assert only(source.read()).gpu == "3", "the last good one stands"
