"""What the names of files and directories say: temporary or final, which step, which part."""

from __future__ import annotations

import re
from pathlib import PurePath

_TEMPORARY = re.compile(
    r"(?:\.(?:tmp|temp|part|partial|incomplete|lock|swp|crdownload)(?:[.\-_]?\w*)?$)|^\.|^tmp[-_.]|~$|\.tmp\b"
    r"|orbax-checkpoint-tmp|-unfinished$|\.saving$|\.writing$",
    re.IGNORECASE,
)
INCOMPLETE_MARKERS = (
    "checkpoint-is-incomplete.txt",
    "incomplete",
    ".incomplete",
    "INCOMPLETE",
    ".tmp",
    ".lock",
    ".unfinished",
)
"""A file of this name in a directory says that somebody is still writing there."""
_KIND = (
    r"(?:step|iter|iteration|epoch|checkpoint|ckpt|global_step|model|state|turn|task|update|round)[^0-9]{0,3}(\d{1,12})"
)
_STEP = re.compile(_KIND, re.IGNORECASE)
_BEST = re.compile(r"(?:step|iter|iteration|update)s?[^0-9]{0,3}(\d{1,12})", re.IGNORECASE)
_NUMBER = re.compile(r"(\d{1,12})(?!.*\d)")
_SHARD = re.compile(r"(?P<stem>.+)-(?P<index>\d{5})-of-(?P<count>\d{5})(?P<suffix>\.\w+)$")
_NOT_STEPS = re.compile(r"(?:rank|mp_rank|zero_pp_rank|of|v|version|pp|tp)[^0-9]{0,2}\d+|\d+-of-\d+", re.IGNORECASE)
_CONTAINERS = re.compile(
    r"lightning_logs|tb_logs|version_\d+|checkpoints?|ckpts?|saved_models|models|snapshots?|states?|weights",
    re.IGNORECASE,
)


def is_temporary(name: str) -> bool:
    """Whether a file or directory of this name is still being written, by the usual habits."""
    return _TEMPORARY.search(name) is not None


def is_container(name: str) -> bool:
    """Whether a directory of this name usually holds checkpoints rather than being one."""
    return _CONTAINERS.fullmatch(name) is not None


def step_of(path: PurePath) -> int | None:
    """The training step in a name: `step-1200.pt`, `checkpoint-500`, `epoch=3-step=900.ckpt`, `iter_0001000`."""
    name = path.name
    best = _BEST.findall(name)
    if best:
        return int(best[-1])
    found = _STEP.findall(name)
    if found:
        return int(found[-1])
    last = _NUMBER.search(_NOT_STEPS.sub("", path.stem))
    return int(last[1]) if last else None


def shard_of(name: str) -> tuple[str, int, int] | None:
    """`model-00002-of-00008.safetensors` → ("model.safetensors", 2, 8); None for other names."""
    found = _SHARD.fullmatch(name)
    if not found:
        return None
    return found["stem"] + found["suffix"], int(found["index"]), int(found["count"])
