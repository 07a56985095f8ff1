"""The drill as a terminal app: four views of one position, and the same commands as in a pipe, on keys.

Whatever reads or computes values runs in a thread, one at a time; the screen stays alive, Esc breaks it off.
"""

from __future__ import annotations

import shlex
import threading
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import ClassVar, TypeVar

from rich.text import Text
from textual import work
from textual.app import App, ComposeResult, SystemCommand
from textual.binding import Binding, BindingType
from textual.screen import Screen
from textual.theme import Theme
from textual.widget import Widget
from textual.widgets import ContentSwitcher, DataTable, Footer, Input, Static, Tab, Tabs
from textual.worker import Worker, get_current_worker

from bisect_align.drill.commands import COMMANDS, Outcome, execute, parse
from bisect_align.drill.desk import Desk
from bisect_align.drill.dialogs import Asking, Reading
from bisect_align.drill.look import Sight, look
from bisect_align.drill.navigation import Position, Sort
from bisect_align.drill.pictures import DIM, STYLES, short
from bisect_align.drill.planes import turns
from bisect_align.drill.progress import Broken, Watched
from bisect_align.drill.saved import keep
from bisect_align.drill.start import Start
from bisect_align.drill.table import Filter, TableView
from bisect_align.drill.views import Go, GraphView, ProofView, Turn, ValueView, headline
from bisect_align.drill.wording import verdict_word
from bisect_align.errors import BisectAlignError, one_line
from bisect_align.result import files
from bisect_align.result.escape import visible
from bisect_align.result.result import State
from bisect_align.session.progress import Progress

T = TypeVar("T")

HINTS = {
    "graph": "Enter goes to a tensor, 1-4 change the view, : takes a command",
    "tensors": "Enter goes to a tensor, / filters, s sorts, 1-4 change the view",
    "values": "arrows move, [ ] next slice, v golden/target/error, t other axes, w worst",
    "proof": "arrows scroll, r replays the region, e writes it as a case, 1-4 change the view",
}
VIEWS = tuple(HINTS)
# Commands whose words are worth a window; the others only move.
_READ = {"why", "replay", "cut", "mark", "extract", "budget", "help", "worst"}
THEME = Theme(
    name="drill",
    primary="#4fb3bf",
    secondary="#7aa2f7",
    accent="#e0af68",
    foreground="#d7dce2",
    background="#14171c",
    surface="#181c22",
    panel="#232932",
    success="#8bc77b",
    warning="#e0af68",
    error="#f2686b",
    dark=True,
)


KEYS = """\
u d          up and down the graph (Enter goes to the tensor that is chosen)
n f w        next culprit, first BAD, worst tensor (in the values: worst element)
Backspace    back to where you were
y            why it is blamed, or why not
r R          replay this region on the target's values, on the golden's
+ -          begin the region a generation higher, and back
c ... c      cut: search again between two tensors
g b          mark as good or bad by hand, and search again
e            write this region as a case that runs alone
/ s          filter the tensors, sort them another way
v t          golden, target or error; other axes
[ ] arrows   another slice, another element
x            write the screen as a picture beside the result
:            a command; Ctrl+P all that need no further word
1 2 3 4      graph, tensors, values, proof; Esc breaks work off; q leaves"""


