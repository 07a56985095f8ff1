"""The views of the app but for the table: graph, values, proof. Each shows a position and a desk, and posts where the user wants to go."""

from __future__ import annotations

from textwrap import wrap
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.message import Message
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from bisect_align.drill.desk import Desk
from bisect_align.drill.look import Sight
from bisect_align.drill.navigation import Position, Side
from bisect_align.drill.pictures import (
    DIM,
    STYLES,
    along,
    along_title,
    chosen,
    elements,
    heat,
    histogram,
    legend,
    numbers,
    short,
)
from bisect_align.drill.planes import Plane, moved, stepped
from bisect_align.drill.terrain import Terrain
from bisect_align.drill.values import Index
from bisect_align.drill.wording import budget, lines_of, verdict, where, why
from bisect_align.report.figures import phrase
from bisect_align.result.escape import visible
from bisect_align.result.result import NodeInfo, State

FRAME = "#4fb3bf"
_NODES = 8  # operators of a region that are drawn


class Go(Message):
    """The user has chosen a tensor."""

    def __init__(self, tensor: str) -> None:
        super().__init__()
        self.tensor = tensor


class Turn(Message):
    """The user looks at another element, side, or pair of axes."""

    def __init__(self, element: Index | None = None, side: Side | None = None, turn: bool = False) -> None:
        super().__init__()
        self.element, self.side, self.turn = element, side, turn


# --- graph ------------------------------------------------------------------------------------------------------------------
class GraphView(OptionList):
    """The region: its boundary above, its operators in a box, its output, who reads it. Enter goes to the one that is highlighted."""

    def __init__(self, id: str) -> None:
        super().__init__(id=id, markup=False)
        self._tensors: list[str] = []

    def show(self, position: Position, desk: Desk) -> None:
        """Draw the surroundings of a position, its tensor highlighted."""
        terrain, width = desk.terrain, max(self.size.width - 2, 40)
        above = terrain.above(position.tensor, position.reach)
        below = terrain.below(position.tensor)
        self._tensors = [*above, position.tensor, *below]
        self.clear_options()
        if above:
            title = "computed from" if not position.reach else f"computed from, {position.reach} generations wider"
            self._head(title)
        self._places(position, terrain, above, width, 0)
        self._box(terrain.nodes(position.tensor, position.reach), width)
        self._places(position, terrain, (position.tensor,), width, len(above))
        if below:
            self._head("read by")
        self._places(position, terrain, below, width, len(above) + 1)
        self.highlighted = self.get_option_index(f"t{len(above)}")

    def _head(self, text: str) -> None:
        self.add_option(Option(Text(text, DIM), disabled=True))

    def _places(self, position: Position, terrain: Terrain, names: tuple[str, ...], width: int, first: int) -> None:
        lines = [Option(where(position, terrain, n, width), id=f"t{first + i}") for i, n in enumerate(names)]
        self.add_options(lines)

    def _box(self, nodes: tuple[NodeInfo, ...], width: int) -> None:
        """The operators between the boundary and the output."""
        if not nodes:
            return
        room = width - 4
        lines = [Text("  │", DIM), Text("┌─┴" + "─" * (room - 1) + "┐", FRAME)]
        for node in nodes[:_NODES]:
            op = node.operator
            name = short(node.name or "(no name)", room - len(op) - 14)
            lines.append(_boxed(Text.assemble((visible(op), f"bold {FRAME}"), f"  {name}  ", (f"node {node.index}", DIM)), room))
            attributes = ", ".join(f"{key}={value}" for key, value in node.attributes.items())
            lines += [_boxed(Text("  " + row, DIM), room) for row in wrap(visible(attributes), room - 4)]
        if len(nodes) > _NODES:
            lines.append(_boxed(Text(f"and {len(nodes) - _NODES} more nodes", DIM), room))
        lines += [Text("└─┬" + "─" * (room - 1) + "┘", FRAME), Text("  ▼", DIM)]
        self.add_option(Option(lines_of(lines), disabled=True))

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        if event.option_id is not None:
            self.post_message(Go(self._tensors[int(event.option_id[1:])]))


def _boxed(line: Text, room: int) -> Text:
    line.truncate(room - 1, overflow="ellipsis", pad=True)
    return Text.assemble(("│ ", FRAME), line, (" │", FRAME))


