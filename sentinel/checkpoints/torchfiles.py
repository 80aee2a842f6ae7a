"""Files of torch and of pickle: the zip that torch.save writes, its older form, plain pickles, and other zips."""

from __future__ import annotations

import struct
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from sentinel.checkpoints.contents import part_of
from sentinel.checkpoints.form import DEEP, Form, Look, Verdict, reading, torn
from sentinel.checkpoints.pickles import (
    End,
    Made,
    Map,
    Outline,
    Persistent,
    ReadAt,
    children,
    dangerous,
    is_empty,
    outline,
)

_LEGACY_MAGIC = 0x1950A86A20F9469CFC6C
_MOST_PICKLES = 64
_LOCAL_HEADER_BYTES = 30
_LARGEST_PICKLE_BYTES = 256 * 1024 * 1024
_LARGEST_DIRECTORY_BYTES = 64 * 1024 * 1024
_END_OF_DIRECTORY_BYTES = 22
_ITEM_BYTES = {
    "FloatStorage": 4, "DoubleStorage": 8, "HalfStorage": 2, "BFloat16Storage": 2, "LongStorage": 8, "IntStorage": 4,
    "ShortStorage": 2, "CharStorage": 1, "ByteStorage": 1, "BoolStorage": 1, "ComplexFloatStorage": 8,
    "ComplexDoubleStorage": 16, "UntypedStorage": 1, "QInt8Storage": 1, "QUInt8Storage": 1, "QInt32Storage": 4,
}  # fmt: skip
_STEP_KEYS = ("global_step", "step", "steps", "iteration", "iter", "num_updates", "global_steps", "epoch")
_RNG_KEYS = {"python", "numpy", "cpu"}
_TENSOR = ("torch._utils._rebuild", "torch._tensor._rebuild", "torch.nn.parameter.", "numpy.", "jax.")


def inspect_zip(path: Path, look: Look) -> Form:
    """A zip: of torch.save, of TorchScript, of numpy or of keras.

    Raises:
        OSError: It cannot be read.
    """
    if _directory_bytes(path) > _LARGEST_DIRECTORY_BYTES:
        return Form("zip", Verdict.SILENT, proven=False, notes=("its directory is too large to be read",))
    try:
        with zipfile.ZipFile(path) as archive:
            return _archive(path, archive, look)
    except (zipfile.BadZipFile, ValueError, NotImplementedError, EOFError, zlib.error, struct.error) as fault:
        return torn("torch-zip", f"the zip directory at its end is absent or damaged ({fault})")


def _archive(path: Path, archive: zipfile.ZipFile, look: Look) -> Form:
    members = {info.filename: info for info in archive.infolist()}
    pickle = next((info for name, info in members.items() if name.rpartition("/")[2] == "data.pkl"), None)
    what = "torch-zip" if pickle else "npz" if members and all(name.endswith(".npy") for name in members) else "zip"
    start_of_directory = archive.start_dir
    for info in members.values():
        if info.header_offset + 30 + len(info.filename) + info.compress_size > start_of_directory:
            return torn(what, f"{info.filename} reaches past the end of the data")
    # torch can be told to write no checksums; then all of them are 0.
    checked = any(info.CRC for info in members.values())
    if look.deep and checked and (fault := _checksums(archive, members.values())):
        return torn(what, fault)
    if pickle is None:
        model = frozenset({"model"}) if "model.weights.h5" in members else frozenset[str]()
        return Form(what, Verdict.WHOLE, contents=model)
    if pickle.compress_type != zipfile.ZIP_STORED or pickle.file_size > _LARGEST_PICKLE_BYTES:
        return Form(what, Verdict.WHOLE, proven=False, notes=("its pickle is too large or packed: not followed",))
    data = _stored(path, pickle)
    if len(data) < pickle.file_size or (checked and zlib.crc32(data) != pickle.CRC):
        return torn(what, f"{pickle.filename} is damaged")
    found = outline(lambda offset, size: data[offset : offset + size], len(data), operations=look.operations)
    prefix = pickle.filename.removesuffix("data.pkl")
    for key, storage in found.storages.items():
        member, item = members.get(f"{prefix}data/{key}"), _ITEM_BYTES.get(storage.kind)
        if member is None:
            return torn(what, f"the tensor data {key} is not in it")
        if item is not None and member.file_size != storage.elements * item:
            expected = storage.elements * item
            return torn(what, f"the tensor data {key} has {member.file_size} bytes instead of {expected}")
    made = described(what, found, Verdict.WHOLE)
    if look.deep and not checked:
        return replace(made, notes=(*made.notes, "it was saved without checksums: damage inside cannot be seen"))
    return made


