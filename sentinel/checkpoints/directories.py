"""Checkpoints that are directories: of HF Trainer, accelerate, DCP, DeepSpeed, Megatron, Orbax, and of one's own."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sentinel.checkpoints.agents import json_step
from sentinel.checkpoints.contents import TRAINING, part_of
from sentinel.checkpoints.form import LONGEST_JSON_BYTES, Form, Look, Verdict, join, reading, torn
from sentinel.checkpoints.names import INCOMPLETE_MARKERS, is_temporary, shard_of
from sentinel.checkpoints.pickles import End, Made, Map, children, dangerous, outline
from sentinel.checkpoints.torchfiles import outline_of, state_contents

MOST_FILES = 4096
"""More files than these of one directory are counted, not looked into."""
_HIDDEN = frozenset({".metadata", ".snapshot_metadata"})
_RANKED = re.compile(r"^(?:.*_)?rng_state_(\d+)\.pth$|^random_states_(\d+)\.pkl$")
_ZERO = re.compile(r"(?:bf16_|fp16_)?zero_pp_rank_(\d+)_mp_rank_(\d+)(?:_\d+)?_optim_states\.pt$")
_MODEL_STATES = re.compile(r"mp_rank_(\d+)(?:_\d+)?_model_states\.pt$")
_MEGATRON_RANK = re.compile(r"mp_rank_\d+(?:_\d+)*$")
_ITERATION = re.compile(r"iter_(\d+)$")
_PROSE = (".txt", ".md", ".log", ".yaml", ".yml", ".py", ".sh", ".out", ".err", ".html", ".png")
InspectFile = Callable[[Path, Look], Form]


@dataclass(frozen=True, slots=True)
class Folder:
    """One directory as listed once.

    Attributes:
        path: Where.
        files: Names of files directly in it, with their sizes.
        folders: Names of directories directly in it.
    """

    path: Path
    files: dict[str, int]
    folders: tuple[str, ...]


def listed(path: Path) -> Folder:
    """List a directory.

    Raises:
        OSError: It cannot be listed.
    """
    files: dict[str, int] = {}
    folders: list[str] = []
    with os.scandir(path) as entries:
        for entry in entries:
            if entry.is_dir():
                folders.append(entry.name)
            else:
                try:
                    files[entry.name] = entry.stat().st_size
                except OSError:
                    files[entry.name] = 0
    return Folder(path, files, tuple(sorted(folders)))


def inspect_directory(path: Path, look: Look, inspect_file: InspectFile) -> Form:
    """Recognise a directory and see whether its parts are all there.

    Args:
        path: The directory.
        look: How closely.
        inspect_file: Looks at one file.

    Raises:
        OSError: It cannot be read.
    """
    folder = listed(path)
    if fault := _unfinished(folder):
        return torn(_format_of(folder), fault)
    if not folder.files and not folder.folders:
        return torn("directory", "the directory is empty")
    for recognises, inspect in (
        (".metadata" in folder.files, _dcp),
        (_is_deepspeed(folder), _deepspeed),
        (_is_megatron(folder), _megatron),
        (_is_orbax(folder), _orbax),
    ):
        if recognises:
            return inspect(folder, look, inspect_file)
    return _files(folder, look, inspect_file)


def _format_of(folder: Folder) -> str:
    if "trainer_state.json" in folder.files:
        return "hf-trainer"
    return "dcp" if ".metadata" in folder.files else "directory"


def _unfinished(folder: Folder) -> str:
    names = {*folder.files, *folder.folders}
    for marker in INCOMPLETE_MARKERS:
        if marker in names:
            return f"{marker} says that it is still being written"
    for name in sorted(names - _HIDDEN):
        if is_temporary(name) and not name.startswith("."):
            return f"{name} is still being written"
    return ""


def _state_files(folder: Folder) -> list[str]:
    names = [
        name
        for name in folder.files
        if not name.startswith(".") and not name.endswith(_PROSE) and not (name.endswith(".json") and name[0] == "_")
    ]
    return sorted(names)[:MOST_FILES]


def _files(folder: Folder, look: Look, inspect_file: InspectFile) -> Form:
    """A directory of files, each of which says for itself what it is: HF Trainer, accelerate, one's own."""
    trainer = "trainer_state.json" in folder.files
    accelerate = any(_RANKED.search(name) and name.startswith("random_states") for name in folder.files)
    what = "hf-trainer" if trainer else "accelerate" if accelerate else "directory"
    forms: list[tuple[str, Form]] = []
    contents: set[str] = set()
    for name in _state_files(folder):
        if folder.files[name] == 0 and not Path(name).suffix:
            continue  # a marker
        form = inspect_file(folder.path / name, look)
        if name.endswith(".json"):
            # Configuration of the model and of the tokenizer is no state.
            form = replace(form, contents=frozenset() if what != "directory" else form.contents, step=None)
        forms.append((name, form))
        contents |= _named(name, form)
    made = join(what, forms)
    if made.verdict is Verdict.TORN:
        return made
    if fault := _holes(folder):
        return torn(what, fault)
    step = made.step
    if trainer:
        state = _json(folder.path / "trainer_state.json")
        step = json_step(state) if state is not None else step
        contents |= {"step"}
        if step is not None and "optimizer" in contents:
            contents |= {"dataloader"}  # the Trainer skips the batches of the steps it has done
    for name in folder.folders:
        if name.startswith("global_step"):  # DeepSpeed under the Trainer
            inner = inspect_directory(folder.path / name, look, inspect_file)
            if inner.verdict is Verdict.TORN:
                return torn(what, f"{name}: {inner.reason}")
            contents |= inner.contents
        elif re.search(r"optimizer|pytorch_model_fsdp|^model_?\d*$|dist_cp", name):  # DCP under accelerate
            inner = inspect_directory(folder.path / name, look, inspect_file)
            if inner.verdict is Verdict.TORN:
                return torn(what, f"{name}: {inner.reason}")
            contents |= {part_of(name) or "model"}
    indexed = any(name.endswith(".index.json") for name in folder.files)
    whole = made.verdict is Verdict.WHOLE and (trainer or accelerate or indexed) and "model" in contents
    return replace(
        made, verdict=Verdict.WHOLE if whole else Verdict.SILENT, step=step, contents=frozenset(contents & set(_ALL))
    )


