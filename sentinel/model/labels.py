"""Label sets, the identity of a series."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

METRIC_NAME = "__name__"


class Labels(Mapping[str, str]):
    """An immutable, hashable set of labels, sorted by name.

    A label with an empty value is the same as no label, as in Prometheus, so
    it is dropped on the way in.
    """

    __slots__ = ("_hash", "_map")
    _hash: int | None
    _map: dict[str, str]

    def __init__(self, pairs: Mapping[str, str] | Iterable[tuple[str, str]] = ()) -> None:
        items = pairs.items() if isinstance(pairs, Mapping) else pairs
        self._map = dict(sorted((name, value) for name, value in items if value != ""))
        self._hash = None

    def __getitem__(self, name: str) -> str:
        return self._map[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._map)

    def __len__(self) -> int:
        return len(self._map)

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash(tuple(self._map.items()))
        return self._hash

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Labels):
            return self._map == other._map
        return NotImplemented

    def __repr__(self) -> str:
        name = self._map.get(METRIC_NAME, "")
        inner = ", ".join(f"{key}={_quoted(value)}" for key, value in self._map.items() if key != METRIC_NAME)
        return f"{name}{{{inner}}}" if inner or not name else name

    def with_(self, **more: str) -> Labels:
        """These labels and `more`, which win."""
        return Labels({**self._map, **more})

    def merged(self, more: Mapping[str, str]) -> Labels:
        """These labels and `more`, which win."""
        return Labels({**self._map, **more})

    def without(self, names: Iterable[str]) -> Labels:
        """These labels less `names`."""
        gone = set(names)
        return Labels({name: value for name, value in self._map.items() if name not in gone})

    def only(self, names: Iterable[str]) -> Labels:
        """Those of these labels that are in `names`."""
        kept = set(names)
        return Labels({name: value for name, value in self._map.items() if name in kept})

    def as_dict(self) -> dict[str, str]:
        """A copy as a plain dict, sorted by name."""
        return dict(self._map)


def _quoted(value: str) -> str:
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


EMPTY = Labels()
