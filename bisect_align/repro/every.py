"""A case for every operator of a model, with real and edge-value inputs and goldens, before the model itself is run anywhere."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from bisect_align.errors import BisectAlignError, UsageError
from bisect_align.golden.protocol import Unavailable
from bisect_align.golden.randomness import Chance, chance_of
from bisect_align.golden.segments import SegmentEngine
from bisect_align.model.cut import cut
from bisect_align.model.graph import Graph, Node, graph_of
from bisect_align.model.infer import TensorType
from bisect_align.model.load import Model, load, read
from bisect_align.model.region import Region
from bisect_align.repro.edges import edges
from bisect_align.repro.folder import (
    INDEX,
    MODEL,
    SCHEMA_INDEX,
    UPCAST,
    half_names,
    put_in_place,
    safe,
    write_arrays,
    write_model,
)
from bisect_align.result.files import to_json
from bisect_align.session.certify import node_info
from bisect_align.session.inputs import load_inputs
from bisect_align.session.progress import SILENT, Progress

Array: TypeAlias = NDArray[Any]

LAYOUT = (
    "OUTPUTS/<case>/<set>/output_<k>.npy, for example 0003-Conv/test_data_set_0/output_0.npy "
    "(or .pb, or .bin with raw values in the golden's type or the model's own); what is not returned is listed, not judged"
)
_README = """# Every operator as a case of its own

`index.json` lists the cases. Each folder holds `model.onnx` (one operator, weights inside) and one `test_data_set_<n>` for the real
inputs and for each kind of edge values: `input_<k>` and golden `output_<k>`, as `.pb` (ONNX backend test) and as `.npy`.
Of a float16 or bfloat16 model, the `.pb` files are what `model.onnx` takes: they have its own types. The `.npy` files are float32, for
`model_float32.onnx`, which makes the golden; `half` in `index.json` names the type that they are to be cast to for `model.onnx`.

Run each case on the target and write what it returns to

    OUTPUTS/<case>/test_data_set_<n>/output_<k>.npy

(or `.pb`, or `.bin`: raw values in the golden's type or the model's own; flattened or channels last is as well). Then

    bisect-align compare THIS_FOLDER OUTPUTS