_ALL = (*TRAINING, "conversation", "tool results", "subtasks")


def _named(name: str, form: Form) -> frozenset[str]:
    """The parts that a file stands for: by its name, and by what was found in it."""
    stem = name.partition(".")[0]
    by_name = part_of(re.sub(r"-\d{5}-of-\d{5}$|_\d+$", "", stem))
    found = form.contents
    if by_name and by_name != "step":
        return frozenset({by_name}) if name.endswith((".pt", ".pth", ".bin", ".safetensors", ".pkl")) else found
    return found


def _holes(folder: Folder) -> str:
    """What is absent from a numbered series of files."""
    sets: dict[tuple[str, int], set[int]] = {}
    ranks: set[int] = set()
    for name in folder.files:
        if shard := shard_of(name):
            sets.setdefault((shard[0], shard[2]), set()).add(shard[1])
        if ranked := _RANKED.match(name):
            ranks.add(int(ranked[1] or ranked[2]))
    for (name, count), present in sets.items():
        if lost := _first_absent(present, 1, count):
            return f"shard {lost} of {count} of {name} is not there"
    if ranks and len(ranks) != max(ranks) + 1:
        return (
            f"the random state of rank {_first_absent({rank + 1 for rank in ranks}, 1, max(ranks) + 1) - 1} is absent"
        )
    return ""


def _first_absent(present: set[int], first: int, last: int) -> int:
    if last - first + 1 <= len(present):
        return 0
    return next((number for number in range(first, last + 1) if number not in present), 0)


def _json(path: Path) -> Any:
    try:
        if path.stat().st_size > LONGEST_JSON_BYTES:
            return None
        return json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None


# PyTorch distributed checkpoints


