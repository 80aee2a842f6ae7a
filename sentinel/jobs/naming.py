"""A name for a job whose owner gave it none. Pure."""

from __future__ import annotations

import os
import re


def default_name(argv: tuple[str, ...]) -> str:
    """A job's name where nobody gave one: the script's (`train.py` gives `train`), the module's or the command's."""
    words = list(argv)
    for index, word in enumerate(words[1:], start=1):
        if word == "-m" and index + 1 < len(words) and re.fullmatch(r"[\w.]+", words[index + 1]):
            module = words[index + 1]
            if module not in _NOT_THE_JOB:
                return module.rpartition(".")[2]
        if word.endswith(_SCRIPTS) and not word.startswith("-"):
            return _slug(os.path.basename(word).rpartition(".")[0])
        if word in {"-c", "-e"}:
            break
    return _slug(os.path.basename(words[0])) if words else "job"


_SCRIPTS = (".py", ".sh", ".js", ".jl", ".rb", ".pl", ".lua", ".r", ".R", ".ipynb")
_NOT_THE_JOB = ("torch.distributed.run", "torch.distributed.launch", "accelerate.commands.launch", "ipdb", "pdb")


def _slug(text: str) -> str:
    stem = text if not text.endswith(_SCRIPTS) else text.rpartition(".")[0]
    return re.sub(r"[^\w.+-]+", "-", stem).strip("-.")[:100] or "job"
