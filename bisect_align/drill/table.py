"""The table of tensors under the curve of their errors: a window of rows, so that models of any length open at once."""

from __future__ import annotations

from rich.text import Text
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.message import Message
from textual.widgets import DataTable, Input, Static

from bisect_align.drill.desk import Desk
from bisect_align.drill.navigation import Position, error, listed, state
from bisect_align.drill.pictures import DIM, SIGNS, STYLES, TAG, curve, short
from bisect_align.drill.terrain import Terrain
from bisect_align.drill.views import Go
from bisect_align.drill.wording import lines_of
from bisect_align.report.figures import number
from bisect_align.result.escape import visible

WINDOW = 300  # rows in the table at a time: it takes a millisecond to make one
_REST = 48  # columns of all but the names and the numbers of the tensors


class Filter(Message):
    """The user has typed a filter for the table."""

    def __init__(self, query: str) -> None:
        super().__init__()
        self.query = query


class TableView(Vertical):
    """Enter goes to the tensor of the row; rows beyond the window come as the cursor reaches its edge."""

    def __init__(self, id: str) -> None:
        super().__init__(id=id)
        self._shown: object = None
        self._names: tuple[str, ...] = ()
        self._window = range(0)
        self._seen: tuple[Position, Terrain] | None = None

    def compose(self) -> ComposeResult:
        yield Static(id="curve")
        yield Input(placeholder="filter: part of a name, op:Conv, good, bad, unknown", id="filter", compact=True)
        yield DataTable(cursor_type="row", zebra_stripes=True, id="tensors", cell_padding=1)

    def show(self, position: Position, desk: Desk) -> None:
        """Fill the table where it has changed, and put the cursor on the position's tensor."""
        terrain = desk.terrain
        self._seen = position, terrain
        box = self.query_one("#filter", Input)
        if not box.has_focus:  # else its user is ahead of the position
            box.value = position.query
        known = (position.query, position.sort, position.marks, position.learnt, id(terrain), self.size.width)
        if changed := known != self._shown:
            self._shown, self._names = known, listed(position, terrain)
        at = self._names.index(position.tensor) if position.tensor in self._names else 0
        if changed or at not in self._window:
            self._fill(at)
        self._draw_curve(position, terrain)
        self.query_one(DataTable).move_cursor(row=at - self._window.start)

    def _fill(self, at: int) -> None:
        """The rows around one of them."""
        if self._seen is None:
            return
        (position, terrain), table = self._seen, self.query_one(DataTable)
        first = max(min(at - WINDOW // 2, len(self._names) - WINDOW), 0)
        self._window = range(first, min(first + WINDOW, len(self._names)))
        digits = max(len(str(len(terrain.rows))), 2)
        name = max(self.size.width - _REST - digits, 14)
        table.clear(columns=True)
        for title, room in (("state", 9), ("#", digits), ("tensor", name), ("op", 12), ("rel L2", 8), ("score", 8)):
            right = title in ("#", "rel L2", "score")
            table.add_column(Text(title, DIM, justify="right" if right else "left"), width=room, key=title)
        for tensor in self._names[first : self._window.stop]:
            row, now = terrain.rows[tensor], state(position, terrain, tensor)
            tag = "●" if tensor in terrain.culprits else "◦" if tensor in terrain.suspects else " "
            table.add_row(
                Text(f"{SIGNS[now]} {now.lower()}", STYLES[now]),
                Text(str(row.order), DIM, justify="right"),
                Text.assemble((tag, TAG), short(tensor, name - 1)),
                Text(visible(row.op), overflow="ellipsis", no_wrap=True),
                Text(number(error(position, terrain, tensor)), justify="right"),
                Text(number(row.score), justify="right"),
            )

    def _draw_curve(self, position: Position, terrain: Terrain) -> None:
        points = [(error(position, terrain, n), state(position, terrain, n)) for n in terrain.rows]
        here = terrain.rows[position.tensor].order if position.tensor in terrain.rows else None
        line = curve(points, here, max(self.size.width - 2, 20))
        counts = f"   {len(self._names)} of {len(points)}, by {position.sort}"
        head = Text.assemble(("error along the graph", DIM), counts, ("   ● culprit", TAG))
        self.query_one("#curve", Static).update(lines_of([line, head]))

    def on_data_table_row_highlighted(self, event: DataTable.RowHighlighted) -> None:
        event.stop()
        at, window = self._window.start + event.cursor_row, self._window
        if event.cursor_row != event.data_table.cursor_row:
            return  # of a row that is gone by now
        beyond = (at == window.start and at > 0) or (at == window.stop - 1 and window.stop < len(self._names))
        if window and beyond:
            self._fill(at)
            self.query_one(DataTable).move_cursor(row=at - self._window.start)

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        event.stop()
        if event.cursor_row < len(self._window):
            self.post_message(Go(self._names[self._window[event.cursor_row]]))

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()
        self.post_message(Filter(event.value))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.query_one(DataTable).focus()
