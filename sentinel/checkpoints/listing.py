"""What could be a checkpoint in the places of a job: names only, listed again only where something came or went."""

from __future__ import annotations

import glob
import os
import re
import stat
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from sentinel.checkpoints.names import is_container, is_temporary, shard_of
from sentinel.model.jobs import CheckpointDir

_IGNORED = frozenset(
    {
        "latest", "latest_checkpointed_iteration.txt", "checkpoint", "logs", "runs", "wandb", "mlruns", "__pycache__",
        "config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
        "added_tokens.json", "preprocessor_config.json", "vocab.json", "training_args.bin", "all_results.json",
        "train_results.json", "eval_results.json", "metrics.json", "args.json", "hparams.json", "params.json",
        "adapter_config.json", "metadata.json",
    }
)  # fmt: skip
_IGNORED_SUFFIXES = frozenset(
    {".log", ".txt", ".out", ".err", ".csv", ".md", ".yaml", ".yml", ".lock", ".ack", ".py", ".html", ".sha256", ".md5"}
)
_BESIDE_A_DATABASE = re.compile(r"-(wal|shm|journal)$|^events\.out\.tfevents")
_IS_ONE_ITSELF = (
    {".metadata"},
    {"trainer_state.json", "optimizer.pt"},
    {"mp_rank_00_model_states.pt"},
    {"_CHECKPOINT_METADATA"},
    {"optimizer.bin", "random_states_0.pkl"},
)
_DEEPEST = 3
_GRANULARITY_NS = 2_000_000_000
"""A directory that changed so shortly before it was listed may change again within the same time stamp."""


def is_candidate(name: str) -> bool:
    """Whether something of this name may be a checkpoint."""
    return not (
        is_temporary(name)
        or name in _IGNORED
        or os.path.splitext(name)[1].lower() in _IGNORED_SUFFIXES
        or _BESIDE_A_DATABASE.search(name)
        or shard_of(name)
    )


@dataclass(frozen=True, slots=True)
class Candidate:
    """Something that may be a checkpoint.

    Attributes:
        path: Where.
        complete_when: How the owner says that one is whole: "", rename, stable, or marker:NAME.
    """

    path: str
    complete_when: str = ""


@dataclass(slots=True)
class _Listed:
    changed_ns: int
    sure: bool
    names: list[str] = field(default_factory=list)
    containers: list[str] = field(default_factory=list)
    temporaries: dict[int, str] = field(default_factory=dict)
    itself: bool = False


class Listing:
    """The candidates of some places.

    Args:
        places: Directories or globs. In a directory each file or subdirectory is a
            candidate, unless the directory itself is a checkpoint; directories that
            usually hold checkpoints (`lightning_logs/version_0/checkpoints`) are entered.
    """

    def __init__(self, places: Iterable[CheckpointDir | str]) -> None:
        given = (place if isinstance(place, CheckpointDir) else CheckpointDir(place) for place in places)
        self._places = tuple(replace(place, path=place.path.rstrip("/") or "/") for place in given)
        self._listed: dict[str, _Listed] = {}

    def refresh(self) -> bool:
        """See whether anything came or went; costs a stat per directory. Raises nothing."""
        if any(glob.has_magic(place.path) for place in self._places):
            return True
        for directory, listed in self._listed.items():
            try:
                changed_ns = os.stat(directory).st_mtime_ns
            except OSError:
                return True
            if not listed.sure or listed.changed_ns != changed_ns:
                return True
        return any(place.path not in self._listed for place in self._places)

    def candidates(self) -> Iterator[Candidate]:
        """All of them, each place in turn; raises nothing."""
        seen: set[str] = set()
        for place in self._places:
            if not glob.has_magic(place.path):
                yield from self._within(place.path, place.complete_when, 0, seen)
                continue
            for path in glob.iglob(place.path, recursive=True):
                if is_candidate(os.path.basename(path)):
                    yield Candidate(path, place.complete_when)
        for gone in self._listed.keys() - seen:
            del self._listed[gone]

    def temporaries(self) -> dict[int, str]:
        """Files and directories with temporary names, as of the last listing, by their inodes."""
        return {inode: name for listed in self._listed.values() for inode, name in listed.temporaries.items()}

    def directories(self) -> list[str]:
        """Which directories were listed: where something new would appear."""
        return list(self._listed)

    def _within(self, directory: str, complete_when: str, depth: int, seen: set[str]) -> Iterator[Candidate]:
        try:
            found = os.stat(directory)
        except OSError:
            return
        if not stat.S_ISDIR(found.st_mode):
            yield Candidate(directory, complete_when)
            return
        seen.add(directory)
        listed = self._listed.get(directory)
        if listed is None or not listed.sure or listed.changed_ns != found.st_mtime_ns:
            listed = self._listed[directory] = _list(directory, found.st_mtime_ns, depth)
        if listed.itself:
            yield Candidate(directory, complete_when)
            return
        for name in listed.names:
            yield Candidate(f"{directory}/{name}", complete_when)
        for name in listed.containers:
            yield from self._within(f"{directory}/{name}", complete_when, depth + 1, seen)


def _list(directory: str, changed_ns: int, depth: int) -> _Listed:
    listed = _Listed(changed_ns, time.time_ns() - changed_ns > _GRANULARITY_NS)
    names: set[str] = set()
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                name = entry.name
                names.add(name)
                if is_temporary(name):
                    listed.temporaries[entry.inode()] = name
                elif depth < _DEEPEST and is_container(name) and entry.is_dir():
                    listed.containers.append(name)
                elif is_candidate(name):
                    listed.names.append(name)
    except OSError:
        return listed
    listed.itself = any(parts <= names for parts in _IS_ONE_ITSELF)
    return listed
