"""Who was here in the last pass, so that whoever is gone is marked as ended once."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from sentinel.model.series import Batch, Entity, Family


class Coverage:
    """Makes batches that cover the entities of this pass and of the one before."""

    def __init__(self) -> None:
        self._before: dict[str, Collection[Entity]] = {}

    def batch(
        self,
        family: Family,
        at: float,
        values: Mapping[Entity, Sequence[float | None]],
        also: Collection[Entity] = (),
    ) -> Batch:
        """A whole pass over `family`. `also`: looked at, and without a value."""
        now = dict.fromkeys((*values, *also))
        batch = family.batch(at, values, covers=(*now, *self._before.get(family.name, ())))
        self._before[family.name] = tuple(now)
        return batch


def row(family: Family, values: Mapping[str, float | None]) -> list[float | None]:
    """Values by metric name in the order of the family; None where there is none."""
    return [values.get(metric.name) for metric in family.metrics]