says which operators are right, which are wrong, and which did not come back.
"""


@dataclass(slots=True)
class Written:
    """What `write_every` left: cases (folders), sets (of inputs), and what was skipped, with the reason."""

    folder: Path
    cases: int = 0
    sets: int = 0
    skipped: list[tuple[str, str]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Source:
    """graph: what makes the golden; origin: as the file has it (the same, but for half precision); info: finfo of its type."""

    model: Model
    graph: Graph
    origin: Graph
    engine: SegmentEngine
    info: Any


def write_every(
    path: Path, folder: Path, *, inputs: Path | None = None, distinct: bool = False, progress: Progress = SILENT
) -> Written:
    """Write a case for every node, or with `distinct` for every operator signature (operator, attributes, types and shapes).

    Raises BisectAlignError where the model cannot be read or run, or the folder holds something else.
    """
    model = load(path)
    half = model.graph.upcast_from
    origin = model.graph if half is None else graph_of(read(path)[0], folder=path.parent)
    info = np.finfo(np.float32) if half is None else ml_dtypes.finfo(half)  # type: ignore[no-untyped-call]
    source = _Source(model, model.graph, origin, SegmentEngine(model.graph), info)
    given = load_inputs(inputs, model.graph, None, path)
    written = Written(folder)

    def fill(aside: Path) -> Path:
        with np.errstate(all="ignore"):
            cases = _cases(source, given.values, aside, written, distinct, progress)
        if not cases:
            raise UsageError("the model has no operator that can be cut out", where=str(path))
        head = {
            "schema": SCHEMA_INDEX,
            "model": path.name,
            "model_sha256": model.sha256,
            "inputs": given.source,
            "layout": LAYOUT,
        }
        skipped = [{"node": node, "reason": reason} for node, reason in written.skipped]
        (aside / INDEX).write_bytes(to_json({**head, "cases": cases, "skipped": skipped}))
        (aside / "README.md").write_text(_README, encoding="utf-8")
        return aside

    put_in_place(folder, fill, INDEX)
    return written


def _cases(
    source: _Source, inputs: Mapping[str, Array], aside: Path, written: Written, distinct: bool, progress: Progress
) -> list[dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    progress.stage("writing cases", len(source.graph.nodes))
    for node, feeds, outputs in _runs(source, inputs):
        progress.advance()
        if all(source.graph.is_constant(name) for name in node.makes):
            continue
        reason = _unfit(source, node, feeds, outputs)
        if reason:
            written.skipped.append((node.label, reason))
            continue
        signature = _signature(source.graph, node, feeds, outputs)
        if distinct and signature in found:
            found[signature]["same"].append(node.label)
            continue
        name = f"{node.index:04d}-{safe(node.op)}"
        try:
            halves, sets = _write(source, node, feeds, outputs, aside / name)
        except BisectAlignError as error:
            written.skipped.append((node.label, str(error)))
            continue
        written.cases += 1
        written.sets += len(sets)
        about = node_info(node)
        found[signature if distinct else name] = {
            "folder": name,
            "node": node.label,
            "op": about.op,
            "domain": about.domain,
            "attributes": about.attributes,
            "inputs": _listed(feeds, halves[: len(feeds)]),
            "outputs": _listed(outputs, halves[len(feeds) :]),
            "golden_model": MODEL if source.graph.upcast_from is None else UPCAST,
            "sets": sets,
            "same": [],
        }
    return list(found.values())


def _listed(values: Mapping[str, Array], halves: Sequence[str]) -> list[dict[str, Any]]:
    kinds = zip(values.items(), halves, strict=True)
    return [{"name": n, "dtype": str(x.dtype), "half": half, "shape": x.shape} for (n, x), half in kinds]


def _runs(source: _Source, inputs: Mapping[str, Array]) -> Iterator[tuple[Node, dict[str, Any], dict[str, Any]]]:
    """Each node with what it reads and makes in the golden; a value is dropped after its last reader."""
    graph = source.graph
    left = Counter(name for node in graph.nodes for name in node.reads)
    live: dict[str, Any] = dict(inputs)
    for name, value in source.engine.stream(inputs, graph.tensors):
        live[name] = value
        node = graph.nodes[graph.producer[name]]
        if name != node.makes[-1]:
            continue
        yield node, {n: live[n] for n in node.reads if n not in graph.constants}, {n: live[n] for n in node.makes}
        left.subtract(node.reads)
        for done in (*node.reads, *node.makes):
            if left[done] <= 0:
                live.pop(done, None)


def _unfit(source: _Source, node: Node, feeds: Mapping[str, Any], outputs: Mapping[str, Any]) -> str:
    """Why no case can be made, "" where one can."""
    if chance_of(node, source.graph) is not Chance.NONE:
        return "draws at random"
    for name, value in (*feeds.items(), *outputs.items()):
        if isinstance(value, Unavailable):
            return f"{name!r}: {value.reason}"
        if value.dtype.isbuiltin != 1:
            return f"{name!r} is {value.dtype}, which .npy files do not hold"
    return ""


def _signature(graph: Graph, node: Node, feeds: Mapping[str, Array], outputs: Mapping[str, Array]) -> str:
    """Equal for nodes that a compiler cannot tell apart but by their values."""
    kinds = []
    for name in node.inputs:
        if name in graph.constants:
            known = graph.types[name]
            steers = known.dtype is not None and known.dtype.kind in "iu"
            kinds.append(("constant", str(known), graph.constant(name).tobytes() if steers else b""))
        else:
            kinds.append(("value", f"{feeds[name].dtype} {feeds[name].shape}" if name else "absent", b""))
    attributes = sorted(a.SerializeToString(deterministic=True) for a in node.proto.attribute)
    made = [f"{x.dtype} {x.shape}" for x in outputs.values()]
    return hashlib.sha256(repr((node.domain, node.op, attributes, kinds, made)).encode()).hexdigest()


def _write(
    source: _Source, node: Node, feeds: Mapping[str, Array], outputs: Mapping[str, Array], place: Path
) -> tuple[list[str], list[dict[str, Any]]]:
    """Model and sets of one node; the half types of its inputs and outputs (see half_names), and what each set is."""
    names = tuple(outputs)
    types = {n: TensorType(x.dtype, x.shape) for n, x in (*feeds.items(), *outputs.items())}
    at = source.origin.producer[names[0]]
    model = cut(None, source.origin, Region(names[0], (at,), tuple(feeds), ()), types=types, outputs=names)
    place.mkdir()
    write_model(place / MODEL, model)
    if source.graph.upcast_from is not None:
        area = Region(names[0], (node.index,), tuple(feeds), ())
        write_model(place / UPCAST, cut(None, source.graph, area, types=types, outputs=names))
    sets = []
    tried = {"real": (feeds, outputs)}
    for kind, changed in edges(source.graph, node, feeds, source.info).items():
        made = source.engine.replay([node.index], changed, names)
        values = {n: x for n, x in made.items() if not isinstance(x, Unavailable)}
        if len(values) == len(names):
            tried[kind] = (changed, values)
    for k, (kind, (ins, outs)) in enumerate(tried.items()):
        data = place / f"test_data_set_{k}"
        write_arrays(data, model, list(ins.values()), list(outs.values()))
        sets.append({"folder": data.name, "kind": kind})
    return half_names((*model.graph.input, *model.graph.output)), sets
