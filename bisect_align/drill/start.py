"""How a drill begins: the result is read, the place where the last one ended is found, and the run is opened again when asked for."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bisect_align.drill.desk import Desk
from bisect_align.drill.navigation import Position, valid
from bisect_align.drill.saved import Shelf, resume, shelf
from bisect_align.drill.terrain import Terrain, start
from bisect_align.errors import BisectAlignError, UsageError, one_line
from bisect_align.model.graph import Graph
from bisect_align.model.load import load
from bisect_align.repro.chosen import chosen
from bisect_align.repro.write import write
from bisect_align.result import files
from bisect_align.result.result import Result
from bisect_align.session.options import Options
from bisect_align.session.progress import SILENT, Progress
from bisect_align.session.reopen import Reopened

# Reads the command of a result again; raises BisectAlignError where that cannot be done.
OptionsOf = Callable[[Result, Path], Options]


@dataclass(frozen=True, slots=True)
class Start:
    """position: where the last drill ended, else the first culprit. note: what the user should know of it, or ""."""

    result: Result
    folder: Path
    shelf: Shelf
    position: Position
    note: str
    options_of: OptionsOf

    @property
    def closed(self) -> Desk:
        """The desk before the run is opened: what the result holds."""
        return Desk(Terrain(self.result), self.folder, missing="the run is being opened")

    def open(self, progress: Progress = SILENT) -> Desk:
        """The desk with all that is still there. Raises nothing for what is not: the desk says it."""
        progress.stage("opening the run")
        options = None
        try:
            options = self.options_of(self.result, self.folder)
            run = Reopened(self.result, options)
        except BisectAlignError as missing:
            graph = _graph(self.result, options)
            said = one_line(missing)
            if graph is not None and (stranger := _stranger(self.result, graph)):
                graph, said = None, f"{said}; {stranger}"
            return Desk(Terrain(self.result, graph), self.folder, missing=said, progress=progress)
        if stranger := _stranger(self.result, run.graph):
            return Desk(Terrain(self.result), self.folder, missing=stranger, progress=progress)
        return Desk(Terrain(self.result, run.graph), self.folder, run, extract=_extractor(run, self.folder), progress=progress)


def ready(path: Path, options_of: OptionsOf) -> Start:
    """Read a result folder, or a result.json. Raises UsageError where there is none, or where it names no tensor."""
    result = files.read(path)
    folder = path if path.is_dir() else path.parent
    terrain = Terrain(result)
    first = start(terrain)
    if not first:
        raise UsageError("the result names no tensor: the run ended before it looked at one", where=str(path))
    place = shelf(path)
    kept, note = resume(place)
    if kept is not None and not terrain.knows(kept.tensor):
        kept = None
    return Start(result, folder, place, Position(first) if kept is None else valid(kept, terrain), note, options_of)


def _graph(result: Result, options: Options | None) -> Graph | None:
    """The graph alone, where the model is still there and the dump is not."""
    if options is None or result.golden is None:
        return None
    try:
        model = load(options.quantized_model or options.model)
    except BisectAlignError:
        return None
    return model.graph if model.sha256 == result.golden.model_sha256 else None


def _stranger(result: Result, graph: Graph) -> str:
    """One line where a result names tensors that its model does not have: it was edited, and is shown as it is. Else ""."""
    regions = [*(one.region for one in result.culprits), *(one.region for one in result.suspects)]
    named = [row.name for row in result.tensors] + [given.name for given in result.inputs]
    named += [name for region in regions for name in (region.output, *region.boundary)]
    named += [name for one in result.crossings for name in (one.tensor, *(b.tensor for b in one.boundary))]
    known = {*graph.order, *graph.inputs, *graph.constants}
    found = list(dict.fromkeys(name for name in named if name not in known))
    if not found:
        return ""
    more = f" and {len(found) - 1} more" if len(found) > 1 else ""
    return f"the result was edited: the model has no tensor {found[0]!r}{more}"


def _extractor(run: Reopened, folder: Path) -> Callable[[str, int, Path | None], str]:
    """Writes the case of a tensor's region, with so many neighbours around it."""

    def extract(tensor: str, context: int, place: Path | None) -> str:
        ((name, culprit),) = chosen(run, run.result, tensor)
        made = write(run, run.result, culprit, folder / "repro" / name if place is None else place, context=context)
        return f"{made.folder}: {made.sentence}\nRun it: {shlex.join(('python', str(made.folder / 'repro.py')))}"

    return extract