class DrillApp(App[None]):
    """The app of one result."""

    CSS_PATH = "app.tcss"
    ENABLE_COMMAND_PALETTE = True
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("u", "step('up')", "Up"),
        Binding("d", "step('down')", "Down"),
        Binding("n", "step('next')", "Next"),
        Binding("w", "worst", "Worst"),
        Binding("y", "step('why')", "Why"),
        Binding("r", "step('replay')", "Replay"),
        Binding("c", "cut", "Cut"),
        Binding("e", "step('extract')", "Repro"),
        Binding("slash", "filter", "Find", key_display="/"),
        Binding("question_mark", "keys", "Help", key_display="?"),
        Binding("q", "quit", "Quit"),
        Binding("f", "step('first')", "first BAD", show=False),
        Binding("R", "step('replay golden')", "replay on golden", show=False),
        Binding("plus", "step('widen')", "widen", show=False),
        Binding("minus", "step('narrow')", "narrow", show=False),
        Binding("g", "mark('good')", "mark good", show=False),
        Binding("b", "mark('bad')", "mark bad", show=False),
        Binding("s", "sort", "sort", show=False),
        Binding("x", "export", "export the view", show=False),
        Binding("colon", "ask", "command", show=False),
        Binding("backspace", "step('back')", "back", show=False),
        Binding("escape", "cancel", "cancel", show=False),
        *(Binding(str(at), f"view('{name}')", name, show=False) for at, name in enumerate(VIEWS, 1)),
    ]

    def __init__(self, start: Start) -> None:
        super().__init__()
        self.start = start
        self.position: Position = start.position
        self.desk: Desk = start.closed
        self.sight: Sight | None = None
        self.busy = False
        self._one_at_a_time = threading.Lock()

    def compose(self) -> ComposeResult:
        yield Static(id="verdict")
        yield Tabs(*(Tab(f"{at} {name.capitalize()}", id=name) for at, name in enumerate(VIEWS, 1)), id="tabs")
        yield Static(id="here")
        with ContentSwitcher(initial="graph", id="views"):
            yield GraphView(id="graph")
            yield TableView(id="tensors")
            yield ValueView(id="values")
            yield ProofView(id="proof")
        yield Static(id="message")
        yield Footer(compact=True, show_command_palette=False)

    def on_mount(self) -> None:
        self.title = "bisect-align drill"
        self.register_theme(THEME)
        self.theme = THEME.name
        self.query_one("#tabs", Tabs).can_focus = False
        self.query_one(GraphView).focus()
        self.say(self.start.note or HINTS[VIEWS[0]], bool(self.start.note))
        self.call_after_refresh(self.refresh_views)
        self._work("opening the run", self.start.open, self._opened)

    def on_resize(self) -> None:
        self.call_after_refresh(self.refresh_views)

    # --- what is shown ---------------------------------------------------------------------------------------------------------
    @property
    def view(self) -> str:
        return self.query_one("#views", ContentSwitcher).current or VIEWS[0]

    def refresh_views(self) -> None:
        """Draw what is in sight again."""
        width = max(self.size.width - 2, 20)
        culprits = len(self.start.result.culprits)
        blamed = f"{culprits} culprit{'s' * (culprits != 1)}" if culprits else "nobody is blamed"
        head = Text.assemble(verdict_word(self.start.result), f"  {blamed}  ", (short(str(self.start.folder), width - 40), DIM))
        self.query_one("#verdict", Static).update(head)
        self.query_one("#here", Static).update(headline(self.position, self.desk, self.sight, width))
        if self.view == "graph":
            self.query_one(GraphView).show(self.position, self.desk)
        elif self.view == "tensors":
            self.query_one(TableView).show(self.position, self.desk)
        elif self.view == "proof":
            self.query_one(ProofView).show(self.position, self.desk)
        else:
            self._show_values()

    def _show_values(self) -> None:
        seen = self.sight if self.sight is not None and self.sight.tensor == self.position.tensor else None
        note = f"no values: {self.desk.missing}" if self.desk.run is None else "reading values …"
        self.query_one(ValueView).show(self.position, seen, note)
        run, tensor = self.desk.run, self.position.tensor
        if seen is None and run is not None and not self.busy:
            self._work(f"values of {short(tensor, 40)}", lambda progress: look(tensor, run, progress), self._seen)

    def say(self, text: str, alarm: bool = False) -> None:
        """One line at the bottom."""
        line = Text(visible(one_line(text)), STYLES[State.UNKNOWN] if alarm else DIM)
        line.truncate(max(self.size.width - 2, 20), overflow="ellipsis")
        self.query_one("#message", Static).update(line)

    def stand(self, position: Position) -> None:
        """Be somewhere else from now on, also for the next drill."""
        if position != self.position:
            self.position = position
            if trouble := keep(self.start.shelf, position):
                self.say(trouble, alarm=True)
        self.refresh_views()

    # --- commands --------------------------------------------------------------------------------------------------------------
    def do(self, line: str) -> None:
        """A command as it would be typed."""
        try:
            name, _ = parse(line)
            if COMMANDS[name].slow:
                at = self.position
                self._work(
                    line, lambda progress: execute(line, at, replace(self.desk, progress=progress)), partial(self._done, line)
                )
            else:
                self._done(line, execute(line, self.position, self.desk))
        except BisectAlignError as error:
            self.say(str(error), alarm=True)

    def _done(self, line: str, outcome: Outcome) -> None:
        name, words = parse(line)
        if outcome.end:
            self.exit()
            return
        if name in ("find", "sort"):
            self.action_view("tensors")
        if name == "show":
            self.action_view("values")
        self.say("")
        self.stand(outcome.position)
        if name in _READ and not (name == "worst" and words):
            self.push_screen(Reading(line, outcome.text))

    # --- work in a thread ------------------------------------------------------------------------------------------------------
    def _work(self, what: str, job: Callable[[Progress], T], then: Callable[[T], None]) -> None:
        """Run a job aside and hand what it gives to `then`, unless it is broken off."""
        if self.busy:
            self.say("still at work; Esc breaks it off", alarm=True)
            return
        self.busy = True
        self._aside(what, job, then)

    @work(thread=True, group="work", exit_on_error=False)
    def _aside(self, what: str, job: Callable[[Progress], T], then: Callable[[T], None]) -> None:
        worker = get_current_worker()
        progress = Watched(what, lambda: worker.is_cancelled, lambda text: self._tell(worker, self.say, text))
        try:
            with self._one_at_a_time:  # what was broken off may still be in its last step
                made = job(progress)
        except Broken:
            return
        except Exception as error:  # nothing that a model or a dump holds may take the screen away
            said = str(error) if isinstance(error, BisectAlignError) else f"{type(error).__name__}: {error}"
            self._tell(worker, self._ended, partial(self.say, said, True))
            return
        self._tell(worker, self._ended, lambda: then(made))

    def _tell(self, worker: Worker[None], say: Callable[..., None], *words: object) -> None:
        """Speak to the screen from a thread, unless nobody waits for it any more."""
        if not worker.is_cancelled:
            self.call_from_thread(say, *words)

    def _ended(self, then: Callable[[], None]) -> None:
        self.busy = False
        then()

    def _opened(self, desk: Desk) -> None:
        self.desk = desk
        self.say(
            f"values cannot be had: {desk.missing}" if desk.run is None else self.start.note or HINTS[self.view], desk.run is None
        )
        self.refresh_views()

    def _seen(self, sight: Sight) -> None:
        self.sight = sight
        self.say(sight.trouble or HINTS[self.view], bool(sight.trouble))
        self.refresh_views()

    # --- keys ------------------------------------------------------------------------------------------------------------------
    def action_step(self, line: str) -> None:
        self.do(line)

    def action_view(self, name: str) -> None:
        self.query_one("#tabs", Tabs).active = name
        self.query_one("#views", ContentSwitcher).current = name
        focus: dict[str, type[Widget]] = {"graph": GraphView, "tensors": DataTable, "values": ValueView, "proof": ProofView}
        self.query_one(focus[name]).focus()
        if not self.busy:
            self.say(HINTS[name])
        self.call_after_refresh(self.refresh_views)

    def action_worst(self) -> None:
        """In the values: to the worst element. Elsewhere: to the worst tensor."""
        if self.view != "values":
            self.do("worst tensor")
        elif self.sight is not None and self.sight.found is not None and self.sight.found.worst:
            self.stand(replace(self.position, element=self.sight.found.worst[0].index))

    def action_mark(self, state: str) -> None:
        self.do(f"mark {state}")

    def action_cut(self) -> None:
        """The first press sets one end, the second one cuts between the two, whichever stands above."""
        here, anchor = self.position.tensor, self.position.anchor
        if not anchor or anchor == here:
            self.stand(replace(self.position, anchor="" if anchor else here))
            self.say(
                "one end of the cut is here: go to the other end and press c again" if not anchor else "the cut is forgotten"
            )
            return
        places = self.desk.terrain.places
        top, bottom = sorted((anchor, here), key=places.index)
        self.do(f"cut {shlex.quote(top)} {shlex.quote(bottom)}")

    def action_sort(self) -> None:
        orders = list(Sort)
        self.do(f"sort {orders[(orders.index(self.position.sort) + 1) % len(orders)]}")

    def action_filter(self) -> None:
        self.action_view("tensors")
        self.query_one("#filter", Input).focus()

    def action_keys(self) -> None:
        self.push_screen(Reading("keys", Text(KEYS)))

    def action_export(self) -> None:
        """The screen as a picture beside the result."""
        file = self.start.folder / f"drill-{self.view}.svg"
        try:
            files.replace_text(file, self.export_screenshot())
            self.say(f"written: {file}")
        except BisectAlignError as error:
            self.say(str(error), alarm=True)

    def action_ask(self) -> None:
        self.push_screen(Asking(), lambda line: self.do(line) if line else None)

    def action_cancel(self) -> None:
        if self.busy:
            self.workers.cancel_group(self, "work")
            self.busy = False
            self.say("broken off")
        elif self.view == "tensors":
            self.query_one("#filter", Input).value = ""
            self.query_one(DataTable).focus()
            self.stand(replace(self.position, query=""))

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """The command palette: every command that needs no further word."""
        for name, command in COMMANDS.items():
            if "TENSOR" not in command.usage.replace("[TENSOR]", "") and name not in ("find", "sort", "mark"):
                yield SystemCommand(name, command.help, partial(self.do, name))

    # --- what the views say ----------------------------------------------------------------------------------------------------
    def on_tabs_tab_activated(self, event: Tabs.TabActivated) -> None:
        if event.tab.id is not None and event.tab.id != self.view:
            self.action_view(event.tab.id)

    def on_go(self, message: Go) -> None:
        self.do(f"go {shlex.quote(message.tensor)}")

    def on_filter(self, message: Filter) -> None:
        if message.query != self.position.query:
            self.stand(replace(self.position, query=message.query))

    def on_turn(self, message: Turn) -> None:
        position = self.position
        if message.element is not None:
            position = replace(position, element=message.element)
        if message.side is not None:
            position = replace(position, side=message.side)
        if message.turn and self.sight is not None:
            position = replace(position, turn=(position.turn + 1) % turns(self.sight.shape))
        self.stand(position)
