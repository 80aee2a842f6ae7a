"""The series that rules write: what they record, and what their alerts look like."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from sentinel.model.alerts import Alert
from sentinel.model.labels import METRIC_NAME, Labels
from sentinel.model.series import GAUGE, Batch, Entity, Family, Metric

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
    """

    group: str
    families: dict[tuple[str, tuple[str, ...]], Family] = field(default_factory=dict)
    living: dict[tuple[str, tuple[str, ...]], dict[Entity, None]] = field(default_factory=dict)

    def batches(self, at: float, samples: Iterable[tuple[Labels, float]]) -> list[Batch]:
        """One round; `samples` carry their metric in `__name__`."""
        rows: dict[tuple[str, tuple[str, ...]], dict[Entity, tuple[float]]] = {}
        for labels, value in samples:
            names = tuple(name for name in labels if name != METRIC_NAME)
            entity = tuple(labels[name] for name in names)
            rows.setdefault((labels[METRIC_NAME], names), {})[entity] = (value,)
        made: list[Batch] = []
        for key in dict.fromkeys((*rows, *self.living)):
            values = rows.get(key, {})
            made.append(self._family(key).batch(at, values, covers=self.living.get(key, ())))
        self.living = {key: dict.fromkeys(values) for key, values in rows.items()}
        return made

    def _family(self, key: tuple[str, tuple[str, ...]]) -> Family:
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


def alert_samples(alerts: Iterable[Alert]) -> list[tuple[Labels, float]]:
    """ALERTS and ALERTS_FOR_STATE, as Prometheus has them."""
    found: list[tuple[Labels, float]] = []
    for alert in alerts:
        found.append((alert.labels.merged({METRIC_NAME: "ALERTS", "alertstate": alert.state.value}), 1.0))
        found.append((alert.labels.merged({METRIC_NAME: "ALERTS_FOR_STATE"}), alert.began))
    return found