def _dcp(folder: Folder, look: Look, inspect_file: InspectFile) -> Form:
    """`.metadata` comes last, by rename, and says where in which file each shard lies."""
    with reading(folder.path / ".metadata") as (read, size):
        found = outline(read, size, operations=look.operations)
    if found.end is End.TRUNCATED or found.end is End.MALFORMED:
        return torn("dcp", ".metadata is not whole")
    if harm := dangerous(found.names):
        return torn("dcp", f"loading it would run code: it calls {', '.join(harm[:3])}")
    root = dict(children(found.root))
    ends: dict[str, int] = {}
    stored = root.get("storage_data")
    for _, info in stored.pairs if isinstance(stored, Map) else ():
        place = dict(children(info)) if isinstance(info, Made) else {}
        name, offset, length = place.get("relative_path"), place.get("offset"), place.get("length")
        if isinstance(name, str) and isinstance(offset, int) and isinstance(length, int):
            ends[name] = max(ends.get(name, 0), offset + length)
    for name, end in sorted(ends.items()):
        if ".." in name or name.startswith("/"):
            return torn("dcp", f".metadata names {name}, which is outside")
        size_there = folder.files.get(name)
        if size_there is None:
            return torn("dcp", f".metadata names {name}, which is not there")
        if size_there < end:
            return torn("dcp", f"{name} has {size_there} bytes, .metadata names {end}")
    names = root.get("state_dict_metadata")
    keys = names.keys() if isinstance(names, Map) else []
    contents = {part for key in keys for part in _path_parts(key)}
    if keys and not contents:
        contents = {"model"}
    step, proven = None, found.end is End.COMPLETE
    if "common.pt" in folder.files:  # Megatron core keeps what is not sharded there
        common = inspect_file(folder.path / "common.pt", look)
        if common.verdict is Verdict.TORN:
            return torn("megatron-dist", f"common.pt: {common.reason}")
        contents |= common.contents | _megatron_arguments(folder.path / "common.pt", look)
        step = common.step
    verdict = Verdict.WHOLE if ends and proven else Verdict.SILENT
    what = "megatron-dist" if "common.pt" in folder.files else "dcp"
    return Form(what, verdict, "", step, frozenset(contents), proven)


def _path_parts(key: str) -> set[str]:
    """`optimizer.state.layers.0.weight.exp_avg` → optimizer; `app.model.…` → model; `extra_state.step` → step."""
    words = key.split(".")[:4]
    for word in words[:2]:
        if (part := part_of(word)) in {"optimizer", "scheduler", "dataloader", "rng", "scaler"}:
            return {part}
    if (part := part_of(words[0])) is not None:
        return {part}
    return {part for word in words[1:3] if (part := part_of(word))} or {"model"}


# DeepSpeed


def _is_deepspeed(folder: Folder) -> bool:
    return any(_MODEL_STATES.search(name) or _ZERO.search(name) for name in folder.files)


def _deepspeed(folder: Folder, look: Look, inspect_file: InspectFile) -> Form:
    """Model states by model-parallel rank, optimizer states by every rank: as many as they say."""
    forms = [(name, inspect_file(folder.path / name, look)) for name in _state_files(folder) if name.endswith(".pt")]
    made = join("deepspeed", forms)
    if made.verdict is Verdict.TORN:
        return made
    shards = {(int(found[1]), int(found[2])) for name in folder.files if (found := _ZERO.search(name))}
    models = {int(found[1]) for name in folder.files if (found := _MODEL_STATES.search(name))}
    if not models:
        return torn("deepspeed", "there are no model states")
    contents = set(made.contents)
    first = next(name for name in sorted(folder.files) if _MODEL_STATES.search(name))
    said = outline_of(folder.path / first, look)
    state = dict(children(said.root)) if said is not None else {}
    data_ranks, model_ranks = state.get("dp_world_size"), state.get("mp_world_size")
    known = isinstance(data_ranks, int) and isinstance(model_ranks, int)
    if shards:
        contents |= {"optimizer"}
        expected = {
            (data, model)
            for data in range(data_ranks if isinstance(data_ranks, int) else max(rank for rank, _ in shards) + 1)
            for model in range(model_ranks if isinstance(model_ranks, int) else max(rank for _, rank in shards) + 1)
        }
        if lost := sorted(expected - shards):
            return torn(
                "deepspeed", f"the optimizer states of data rank {lost[0][0]}, model rank {lost[0][1]} are absent"
            )
    if isinstance(model_ranks, int) and len(models) < model_ranks:
        return torn("deepspeed", f"{len(models)} of {model_ranks} model states are there")
    verdict = made.verdict if known else Verdict.SILENT
    step = state.get("global_steps")
    contents |= {"model"}
    return replace(
        made, verdict=verdict, step=step if isinstance(step, int) else made.step, contents=frozenset(contents)
    )


# Megatron


