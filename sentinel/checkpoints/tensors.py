"""Files that begin with a table of what they hold: safetensors and its sharded sets, HDF5."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

from sentinel.checkpoints.contents import parts_of
from sentinel.checkpoints.form import LONGEST_JSON_BYTES, Form, Look, Verdict, reading, torn
from sentinel.checkpoints.names import step_of

_LONGEST_HEADER_BYTES = 100_000_000
_BITS = {
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8, "I16": 16, "U16": 16, "F16": 16, "BF16": 16,
    "I32": 32, "U32": 32, "F32": 32, "F64": 64, "I64": 64, "U64": 64, "C64": 64,
}  # fmt: skip


def inspect_safetensors(path: Path, look: Look) -> Form:
    """Eight bytes of length, a JSON header, the tensors: all of it accounted for, without a gap.

    Raises:
        OSError: It cannot be read.
    """
    header, start, size, fault = _header(path)
    if fault:
        return torn("safetensors", fault)
    try:
        spans = sorted(
            (*entry["data_offsets"], entry["dtype"], tuple(entry["shape"]))
            for key, entry in header.items()
            if key != "__metadata__"
        )
        end = max((span[1] for span in spans), default=0)
        if start + end != size:
            return torn("safetensors", f"the header promises {start + end} bytes, the file has {size}")
        if fault := _gaps(spans):
            return torn("safetensors", fault)
        metadata = header.get("__metadata__") or {}
        step = next((int(metadata[key]) for key in ("step", "global_step") if str(metadata.get(key)).isdigit()), None)
    except (ValueError, KeyError, TypeError, IndexError, AttributeError):
        return torn("safetensors", "the header is not what safetensors writes")
    notes = ("safetensors keeps no checksums: damage inside a tensor cannot be seen",) if look.deep else ()
    names = [key for key in header if key != "__metadata__"]
    return Form("safetensors", Verdict.WHOLE, "", step, _tensor_contents(path, names), notes=notes)


def _tensor_contents(path: Path, names: list[str]) -> frozenset[str]:
    said = parts_of(name.partition(".")[0] for name in names) - {"model"}
    return parts_of([path.name.partition(".")[0]]) - {"step"} | said or frozenset({"model"} if names else ())


def _gaps(spans: list[tuple[Any, ...]]) -> str:
    at = 0
    for begin, end, kind, shape in spans:
        if begin != at or end < begin:
            return f"between byte {at} and {begin} of its data is nothing, or two tensors"
        count = 1
        for side in shape:
            count *= side
        bits = _BITS.get(kind)
        if bits is not None and end - begin != (count * bits + 7) // 8:
            return f"a tensor of {count} {kind} has {end - begin} bytes"
        at = end
    return ""


def _header(path: Path) -> tuple[dict[str, Any], int, int, str]:
    """The header, where the data begins, the file's size, what is wrong."""
    with reading(path) as (read, size):
        head = read(0, 8)
        if len(head) < 8:
            return {}, 0, size, f"the file has {size} bytes, the header's length alone takes 8"
        (length,) = struct.unpack("<Q", head)
        if length > _LONGEST_HEADER_BYTES or 8 + length > size:
            return {}, 0, size, "the header is longer than the file"
        try:
            header = json.loads(read(8, length))
        except (ValueError, RecursionError):
            header = None
    if not isinstance(header, dict):
        return {}, 0, size, "the header is not what safetensors writes"
    return header, 8 + length, size, ""


def inspect_index(path: Path, look: Look) -> Form:
    """`*.index.json`: every shard that it names is there; what is in the shards is looked at by who looks at them.

    Raises:
        OSError: It cannot be read.
    """
    size = path.stat().st_size
    if size > LONGEST_JSON_BYTES:
        return Form("sharded", Verdict.SILENT, proven=False)
    try:
        weights = json.loads(path.read_bytes())["weight_map"]
        shards = sorted({str(shard) for shard in weights.values()})
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return torn("sharded", "the index is not whole")
    for shard in shards:
        if "/" in shard or not (path.parent / shard).is_file():
            return torn("sharded", f"the index names {shard}, which is not there")
    if look.deep:
        held: set[str] = set()
        for shard in shards:
            if not shard.endswith(".safetensors"):
                return Form("sharded", Verdict.WHOLE, contents=frozenset({"model"}))
            held.update(_header(path.parent / shard)[0])
        if lost := weights.keys() - held:
            return torn("sharded", f"no shard holds the tensor {min(lost)}")
    return Form("sharded", Verdict.WHOLE, step=step_of(path.parent), contents=frozenset({"model"}))


def inspect_hdf5(path: Path, _look: Look) -> Form:
    """HDF5, as Keras writes it: its superblock says where the file ends.

    Raises:
        OSError: It cannot be read.
    """
    with reading(path) as (read, size):
        head = read(0, 64)
    version = head[8] if len(head) > 8 else 255
    place = {0: 40, 1: 44, 2: 28, 3: 28}.get(version)
    if place is None or len(head) < place + 8:
        return Form("hdf5", Verdict.SILENT)
    (end,) = struct.unpack("<Q", head[place : place + 8])
    if end > size:
        return torn("hdf5", f"it promises {end} bytes, the file has {size}")
    return Form("hdf5", Verdict.WHOLE, contents=frozenset({"model"}))
