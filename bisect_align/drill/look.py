"""A tensor looked at: both values, what they show, and the text that shows it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from numpy.typing import NDArray
from rich.text import Text

from bisect_align.drill.navigation import Position, Side
from bisect_align.drill.pictures import along, along_title, chosen, elements, heat, histogram, legend, numbers, spot_of
from bisect_align.drill.planes import Plane
from bisect_align.drill.terrain import Terrain
from bisect_align.drill.values import Survey, is_numeric, survey
from bisect_align.drill.wording import fact, lines_of, where
from bisect_align.errors import BisectAlignError
from bisect_align.metrics.measure import measure
from bisect_align.report.figures import phrase
from bisect_align.result.result import Figures, TensorRow
from bisect_align.session.progress import SILENT, Progress
from bisect_align.session.reopen import Reopened

Array: TypeAlias = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Sight:
    """golden, target: None where there is none. found: None where they cannot be compared element by element.

    trouble: why something is missing, or differs from what the run saw; "" where nothing is.
    """

    tensor: str
    golden: Array | None = None
    target: Array | None = None
    found: Survey | None = None
    figures: Figures | None = None
    trouble: str = ""

    @property
    def shape(self) -> tuple[int, ...]:
        some = self.golden if self.golden is not None else self.target
        return () if some is None else some.shape

    def plane(self, position: Position) -> Plane | None:
        """The slice to show: None where the values cannot be compared."""
        return None if self.found is None else spot_of(self.found, self.shape, position.element, position.turn)


def look(tensor: str, run: Reopened, progress: Progress = SILENT) -> Sight:
    """Both values of a tensor. Raises nothing for what is missing: it is said in `trouble`."""
    golden, no_golden = _value(lambda: run.golden(tensor, progress))
    target, no_target = _value(lambda: run.target(tensor))
    if golden is None or target is None:
        return Sight(tensor, golden, target, trouble=no_golden or no_target)
    if golden.shape != target.shape:
        return Sight(tensor, golden, target, trouble=f"the target's shape is {target.shape}, the golden's {golden.shape}")
    figures = measure(golden, target)
    if not (is_numeric(golden) and is_numeric(target)):
        return Sight(tensor, golden, target, None, figures, f"{golden.dtype} is nothing to draw")
    return Sight(tensor, golden, target, survey(golden, target), figures, _changed(run.rows.get(tensor), figures))


def _value(read: Callable[[], Array]) -> tuple[Array | None, str]:
    """What is read, or why it is not there."""
    try:
        return read(), ""
    except BisectAlignError as missing:
        return None, str(missing)


def _changed(row: TensorRow | None, figures: Figures) -> str:
    """The values of a run do not change: where they have, the result speaks of others."""
    known = row.accumulated if row is not None else None
    if known is None or known.mismatched == figures.mismatched:
        return ""
    return f"the values have changed since the run, which saw {known.mismatched} elements off"


def shown(position: Position, terrain: Terrain, sight: Sight, width: int = 78) -> Text:
    """Figures, worst elements, the slice as map and numbers, error along an axis, histogram: for a pipe, one below the other."""
    lines = [where(position, terrain, sight.tensor, width)]
    some = sight.golden if sight.golden is not None else sight.target
    if some is not None:
        lines.append(fact("values", f"{some.dtype} {'x'.join(map(str, some.shape)) or 'scalar'}"))
    if sight.figures is not None:
        lines.append(fact("error", phrase(sight.figures)))
    if sight.trouble:
        lines.append(fact("note", sight.trouble, "yellow"))
    cut = sight.plane(position)
    if cut is None or sight.found is None or sight.golden is None or sight.target is None:
        return lines_of(lines)
    values = chosen(sight.golden, sight.target, position.side, cut)
    off = chosen(sight.golden, sight.target, Side.ERROR, cut)
    axis = sight.found.telling_axis
    picture = lines_of([heat(values, cut.spot, position.side, 12, width), legend(position.side, values)])
    parts = (
        ("worst elements: golden → target", elements(sight.found, cut.element, 8)),
        (f"{position.side} in {cut.title}, largest magnitude of each cell", picture),
        (f"{position.side} around {list(cut.element)}, * is off", numbers(values, cut, off, 8, width)),
        (along_title(axis), along(sight.found, axis, 8, 60)),
        ("elements by size of their error", histogram(sight.found, 8, 60)),
    )
    for title, body in parts:
        lines += [Text(), Text(title, "bold"), body]
    return lines_of(lines)
