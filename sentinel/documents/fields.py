"""The values of a mapping whose keys are known."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TypeVar, overload

from sentinel.documents.node import Kind, Node

T = TypeVar("T")


class Fields:
    """The values of a mapping whose keys are known, by key; absent ones give the default.

    A value that is written but empty (`key:`) counts as absent.
    """

    __slots__ = ("_values", "node")

    def __init__(self, node: Node, values: Mapping[str, Node]) -> None:
        self.node = node
        self._values = {name: value for name, value in values.items() if value.kind is not Kind.NULL}

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def get(self, name: str) -> Node | None:
        """The node itself."""
        return self._values.get(name)

    @overload
    def text(self, name: str, default: str) -> str: ...
    @overload
    def text(self, name: str, default: None = None) -> str | None: ...
    def text(self, name: str, default: str | None = None) -> str | None:
        """A text."""
        return self._read(name, default, Node.text)

    @overload
    def boolean(self, name: str, default: bool) -> bool: ...
    @overload
    def boolean(self, name: str, default: None = None) -> bool | None: ...
    def boolean(self, name: str, default: bool | None = None) -> bool | None:
        """True or false."""
        return self._read(name, default, Node.boolean)

    @overload
    def number(self, name: str, default: float, *, least: float | None = None, most: float | None = None) -> float: ...
    @overload
    def number(
        self, name: str, default: None = None, *, least: float | None = None, most: float | None = None
    ) -> float | None: ...
    def number(
        self, name: str, default: float | None = None, *, least: float | None = None, most: float | None = None
    ) -> float | None:
        """A number within bounds."""
        return self._read(name, default, lambda node: node.number(least=least, most=most))

    @overload
    def integer(self, name: str, default: int, *, least: int | None = None, most: int | None = None) -> int: ...
    @overload
    def integer(
        self, name: str, default: None = None, *, least: int | None = None, most: int | None = None
    ) -> int | None: ...
    def integer(
        self, name: str, default: int | None = None, *, least: int | None = None, most: int | None = None
    ) -> int | None:
        """A whole number within bounds."""
        return self._read(name, default, lambda node: node.integer(least=least, most=most))

    @overload
    def duration(
        self, name: str, default: float, *, least: float | None = None, above: float | None = None
    ) -> float: ...
    @overload
    def duration(
        self, name: str, default: None = None, *, least: float | None = None, above: float | None = None
    ) -> float | None: ...
    def duration(
        self, name: str, default: float | None = None, *, least: float | None = None, above: float | None = None
    ) -> float | None:
        """Seconds."""
        return self._read(name, default, lambda node: node.duration(least=least, above=above))

    @overload
    def size(self, name: str, default: int, *, least: int | None = None) -> int: ...
    @overload
    def size(self, name: str, default: None = None, *, least: int | None = None) -> int | None: ...
    def size(self, name: str, default: int | None = None, *, least: int | None = None) -> int | None:
        """Bytes."""
        return self._read(name, default, lambda node: node.size(least=least))

    @overload
    def choice(self, name: str, options: Collection[str], default: str) -> str: ...
    @overload
    def choice(self, name: str, options: Collection[str], default: None = None) -> str | None: ...
    def choice(self, name: str, options: Collection[str], default: str | None = None) -> str | None:
        """One of a few words."""
        return self._read(name, default, lambda node: node.choice(options))

    def texts(self, name: str, *, single: bool = False) -> tuple[str, ...]:
        """A list of text; empty where absent."""
        node = self._values.get(name)
        return () if node is None else node.texts(single=single)

    def text_mapping(self, name: str) -> dict[str, str]:
        """Text by text; empty where absent."""
        node = self._values.get(name)
        return {} if node is None else node.text_mapping()

    def sequence(self, name: str) -> tuple[Node, ...]:
        """Items of a list; empty where absent."""
        node = self._values.get(name)
        return () if node is None else node.sequence()

    def _read(self, name: str, default: T | None, read: Callable[[Node], T | None]) -> T | None:
        node = self._values.get(name)
        found = None if node is None else read(node)
        return default if found is None else found