def _is_megatron(folder: Folder) -> bool:
    return any(_MEGATRON_RANK.match(name) for name in folder.folders)


def _megatron(folder: Folder, look: Look, inspect_file: InspectFile) -> Form:
    """A directory per rank; the tracker beside it is written last."""
    forms: list[tuple[str, Form]] = []
    contents: set[str] = set()
    kinds: dict[str, int] = {}
    ranks = [name for name in folder.folders if _MEGATRON_RANK.match(name)]
    for rank in ranks:
        inner = listed(folder.path / rank)
        if fault := _unfinished(inner):
            return torn("megatron", f"{rank}: {fault}")
        for name in _state_files(inner):
            forms.append((f"{rank}/{name}", inspect_file(inner.path / name, look)))
            kinds[name] = kinds.get(name, 0) + 1
            if name == "model_optim_rng.pt":
                contents |= _megatron_arguments(inner.path / name, look)
            elif "optim" in name:
                contents |= {"optimizer"}
    made = join("megatron", forms)
    if made.verdict is Verdict.TORN:
        return made
    if not kinds:
        return torn("megatron", "its ranks are empty")
    if "model_optim_rng.pt" in kinds and kinds["model_optim_rng.pt"] < len(ranks):
        return torn("megatron", f"{kinds['model_optim_rng.pt']} of {len(ranks)} ranks have written their model")
    numbered = _ITERATION.search(folder.path.name)
    tracked = _tracked(folder.path.parent / "latest_checkpointed_iteration.txt")
    behind = numbered is not None and tracked is not None and int(numbered[1]) > tracked
    if behind:
        return torn("megatron", f"latest_checkpointed_iteration.txt still names {tracked}")
    return replace(
        made,
        verdict=made.verdict if tracked is not None else Verdict.SILENT,
        step=made.step if made.step is not None else int(numbered[1]) if numbered else None,
        contents=made.contents | contents,
    )


def _megatron_arguments(path: Path, look: Look) -> set[str]:
    """Megatron counts the samples it has consumed in the arguments it keeps: with them it finds its place again."""
    found = outline_of(path, look)
    state = dict(children(found.root)) if found is not None else {}
    arguments = dict(children(state.get("args")))
    return set(state_contents(found.root) if found else ()) | (
        {"dataloader"} if "consumed_train_samples" in arguments else set()
    )


def _tracked(path: Path) -> int | None:
    try:
        with path.open("rb") as file:
            text = file.read(64).strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None


# Orbax


def _is_orbax(folder: Folder) -> bool:
    names = {*folder.files, *folder.folders}
    return bool(names & {"_CHECKPOINT_METADATA", "_METADATA", "commit_success.txt", "manifest.ocdbt"})


def _orbax(folder: Folder, _look: Look, _inspect_file: InspectFile) -> Form:
    """Renamed into place when whole, or marked by `commit_success.txt` where a store cannot rename."""
    contents: set[str] = set()
    for item in (folder, *(listed(folder.path / name) for name in folder.folders[:64] if not is_temporary(name))):
        tree = _json(item.path / "_METADATA") if "_METADATA" in item.files else None
        if "_METADATA" in item.files and tree is None:
            return torn("orbax", f"{item.path.name}/_METADATA is not whole")
        if item is not folder and part_of(item.path.name):
            contents |= {part_of(item.path.name) or ""}
        for entry in (tree or {}).get("tree_metadata", {}) if isinstance(tree, dict) else ():
            words = re.findall(r"'([^']+)'", entry)
            contents |= {part for word in words[:2] if (part := part_of(word))}
        if "manifest.ocdbt" in item.files and item.files["manifest.ocdbt"] == 0:
            return torn("orbax", f"{item.path.name}/manifest.ocdbt is empty")
    metadata = _json(folder.path / "_CHECKPOINT_METADATA") if "_CHECKPOINT_METADATA" in folder.files else None
    if "_CHECKPOINT_METADATA" in folder.files and metadata is None:
        return torn("orbax", "_CHECKPOINT_METADATA is not whole")
    committed = "commit_success.txt" in folder.files
    finished = isinstance(metadata, dict) and metadata.get("commit_timestamp_nsecs") is not None
    return Form("orbax", Verdict.WHOLE if committed or finished else Verdict.SILENT, contents=frozenset(contents))
