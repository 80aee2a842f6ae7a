"""Telling a whole checkpoint from a torn one by its form, and what it holds, without ever unpickling anything."""

from __future__ import annotations

import stat
from pathlib import Path

from sentinel.checkpoints.agents import inspect_json, inspect_lines, inspect_sqlite
from sentinel.checkpoints.directories import inspect_directory
from sentinel.checkpoints.form import DEEP, QUICK, Form, Look, Verdict, reading, torn
from sentinel.checkpoints.names import INCOMPLETE_MARKERS, is_temporary, step_of
from sentinel.checkpoints.tensors import inspect_hdf5, inspect_index, inspect_safetensors
from sentinel.checkpoints.torchfiles import inspect_pickle, inspect_zip

__all__ = ["DEEP", "INCOMPLETE_MARKERS", "QUICK", "Form", "Look", "Verdict", "inspect", "is_temporary", "step_of"]

_ZIPS = (".zip", ".npz", ".keras")
_TORCH = (".pt", ".pth", ".ckpt", ".tar")
_PICKLES = (".bin", ".pkl", ".pickle", ".distcp", ".states", ".pdparams", ".pdopt")


def inspect(path: Path, look: Look = QUICK) -> Form:
    """Look at the form of a file or of the files of a directory.

    Raises:
        OSError: It cannot be read.
    """
    if stat.S_ISDIR(path.stat().st_mode):
        return inspect_directory(path, look, inspect_file)
    return inspect_file(path, look)


def inspect_file(path: Path, look: Look = QUICK) -> Form:
    """Look at the form of one file, by its first bytes and its suffix.

    Raises:
        OSError: It cannot be read.
    """
    found = path.stat()
    if not stat.S_ISREG(found.st_mode):
        return Form("file", Verdict.SILENT, notes=("it is no regular file",))
    suffix = path.suffix.lower()
    if found.st_size == 0:
        return torn("file", "the file is empty")
    with reading(path) as (read, _):
        head = read(0, 16)
    if path.name.endswith(".index.json"):
        return inspect_index(path, look)
    if suffix == ".safetensors":
        return inspect_safetensors(path, look)
    if head.startswith(b"SQLite format 3\0"):
        return inspect_sqlite(path, look)
    if head.startswith(b"\x89HDF\r\n\x1a\n"):
        return inspect_hdf5(path, look)
    if head.startswith(b"PK\x03\x04") or suffix in _ZIPS:
        return inspect_zip(path, look)
    if suffix == ".json":
        return inspect_json(path, look)
    if suffix == ".jsonl":
        return inspect_lines(path, look)
    if head.startswith(b"\x80") and suffix in _TORCH + _PICKLES:
        return inspect_pickle(path, look)
    if found.st_size and not any(head) and suffix in _TORCH + _ZIPS:
        return torn("file", "it begins with zeros: room was made for it, and nothing written")
    return Form("file", Verdict.SILENT)
