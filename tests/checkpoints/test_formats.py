"""What forms say: whole or torn, and what is inside, without running anything."""

from __future__ import annotations

import io
import json
import os
import pickle
import random
import sqlite3
import struct
import zipfile
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sentinel.checkpoints import contents
from sentinel.checkpoints.formats import DEEP, Form, Verdict, inspect, is_temporary, step_of
from sentinel.checkpoints.pickles import End, Map, children, outline


class TorchPickler(pickle.Pickler):
    """Writes what torch.save writes: storages by persistent ids."""

    def persistent_id(self, value: Any) -> Any:
        if isinstance(value, Tensor):
            return ("storage", "FloatStorage", value.key, "cpu", value.elements)
        return None


class Tensor:
    def __init__(self, key: str, elements: int) -> None:
        self.key, self.elements = key, elements


def pickled(state: Any) -> bytes:
    """A pickle of protocol 2 whose storages are of torch.FloatStorage."""
    file = io.BytesIO()
    TorchPickler(file, 2).dump(state)
    return file.getvalue().replace(b"X\x0c\x00\x00\x00FloatStorage", b"ctorch\nFloatStorage\n")


def torch_zip(path: Path, state: Any, tensors: dict[str, bytes] | None = None) -> Path:
    """What torch.save writes, as far as anybody looks at it."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("archive/data.pkl", pickled(state))
        for key, data in (tensors or {}).items():
            archive.writestr(f"archive/data/{key}", data)
        archive.writestr("archive/version", "3\n")
    return path


def safetensors(path: Path, tensors: dict[str, bytes], metadata: dict[str, str] | None = None) -> Path:
    header: dict[str, Any] = {"__metadata__": metadata} if metadata else {}
    at = 0
    for name, data in tensors.items():
        header[name] = {"dtype": "U8", "shape": [len(data)], "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(tensors.values()))
    return path


FULL = {
    "model_state_dict": {"w": 1},
    "optimizer": {"state": {0: 1}, "param_groups": [1]},
    "lr_scheduler": {"last_epoch": 3},
    "global_step": 1200,
    "sampler": {"position": 4},
    "rng_state": b"x" * 100,
    "scaler": {"scale": 65536.0},
}


def test_a_full_training_state_misses_nothing(tmp_path: Path) -> None:
    form = inspect(torch_zip(tmp_path / "last.pt", FULL))

    assert (form.format, form.verdict, form.step) == ("torch-zip", Verdict.WHOLE, 1200)
    assert contents.ordered(form.contents) == contents.TRAINING
    assert contents.missing(form.contents) == ()
    assert "everything is there" in contents.verdict(form.contents)


def test_what_is_missing_is_said_with_what_it_means(tmp_path: Path) -> None:
    state = {key: value for key, value in FULL.items() if key not in {"optimizer", "rng_state"}}

    form = inspect(torch_zip(tmp_path / "last.pt", state))

    assert contents.missing(form.contents) == ("optimizer", "rng")
    assert "moments" in contents.verdict(form.contents)
    assert "dropout" in contents.verdict(form.contents)


def test_an_empty_part_is_no_part(tmp_path: Path) -> None:
    form = inspect(torch_zip(tmp_path / "last.pt", {**FULL, "optimizer": {}, "scaler": None}))

    assert contents.missing(form.contents) == ("optimizer", "scaler")


def test_lightning_keeps_the_place_in_the_data_only_with_stateful_loaders(tmp_path: Path) -> None:
    def lightning(loader: list[Any]) -> dict[str, Any]:
        loops = {"fit_loop": {"state_dict": {"combined_loader": loader}, "epoch_loop.batch_progress": {"current": 1}}}
        return {"epoch": 1, "global_step": 5, "state_dict": {"w": 1}, "loops": loops, "optimizer_states": [{"a": 1}]}

    without = inspect(torch_zip(tmp_path / "a.ckpt", lightning([])))
    stateful = inspect(torch_zip(tmp_path / "b.ckpt", lightning([{"position": 3}])))

    assert "dataloader" not in without.contents
    assert stateful.contents - without.contents == {"dataloader"}


def test_tensor_data_of_another_size_than_the_pickle_says_is_torn(tmp_path: Path) -> None:
    state = {"model": Tensor("0", 10)}

    assert inspect(torch_zip(tmp_path / "a.pt", state, {"0": b"x" * 40})).verdict is Verdict.WHOLE
    short = inspect(torch_zip(tmp_path / "b.pt", state, {"0": b"x" * 36}))
    absent = inspect(torch_zip(tmp_path / "c.pt", state))

    assert short.reason == "the tensor data 0 has 36 bytes instead of 40"
    assert absent.reason == "the tensor data 0 is not in it"


def test_truncated_anywhere_it_is_torn(tmp_path: Path) -> None:
    whole = torch_zip(tmp_path / "whole.pt", FULL, {str(n): os.urandom(4096) for n in range(8)}).read_bytes()
    cut = tmp_path / "cut.pt"
    for size in [*range(0, len(whole), 1024), len(whole) - 1]:
        cut.write_bytes(whole[:size])
        assert inspect(cut).verdict is Verdict.TORN, size


def test_a_flipped_bit_in_the_data_is_found_by_a_deep_look(tmp_path: Path) -> None:
    path = torch_zip(tmp_path / "whole.pt", FULL, {str(n): os.urandom(4096) for n in range(4)})
    whole = path.read_bytes()
    with zipfile.ZipFile(path) as archive:
        end = archive.start_dir
        members = {info.filename: archive.read(info) for info in archive.infolist()}
    dice = random.Random(7)
    for _ in range(200):
        at = dice.randrange(end)
        damaged = bytearray(whole)
        damaged[at] ^= 1 << dice.randrange(8)
        path.write_bytes(damaged)
        if inspect(path, DEEP).verdict is Verdict.WHOLE:  # the flip lies where nothing reads: dates, versions
            with zipfile.ZipFile(path) as archive:
                assert {info.filename: archive.read(info) for info in archive.infolist()} == members


def test_room_that_was_made_but_not_written_is_torn(tmp_path: Path) -> None:
    path = tmp_path / "step-1.pt"
    path.write_bytes(bytes(5000))

    assert inspect(path).verdict is Verdict.TORN


class Evil:
    """Its pickle would run a program."""

    def __init__(self, proof: Path) -> None:
        self.proof = proof

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self.proof}",)


@pytest.mark.parametrize("name", ["evil.pt", "evil.bin", "evil.ckpt"])
def test_a_malicious_pickle_is_inspected_and_never_executed(tmp_path: Path, name: str) -> None:
    proof = tmp_path / "executed"
    data = pickle.dumps({"model": Evil(proof), "optimizer": {"a": 1}}, 2)
    pickle.loads(pickle.dumps(Evil(proof)))
    assert proof.exists()  # it is live ammunition
    proof.unlink()
    path = tmp_path / name
    if name == "evil.bin":
        path.write_bytes(data)
    else:
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("archive/data.pkl", data)

    for look in (inspect(path), inspect(path, DEEP)):
        assert look.verdict is Verdict.TORN
        assert "would run code" in look.reason
        assert "posix.system" in look.reason
    assert not proof.exists()


BOMBS = {
    "deep tuples": b"\x80\x02)" + b"\x85" * 100_000 + b".",
    "doubled lists": b"\x80\x02]" + b"q\x00h\x00h\x00\x86" * 50_000 + b".",
    "a text as long as the world": b"\x80\x02X\xff\xff\xff\xff" + b"x" * 100,
    "bytes as long as the world": b"\x80\x04\x8e" + b"\xff" * 8,
    "a number as long as the world": b"\x80\x02\x8b\xff\xff\xff\x7f",
    "negative length": b"\x80\x02\x8b\xff\xff\xff\xff.",
    "a list in itself": b"\x80\x02]q\x00h\x00a.",
    "a dict in itself": b"\x80\x02}q\x00X\x01\x00\x00\x00ah\x00s.",
    "marks without end": b"\x80\x02" + b"(" * 100_000,
    "nothing to pop": b"\x80\x020000.",
    "memo of nothing": b"\x80\x02h\x07.",
    "a tuple as a key": b"\x80\x02}" + b")" + b"\x85" * 100_000 + b"K\x01s.",
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_pickle_made_to_hurt_does_not(tmp_path: Path, name: str) -> None:
    path = tmp_path / "bomb.bin"
    path.write_bytes(BOMBS[name])

    assert isinstance(inspect(path), Form)


@given(st.binary(max_size=300))
def test_any_bytes_have_an_outline(data: bytes) -> None:
    found = outline(lambda offset, size: data[offset : offset + size], len(data), operations=1000)

    list(children(found.root))
    assert 0 <= found.stop <= len(data)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers(), inner) | st.tuples(inner, inner),
    max_leaves=6,
)


@given(st.dictionaries(st.text(max_size=20), values, max_size=4), st.integers(0, 5))
@settings(max_examples=50)
def test_the_outline_of_a_real_pickle_has_its_keys(state: dict[str, Any], protocol: int) -> None:
    data = pickle.dumps(state, protocol)

    found = outline(lambda offset, size: data[offset : offset + size], len(data))

    assert found.end is End.COMPLETE
    assert found.stop == len(data)
    assert isinstance(found.root, Map)
    if protocol:  # protocol 0 writes text with escapes, which nobody needs for a name of ours
        assert found.root.keys() == list(state)


@given(st.dictionaries(st.text(max_size=20), values, min_size=1, max_size=4), st.data())
@settings(max_examples=50)
def test_a_pickle_cut_anywhere_is_not_complete(state: dict[str, Any], data: st.DataObject) -> None:
    whole = pickle.dumps(state, 4)
    cut = whole[: data.draw(st.integers(0, len(whole) - 1))]

    assert outline(lambda offset, size: cut[offset : offset + size], len(cut)).end is not End.COMPLETE


def test_keys_are_known_before_the_end_is_reached(tmp_path: Path) -> None:
    state = {"optimizer": {"a": 1}, "model": OrderedDict((f"layer.{n}", n) for n in range(5000))}
    data = pickle.dumps(state, 2)

    found = outline(lambda offset, size: data[offset : offset + size], len(data), operations=2000)

    assert found.end is End.BOUNDED
    assert isinstance(found.root, Map)
    assert found.root.keys() == ["optimizer", "model"]


# Other files


def test_safetensors_accounts_for_every_byte(tmp_path: Path) -> None:
    path = safetensors(tmp_path / "model.safetensors", {"a": b"x" * 10, "b": b"y" * 6}, {"step": "40"})
    assert inspect(path) == Form("safetensors", Verdict.WHOLE, "", 40, frozenset({"model"}))

    data = path.read_bytes()
    for size in range(len(data)):
        path.write_bytes(data[:size])
        assert inspect(path).verdict is Verdict.TORN
    path.write_bytes(data + b"z")
    assert inspect(path).verdict is Verdict.TORN


def test_safetensors_with_a_gap_or_a_wrong_shape_is_torn(tmp_path: Path) -> None:
    def with_header(**tensors: Any) -> Form:
        text = json.dumps(tensors).encode()
        path = tmp_path / "model.safetensors"
        path.write_bytes(struct.pack("<Q", len(text)) + text + b"x" * 16)
        return inspect(path)

    gap = with_header(
        a={"dtype": "F32", "shape": [1], "data_offsets": [0, 4]},
        b={"dtype": "F32", "shape": [2], "data_offsets": [8, 16]},
    )
    shape = with_header(a={"dtype": "F32", "shape": [3], "data_offsets": [0, 16]})

    assert "nothing, or two tensors" in gap.reason
    assert shape.reason == "a tensor of 3 F32 has 16 bytes"


def test_json_state_of_an_agent(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    path.write_text(json.dumps({"messages": [{"role": "user", "content": "hi"}], "step": 4, "completed_tasks": []}))

    form = inspect(path)

    assert (form.verdict, form.step) == (Verdict.WHOLE, 4)
    assert contents.ordered(form.contents) == ("step", "conversation", "subtasks")
    assert contents.missing(form.contents) == ("tool results",)
    assert "tools are called again" in contents.verdict(form.contents)
    path.write_text(path.read_text()[:-3])
    assert inspect(path).verdict is Verdict.TORN


def test_lines_of_json_end_with_a_whole_one(tmp_path: Path) -> None:
    path = tmp_path / "turns.jsonl"
    path.write_text('{"role": "user", "content": "a"}\n{"role": "tool", "content": "b"}\n')
    assert inspect(path).contents == {"conversation", "tool results"}

    path.write_text(path.read_text() + '{"role": "us')
    assert inspect(path).verdict is Verdict.TORN


def test_sqlite_has_as_many_pages_as_it_says(tmp_path: Path) -> None:
    path = tmp_path / "agent.db"
    database = sqlite3.connect(path)
    database.executescript(
        "CREATE TABLE messages(text); CREATE TABLE tool_calls(text); CREATE TABLE tasks(text);"
        + "INSERT INTO messages VALUES (randomblob(3000));" * 20
    )
    database.close()
    before = sorted(os.listdir(tmp_path))

    form = inspect(path, DEEP)
    assert (form.verdict, contents.missing(form.contents)) == (Verdict.WHOLE, ())
    assert sorted(os.listdir(tmp_path)) == before

    data = path.read_bytes()
    for size in range(4096, len(data), 4096):
        path.write_bytes(data[:size])
        assert inspect(path).verdict is Verdict.TORN
    path.write_bytes(data)
    (tmp_path / "agent.db-journal").write_bytes(b"x" * 512)
    assert inspect(path).verdict is Verdict.SILENT


# Directories


def trainer(path: Path, *, step: int = 500, leave_out: str = "") -> Path:
    path.mkdir()
    safetensors(path / "model.safetensors", {"a": b"x" * 10})
    torch_zip(path / "optimizer.pt", {"state": {0: 1}, "param_groups": [1]})
    torch_zip(path / "scheduler.pt", {"last_epoch": 1, "base_lrs": [1]})
    torch_zip(path / "rng_state.pth", {"python": 1, "numpy": 1, "cpu": 1})
    (path / "config.json").write_text('{"model_type": "gpt2"}')
    (path / "trainer_state.json").write_text(json.dumps({"global_step": step, "epoch": 1.5}))
    if leave_out:
        (path / leave_out).unlink()
    return path


def test_a_directory_of_the_trainer(tmp_path: Path) -> None:
    form = inspect(trainer(tmp_path / "checkpoint-500"))

    assert (form.format, form.verdict, form.step) == ("hf-trainer", Verdict.WHOLE, 500)
    assert contents.missing(form.contents) == ("scaler",)
    assert "unless it trains in fp16" in contents.verdict(form.contents)
    without = inspect(trainer(tmp_path / "checkpoint-600", step=600, leave_out="optimizer.pt"))
    assert "optimizer" in contents.missing(without.contents)


def test_a_trainer_whose_state_comes_last_is_not_whole_before(tmp_path: Path) -> None:
    form = inspect(trainer(tmp_path / "checkpoint-500", leave_out="trainer_state.json"))

    assert form.verdict is Verdict.SILENT


def test_a_marker_says_that_it_is_being_written(tmp_path: Path) -> None:
    place = trainer(tmp_path / "checkpoint-500")
    (place / "checkpoint-is-incomplete.txt").touch()

    assert inspect(place).verdict is Verdict.TORN


@pytest.mark.parametrize("lost", [1, 3])
def test_a_shard_that_is_not_there(tmp_path: Path, lost: int) -> None:
    names = [f"model-{n:05}-of-00003.safetensors" for n in (1, 2, 3)]
    for name in names:
        safetensors(tmp_path / name, {name: b"x"})
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {name: name for name in names}}))
    assert inspect(tmp_path, DEEP).verdict is Verdict.WHOLE

    (tmp_path / names[lost - 1]).unlink()

    assert inspect(tmp_path).verdict is Verdict.TORN


def test_deepspeed_needs_every_rank(tmp_path: Path) -> None:
    for rank in range(2):
        torch_zip(tmp_path / f"bf16_zero_pp_rank_{rank}_mp_rank_00_optim_states.pt", {"optimizer_state_dict": {"a": 1}})
    torch_zip(
        tmp_path / "mp_rank_00_model_states.pt",
        {"module": {"w": 1}, "lr_scheduler": {"a": 1}, "global_steps": 30, "dp_world_size": 2, "mp_world_size": 1},
    )
    form = inspect(tmp_path)
    assert (form.format, form.verdict, form.step) == ("deepspeed", Verdict.WHOLE, 30)
    assert form.contents >= {"model", "optimizer", "scheduler", "step"}

    (tmp_path / "bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt").unlink()

    assert inspect(tmp_path).reason == "the optimizer states of data rank 1, model rank 0 are absent"


def test_megatron_is_committed_by_its_tracker(tmp_path: Path) -> None:
    place = tmp_path / "iter_0000200"
    for rank in range(2):
        (place / f"mp_rank_0{rank}").mkdir(parents=True)
        torch_zip(
            place / f"mp_rank_0{rank}" / "model_optim_rng.pt",
            {
                "model": {"w": 1},
                "optimizer": {"a": 1},
                "opt_param_scheduler": {"a": 1},
                "iteration": 200,
                "rng_state": [1],
            },
        )
    tracker = tmp_path / "latest_checkpointed_iteration.txt"
    tracker.write_text("100")
    assert inspect(place).reason == "latest_checkpointed_iteration.txt still names 100"

    tracker.write_text("200")

    form = inspect(place)
    assert (form.verdict, form.step) == (Verdict.WHOLE, 200)
    assert contents.missing(form.contents) == ("dataloader", "scaler")


def test_orbax_is_whole_once_committed(tmp_path: Path) -> None:
    place = tmp_path / "1000"
    (place / "default").mkdir(parents=True)
    (place / "default" / "manifest.ocdbt").write_bytes(b"x")
    tree: dict[str, dict[str, dict[str, int]]] = {
        "tree_metadata": {"('params', 'kernel')": {}, "('opt_state', '0')": {}, "('step',)": {}}
    }
    (place / "default" / "_METADATA").write_text(json.dumps(tree))
    (place / "_CHECKPOINT_METADATA").write_text('{"init_timestamp_nsecs": 1, "commit_timestamp_nsecs": null}')
    assert inspect(place).verdict is Verdict.SILENT

    (place / "_CHECKPOINT_METADATA").write_text('{"init_timestamp_nsecs": 1, "commit_timestamp_nsecs": 2}')

    form = inspect(place)
    assert form.verdict is Verdict.WHOLE
    assert form.contents >= {"model", "optimizer", "step"}


# Names


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("step-1200.pt", 1200),
        ("checkpoint-500", 500),
        ("epoch=3-step=900.ckpt", 900),
        ("iter_0001000", 1000),
        ("global_step77", 77),
        ("model_12.pt", 12),
        ("last.ckpt", None),
        ("1000", 1000),
        ("epoch4.pt", 4),
        ("mp_rank_00_model_states.pt", None),
    ],
)
def test_the_step_in_a_name(name: str, step: int | None) -> None:
    assert step_of(Path(name)) == step


@given(st.text(min_size=1, max_size=60).filter(lambda text: "/" not in text and "\0" not in text))
def test_any_name_has_a_step_or_none(name: str) -> None:
    step = step_of(Path(name))
    assert step is None or step >= 0
    is_temporary(name)


@given(
    st.integers(0, 10**9), st.sampled_from(["step-{}.pt", "checkpoint-{}", "iter_{:07}", "epoch=1-step={}.ckpt", "{}"])
)
@settings(max_examples=50)
def test_a_step_written_is_a_step_read(step: int, form: str) -> None:
    assert step_of(Path(form.format(step))) == step
    assert is_temporary(form.format(step) + ".tmp")
    assert is_temporary("." + form.format(step))
    assert not is_temporary(form.format(step))
