"""The shipped rules foresee what ends jobs, and are silent about healthy life."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sentinel.model.families import GPU, JOB
from sentinel.rules.check import check
from sentinel.rules.loader import expand, load
from sentinel.rules.testing import run

PACK = Path(__file__).resolve().parents[2] / "rules"
STORIES = sorted((PACK / "tests").glob("*.yaml"))
MIB = 1 << 20
GIB = 1 << 30

Curve = Callable[[float], float]


def test_the_pack_loads_and_the_linter_has_nothing_to_say() -> None:
    for checked in check(expand([PACK])):
        assert [str(problem) for problem in checked.problems] == []
        assert checked.rules > 0


def test_every_alert_says_what_happened_what_sentinel_does_and_what_to_do() -> None:
    for rule in load([PACK]):
        assert not rule.spec.recording
        texts = dict(rule.spec.annotations)
        assert len(re.sub(r"{{.*?}}", "", texts["summary"])) < 100, rule.name
        assert "sentinel" in texts["description"], rule.name
        assert rule.spec.labels["severity"] in {"info", "warning", "critical"}, rule.name


def test_no_shipped_rule_stops_pauses_or_kills() -> None:
    asked = {str(action.request) for rule in load([PACK]) for action in rule.spec.actions}

    assert asked == {"checkpoint", "degrade", "dump"}
    assert not any(action.run for rule in load([PACK]) for action in rule.spec.actions)


@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
def test_story(path: Path) -> None:
    verdict = run(path)

    assert verdict.problems == []
    assert verdict.failures == []
    assert verdict.stories > 0


def test_every_alert_has_a_story() -> None:
    told = "".join(path.read_text() for path in STORIES)

    assert [rule.name for rule in load([PACK]) if f"alertname: {rule.name}" not in told] == []


def job(used: Curve, limit: float, *, read: Curve = lambda _: 0.0) -> Callable[[float], Any]:
    def world(now: float) -> Any:
        values = {
            "job_up": 1.0,
            "job_runtime_seconds": now,
            "job_memory_used_bytes": used(now),
            "job_memory_limit_bytes": limit,
            "job_memory_headroom_bytes": limit - used(now),
            "job_read_bytes_total": read(now),
            "job_cpu_seconds_total": now,
        }
        return {(JOB, ("train",)): values}

    return world


def board(used: Curve, total: float = 80 * GIB) -> Callable[[float], Any]:
    values = {"gpu_up": 1.0, "gpu_memory_total_bytes": total}
    entity = ("0", "GPU-1", "H200", "")
    return lambda now: {(GPU, entity): {**values, "gpu_memory_used_bytes": used(now)}}


LIMIT = 600.0 * MIB


@pytest.mark.parametrize("late", [0.1, 1.9])
@pytest.mark.parametrize("flat_s", [0, 30])
@pytest.mark.parametrize("base_mb", [20, 150])
def test_a_leak_of_20_mb_a_second_is_told_before_75_percent(
    night: Any, flat_s: float, base_mb: float, late: float
) -> None:
    """Whenever it begins, and however the clocks of collectors and rules lie to each other."""
    end = flat_s + (0.74 * LIMIT - base_mb * 1e6) / 20e6

    def used(now: float) -> float:
        return base_mb * 1e6 + 20e6 * max(0.0, min(now, end) - flat_s)

    told = night(["memory"], late=late).live(job(used, LIMIT), end + 20)

    (fired, resolved) = [each for each in told if each[0] == "MemoryExhaustionImminent"]
    assert used(fired[2]) < 0.75 * LIMIT
    assert fired[2] <= end
    assert resolved[1] == "resolved"
    assert resolved[2] - end < 15


def test_the_value_is_the_seconds_that_are_left(night: Any) -> None:
    tonight = night(["memory"])
    tonight.live(job(lambda now: 20e6 * now, LIMIT), 24)

    fired = next(change for change in tonight.changes if change.firing)
    assert fired.rule.labels["forecast"] == "seconds"
    assert fired.alert.value == pytest.approx((LIMIT - 20e6 * (fired.at - tonight.start + 26)) / 20e6, abs=2.1)
    assert fired.alert.annotation("summary").startswith("train runs out of memory in ")


def test_a_leak_of_one_percent_a_minute_is_told_a_quarter_of_an_hour_ahead(night: Any) -> None:
    tonight = night(["memory-slow"], tick=10.0)
    told = tonight.live(job(lambda now: 64 * GIB * (0.6 + 0.01 * now / 60), 64.0 * GIB), 1900)

    (rule, state, at), *_ = told
    assert (rule, state) == ("MemoryExhaustionForeseen", "firing")
    assert 600 < 2400 - at < 930


def test_a_jump_that_leaves_almost_nothing_is_told(night: Any) -> None:
    told = night(["memory"]).live(job(lambda now: LIMIT * (0.6 if now < 60 else 0.975), LIMIT), 90)

    assert [(rule, state) for rule, state, _ in told] == [("MemoryAlmostGone", "firing")]


def test_a_second_attempt_that_leaks_is_told_too(night: Any) -> None:
    """What the attempt before has used makes nothing familiar to this one."""
    tonight = night(["memory"])
    first = tonight.live(job(lambda now: min(LIMIT, 30e6 + 20e6 * now), LIMIT), 36)
    second = tonight.live(job(lambda now: min(LIMIT, 30e6 + 20e6 * now), LIMIT), 24)

    assert ("MemoryExhaustionImminent", "firing") in [each[:2] for each in first]
    assert ("MemoryExhaustionImminent", "firing") in [each[:2] for each in second]


def steady(share: float, noise: float) -> Curve:
    dice = random.Random(7)
    return lambda _: LIMIT * (share + dice.uniform(-noise, noise))


HEALTHY: dict[str, Curve] = {
    "a steady 95 %": lambda _: LIMIT * 0.95,
    "a steady 95 % that trembles": steady(0.95, 0.003),
    "a load in 3 s that stops at 75 %": lambda now: LIMIT * 0.75 * min(1.0, now / 3),
    "a load in 10 s that stops at 75 %": lambda now: LIMIT * 0.75 * min(1.0, now / 10),
    "a load in a minute that stops at 75 %": lambda now: LIMIT * 0.75 * min(1.0, now / 60),
    "warm-up that levels off": lambda now: LIMIT * 0.8 * (1 - math.exp(-now / 20)),
    "slow warm-up": lambda now: LIMIT * 0.85 * (1 - math.exp(-now / 90)),
    "a garbage collector's sawtooth": lambda now: LIMIT * (0.6 + 0.3 * (now % 60) / 60),
    "an evaluation that takes 25 % more": lambda now: LIMIT * (0.85 if now % 150 > 120 else 0.6),
    "a checkpoint that copies the weights": lambda now: LIMIT * (0.55 + (0.3 if 200 < now < 204 else 0.0)),
    "a data loader that starts again": lambda now: LIMIT * (0.7 - 0.3 * math.exp(-(now % 180) / 3)),
    "torch.compile in the third minute": lambda now: LIMIT * (0.6 + 0.1 * min(1.0, max(0.0, now - 150) / 30)),
}


@pytest.mark.parametrize("name", HEALTHY)
def test_healthy_memory_is_no_alert(night: Any, name: str) -> None:
    assert night(["memory"]).live(job(HEALTHY[name], LIMIT), 240) == []


def test_a_model_read_from_storage_is_no_leak(night: Any) -> None:
    """It takes 25 s, so it looks like a leak; but it is read from the disk as fast as memory fills."""
    used = lambda now: 0.75 * LIMIT * min(1.0, now / 25)

    assert night(["memory"]).live(job(used, LIMIT, read=used), 90) == []


@pytest.mark.slow
def test_hours_of_healthy_memory_are_no_forecast(night: Any) -> None:
    """A page cache that fills, an epoch's end every ten minutes, and the load at the start."""

    def used(now: float) -> float:
        loaded = 0.6 * min(1.0, now / 120)
        return 64 * GIB * (loaded + 0.15 * (now % 600) / 600 + 0.1 * (1 - math.exp(-now / 300)))

    assert night(["memory", "memory-slow"], tick=10.0).live(job(used, 64.0 * GIB), 5400) == []


