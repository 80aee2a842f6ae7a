"""Completeness: what a checkpoint holds, what it does not, and what that means for whoever resumes from it.

Pure: names of keys, tables and files go in, parts and sentences come out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from enum import StrEnum

TRAINING = ("model", "optimizer", "scheduler", "step", "dataloader", "rng", "scaler")
"""What a training run needs to go on as if nothing had happened."""
AGENT = ("conversation", "tool results", "subtasks")
"""The same for an agent pipeline."""


class Kind(StrEnum):
    """What sort of state it is."""

    TRAINING = "training"
    WEIGHTS = "weights"  # a model and nothing else
    AGENT = "agent"
    UNKNOWN = "unknown"


_PARTS: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (part, re.compile(pattern, re.IGNORECASE))
    for part, pattern in (
        ("scheduler", r"sched|(^|_)lr_state|warmup_state"),
        ("scaler", r"scaler|loss_scale|scaling_state|MixedPrecision$|^amp(_state)?$"),
        ("optimizer", r"optim|^opt(_?state)?s?$|^adam|^momentum"),
        ("rng", r"rng|random_?state|rand_state|seed_state|^seeds?$|generator_state|^prng"),
        (
            "dataloader",
            (
                r"data_?loader|dl_state|(^|_)sampler|data_(state|iter|position|offset)|dataset_state|combined_loader"
                r"|consumed_(train_)?(samples|tokens)|samples_seen|batches_(seen|that_stepped)|train_iter|epoch_iterator"
                r"|^data$|sample_index|batch_idx|tokens_seen"
            ),
        ),
        (
            "step",
            (
                r"^(global_?)?steps?$|^epochs?$|^iter(ation)?s?$|num_updates|global_step|current_(step|iter|epoch)"
                r"|^trainer_state|^step_?count|_iteration$|train_?state$|^batch(es)?$|^last_epoch$|iter_num|completed_steps"
            ),
        ),
        (
            "model",
            (
                r"^(ema_?)?(model|module|net|network|weights?|params?|parameters|state_dict|policy|actor|critic|encoder"
                r"|decoder|backbone|generator|discriminator|student|teacher|unet|vae|transformer|adapter)s?(_?\d+)?"
                r"(_?(state_?)?(dict|state|weights|params))?s?$|pytorch_model|adapter_model|diffusion_pytorch_model"
                r"|model_?states?$|(^|_)model_state_dict|flax_model|tf_model"
            ),
        ),
    )
)
_AGENT_PARTS: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (part, re.compile(pattern, re.IGNORECASE))
    for part, pattern in (
        (
            "tool results",
            r"tool_?(results?|outputs?|calls?|responses?|messages?)|observations?|function_results|writes",
        ),
        (
            "subtasks",
            (
                r"(sub_?|finished_?|completed_?|done_?|pending_?|open_?)?tasks?(_done|_completed|_status)?$|todos?$"
                r"|completed(_steps|_items|_ids)?$|finished$|plan(_steps)?$|progress$|results$|processed(_ids|_items)?$"
            ),
        ),
        (
            "conversation",
            r"messages?$|conversations?$|chat(_history)?$|history$|transcript|dialog(ue)?|turns?$|memory$",
        ),
    )
)


def part_of(key: str) -> str | None:
    """Which part of a training state a key or the stem of a file's name stands for."""
    return next((part for part, pattern in _PARTS if pattern.search(key)), None)


def agent_part_of(key: str) -> str | None:
    """Which part of an agent's state a key or table stands for."""
    return next((part for part, pattern in _AGENT_PARTS if pattern.search(key)), None)


def parts_of(keys: Iterable[str]) -> frozenset[str]:
    """The parts that some keys stand for."""
    return frozenset(part for key in keys if (part := part_of(key)))


def kind_of(contents: AbstractSet[str]) -> Kind:
    """What sort of state has these parts."""
    if contents & set(AGENT):
        return Kind.AGENT
    if contents == {"model"}:
        return Kind.WEIGHTS
    return Kind.TRAINING if contents & set(TRAINING) else Kind.UNKNOWN


def ordered(contents: AbstractSet[str]) -> tuple[str, ...]:
    """The parts in the order in which people name them."""
    return tuple(part for part in (*TRAINING, *AGENT) if part in contents)


def missing(contents: AbstractSet[str]) -> tuple[str, ...]:
    """What a state of this sort would need and does not hold; nothing where its sort is unknown."""
    wanted = {Kind.AGENT: AGENT, Kind.UNKNOWN: ()}.get(kind_of(contents), TRAINING)
    return tuple(part for part in wanted if part not in contents)


_WITHOUT = {
    "model": "there are no weights, so there is nothing to go on from",
    "optimizer": "the optimizer begins without its moments, so the loss will jump and take a while to come back",
    "scheduler": "the learning rate begins its schedule anew, warm-up included",
    "step": "steps are counted from zero again",
    "dataloader": "the data begins anew: samples already seen come again before the others are seen",
    "rng": "dropout, augmentation and shuffling differ from what an uninterrupted run would have drawn",
    "scaler": "the loss scale is found anew in the first steps (matters with fp16 only; bf16 has none)",
    "conversation": "the agent does not remember what was said, so it begins its reasoning anew",
    "tool results": "tools are called again: their cost and their side effects come twice",
    "subtasks": "finished subtasks are not known, so their work is done again",
}


def verdict(contents: AbstractSet[str]) -> str:
    """In words: what will not be reproducible after resuming from this."""
    kind = kind_of(contents)
    if kind is Kind.UNKNOWN:
        return "its contents are not known from its form; what comes back after resuming is up to the job"
    absent = missing(contents)
    if not absent:
        return "everything is there: a resumed run continues as an uninterrupted one would have"
    if kind is Kind.WEIGHTS:
        return "weights only: good for inference or a new run; optimizer, schedule, step and data position are lost"
    if absent == ("scaler",):
        return "resumes exactly, unless it trains in fp16: then the loss scale is found anew in the first steps"
    return "; ".join(_WITHOUT[part] for part in absent)


def consequence(part: str) -> str:
    """What the absence of one part means."""
    return _WITHOUT[part]
