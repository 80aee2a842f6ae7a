"""Reading a pickle without running it: an outline of what would be built.

The opcodes are followed on a stack of plain stand-ins. Nothing is imported and
nothing is called; what a pickle would call is only named. Work and memory are
bounded, whatever the file says about itself.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, Protocol

DEFAULT_OPERATIONS = 150_000
"""How many opcodes a quick look follows: the outline of a thousand parameters with their optimizer."""
_CHUNK_BYTES = 1 << 16
_LONGEST_TEXT = 4096
_LONGEST_LINE = 1 << 16
_MOST_NAMES = 4096


class ReadAt(Protocol):
    """Where the bytes come from."""

    def __call__(self, offset: int, size: int, /) -> bytes:
        """At most `size` bytes at `offset`; fewer only at the end."""
        ...


class End(Enum):
    """How the reading of a pickle ended."""

    COMPLETE = auto()  # at its STOP
    TRUNCATED = auto()  # the bytes ended first
    MALFORMED = auto()  # no pickle, or not any more
    BOUNDED = auto()  # there is more than we were willing to follow


@dataclass(slots=True, eq=False)
class Map:
    """A dict that would be built. Keys are whatever they are; look up by text only."""

    pairs: list[tuple[Any, Any]] = field(default_factory=list)

    def get(self, key: str) -> Any:
        """The last value under a textual key, or None."""
        for found, value in reversed(self.pairs):
            if isinstance(found, str) and found == key:
                return value
        return None

    def keys(self) -> list[str]:
        """Its textual keys, in order, each once."""
        return list(dict.fromkeys(key for key, _ in self.pairs if isinstance(key, str)))


@dataclass(slots=True, eq=False)
class Made:
    """What a call would have made.

    Attributes:
        callee: `module.name` of what would be called, or "" where it is computed.
        arguments: As they stand on the stack.
        items: What is put into it by key or in order.
        state: What it is told to become.
    """

    callee: str
    arguments: Any = ()
    items: Map = field(default_factory=Map)
    state: Any = None


@dataclass(frozen=True, slots=True, eq=False)
class Name:
    """A class or function that would be imported."""

    name: str


@dataclass(frozen=True, slots=True, eq=False)
class Skipped:
    """Bytes or text too long to keep."""

    size: int


@dataclass(frozen=True, slots=True, eq=False)
class Persistent:
    """Something kept outside the pickle, such as the storage of a tensor."""

    id: Any


@dataclass(frozen=True, slots=True)
class Storage:
    """A tensor's storage that a pickle of torch refers to."""

    kind: str
    elements: int


@dataclass(slots=True)
class Outline:
    """What is known of a pickle.

    Attributes:
        root: What would be built; where the reading was bounded or broke off, the
            outermost thing that was under way.
        end: How the reading ended.
        stop: The offset behind its STOP, or behind what was read.
        names: What it would import, at most some thousands.
        storages: By their keys.
    """

    root: Any
    end: End
    stop: int
    names: set[str]
    storages: dict[str, Storage]


class _Truncated(Exception):
    pass


class _Malformed(Exception):
    pass


def outline(read: ReadAt, size: int, *, start: int = 0, operations: int = DEFAULT_OPERATIONS) -> Outline:
    """Follow one pickle that begins at `start`.

    Args:
        read: Gives its bytes. OSError passes through.
        size: How many bytes there are.
        start: Where it begins.
        operations: How many opcodes are followed at most.
    """
    machine = _Machine(read, size, start)
    end = machine.run(operations)
    return Outline(machine.root(), end, machine.at, machine.names, machine.storages)


