"""A list of one-line rows with a cursor, drawn only where it is seen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from sentinel.tui.text import FAINT

_CURSOR = Style(bgcolor="#233044")
_CURSOR_AWAY = Style(bgcolor="#19212c")


@dataclass(frozen=True, slots=True)
class Row:
    """One line; `key` says what it is about ("" cannot be selected)."""

    key: str
    text: Text


class Rows(ScrollView, can_focus=True):
    """Rows under an optional head that stays in sight.

    Subclasses say in `build` what stands in them for a width. The cursor stays
    on the same thing when rows come and go above it.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", "Up", show=False),
        Binding("down,j", "move(1)", "Down", show=False),
        Binding("pageup", "move(-10)", "Page up", show=False),
        Binding("pagedown", "move(10)", "Page down", show=False),
        Binding("home", "move(-1000000)", "First", show=False),
        Binding("end", "move(1000000)", "Last", show=False),
    ]
    DEFAULT_CSS = """
    Rows { scrollbar-size: 1 1; scrollbar-size-horizontal: 0; overflow-x: hidden; }
    """
    tail: ClassVar[bool] = False
    """Whether it keeps to its end, as a log does, until the user scrolls up; at the end again it goes on."""
    picks: ClassVar[bool] = True
    """Whether it has a cursor; without one the keys scroll."""
    empty: ClassVar[str] = ""
    """What it says without rows."""

    class Moved(Message):
        """The cursor is on another thing."""

        def __init__(self, rows: Rows, key: str) -> None:
            super().__init__()
            self.rows = rows
            self.key = key

        @property
        def control(self) -> Rows:
            """The list."""
            return self.rows

    class Opened(Moved):
        """A row was clicked twice."""

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:  # noqa: A002 - textual's name
        super().__init__(id=id, classes=classes)
        self._head: Text | None = None
        self._rows: Sequence[Row] = ()
        self.key = ""
        self._follows = self.tail

    def build(self, width: int) -> tuple[Text | None, Sequence[Row]]:
        """The head and the rows for `width` cells."""
        raise NotImplementedError

    def rebuild(self) -> None:
        """Ask `build` again, after the data or the width has changed."""
        width = self.scrollable_content_region.width or self.content_size.width
        if width <= 0:
            return
        was = self._index()
        self._head, self._rows = self.build(width)
        keys = [row.key for row in self._rows]
        if self.picks and self.key not in keys:
            left = [key for key in keys if key]
            before = self.key
            self.key = keys[min(was, len(keys) - 1)] if keys and was is not None else (left[0] if left else "")
            if self.key != before:
                self.post_message(self.Moved(self, self.key))
        self.virtual_size = Size(width, len(self._rows) + (1 if self._head else 0))
        if self._follows:
            self.call_after_refresh(self._to_the_end)
        self.refresh()

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """Only a user scrolls up from the end; other sizes leave it at the end, or do not move it."""
        super().watch_scroll_y(old_value, new_value)
        self._follows = self.tail and (new_value >= self.max_scroll_y or (self._follows and new_value >= old_value))

    def on_resize(self) -> None:
        """The width decides what fits."""
        self.rebuild()

    def on_mount(self) -> None:
        """Show the empty list."""
        self.call_after_refresh(self.rebuild)

    def render_line(self, y: int) -> Strip:
        """One line of what is in sight."""
        width = self.size.width
        base = self.rich_style
        if self._head is not None and y == 0:
            return self._strip(self._head, width, base)
        index = self.scroll_offset.y + y - (1 if self._head else 0)
        if not self._rows and index == 0 and self.empty:
            return self._strip(Text(self.empty, FAINT if self.disabled else "#7d8793", end=""), width, base)
        if not 0 <= index < len(self._rows):
            return Strip.blank(width, base)
        row = self._rows[index]
        if self.picks and row.key and row.key == self.key:
            base += _CURSOR if self.has_focus else _CURSOR_AWAY
        return self._strip(row.text, width, base)

    def action_move(self, by: int) -> None:
        """Move the cursor, or scroll where there is none."""
        if not self.picks:
            self.scroll_relative(y=by, animate=False)
            return
        keys = [row.key for row in self._rows]
        if not any(keys):
            return
        self._go(max(0, min(len(keys) - 1, (self._index() or 0) + by)))

    def on_click(self, event: events.Click) -> None:
        """A click picks, a second opens."""
        offset = event.get_content_offset(self)
        if offset is None or not self.picks:
            return
        index = self.scroll_offset.y + offset.y - (1 if self._head else 0)
        if 0 <= index < len(self._rows) and (offset.y > 0 or self._head is None):
            self._go(index)
            if event.chain > 1 and self.key:
                self.post_message(self.Opened(self, self.key))

    def _to_the_end(self) -> None:
        if self._follows:
            self.scroll_end(animate=False, immediate=True)

    def _go(self, index: int) -> None:
        self.key = self._rows[index].key
        line = index + (1 if self._head else 0)
        top = 1 if self._head else 0
        self.scroll_to_region(Region(0, line - top, 1, 1 + top), animate=False, force=True)
        self.refresh()
        self.post_message(self.Moved(self, self.key))

    def _index(self) -> int | None:
        return next((index for index, row in enumerate(self._rows) if row.key and row.key == self.key), None)

    def _strip(self, text: Text, width: int, base: Style) -> Strip:
        segments = [
            Segment(segment.text, segment.style) for segment in text.render(self.app.console) if not segment.control
        ]
        return Strip(segments).adjust_cell_length(width).apply_style(base)
