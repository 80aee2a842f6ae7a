"""The memory limit that kills: both versions, from trees of files and, where it can be had, for real."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sentinel.system.cgroups import Cgroups, Limited

MIB = 1 << 20
UNLIMITED_V1 = 0x7FFFFFFFFFFFF000


class House:
    """A machine made of files: /proc and a cgroup mount."""

    def __init__(self, directory: Path, mountinfo: str) -> None:
        self.directory = directory
        self.write("proc/self/mountinfo", mountinfo)

    def write(self, path: str, text: str) -> None:
        target = self.directory / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)

    def process(self, pid: int, cgroup: str) -> None:
        self.write(f"proc/{pid}/cgroup", cgroup)

    def v2(self, group: str, current: int, limit: str, inactive: int = 0, oom_kills: int = 0) -> None:
        at = f"sys/fs/cgroup{group}"
        self.write(f"{at}/memory.current", f"{current}\n")
        self.write(f"{at}/memory.max", f"{limit}\n")
        self.write(f"{at}/memory.stat", f"anon 1\nfile 2\ninactive_anon 7\ninactive_file {inactive}\nactive_file 5\n")
        self.write(f"{at}/memory.events", f"low 0\nhigh 0\nmax 9\noom 3\noom_kill {oom_kills}\noom_group_kill 0\n")

    def v1(self, group: str, usage: int, limit: int, inactive: int = 0, oom_kills: int = 0) -> None:
        at = f"sys/fs/cgroup/memory{group}"
        self.write(f"{at}/memory.usage_in_bytes", f"{usage}\n")
        self.write(f"{at}/memory.limit_in_bytes", f"{limit}\n")
        self.write(f"{at}/memory.stat", f"cache 1\ninactive_file 3\ntotal_cache 1\ntotal_inactive_file {inactive}\n")
        self.write(f"{at}/memory.oom_control", f"oom_kill_disable 0\nunder_oom 0\noom_kill {oom_kills}\n")
        self.write(f"{at}/memory.use_hierarchy", "1\n")

    def cgroups(self) -> Cgroups:
        return Cgroups(str(self.directory / "proc"), str(self.directory))

    def at(self, group: str) -> str:
        return f"{self.directory}/sys/fs/cgroup{group}"


V2 = "35 24 0:30 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
V1 = "34 24 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n35 24 0:30 {root} /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
HYBRID = V1.format(root="/") + "36 24 0:31 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"


def test_a_limit_of_an_ancestor_counts_with_the_ancestors_use(tmp_path: Path) -> None:
    house = House(tmp_path, V2)
    house.process(7, "0::/user.slice/job.scope/inner\n")
    house.v2("/user.slice", 900 * MIB, "1073741824", inactive=200 * MIB)
    house.v2("/user.slice/job.scope", 500 * MIB, "max")
    house.v2("/user.slice/job.scope/inner", 400 * MIB, "max", oom_kills=2)
    found = house.cgroups()
    group = found.directory(7)
    assert group == house.at("/user.slice/job.scope/inner")
    assert found.limits(group) == [Limited(house.at("/user.slice"), 700 * MIB, 1024 * MIB)]
    assert found.limits(group)[0].headroom_bytes == 324 * MIB
    assert found.oom_kills(group) == 2


def test_every_limit_on_the_way_up_is_told_nearest_first(tmp_path: Path) -> None:
    house = House(tmp_path, V2)
    house.process(7, "0::/a/b\n")
    house.v2("/a/b", 10 * MIB, str(100 * MIB))
    house.v2("/a", 95 * MIB, str(96 * MIB))
    found = house.cgroups()
    assert [limit.headroom_bytes // MIB for limit in found.limits(found.directory(7) or "")] == [90, 1]


def test_in_a_container_the_root_of_the_mount_is_the_container(tmp_path: Path) -> None:
    """With a cgroup namespace the daemon and its jobs all say "/", and the container's limit is in the root's files."""
    house = House(tmp_path, V2)
    house.process(7, "0::/\n")
    house.v2("", 300 * MIB, str(512 * MIB))
    found = house.cgroups()
    group = found.directory(7)
    assert group == house.at("")
    assert found.limits(group) == [Limited(house.at(""), 300 * MIB, 512 * MIB)]


def test_in_a_container_without_a_namespace_the_hosts_path_is_cut_off(tmp_path: Path) -> None:
    house = House(tmp_path, V1.format(root="/docker/abc"))
    house.process(7, "9:cpu:/docker/abc\n5:memory:/docker/abc/step_0\n")
    house.process(8, "5:memory:/docker/abcdef\n")
    house.v1("", 300 * MIB, 512 * MIB, inactive=100 * MIB)
    house.v1("/step_0", 200 * MIB, UNLIMITED_V1, oom_kills=1)
    found = house.cgroups()
    group = found.directory(7)
    assert group == house.at("/memory/step_0")
    assert found.limits(group) == [Limited(house.at("/memory"), 200 * MIB, 512 * MIB)]
    assert found.oom_kills(group) == 1
    assert found.directory(8) is None, "a neighbour's container is not ours to see"


def test_memory_belongs_to_version_1_where_both_are_mounted(tmp_path: Path) -> None:
    house = House(tmp_path, HYBRID)
    house.process(7, "4:memory:/x\n0::/y\n")
    found = house.cgroups()
    assert found.version == 1
    assert found.directory(7) == house.at("/memory/x")


def test_without_use_hierarchy_ancestors_are_not_charged(tmp_path: Path) -> None:
    house = House(tmp_path, V1.format(root="/"))
    house.v1("/a/b", 10 * MIB, UNLIMITED_V1)
    house.v1("/a", 95 * MIB, 96 * MIB)
    house.write("sys/fs/cgroup/memory/a/memory.use_hierarchy", "0\n")
    assert house.cgroups().limits(house.at("/memory/a/b")) == []


def test_outside_of_the_namespace_nothing_is_known(tmp_path: Path) -> None:
    house = House(tmp_path, V2)
    house.process(7, "0::/../other\n")
    found = house.cgroups()
    assert found.directory(7) is None
    assert found.directory(12345) is None


def test_a_machine_without_cgroups_has_no_limits(tmp_path: Path) -> None:
    house = House(tmp_path, "22 27 0:21 / /proc rw - proc proc rw\n")
    found = house.cgroups()
    assert found.version is None
    assert found.directory(os.getpid()) is None
    assert found.limits("/anything") == []
    assert found.oom_kills("/anything") is None


@pytest.fixture
def real_group() -> Iterator[str]:
    """A group of our own in the real hierarchy, below where we are."""
    found = Cgroups()
    here = found.directory(os.getpid())
    if here is None:
        pytest.skip("no memory controller can be seen here")
    directory = f"{here}/sentinel-test-{os.getpid()}"
    try:
        os.mkdir(directory)
    except OSError as fault:
        pytest.skip(f"no group can be made here: {fault}")
    yield directory
    os.rmdir(directory)


def test_a_real_process_in_a_real_group(real_group: str) -> None:
    found = Cgroups()
    limit_file = "memory.limit_in_bytes" if found.version == 1 else "memory.max"
    try:
        Path(real_group, limit_file).write_text(str(256 * MIB))
    except OSError as fault:
        pytest.skip(f"the memory controller is not delegated: {fault}")
    text = "import os,sys; input(); x = bytearray(64 << 20); print('grown', flush=True); input()"
    child = subprocess.Popen([sys.executable, "-c", text], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdin is not None
        assert child.stdout is not None
        Path(real_group, "cgroup.procs").write_text(str(child.pid))
        child.stdin.write("\n")
        child.stdin.flush()
        child.stdout.readline()
        assert found.directory(child.pid) == real_group
        limit = found.limits(real_group)[0]
        assert limit.limit_bytes == 256 * MIB
        assert 64 * MIB <= limit.used_bytes < 100 * MIB
        assert found.oom_kills(real_group) == 0
    finally:
        child.kill()
        child.communicate()
