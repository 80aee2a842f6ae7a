"""How often to write a checkpoint: between what a write costs and what a failure would.

J. W. Young, "A first order approximation to the optimum checkpoint interval",
Communications of the ACM 17 (9), 1974, 530-531, https://doi.org/10.1145/361147.361115;
J. T. Daly, "A higher order estimate of the optimum checkpoint interval for restart
dumps", Future Generation Computer Systems 22 (3), 2006, 303-312,
https://doi.org/10.1016/j.future.2004.11.016.

Pure: seconds in, seconds out.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

ASSUMED_MTBF_S = 86400.0
"""What counts as one failure seen in a day, before anything is known: it fades as time without failures is seen."""


@dataclass(frozen=True, slots=True)
class Advice:
    """An interval for one job, with the numbers behind it.

    Attributes:
        interval_s: How long to compute between two writes, by Daly's formula.
        young_s: The same by Young's.
        write_s: What a write was taken to cost.
        mtbf_s: The mean time between failures.
        failures: How many were seen.
        observed_s: In how much running time.
        lost_ratio: Share of the time that goes into writes and into work done twice, with this interval.
        reason: In words.
    """

    interval_s: float
    young_s: float
    write_s: float
    mtbf_s: float
    failures: int
    observed_s: float
    lost_ratio: float
    reason: str


def young(write_s: float, mtbf_s: float) -> float:
    """Young's interval: the square root of twice the cost of a write times the mean time between failures."""
    return math.sqrt(2.0 * write_s * mtbf_s)


def daly(write_s: float, mtbf_s: float) -> float:
    """Daly's interval of computing between two writes; the time between failures where a write takes half of that."""
    if write_s >= 2.0 * mtbf_s:
        return mtbf_s
    ratio = write_s / (2.0 * mtbf_s)
    return math.sqrt(2.0 * write_s * mtbf_s) * (1.0 + math.sqrt(ratio) / 3.0 + ratio / 9.0) - write_s


def lost_ratio(interval_s: float, write_s: float, mtbf_s: float, restart_s: float = 0.0) -> float:
    """Share of the wall time that is not progress, to first order: writes, and half an interval per failure."""
    cycle = interval_s + write_s
    if cycle <= 0:
        return 0.0
    return min(1.0, write_s / cycle + (cycle / 2.0 + restart_s) / mtbf_s)


def mean_time_between_failures(observed_s: float, failures: int, assumed_s: float = ASSUMED_MTBF_S) -> float:
    """From what was seen and one assumed failure: a job that never failed is not taken for one that never will."""
    return (max(0.0, observed_s) + assumed_s) / (failures + 1)


def write_cost(seconds: Sequence[float | None]) -> float | None:
    """What a write costs: the median of the last twenty that were seen; None where none was."""
    seen = [each for each in seconds if each is not None and each >= 0][-20:]
    return statistics.median(seen) if seen else None


def advise(write_s: float | None, observed_s: float, failures: int) -> Advice | None:
    """The interval for one job; None where no write was seen yet.

    Args:
        write_s: What a write costs, or None.
        observed_s: Running time seen, over all attempts.
        failures: How many of these attempts failed.
    """
    if write_s is None:
        return None
    cost = max(write_s, 0.01)
    mtbf = mean_time_between_failures(observed_s, failures)
    interval = max(daly(cost, mtbf), cost)
    seen = f"{failures} failure{'' if failures == 1 else 's'} in {observed_s / 3600:.1f} h and one assumed in a day"
    reason = f"a write takes {cost:.3g} s, and it fails every {mtbf / 3600:.1f} h ({seen})"
    return Advice(
        interval, young(cost, mtbf), cost, mtbf, failures, observed_s, lost_ratio(interval, cost, mtbf), reason
    )
