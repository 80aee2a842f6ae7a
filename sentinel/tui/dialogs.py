"""What lies over a page: the help, and the question before something that harms."""

from __future__ import annotations

from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static

from sentinel.tui.text import ASKED, BAD, CALM, DIM, GOOD, PLAIN, WARN

_KEYS = (
    ("↑ ↓  j k", "another job"),
    ("enter", "the job's page;  escape  goes back"),
    ("tab", "jobs, alerts, events"),
    ("c", "ask for a checkpoint"),
    ("d", "ask to degrade: use less, one step"),
    ("r", "ask to restore: one step back up"),
    ("p", "pause or resume its processes"),
    ("s", "stop it: checkpoint, TERM, then KILL"),
    ("a", "acknowledge: the alert, or those of the job"),
    ("+ -", "more or less time in the chart"),
    ("q", "quit; jobs and daemon go on"),
)
_SIGNS = (
    ("▲ △", BAD, "fires; pending"),
    ("▲", GOOD, "in a chart: checkpoint"),
    ("◆", ASKED, "in a chart: request"),
    ("╌", BAD, "the limit that kills"),
    ("0/1", WARN, "degraded steps of those there are"),
)


class Dialog(ModalScreen[bool]):
    """A box over the page."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,question_mark,enter", "answer(False)", "Back"),
    ]

    def words(self) -> Text:
        """What it says."""
        raise NotImplementedError

    def compose(self) -> ComposeResult:
        """One box."""
        with VerticalScroll(id="box"):
            yield Static(self.words(), id="words")

    def action_answer(self, answer: bool) -> None:
        """Close it."""
        self.dismiss(answer)


class Help(Dialog):
    """The keys and the signs."""

    def words(self) -> Text:
        """Two columns."""
        lines = [Text.assemble((f"{keys:<11}", f"bold {CALM}"), (said, PLAIN)) for keys, said in _KEYS]
        lines.append(Text(""))
        lines += [Text.assemble((f"{sign:<11}", f"bold {style}"), (said, DIM)) for sign, style, said in _SIGNS]
        return Text("\n").join(lines)


class Confirm(Dialog):
    """Asks before something that harms; only y does it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer(True)", "Yes"),
        Binding("n,escape,q,enter", "answer(False)", "No"),
    ]

    def __init__(self, question: str, consequence: str) -> None:
        super().__init__()
        self._question = question
        self._consequence = consequence

    def words(self) -> Text:
        """The question, what follows, the keys."""
        return Text.assemble(
            (self._question, f"bold {PLAIN}"),
            "\n",
            (self._consequence, DIM),
            "\n\n",
            ("y", f"bold {BAD}"),
            (" yes   ", PLAIN),
            ("n", f"bold {CALM}"),
            (" no", PLAIN),
        )