class _Machine:
    """A stack machine over stand-ins."""

    def __init__(self, read: ReadAt, size: int, start: int) -> None:
        self._read = read
        self._size = size
        self._chunk = b""
        self._base = start
        self._here = 0
        self.names: set[str] = set()
        self.storages: dict[str, Storage] = {}
        self._stack: list[Any] = []
        self._below: list[list[Any]] = []
        self._memo: dict[int, Any] = {}
        self._table = self._operations()

    @property
    def at(self) -> int:
        """The offset of the next byte."""
        return self._base + self._here

    def run(self, operations: int) -> End:
        """Until the end, one way or another."""
        table = self._table
        try:
            for _ in range(operations):
                if self._here < len(self._chunk):
                    code = self._chunk[self._here]
                    self._here += 1
                else:
                    code = self._take(1)[0]
                if code == 0x2E:  # STOP
                    return End.COMPLETE
                operation = table.get(code)
                if operation is None:
                    return End.MALFORMED
                operation()
        except _Truncated:
            return End.TRUNCATED
        except (_Malformed, IndexError, ValueError):
            return End.MALFORMED
        return End.BOUNDED

    def root(self) -> Any:
        """The result; or the outermost thing under way, with what was already put aside for it."""
        if not self._below:
            return self._stack[-1] if self._stack else None
        levels = [*self._below, self._stack]
        outer = levels[0][-1] if levels[0] else None
        # Items between a mark and their SETITEMS lie on the stack still: hand them in, innermost first.
        for depth in range(len(levels) - 1, 0, -1):
            holder = levels[depth - 1][-1] if levels[depth - 1] else None
            pending = levels[depth]
            if isinstance(holder, Map | Made):
                target = holder if isinstance(holder, Map) else holder.items
                target.pairs.extend(zip(pending[::2], [*pending[1::2], Skipped(0)], strict=False))
        return outer

    # Bytes

    def _take(self, count: int) -> bytes:
        end = self._here + count
        if end > len(self._chunk):
            self._refill(count)
            end = self._here + count
        found = self._chunk[self._here : end]
        self._here = end
        return found

    def _refill(self, count: int) -> None:
        offset = self.at
        if offset + count > self._size:
            raise _Truncated
        chunk = self._read(offset, max(count, min(_CHUNK_BYTES, self._size - offset)))
        if len(chunk) < count:
            raise _Truncated
        self._chunk, self._base, self._here = chunk, offset, 0

    def _skip(self, count: int) -> None:
        if count < 0:
            raise _Malformed
        if self.at + count > self._size:
            raise _Truncated
        if self._here + count <= len(self._chunk):
            self._here += count
        else:
            self._base, self._chunk, self._here = self.at + count, b"", 0

    def _line(self) -> str:
        found = bytearray()
        while len(found) <= _LONGEST_LINE:
            byte = self._take(1)
            if byte == b"\n":
                return found.decode("utf-8", "replace")
            found += byte
        raise _Malformed

    def _text(self, count: int) -> Any:
        if count > _LONGEST_TEXT:
            self._skip(count)
            return Skipped(count)
        return self._take(count).decode("utf-8", "replace")

    def _bytes(self, count: int) -> Any:
        self._skip(count)
        return Skipped(count)

    def _number(self, form: str) -> int:
        found: int = struct.unpack(form, self._take(struct.calcsize(form)))[0]
        return found

    # The stack

    def _push(self, value: Any) -> None:
        self._stack.append(value)

    def _mark(self) -> None:
        self._below.append(self._stack)
        self._stack = []

    def _to_mark(self) -> list[Any]:
        found = self._stack
        self._stack = self._below.pop()
        return found

    def _pop(self) -> None:
        if self._stack:
            self._stack.pop()
        else:
            self._to_mark()

    def _tuple(self, count: int) -> None:
        if len(self._stack) < count:
            raise _Malformed
        parts = tuple(self._stack[len(self._stack) - count :])
        del self._stack[len(self._stack) - count :]
        self._push(parts)

    def _set_items(self, flat: list[Any]) -> None:
        target = self._stack[-1]
        if isinstance(target, Made):
            target = target.items
        if isinstance(target, Map):
            target.pairs.extend(zip(flat[::2], flat[1::2], strict=False))

    def _add(self, values: list[Any]) -> None:
        target = self._stack[-1]
        if isinstance(target, list):
            target.extend(values)
        elif isinstance(target, Made):
            target.items.pairs.extend((index, value) for index, value in enumerate(values))

    def _remember(self, index: int) -> None:
        self._memo[index] = self._stack[-1]

    def _recall(self, index: int) -> None:
        if index not in self._memo:
            raise _Malformed
        self._push(self._memo[index])

    # What would import and call

    def _named(self, module: Any, name: Any) -> None:
        full = f"{module}.{name}" if isinstance(module, str) and isinstance(name, str) else "?.?"
        if len(self.names) < _MOST_NAMES:
            self.names.add(full[:512])
        self._push(Name(full[:512]))

    def _call(self, *, keywords: bool = False) -> None:
        if keywords:
            self._stack.pop()
        arguments = self._stack.pop()
        callee = self._stack.pop()
        self._push(_made(callee, arguments))

    def _instance(self) -> None:
        module, name = self._line(), self._line()
        self._named(module, name)
        callee = self._stack.pop()
        self._push(_made(callee, tuple(self._to_mark())))

    def _object(self) -> None:
        parts = self._to_mark()
        self._push(_made(parts[0], tuple(parts[1:])))

    def _build(self) -> None:
        state = self._stack.pop()
        if self._stack and isinstance(self._stack[-1], Made):
            self._stack[-1].state = state

    def _persistent(self, identity: Any) -> None:
        # torch: ('storage', its type, key, location, number of elements, …)
        if isinstance(identity, tuple) and len(identity) >= 5 and identity[0] == "storage":
            _, kind, key, _, elements = identity[:5]
            if isinstance(key, str) and isinstance(elements, int) and isinstance(kind, Name):
                self.storages[key] = Storage(kind.name.rpartition(".")[2], elements)
        self._push(Persistent(identity))

    def _operations(self) -> dict[int, Callable[[], Any]]:
        push, take, number = self._push, self._take, self._number

        def decimal() -> None:
            text = self._line()
            push(text == "01" if text in {"00", "01"} else int(text))

        def long(size: int) -> None:
            push(int.from_bytes(take(size), "little", signed=True) if size <= 64 else self._bytes(size))

        def popped(then: Callable[[Any], None]) -> Callable[[], None]:
            return lambda: then(self._stack.pop())

        def set_item() -> None:
            value, key = self._stack.pop(), self._stack.pop()
            self._set_items([key, value])

        def stack_global() -> None:
            name, module = self._stack.pop(), self._stack.pop()
            self._named(module, name)

        by_character: dict[str, Callable[[], Any]] = {
            "(": self._mark,
            "0": self._pop,
            "1": self._to_mark,
            "2": lambda: push(self._stack[-1]),
            "F": lambda: push(float(self._line())),
            "I": decimal,
            "J": lambda: push(number("<i")),
            "K": lambda: push(take(1)[0]),
            "L": lambda: push(int(self._line().rstrip("L"))),
            "M": lambda: push(number("<H")),
            "N": lambda: push(None),
            "P": lambda: self._persistent(self._line()),
            "Q": popped(self._persistent),
            "R": self._call,
            "S": lambda: push(self._line().strip("'\"")),
            "T": lambda: push(self._text(number("<I"))),
            "U": lambda: push(self._text(take(1)[0])),
            "V": lambda: push(self._line()),
            "X": lambda: push(self._text(number("<I"))),
            "a": popped(lambda value: self._add([value])),
            "b": self._build,
            "c": lambda: self._named(self._line(), self._line()),
            "d": lambda: push(_map_of(self._to_mark())),
            "}": lambda: push(Map()),
            "e": lambda: self._add(self._to_mark()),
            "g": lambda: self._recall(int(self._line())),
            "h": lambda: self._recall(take(1)[0]),
            "i": self._instance,
            "j": lambda: self._recall(number("<I")),
            "l": lambda: push(self._to_mark()),
            "]": lambda: push([]),
            "o": self._object,
            "p": lambda: self._remember(int(self._line())),
            "q": lambda: self._remember(take(1)[0]),
            "r": lambda: self._remember(number("<I")),
            "s": set_item,
            "t": lambda: push(tuple(self._to_mark())),
            ")": lambda: push(()),
            "u": lambda: self._set_items(self._to_mark()),
            "G": lambda: push(struct.unpack(">d", take(8))[0]),
            "B": lambda: push(self._bytes(number("<I"))),
            "C": lambda: push(self._bytes(take(1)[0])),
        }
        by_code: dict[int, Callable[[], Any]] = {
            0x80: lambda: take(1),  # PROTO
            0x81: self._call,  # NEWOBJ
            0x82: lambda: push(Name(f"extension.{take(1)[0]}")),
            0x83: lambda: push(Name(f"extension.{number('<H')}")),
            0x84: lambda: push(Name(f"extension.{number('<i')}")),
            0x85: lambda: self._tuple(1),
            0x86: lambda: self._tuple(2),
            0x87: lambda: self._tuple(3),
            0x88: lambda: push(True),
            0x89: lambda: push(False),
            0x8A: lambda: long(take(1)[0]),
            0x8B: lambda: long(max(0, number("<i"))),
            0x8C: lambda: push(self._text(take(1)[0])),
            0x8D: lambda: push(self._text(number("<Q"))),
            0x8E: lambda: push(self._bytes(number("<Q"))),
            0x8F: lambda: push([]),  # EMPTY_SET
            0x90: lambda: self._add(self._to_mark()),  # ADDITEMS
            0x91: lambda: push(self._to_mark()),  # FROZENSET
            0x92: lambda: self._call(keywords=True),  # NEWOBJ_EX
            0x93: stack_global,
            0x94: lambda: self._remember(len(self._memo)),
            0x95: lambda: take(8),  # FRAME
            0x96: lambda: push(self._bytes(number("<Q"))),  # BYTEARRAY8
            0x97: lambda: push(Skipped(0)),  # NEXT_BUFFER
            0x98: lambda: None,  # READONLY_BUFFER
        }
        return {**{ord(character): operation for character, operation in by_character.items()}, **by_code}