def _stored(path: Path, member: zipfile.ZipInfo) -> bytes:
    """A member's bytes as they lie there, without a look at their checksum."""
    with reading(path) as (read, _):
        head = read(member.header_offset, _LOCAL_HEADER_BYTES)
        if len(head) < _LOCAL_HEADER_BYTES or not head.startswith(b"PK\x03\x04"):
            return b""
        names, extra = struct.unpack("<HH", head[26:30])
        return read(member.header_offset + _LOCAL_HEADER_BYTES + names + extra, member.file_size)


def _checksums(archive: zipfile.ZipFile, members: Any) -> str:
    for info in members:
        try:
            with archive.open(info) as member:
                while member.read(1 << 20):
                    pass
        except (zipfile.BadZipFile, EOFError, zlib.error, NotImplementedError, RuntimeError) as fault:
            return f"{info.filename} is damaged ({fault})"
    return ""


def _directory_bytes(path: Path) -> int:
    with reading(path) as (read, size):
        tail = read(max(0, size - _END_OF_DIRECTORY_BYTES), _END_OF_DIRECTORY_BYTES)
    if len(tail) < _END_OF_DIRECTORY_BYTES or not tail.startswith(b"PK\x05\x06"):
        return 0
    found: int = struct.unpack("<I", tail[12:16])[0]
    return 0 if found == 0xFFFFFFFF else found


def inspect_pickle(path: Path, look: Look) -> Form:
    """A pickle, alone or followed by the storages of older torch.

    Raises:
        OSError: It cannot be read.
    """
    with reading(path) as (read, size):
        if start := _legacy_start(read, size):
            return _legacy(read, size, look, start)
        found = outline(read, size, operations=look.operations)
        if found.end is End.BOUNDED:
            if read(size - 1, 1) != b".":
                return torn("pickle", "the pickle has no end")
            return described("pickle", found, Verdict.SILENT)
        if found.end is not End.COMPLETE:
            return torn("pickle", _why(found))
        more, count = found, 1
        while more.end is End.COMPLETE and more.stop < size and count < _MOST_PICKLES:
            more, count = outline(read, size, start=more.stop, operations=look.operations), count + 1
            found.names.update(more.names)
        return described("pickle", found, Verdict.WHOLE if more.stop == size else Verdict.SILENT)


def _legacy_start(read: ReadAt, size: int) -> int:
    """Where the second pickle of an older torch file begins; 0: it is none."""
    first = outline(read, size, operations=8)
    return first.stop if first.end is End.COMPLETE and first.root == _LEGACY_MAGIC else 0


def _legacy(read: ReadAt, size: int, look: Look, at: int) -> Form:
    """Magic, version, system, the object, the storages' keys; then each storage: its length and its data."""
    for what in ("version", "system"):
        head = outline(read, size, start=at, operations=10_000)
        if head.end is not End.COMPLETE:
            return torn("torch-legacy", f"its {what} is not whole: {_why(head)}")
        at = head.stop
    found = outline(read, size, start=at, operations=look.operations)
    if found.end is End.BOUNDED:
        return described("torch-legacy", found, Verdict.SILENT)
    if found.end is not End.COMPLETE:
        return torn("torch-legacy", _why(found))
    keys = outline(read, size, start=found.stop, operations=look.operations)
    if keys.end is not End.COMPLETE or not isinstance(keys.root, list):
        return torn("torch-legacy", f"the list of its tensors is not whole: {_why(keys)}")
    end = keys.stop
    for key in keys.root:
        storage = found.storages.get(key) if isinstance(key, str) else None
        item = _ITEM_BYTES.get(storage.kind) if storage else None
        if item is None:
            return described("torch-legacy", found, Verdict.SILENT)
        head_bytes = read(end, 8)
        if len(head_bytes) < 8:
            return torn("torch-legacy", f"the tensor data {key} is not there")
        (elements,) = struct.unpack("<q", head_bytes)
        if storage is not None and elements != storage.elements:
            return torn("torch-legacy", f"the tensor data {key} has {elements} elements instead of {storage.elements}")
        end += 8 + elements * item
    if end != size:
        return torn("torch-legacy", f"its tensors end at byte {end}, the file has {size}")
    return described("torch-legacy", found, Verdict.WHOLE)


