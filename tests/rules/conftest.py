"""Debian's promtool as a second opinion, and nights told in numbers."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from sentinel.clock import ManualClock
from sentinel.model.alerts import AlertState, Transition
from sentinel.model.series import Entity, Family
from sentinel.rules.engine import Engine
from sentinel.rules.loader import load
from sentinel.rules.ruleset import RuleSet
from sentinel.store.window import Window

PACK = Path(__file__).resolve().parents[2] / "rules"

Promtool = Callable[..., "subprocess.CompletedProcess[str]"]

Readings = Mapping[tuple[Family, Entity], Mapping[str, float]]
"""What collectors measure at one moment: values by metric, of each entity of a family."""


@pytest.fixture
def promtool(tmp_path: Path) -> Promtool:
    """Runs promtool in the test's own directory."""
    found = shutil.which("promtool")
    if found is None:
        pytest.skip("promtool is not installed (apt-get install prometheus)")

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [found, *arguments], check=False, cwd=tmp_path, capture_output=True, text=True, timeout=60
        )

    return run


class WallClock(ManualClock):
    """Its wall clock can be set, as NTP does it, or run on alone, as while the machine sleeps."""

    ahead = 0.0

    def now(self) -> float:
        return super().now() + self.ahead


@dataclass
class Night:
    """A real window and a real engine with shipped rules; collectors are a function of time.

    Attributes:
        groups: Of the shipped pack; the others would only take time.
        tick: Seconds between two passes of the collectors.
        late: Seconds from a pass to the next evaluation: clocks are not aligned in life.
    """

    groups: Sequence[str]
    tick: float = 2.0
    late: float = 0.5
    start: float = 1_800_000_000.0
    changes: list[Transition] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.clock = WallClock(self.start - self.tick)
        self.window = Window(tick_s=self.tick)
        pack = load([PACK])
        rules = RuleSet(tuple(group for group in pack.groups if group.name in self.groups))
        assert len(rules.groups) == len(self.groups)
        self.engine = Engine(self.window, rules, clock=self.clock, append=self.window.append)
        for family, seconds in self.engine.paces().items():
            self.window.set_tick(family, seconds)

    def jump(self, seconds: float) -> None:
        """The wall clock is somewhere else all of a sudden; nothing was measured meanwhile."""
        self.clock.ahead += seconds
        self.start += seconds

    def live(self, world: Callable[[float], Readings], seconds: float) -> list[tuple[str, str, float]]:
        """Let time pass; returns rule, state and time of what fired and resolved."""
        begun = len(self.changes)
        for step in range(int(seconds / self.tick) + 1):
            now = step * self.tick
            self.clock.advance(self.start + now - self.clock.now())
            for (family, entity), values in world(now).items():
                row = tuple(values.get(metric.name) for metric in family.metrics)
                self.window.append(family.batch(self.start + now, {entity: row}))
            self.clock.advance(self.late)
            for group in self.engine.due(self.clock.monotonic()):
                done = self.engine.evaluate(group, self.clock.now())
                assert done.faults == ()
                self.changes += done.transitions
        self.start += seconds + self.tick
        return [
            (change.alert.rule, change.alert.state.value, round(change.at - (self.start - seconds - self.tick), 3))
            for change in self.changes[begun:]
            if change.alert.state in (AlertState.FIRING, AlertState.RESOLVED)
        ]


@pytest.fixture
def night() -> type[Night]:
    """Makes nights."""
    return Night