def _made(callee: Any, arguments: Any) -> Made:
    return Made(callee.name if isinstance(callee, Name) else "", arguments)


def _map_of(flat: list[Any]) -> Map:
    return Map(list(zip(flat[::2], flat[1::2], strict=False)))


def children(value: Any) -> Iterator[tuple[str, Any]]:
    """What lies directly inside a stand-in, by textual key: items, the state of an object, a dict's content."""
    if isinstance(value, Map):
        yield from ((key, inner) for key, inner in value.pairs if isinstance(key, str))
    elif isinstance(value, Made):
        yield from children(value.items)
        yield from children(value.state)
        if isinstance(value.state, tuple):  # (state, slots)
            for part in value.state:
                yield from children(part)


def is_empty(value: Any) -> bool:
    """Whether there is nothing in it: None, or a container without content."""
    if isinstance(value, Map):
        return not value.pairs
    if isinstance(value, Made):
        return not value.items.pairs and value.state is None and value.callee.endswith("OrderedDict")
    return value is None or (isinstance(value, list | tuple | str) and not value)


_RUNS_CODE = (
    "os.", "posix.", "nt.", "subprocess.", "pty.", "socket.", "shutil.", "runpy.", "importlib.", "ctypes.",
    "webbrowser.", "popen2.", "commands.", "pip._internal", "timeit.", "pdb.", "bdb.", "sys.", "pickle.", "_pickle.",
)  # fmt: skip
_BUILTINS = frozenset(
    f"{module}.{name}"
    for module in ("builtins", "__builtin__", "__builtins__")
    for name in ("eval", "exec", "compile", "__import__", "open", "input", "execfile", "breakpoint", "apply", "globals")
)


def dangerous(names: set[str]) -> list[str]:
    """Those of the names whose call runs programs or code: no training state needs them."""
    return sorted(name for name in names if name in _BUILTINS or name.startswith(_RUNS_CODE))
