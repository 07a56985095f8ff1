"""Tensors and errors as characters: heat maps, numbers, bars, a curve. Every colour repeats what a sign already says."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from rich.text import Text

from bisect_align.drill.navigation import Side
from bisect_align.drill.planes import Plane, inside, plane, pooled
from bisect_align.drill.values import Survey, real
from bisect_align.report.figures import number
from bisect_align.result.escape import visible
from bisect_align.result.result import State

Array: TypeAlias = NDArray[Any]

SIGNS = {State.GOOD: "✓", State.BAD: "✗", State.UNKNOWN: "?"}
STYLES = {State.GOOD: "#8bc77b", State.BAD: "bold #f2686b", State.UNKNOWN: "#e0af68"}
DIM, TAG = "#8b949e", "bold #c792ea"  # what is said beside; culprits and other roles
SHADES = "·░▒▓█"  # from nothing to the largest
HEAT = ("#4b535d", "#96593c", "#cd6932", "#eb5f37", "#ff4646")
COLD = ("#4b535d", "#3c5f82", "#4682af", "#5aa5d7", "#82cdfa")
_STEPS = (0.05, 0.25, 0.6)  # shares of the largest where the next darker shade begins
_BAR = " ▏▎▍▌▋▊▉█"
_CURVE = "▁▂▃▄▅▆▇█"
_CELL = 9  # columns of a number in a slice


def sign(state: State) -> Text:
    """Such as "✗ BAD"."""
    return Text(f"{SIGNS[state]} {state}", STYLES[state])


def short(name: str, width: int) -> str:
    """A name that fits: without the ending that most exporters give to all of them, then without its middle."""
    name = visible(name)
    if len(name) > width:
        name = re.sub(r"_output_0$", "…", name)
    if len(name) <= width:
        return name
    head = max(width // 3, 1)
    return f"{name[:head]}…{name[len(name) - (width - head - 1) :]}"


def indices(index: Sequence[int]) -> str:
    return "[" + ",".join(map(str, index)) + "]"


# --- error along the graph --------------------------------------------------------------------------------------------------
def curve(points: Sequence[tuple[float | None, State]], here: int | None, width: int) -> Text:
    """Errors in topological order, a few characters a tensor (or the worst of several where they do not fit), on a log scale.

    A tensor that was not compared is "·", one without error "▁"; the place where one stands is underlined.
    """
    count = len(points)
    if not count:
        return Text()
    cells, wide = min(count, width), max(1, min(width // count, 4))
    known = [p for p, _ in points if p is not None and 0 < p < math.inf]
    low, high = (math.log10(min(known)), math.log10(max(known))) if known else (0.0, 0.0)
    line = Text()
    for cell in range(cells):
        part = range(cell * count // cells, (cell + 1) * count // cells)
        worst = max(part, key=lambda i: -1.0 if points[i][0] is None else float(points[i][0] or 0.0))
        error, state = points[worst]
        bad = any(points[i][1] is State.BAD for i in part)
        style = STYLES[State.BAD if bad else state] if error is not None else DIM
        line.append(_height(error, low, high) * wide, style + (" reverse" if here is not None and here in part else ""))
    return line


def _height(error: float | None, low: float, high: float) -> str:
    if error is None:
        return "·"
    if error <= 0:
        return _CURVE[0]
    if error == math.inf or high == low:
        return _CURVE[-1]
    return _CURVE[1 + round((math.log10(error) - low) / (high - low) * (len(_CURVE) - 2))]


# --- bars -------------------------------------------------------------------------------------------------------------------
def bar(share: float, width: int) -> str:
    """A bar of that share of the width, in eighths of a character; something is shown for everything above 0."""
    eighths = max(round(min(max(share, 0.0), 1.0) * width * 8), 1 if share > 0 else 0)
    return (_BAR[8] * (eighths // 8) + (_BAR[eighths % 8] if eighths % 8 else "")).ljust(width)


def along(found: Survey, axis: int | None, rows: int, width: int) -> Text:
    """The rms error by index of an axis, one bar an index; where they do not fit, the largest ones in order of their index."""
    if axis is None:
        return Text(_even(found), DIM)
    rms = found.along[axis]
    fits = rms.size <= rows
    largest = np.argsort(-rms, kind="stable")[: rms.size if fits else rows - 1]
    shown = sorted(int(i) for i in largest if fits or rms[i] > 0)
    room = max(width - 15, 4)
    lines = []
    for index in shown:
        value = float(rms[index])
        line = Text(f"{index:>5} ", DIM)
        line.append(bar(value / float(rms.max()), room) if value else " " * room, HEAT[-1])
        lines.append(line.append(f"{number(value):>9}"))
    if not fits:
        rest = np.delete(rms, shown)
        lines.append(Text(f"      the other {rest.size}: at most {number(float(rest.max()))}", DIM))
    return Text("\n").join(lines)


def along_title(axis: int | None) -> str:
    return f"rms error along axis {axis}" if axis is not None else "error along the axes"


def _even(found: Survey) -> str:
    """What there is to say where no axis tells more than the others."""
    if not found.worst:
        return "equal"
    if not found.decades:
        return "only NaN or Inf"
    return "spread evenly over all axes" if found.along else "a scalar: all in one value"


def histogram(found: Survey, rows: int, width: int) -> Text:
    """How many elements have an error of which size, by decades; equal ones and NaN or Inf apart."""
    counts: list[tuple[str, int, str]] = [("NaN, Inf", found.odd, HEAT[-1])] if found.odd else []
    top = list(found.decades.items())
    kept, rest = top[: rows - 2], top[rows - 2 :]
    counts += [(f"≥ 1e{exponent:+d}", count, HEAT[-2]) for exponent, count in kept]
    if rest:
        counts.append((f"< 1e{kept[-1][0]:+d}" if kept else "smaller", sum(count for _, count in rest), HEAT[1]))
    counts.append(("equal", found.equal, STYLES[State.GOOD]))
    largest = max((count for _, count, _ in counts), default=0) or 1
    room = max(width - 19, 4)
    lines = []
    for label, count, style in counts[:rows]:
        line = Text(f"{label:>8} ", DIM)
        lines.append(line.append(bar(count / largest, room), style).append(f" {count:>8}"))
    return Text("\n").join(lines)


# --- slices -----------------------------------------------------------------------------------------------------------------
def chosen(golden: Array, target: Array, side: Side, cut: Plane) -> Array:
    """The plane's values of the side that is looked at, in float64: golden, target, or target - golden."""
    g, t = real(cut.of(golden)), real(cut.of(target))
    if side is Side.GOLDEN:
        return g
    if side is Side.TARGET:
        return t
    with np.errstate(all="ignore"):
        return np.where((g == t) | (np.isnan(g) & np.isnan(t)), 0.0, t - g)