# --- values -----------------------------------------------------------------------------------------------------------------
class ValueView(Horizontal, can_focus=True):
    """A slice of the tensor as map and numbers; beside it the worst elements, the error along an axis, and by size."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "move(-1, 0)", "row up", show=False),
        Binding("down", "move(1, 0)", "row down", show=False),
        Binding("left", "move(0, -1)", "column left", show=False),
        Binding("right", "move(0, 1)", "column right", show=False),
        Binding("left_square_bracket", "slice(-1)", "slice before", show=False),
        Binding("right_square_bracket", "slice(1)", "next slice", show=False),
        Binding("v", "side", "golden, target or error", show=False),
        Binding("t", "turn", "other axes", show=False),
    ]

    def __init__(self, id: str) -> None:
        super().__init__(id=id)
        self._sight: Sight | None = None
        self._position: Position | None = None

    def compose(self) -> ComposeResult:
        yield Static(id="slice")
        yield Static(id="beside")

    def show(self, position: Position, sight: Sight | None, note: str = "") -> None:
        """Draw the slice that the position looks at; a note where there is nothing to draw yet."""
        self._sight, self._position = sight, position
        left, right = self.query_one("#slice", Static), self.query_one("#beside", Static)
        cut = None if sight is None else sight.plane(position)
        if sight is None or cut is None:
            left.update(Text(note or (sight.trouble if sight is not None else ""), STYLES[State.UNKNOWN]))
            right.update("")
            return
        room = self.size.height or 17
        left.update(self._slice(sight, position, cut, max(self.size.width - 35, 30), room))
        right.update(self._beside(sight, cut, room))

    def _slice(self, sight: Sight, position: Position, cut: Plane, width: int, height: int) -> Text:
        assert sight.golden is not None
        assert sight.target is not None
        values = chosen(sight.golden, sight.target, position.side, cut)
        off = chosen(sight.golden, sight.target, Side.ERROR, cut)
        axes = f"axis {cut.rows} down, {cut.columns} across" if cut.rows is not None else ""
        title = Text.assemble((f"{position.side} ", "bold"), cut.title, (f"  {axes}", DIM))
        title.truncate(width, overflow="ellipsis")
        map_height = min(values.shape[0], max(height - 9, 4))
        rest = max(height - map_height - 3, 3)
        note = [Text(sight.trouble, STYLES[State.UNKNOWN])] if sight.trouble else []
        picture = heat(values, cut.spot, position.side, map_height, width)
        return lines_of(
            [title, picture, legend(position.side, values), *note, Text(), numbers(values, cut, off, rest - len(note), width)]
        )

    def _beside(self, sight: Sight, cut: Plane, height: int) -> Text:
        assert sight.found is not None
        each = max((height - 3) // 3, 3)
        axis = sight.found.telling_axis
        return lines_of(
            [
                Text("worst: golden → target", "bold"),
                elements(sight.found, cut.element, height - 3 - 2 * each + 1),
                Text(along_title(axis), "bold"),
                along(sight.found, axis, each, 34),
                Text("elements by size of error", "bold"),
                histogram(sight.found, each - 1, 34),
            ]
        )

    def _cut(self) -> Plane | None:
        return None if self._sight is None or self._position is None else self._sight.plane(self._position)

    def action_move(self, rows: int, columns: int) -> None:
        if (cut := self._cut()) is not None and self._sight is not None:
            self.post_message(Turn(moved(self._sight.shape, cut, rows, columns)))

    def action_slice(self, by: int) -> None:
        if (cut := self._cut()) is not None and self._sight is not None:
            self.post_message(Turn(stepped(self._sight.shape, cut, by)))

    def action_side(self) -> None:
        if self._position is not None:
            sides = list(Side)
            self.post_message(Turn(side=sides[(sides.index(self._position.side) + 1) % len(sides)]))

    def action_turn(self) -> None:
        if (cut := self._cut()) is not None:
            self.post_message(Turn(cut.element, turn=True))


# --- proof ------------------------------------------------------------------------------------------------------------------
class ProofView(VerticalScroll, can_focus=True):
    """Why this tensor is blamed or not, the verdict, and what the run has cost."""

    def compose(self) -> ComposeResult:
        yield Static(id="proof")

    def show(self, position: Position, desk: Desk) -> None:
        result = desk.terrain.result
        parts = [why(position, desk.terrain, position.tensor), Text(), Text("the run", "bold"), verdict(result), budget(result)]
        self.query_one("#proof", Static).update(lines_of(parts))


def headline(position: Position, desk: Desk, sight: Sight | None, width: int) -> Text:
    """One line on where one stands."""
    line = where(position, desk.terrain, position.tensor, width)
    if sight is not None and sight.tensor == position.tensor and sight.figures is not None:
        extra = phrase(sight.figures)
        if len(line) + len(extra) + 2 <= width:
            line.append(f"  {extra}", DIM)
    return line
