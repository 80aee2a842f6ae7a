"""The series that rules write: what they record, and what their alerts look like."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeAlias

from sentinel.model.alerts import Alert, AlertState
from sentinel.model.labels import METRIC_NAME, Labels
from sentinel.model.series import GAUGE, Batch, Entity, Family, Metric

Key: TypeAlias = tuple[str, tuple[str, ...]]
"""A metric and the names of its labels: one family."""
Place: TypeAlias = tuple[Key, Entity]
Rows: TypeAlias = dict[Key, dict[Entity, tuple[float]]]

_MOST_PLACES = 20_000

_HELP = {
    "ALERTS": "1 for each alert that is pending or firing.",
    "ALERTS_FOR_STATE": "When the alert began to hold (Unix time).",
}


@dataclass(slots=True)
class Written:
    """What one rule writes, round after round: a series that vanishes is marked as ended.

    Attributes:
        group: The rule's group; part of the family's name, because families have one pace.
        families: By metric and label names; kept, so that the window knows them again.
        living: The entities of the last round, by family.
        places: Where the series of an alert stand, remembered: a storm has thousands.
    """

    group: str
    families: dict[Key, Family] = field(default_factory=dict)
    living: dict[Key, dict[Entity, None]] = field(default_factory=dict)
    places: dict[tuple[Labels, AlertState], tuple[Place, Place]] = field(default_factory=dict)

    def batches(self, at: float, samples: Iterable[tuple[Labels, float]]) -> list[Batch]:
        """One round; `samples` carry their metric in `__name__`."""
        rows: Rows = {}
        for labels, value in samples:
            key, entity = _placed(labels)
            rows.setdefault(key, {})[entity] = (value,)
        return self._batches(at, rows)

    def alert_batches(self, at: float, alerts: Iterable[Alert]) -> list[Batch]:
        """One round of ALERTS and ALERTS_FOR_STATE, as Prometheus has them."""
        rows: Rows = {}
        places = self.places
        for alert in alerts:
            found = places.get((alert.labels, alert.state))
            if found is None:
                if len(places) >= _MOST_PLACES:
                    places.clear()
                stated = {METRIC_NAME: "ALERTS", "alertstate": alert.state.value}
                found = (
                    _placed(alert.labels.merged(stated)),
                    _placed(alert.labels.merged({METRIC_NAME: "ALERTS_FOR_STATE"})),
                )
                places[alert.labels, alert.state] = found
            (alerts_key, one), (since_key, other) = found
            rows.setdefault(alerts_key, {})[one] = (1.0,)
            rows.setdefault(since_key, {})[other] = (alert.began,)
        return self._batches(at, rows)

    def _batches(self, at: float, rows: Rows) -> list[Batch]:
        living = self.living
        keys = dict.fromkeys((*rows, *living))
        made = [self._family(key).batch(at, rows.get(key, {}), covers=living.get(key, ())) for key in keys]
        self.living = {key: dict.fromkeys(values) for key, values in rows.items()}
        return made

    def _family(self, key: Key) -> Family:
        family = self.families.get(key)
        if family is None:
            metric, names = key
            text = _HELP.get(metric, "Recorded by a rule.")
            family = Family(family_name(metric, self.group), names, (Metric(metric, GAUGE, text),), narrow=True)
            self.families[key] = family
        return family


def family_name(metric: str, group: str) -> str:
    """The name of the families with what a group writes under a metric's name."""
    return f"{metric}@{group}"


def _placed(labels: Labels) -> Place:
    """Where a series stands: the metric with the names of its labels, and their values."""
    names = tuple(name for name in labels if name != METRIC_NAME)
    return (labels[METRIC_NAME], names), tuple(labels[name] for name in names)