def heat(values: Array, spot: tuple[int, int], side: Side, height: int, width: int) -> Text:
    """A plane as shades of its largest magnitude, two columns a cell where that fits; the cell of the spot is reversed."""
    wide = 2 if values.shape[1] * 2 <= width else 1
    cells = pooled(values, height, width // wide)
    finite = cells[np.isfinite(cells)]
    largest = float(finite.max()) if finite.size else 0.0
    colours = HEAT if side is Side.ERROR else COLD
    at = tuple(place * have // max(size, 1) for place, have, size in zip(spot, cells.shape, values.shape, strict=True))
    lines = []
    for r, row in enumerate(cells):
        line = Text()
        for c, value in enumerate(row):
            level = _level(float(value), largest)
            line.append(SHADES[level] * wide, colours[level] + (" reverse" if (r, c) == at else ""))
        lines.append(line)
    return Text("\n").join(lines)


def _level(value: float, largest: float) -> int:
    if value == math.inf:
        return len(SHADES) - 1
    if not value or not largest:
        return 0
    return 1 + sum(value / largest >= step for step in _STEPS)


def legend(side: Side, values: Array) -> Text:
    """What the shades of a heat map stand for."""
    finite = np.abs(values[np.isfinite(values)])
    largest = float(finite.max()) if finite.size else 0.0
    colours = HEAT if side is Side.ERROR else COLD
    text = Text()
    for level, edge in enumerate(("0", "", f"{number(0.25 * largest)}", "", f"{number(largest)}")):
        text.append(SHADES[level], colours[level]).append(edge + (" " if edge else ""), DIM)
    return text


def numbers(values: Array, cut: Plane, against: Array | None, height: int, width: int) -> Text:
    """Numbers of the plane around its spot, with the indices of both axes; the spot is reversed.

    against: the plane of errors; elements that differ carry a "*", so that they are seen without colour.
    """
    room = max((width - 6) // _CELL, 1)
    rows, columns = _window(cut.spot[0], values.shape[0], height - 1), _window(cut.spot[1], values.shape[1], room)
    head = Text(" " * 6 + "".join(f"{c:>{_CELL - 1}} " for c in columns), DIM)
    lines = [head]
    for r in rows:
        line = Text(f"{r:>5} ", DIM)
        for c in columns:
            off = against is not None and bool(against[r, c])
            text = f"{cell(float(values[r, c])):>{_CELL - 1}}{'*' if off else ' '}"
            style = ("bold " + HEAT[3]) if off else ""
            line.append(text, f"{style} reverse" if (r, c) == cut.spot else style)
        lines.append(line)
    return Text("\n").join(lines)


def cell(value: float) -> str:
    """A number in seven columns at most, so that its neighbour stays apart."""
    return next(text for digits in (4, 3, 2, 1) if len(text := f"{value:.{digits}g}") < _CELL - 1 or digits == 1)


def _window(spot: int, size: int, room: int) -> range:
    """The indices to show so that the spot is among them."""
    room = max(min(room, size), 1)
    start = min(max(spot - room // 2, 0), size - room)
    return range(start, start + room)


def elements(found: Survey, here: tuple[int, ...] | None, rows: int) -> Text:
    """The worst elements: index, golden, target, error."""
    if not found.worst:
        return Text("every element is equal", STYLES[State.GOOD])
    shown = found.worst[:rows]
    room = max(len(indices(e.index)) for e in shown)
    lines = []
    for element in shown:
        now = element.index == here
        line = Text.assemble(("▸" if now else " ", TAG), (f"{indices(element.index):<{room}}", "bold" if now else ""))
        line.append(f" {cell(element.golden):>8}").append(" →", DIM)
        line.append(f"{cell(element.target):>8}", "bold " + HEAT[3])
        lines.append(line)
    return Text("\n").join(lines)


def spot_of(found: Survey, shape: tuple[int, ...], element: tuple[int, ...] | None, turn: int) -> Plane:
    """The plane to look at: through the element chosen, else through the worst one, else through the first."""
    if element is None or not inside(element, shape):
        element = found.worst[0].index if found.worst else (0,) * len(shape)
    return plane(shape, element[: len(shape)], turn)
