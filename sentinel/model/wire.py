"""Nouns to plain JSON and back: one codec for the journal, the API and the store.

A dataclass becomes an object with its field names, an enum its value, a tuple
a list, `Labels` an object. Reading ignores keys it does not know, so that an
older program understands a newer one, and takes the default for keys that are
absent.
"""

from __future__ import annotations

import dataclasses
import functools
import types
import typing
from collections.abc import Mapping
from enum import Enum
from typing import Any, TypeVar

from sentinel.model.labels import Labels

T = TypeVar("T")


class WireError(ValueError):
    """Data that does not have the shape of the noun it should be."""


def encode(value: Any) -> Any:
    """`value` as plain JSON data. NaN and infinities become None."""
    if value is None or isinstance(value, str | bool | int):
        return value.value if isinstance(value, Enum) else value
    if isinstance(value, float):
        return value if value - value == 0 else None
    if isinstance(value, Enum):
        return value.value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {name: encode(getattr(value, name)) for name in _names(type(value))}
    if isinstance(value, Mapping):
        return {str(key): encode(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [encode(item) for item in value]
    raise WireError(f"{type(value).__name__} has no JSON form")


def decode(cls: type[T], data: Any) -> T:
    """Data made by `encode` as a `cls` again.

    Raises:
        WireError: A required field is absent, or a value has the wrong type;
            the message names the field.
    """
    return typing.cast("T", _decode(cls, data, cls.__name__))


@functools.cache
def _names(cls: type) -> tuple[str, ...]:
    return tuple(field.name for field in dataclasses.fields(cls))


@functools.cache
def _hints(cls: type) -> dict[str, Any]:
    return typing.get_type_hints(cls)


def _decode(kind: Any, data: Any, where: str) -> Any:
    origin = typing.get_origin(kind)
    if kind is Any or kind is object:
        return data
    if origin in (typing.Union, types.UnionType):
        options = typing.get_args(kind)
        if data is None and type(None) in options:
            return None
        return _decode(next(option for option in options if option is not type(None)), data, where)
    if origin is tuple:
        arguments = typing.get_args(kind)
        if not isinstance(data, list | tuple):
            raise WireError(f"{where} must be a list, not {type(data).__name__}")
        if len(arguments) == 2 and arguments[1] is Ellipsis:
            return tuple(_decode(arguments[0], item, where) for item in data)
        if len(arguments) != len(data):
            raise WireError(f"{where} must have {len(arguments)} items, not {len(data)}")
        return tuple(_decode(argument, item, where) for argument, item in zip(arguments, data, strict=True))
    if origin in (dict, Mapping, types.MappingProxyType):
        return dict(_plain(dict, data, where))
    if isinstance(kind, type):
        if kind is Labels:
            return Labels(_plain(dict, data, where))
        if issubclass(kind, Enum):
            try:
                return kind(data)
            except ValueError:
                known = ", ".join(str(member.value) for member in kind)
                raise WireError(f"{where} is {data!r}; expected one of {known}") from None
        if dataclasses.is_dataclass(kind):
            return _object(kind, _plain(dict, data, where), where)
        if kind is float and isinstance(data, int) and not isinstance(data, bool):
            return float(data)
        if kind is float and data is None:
            return float("nan")
        return _plain(kind, data, where)
    raise WireError(f"{where} has a type that cannot be read: {kind}")


def _object(cls: Any, data: dict[str, Any], where: str) -> Any:
    hints = _hints(cls)
    values: dict[str, Any] = {}
    for field in dataclasses.fields(cls):
        if field.name in data:
            values[field.name] = _decode(hints[field.name], data[field.name], f"{where}.{field.name}")
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise WireError(f"{where}.{field.name} is required")
    return cls(**values)


def _plain(kind: Any, data: Any, where: str) -> Any:
    if isinstance(data, kind) and not (kind is int and isinstance(data, bool)):
        return data
    raise WireError(f"{where} must be {getattr(kind, '__name__', kind)}, not {type(data).__name__}")
