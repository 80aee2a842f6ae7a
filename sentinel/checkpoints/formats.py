"""Telling a whole checkpoint from a torn one by its form, without ever unpickling anything."""

from __future__ import annotations

import json
import os
import re
import stat
import struct
import zipfile
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path

TEMPORARY = re.compile(
    r"(?:\.(?:tmp|temp|part|partial|incomplete|lock|swp)(?:[.\-_]?\w*)?$)|^\.|^tmp[-_.]|~$|\.tmp\b", re.IGNORECASE
)
INCOMPLETE_MARKERS = ("checkpoint-is-incomplete.txt", "incomplete", ".incomplete", ".tmp", ".lock")
_STEP = re.compile(
    r"(?:step|iter|iteration|epoch|checkpoint|ckpt|global_step|model|state)[^0-9]{0,3}(\d{1,12})", re.IGNORECASE
)
_NUMBER = re.compile(r"(\d{1,12})(?!.*\d)")
_ZIP_SUFFIXES = (".pt", ".pth", ".ckpt", ".zip", ".npz", ".keras", ".bin")


class Verdict(Enum):
    """What the form alone can say."""

    WHOLE = auto()  # the format proves it
    TORN = auto()  # the format disproves it
    SILENT = auto()  # only time can tell


@dataclass(frozen=True, slots=True)
class Form:
    """The form of one checkpoint, and what it says about being whole."""

    format: str
    verdict: Verdict
    reason: str = ""


def is_temporary(name: str) -> bool:
    """Whether a file or directory of this name is still being written, by the usual habits."""
    return TEMPORARY.search(name) is not None


def step_of(path: Path) -> int | None:
    """The training step in a name: `step-1200.pt`, `checkpoint-500`, `epoch=3-step=900.ckpt`, `iter_0001000`."""
    found = _STEP.findall(path.name)
    if found:
        steps = re.findall(r"step[^0-9]{0,3}(\d{1,12})", path.name, re.IGNORECASE)
        return int((steps or found)[-1])
    last = _NUMBER.search(path.stem)
    return int(last[1]) if last else None


def inspect(path: Path) -> Form:
    """Look at the form of a file or of the files of a directory.

    Raises:
        OSError: It cannot be read.
    """
    found = path.stat()
    if stat.S_ISDIR(found.st_mode):
        return _directory(path)
    return _file(path, found.st_size)


def _file(path: Path, size: int) -> Form:
    if size == 0:
        return Form("file", Verdict.TORN, "the file is empty")
    suffix = path.suffix.lower()
    with path.open("rb") as file:
        head = file.read(8)
        if suffix == ".safetensors":
            return _safetensors(file.fileno(), size)
    if head[:4] == b"PK\x03\x04":
        return _zip(path)
    if suffix == ".json":
        return _json(path, size)
    if head[:6] == b"SQLite":
        return Form("sqlite", Verdict.SILENT)
    if suffix in _ZIP_SUFFIXES and head[:1] == b"\x80":
        return Form("torch-legacy" if suffix != ".bin" else "pickle", Verdict.SILENT)
    return Form("file", Verdict.SILENT)


def _safetensors(fd: int, size: int) -> Form:
    head = os.pread(fd, 8, 0)
    if len(head) < 8:
        return Form("safetensors", Verdict.TORN, f"the file has {size} bytes, the header's length alone takes 8")
    (length,) = struct.unpack("<Q", head)
    if length > 100_000_000 or 8 + length > size:
        return Form("safetensors", Verdict.TORN, "the header is longer than the file")
    try:
        header = json.loads(os.pread(fd, length, 8))
        end = max((entry["data_offsets"][1] for key, entry in header.items() if key != "__metadata__"), default=0)
    except (ValueError, KeyError, TypeError, IndexError, AttributeError):
        return Form("safetensors", Verdict.TORN, "the header is not what safetensors writes")
    if 8 + length + end != size:
        return Form("safetensors", Verdict.TORN, f"the header promises {8 + length + end} bytes, the file has {size}")
    return Form("safetensors", Verdict.WHOLE)


def _zip(path: Path) -> Form:
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as fault:
        return Form("torch-zip", Verdict.TORN, f"the zip directory at its end is absent or damaged ({fault})")
    kind = "torch-zip" if any(name.endswith("data.pkl") for name in names) else "zip"
    return Form(kind, Verdict.WHOLE)


def _json(path: Path, size: int) -> Form:
    if size > 64 * 1024 * 1024:
        return Form("json", Verdict.SILENT)
    try:
        json.loads(path.read_bytes())
    except ValueError as fault:
        return Form("json", Verdict.TORN, f"not whole JSON ({fault})")
    return Form("json", Verdict.WHOLE)


def _directory(path: Path) -> Form:
    names = {entry.name for entry in os.scandir(path)}
    for marker in INCOMPLETE_MARKERS:
        if marker in names:
            return Form("directory", Verdict.TORN, f"{marker} says that it is still being written")
    if not names:
        return Form("directory", Verdict.TORN, "the directory is empty")
    kind = "hf-trainer" if "trainer_state.json" in names else "dcp" if ".metadata" in names else "directory"
    for name in sorted(names):
        file = path / name
        if is_temporary(name) and name != ".metadata":
            return Form(kind, Verdict.TORN, f"{name} is still being written")
        if not file.is_file():
            continue
        form = _file(file, file.stat().st_size) if file.stat().st_size or file.suffix else Form("file", Verdict.SILENT)
        if form.verdict is Verdict.TORN:
            return Form(kind, Verdict.TORN, f"{name}: {form.reason}")
    return Form(kind, Verdict.SILENT)
