"""Results and terrains that the tests of the drill share."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from tiny_target import mixed

from bisect_align.cli.main import main
from bisect_align.drill.terrain import Terrain
from bisect_align.model.graph import graph_of
from bisect_align.result.result import Figures, InputInfo, Result, State, TensorRow

ROOT = Path(__file__).resolve().parents[2]
BUGS = ROOT / "models" / "bugs"
POOL = BUGS / "ort-averagepool19-end-padding"
CULPRIT = "/smooth/AveragePool_output_0"


def command_of(case: Path, out: Path) -> list[str]:
    """The command line of a case in models/."""
    facts = json.loads((case / "case.json").read_text())
    words = [str(case / facts["model"]), "--target-dump", str(case / facts["dump"]), "-o", str(out), "--quiet"]
    for option, key in (("--inputs", "inputs"), ("--quantized-model", "quantised_model")):
        words += [option, str(case / facts[key])] if facts.get(key) else []
    return words


def result_of(case: Path, out: Path, *more: str) -> Path:
    """Run a case, with more words of the command line; the folder of its result."""
    assert main([*command_of(case, out), *more]) in (0, 1)
    return out


def terrain_of(states: Mapping[str, State], depth: int = 3, missing: tuple[str, ...] = ()) -> Terrain:
    """A terrain over `depth` blocks of the `mixed` model with these states (UNKNOWN unless given); all but `missing` were dumped."""
    graph = graph_of(mixed(depth))
    rows = []
    for order, name in enumerate(graph.tensors):
        node, state = graph.nodes[graph.producer[name]], states.get(name, State.UNKNOWN)
        error = {State.GOOD: 1e-7, State.BAD: 0.1 + order, State.UNKNOWN: None}[state]
        figures = Figures(elements=4, rel_l2=error, max_abs=error, mismatched=1) if error is not None else None
        entry = None if name in missing else f"{name}.npy"
        rows.append(TensorRow(name, order, node.label, node.op, state, entry=entry, accumulated=figures))
    inputs = (InputInfo("x", "float32", (8, 24), "inputs.npz"),)
    return Terrain(Result("made by hand", None, False, tensors=tuple(rows), inputs=inputs), graph)
