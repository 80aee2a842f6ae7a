"""File systems: which to watch, and how never to wait for one that hangs."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

from sentinel.system.mounts import Mount, Prober, in_use, mounts, parse_mount


def mount(point: str, kind: str = "ext4", device: str = "8:1", root: str = "/", options: str = "rw") -> Mount:
    return Mount(point, root, device, kind, "source", frozenset(options.split(",")))


def test_a_line_of_mountinfo() -> None:
    found = parse_mount(
        rb"36 35 98:0 /mnt1 /mnt\040two rw,noatime master:1 - ext3 /dev/root ro,errors=continue" + b"\n"
    )
    assert found == Mount(
        "/mnt two", "/mnt1", "98:0", "ext3", "/dev/root", frozenset({"rw", "noatime", "ro", "errors=continue"})
    )
    assert found.read_only
    assert parse_mount(b"garbage\n") is None
    assert parse_mount(b"\n") is None


def test_each_file_system_is_watched_once_and_machinery_never() -> None:
    found = in_use(
        [
            mount("/"),
            mount("/proc", "proc", "0:3"),
            mount("/var/lib/docker/x", root="/var"),
            mount("/home"),
            mount("/data", "xfs", "8:2"),
            mount("/snap/core/1", "squashfs", "7:1"),
            mount("/dev/shm", "tmpfs", "0:9"),
        ]
    )
    assert [m.point for m in found] == ["/", "/data", "/dev/shm"]


def test_files_bound_into_a_container_are_no_mounts_to_watch() -> None:
    found = in_use(
        [
            mount("/", "overlay", "0:50"),
            mount("/etc/hosts", device="8:1", root="/docker/hosts"),
            mount("/workspace", device="8:2", root="/home/u/w"),
        ],
        is_directory=lambda path: path == "/workspace",
    )
    assert [m.point for m in found] == ["/", "/workspace"]


def test_overlay_is_local_and_fuse_is_not() -> None:
    assert not mount("/", "overlay").may_hang
    assert not mount("/sys/fs/fuse/connections", "fusectl").may_hang
    for kind in ("nfs", "nfs4", "fuse.sshfs", "fuse", "lustre", "ceph", "cifs", "9p"):
        assert mount("/x", kind).may_hang, kind


def test_a_mount_that_may_hang_is_not_touched_to_choose_it() -> None:
    def never(path: str) -> bool:
        raise AssertionError(path)

    assert len(in_use([mount("/net", "nfs4", "0:60", root="/export")], is_directory=never)) == 1


def test_this_machine_has_a_root() -> None:
    assert "/" in {one.point for one in in_use(mounts())}


def test_without_proc_there_are_no_mounts(tmp_path: Path) -> None:
    assert mounts(str(tmp_path)) == []


def test_a_dead_mount_costs_its_deadline_once_and_one_thread() -> None:
    alive, asked = threading.Event(), []

    def ask(point: str) -> os.statvfs_result:
        asked.append(point)
        if point == "/dead":
            alive.wait(30)
        return os.statvfs("/")

    prober = Prober(ask)
    began = time.monotonic()
    assert set(prober.ask(["/dead", "/good"], 0.1)) == {"/good"}
    assert prober.overdue == {"/dead"}
    assert set(prober.ask(["/dead", "/good"], 5)) == {"/good"}, "no second wait"
    assert time.monotonic() - began < 2
    assert asked.count("/dead") == 1
    alive.set()
    deadline = time.monotonic() + 5
    while prober.overdue and time.monotonic() < deadline:
        time.sleep(0.005)
    assert set(prober.ask(["/dead", "/good"], 5)) == {"/dead", "/good"}


def test_a_mount_that_went_away_has_no_answer(tmp_path: Path) -> None:
    assert Prober().ask([str(tmp_path / "nowhere")], 5) == {}