def _why(found: Outline) -> str:
    if found.end is End.TRUNCATED:
        return f"the pickle breaks off at byte {found.stop}"
    return f"byte {found.stop} is no opcode of a pickle" if found.end is End.MALFORMED else "the pickle is too long"


def described(what: str, found: Outline, verdict: Verdict) -> Form:
    """The form that an outline describes. What runs code when loaded is nothing to resume from."""
    if harm := dangerous(found.names):
        return torn(what, f"loading it would run code: it calls {', '.join(harm[:3])}")
    if found.end in {End.TRUNCATED, End.MALFORMED}:
        return torn(what, _why(found))
    bounded = found.end is End.BOUNDED
    notes = ("its pickle is longer than was followed: there may be more in it",) if bounded else ()
    contents = state_contents(found.root)
    return Form(what, verdict, "", step_in(found.root), contents, not bounded, notes)


def state_contents(root: Any) -> frozenset[str]:
    """The parts of a training state in what a pickle would build."""
    if isinstance(root, Made) and _is_module(root):
        return frozenset({"model"})
    pairs = [(key, value) for key, value in children(root) if key != "_metadata"]
    keys = {key for key, _ in pairs}
    if not pairs:
        return frozenset({"rng"}) if _is_tensor(root) or isinstance(root, tuple) else frozenset()
    if {"state", "param_groups"} <= keys:
        return frozenset({"optimizer"})
    if keys >= _RNG_KEYS:
        return frozenset({"rng"})
    if {"scale", "growth_factor"} <= keys:
        return frozenset({"scaler"})
    if "last_epoch" in keys and ("base_lrs" in keys or "_step_count" in keys):
        return frozenset({"scheduler"})
    tensors = sum(1 for _, value in pairs if _is_tensor(value))
    if tensors > 0.8 * len(pairs):
        named = {part for key, value in pairs if not _is_tensor(value) and (part := part_of(key))}
        return frozenset({"model", *named})
    return frozenset(_parts(pairs))


def _parts(pairs: list[tuple[str, Any]]) -> Iterator[str]:
    for key, value in pairs:
        if is_empty(value):
            continue
        if key == "loops":  # of Lightning: counters always, the data's position only from stateful loaders
            yield "step"
            if _lightning_loader(value):
                yield "dataloader"
            continue
        if part := part_of(key):
            yield part
            continue
        for inner, below in children(value):
            if isinstance(value, Map | Made) and not is_empty(below) and (part := part_of(inner)) and part != "model":
                yield part
    if any(key in {"MixedPrecision", "native_amp_scaling_state"} for key, _ in pairs):
        yield "scaler"


def _lightning_loader(loops: Any) -> bool:
    fit = dict(children(loops)).get("fit_loop")
    state = dict(children(fit)).get("state_dict")
    return not is_empty(dict(children(state)).get("combined_loader"))


def _is_tensor(value: Any) -> bool:
    if isinstance(value, Persistent):
        return True
    return isinstance(value, Made) and value.callee.startswith(_TENSOR)


def _is_module(value: Made) -> bool:
    keys = {key for key, _ in children(value.state)}
    return {"_parameters", "_modules"} <= keys


def step_in(root: Any) -> int | None:
    """The step that a state tells of itself, one level below its top at most."""
    levels = [dict(children(root))]
    levels += [dict(children(value)) for value in levels[0].values() if isinstance(value, Map | Made)][:64]
    for key in _STEP_KEYS:
        for level in levels:
            value = level.get(key)
            if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 53:
                return value
    return None


def outline_of(path: Path, look: Look = DEEP) -> Outline | None:
    """The outline of the pickle in a file of torch or of pickle, or None where it has none.

    Raises:
        OSError: It cannot be read.
    """
    with reading(path) as (read, size):
        if read(0, 2) != b"PK":
            start = _legacy_start(read, size)
            if start:
                for _ in range(2):
                    start = outline(read, size, start=start, operations=10_000).stop
            return outline(read, size, start=start, operations=look.operations)
    try:
        with zipfile.ZipFile(path) as archive:
            name = next((name for name in archive.namelist() if name.rpartition("/")[2] == "data.pkl"), None)
            if name is None or archive.getinfo(name).file_size > _LARGEST_PICKLE_BYTES:
                return None
            data = _stored(path, archive.getinfo(name))
    except (OSError, zipfile.BadZipFile, ValueError, NotImplementedError, EOFError, zlib.error):
        return None
    return outline(lambda offset, size: data[offset : offset + size], len(data), operations=look.operations)
