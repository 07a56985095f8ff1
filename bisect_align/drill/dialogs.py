"""What lies over the views for a moment: the text of a command, and the line to type one in."""

from __future__ import annotations

from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Input, Static


class Reading(ModalScreen[None]):
    """A text to read; Esc, Enter or q closes it."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,enter,q,space", "close", "close")]

    def __init__(self, title: str, text: Text) -> None:
        super().__init__()
        self._title, self._text = title, text

    def compose(self) -> ComposeResult:
        box = Vertical(VerticalScroll(Static(self._text)), classes="box")
        box.border_title = Text(self._title)
        box.border_subtitle = "Esc closes"
        yield box

    def action_close(self) -> None:
        self.dismiss(None)


class Asking(ModalScreen[str]):
    """A line for a command; answers with it, or with "" where the user has changed their mind."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "close", "close")]

    def __init__(self, line: str = "") -> None:
        super().__init__()
        self._line = line

    def compose(self) -> ComposeResult:
        line = Input(self._line, placeholder="why, cut A B, show 0,7,:,:, find relu, help …", select_on_focus=False)
        box = Vertical(line, classes="line")
        box.border_title = "command"
        yield box

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self.dismiss(event.value.strip())

    def action_close(self) -> None:
        self.dismiss("")