GPU_HEALTHY: dict[str, Curve] = {
    "a caching allocator at 95 %": lambda now: GIB * min(76.0, 20 + 8 * math.floor(now / 4)),
    "vLLM takes 90 % at once": lambda now: GIB * (2 if now < 10 else 72),
    "a load of 40 s that stops at 75 %": lambda now: GIB * 60 * min(1.0, now / 40),
    "an evaluation with larger batches": lambda now: GIB * (74 if now % 200 > 170 else 55),
}


@pytest.mark.parametrize("name", GPU_HEALTHY)
def test_healthy_gpu_memory_is_no_alert(night: Any, name: str) -> None:
    assert night(["memory-gpu"]).live(board(GPU_HEALTHY[name]), 600) == []


def test_gpu_memory_that_grows_without_a_pause_is_told(night: Any) -> None:
    told = night(["memory-gpu"]).live(board(lambda now: GIB * (40 + 0.3 * now)), 130)

    assert [each[:2] for each in told][:1] == [("GpuMemoryExhaustionImminent", "firing")]
    assert told[0][2] < 115


def test_a_fragmentation_creep_is_told_in_time(night: Any) -> None:
    """1 % a minute, in steps, as fragmentation does it."""
    creep: Curve = lambda now: 80 * GIB * (0.7 + 0.01 * math.floor(now / 60))
    told = night(["memory-gpu"], tick=10.0).live(board(creep), 1700)

    (rule, state, at), *_ = told
    assert (rule, state) == ("GpuMemoryExhaustionForeseen", "firing")
    assert at < 1800 - 300
