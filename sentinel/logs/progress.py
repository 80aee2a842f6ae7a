"""What a log tells of progress without any client: the step and the loss, in the forms that trainers write."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from sentinel.logs.structure import plain
from sentinel.logs.tail import shown

LOOK_AT_BYTES = 8192
LOOK_AT_LINES = 32
NAN_STEPS = 3
"""So many logged steps in a row without a number for a loss are no accident."""

_NUMBER = r"(?P<{}>[-+]?(?:nan|inf|[\d.]+(?:e[-+]?\d+)?))"
_LOSS = re.compile(
    r"(?i)(?<![a-z_-])(?:(?:train(?:ing)?|lm|total|avg|mean)[_/ ]?)?loss[\"']?\s*(?:[:=|(]|\s)\s*"
    + _NUMBER.format("loss")
)
_STEP = re.compile(
    r"(?i)(?<![a-z])(?:global[_ ]?step|train(?:er)?[_/]global_step|step|iteration|iter|num_updates|update)[\"']?\s*"
    r"(?:[:=\[#]|\s)\s*0*(?P<step>\d{1,12})(?![\d.]*[a-z%])(?:\s*/\s*(?P<of>\d+))?"
)
_BAR = re.compile(
    r"(?P<name>[^|\r\n]*?)\s*\d{1,3}%\|[^|]*\|\s*(?P<step>\d{1,12})/(?P<of>\d{1,12})\s*\[(?P<rest>[^\]\r\n]*)"
)
_EPOCH = re.compile(r"(?i)\bepoch[ :=\[]*(?P<epoch>\d+)")
_OTHER_BARS = re.compile(
    r"(?i)load|download|fetch|captur|map|token|generat|filter|eval|valid|test|predict|sav|upload|extract|resolv|prepar"
    r"|process|sanity|convert|comput|read|cach"
)


@dataclass(frozen=True, slots=True)
class Seen:
    """Where a job stands, as its log says.

    Attributes:
        step: The step it last reported, or None. Of a bar within an epoch: counted over epochs.
        loss: The loss it last reported, NaN included, or None.
        nan_steps: How many logged losses in a row were not a number.
    """

    step: int | None = None
    loss: float | None = None
    nan_steps: int = 0


def look(data: bytes, before: Seen) -> Seen:
    """What the last lines of some output add to what was seen `before`.

    Only the newest lines are looked at, however much came: this costs the same
    for a chunk of 256 KiB as for a line.
    """
    newest = data[-LOOK_AT_BYTES:]
    if len(data) > LOOK_AT_BYTES:
        newest = newest.partition(b"\n")[2]
    step, loss, nans = before.step, before.loss, before.nan_steps
    for line in newest.split(b"\n")[-LOOK_AT_LINES:]:
        text = plain(shown(line)[:2048]).decode("utf-8", "replace")
        found = _LOSS.search(text)
        told = _step(text, has_loss=found is not None)
        step = told if told is not None else step
        if found is not None:
            try:
                loss = float(found["loss"])
            except ValueError:
                continue
            nans = nans + 1 if math.isnan(loss) else 0
    return Seen(step, loss, nans)


def _step(text: str, *, has_loss: bool) -> int | None:
    bar = _BAR.search(text)
    if bar is not None:
        if _OTHER_BARS.search(bar["name"]) or (not has_loss and "loss" in bar["name"]):
            return None
        epoch = _EPOCH.search(bar["name"])
        return int(bar["step"]) + (int(epoch["epoch"]) * int(bar["of"]) if epoch is not None else 0)
    if has_loss and (named := _STEP.search(text)) is not None:
        return int(named["step"])
    return None
