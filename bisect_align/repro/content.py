"""What goes into a repro: a cut model, the values that it is fed, what it should make of them and what the target made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto

from bisect_align.errors import DumpError, EngineError, ModelError
from bisect_align.golden.protocol import Unavailable
from bisect_align.judgement.allowance import allowance
from bisect_align.judgement.discrete import ROUNDING
from bisect_align.judgement.judge import CAP_CONV, CONVICT
from bisect_align.model.cut import cut
from bisect_align.model.dtypes import is_float
from bisect_align.model.infer import TensorType
from bisect_align.model.observed import observe
from bisect_align.model.region import Region, region
from bisect_align.repro.alone import judge
from bisect_align.result.result import Culprit
from bisect_align.session.reopen import Reopened

Array: TypeAlias = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Given:
    """A value that the case is fed, in the type of the golden model; source: where it comes from, in words."""

    name: str
    values: Array
    source: str


@dataclass(frozen=True, slots=True)
class Expected:
    """An output: golden value, the target's (None where the dump has none), what noise explains per element, and the rule by which
    repro.py tells the two apart (see alone.judge). element: the only one of which the target's value is known, in a small case."""

    name: str
    golden: Array
    target: Array | None
    sigma: Array
    rule: Mapping[str, Any]
    element: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Content:
    """model: as the target was given it; upcast: the same in float32, where the model is in half precision. nodes: indices of the
    region in the graph. context: how many observed tensors above and below were taken in; above: how many more above.
    notes: sentences for the reader."""

    model: ModelProto
    upcast: ModelProto | None
    inputs: tuple[Given, ...]
    outputs: tuple[Expected, ...]
    nodes: tuple[int, ...]
    context: int = 0
    above: int = 0
    notes: tuple[str, ...] = ()

    @property
    def golden_model(self) -> ModelProto:
        """The model that makes the golden."""
        return self.model if self.upcast is None else self.upcast


def content(opened: Reopened, culprit: Culprit, context: int = 0, above: int = 0) -> Content:
    """The case of a culprit. context: take in the regions of so many observed tensors above and below; above: of so many more above.

    Raises BisectAlignError where it cannot be cut, fed or run, or holds values that no .npy file can.
    """
    with np.errstate(all="ignore"):
        return _content(opened, culprit, context, above)


def _content(opened: Reopened, culprit: Culprit, context: int, above: int) -> Content:
    judged, output = frozenset(culprit.region.boundary), culprit.region.output
    area = region(opened.graph, output, judged)
    if len(area.nodes) < len(culprit.region.nodes):  # a wrong shape was judged with what computes it
        area = region(opened.graph, output, judged, through_shapes=True)
    names: tuple[str, ...] = (area.output,)
    for level in range(context + above):
        area, names = _wider(opened, area, names, below=level < context)
    inputs = tuple(_given(opened, name, culprit) for name in area.boundary)
    feeds = {given.name: given.values for given in inputs}
    made = opened.case.engine.replay(area.nodes, feeds, names)
    outputs = []
    for name in names:
        golden = made[name]
        if isinstance(golden, Unavailable):
            raise EngineError(f"has no golden value: {golden.reason}", where=f"tensor {name!r}")
        outputs.append(_expected(opened, replace(area, output=name), feeds, golden, culprit))
    arrays = {g.name: g.values for g in inputs} | {e.name: e.golden for e in outputs}
    for name, values in arrays.items():
        if values.dtype.isbuiltin != 1:
            raise ModelError(f"is {values.dtype}, which .npy files do not hold", where=f"tensor {name!r}")
    types = {name: TensorType(values.dtype, values.shape) for name, values in arrays.items()}
    path = opened.case.model.path
    model = cut(path, opened.graph, area, types=types, outputs=names)
    upcast = cut(None, opened.graph, area, types=types, outputs=names) if opened.graph.upcast_from is not None else None
    return Content(model, upcast, inputs, tuple(outputs), area.nodes, context, above)


def _given(opened: Reopened, name: str, culprit: Culprit) -> Given:
    """The target's own value; where it is not believed its replay, where there is none the golden."""
    if name in opened.graph.inputs:
        return Given(name, opened.case.inputs.values[name], "input of the model")
    replayed = {b.tensor for b in culprit.certificate.boundary if b.source.startswith("replayed")}
    row = opened.rows.get(name)
    if row is not None and row.entry is not None and name not in replayed:
        return Given(name, held(opened, name), f"the target's own, entry {row.entry!r}")
    try:
        if name not in replayed:
            raise KeyError(name)
        above = region(opened.graph, name, _observed(opened))
        feeds = {b: opened.target(b) for b in above.boundary}
        made = opened.case.engine.replay(above.nodes, feeds, [name])[name]
        if not isinstance(made, Unavailable):
            return Given(name, made, "replayed by ONNX Runtime on the target's values above it: its entry is not believed")
    except (DumpError, KeyError):
        pass
    return Given(name, opened.golden(name), "golden: the dump does not hold it")


def _expected(opened: Reopened, area: Region, feeds: Mapping[str, Array], golden: Array, culprit: Culprit) -> Expected:
    try:
        target = held(opened, area.output)
    except (DumpError, KeyError):
        target = None
    grid = target if target is not None and target.shape == golden.shape else None
    room = allowance(opened.bench, area, feeds, golden, opened.precision, grid)
    op = opened.graph.nodes[opened.graph.producer[area.output]].op
    rule: dict[str, Any] = {
        "by": "noise",
        "limit": CONVICT,
        "gain": room.gain,
        "offset": room.offset,
        "rounds": op in ROUNDING and not is_float(golden.dtype),
    }
    if target is not None:
        found = judge(golden, target, room.sigma, rule)
        if np.isfinite(found["score"]) and culprit.noise.score > 0:
            # what its peers showed to be normal for this chip was taken off the certificate's score
            rule["limit"] = CONVICT * float(np.clip(found["score"] / culprit.noise.score, 1.0, CAP_CONV))
        if culprit in opened.result.culprits and found["score"] <= rule["limit"] and found["error"] > 0:
            # the judgement that convicted it looks at more than a stand-alone script can
            rule |= {"by": "error", "error": found["error"]}
    return Expected(area.output, golden, target, room.sigma, rule)


def held(opened: Reopened, name: str) -> Array:
    """The target's value of a tensor. Raises KeyError, DumpError that names the file and says what became of it."""
    try:
        return np.asarray(opened.target(name), order="C")
    except DumpError:
        key = opened.rows[name].entry
        for problem in opened.case.catalogue.problems:
            if key and problem.source.as_posix().endswith(key):
                raise DumpError(problem.reason, where=key, hint="the run could read it") from None
        raise


def _observed(opened: Reopened) -> frozenset[str]:
    return frozenset(name for name, row in opened.rows.items() if row.entry is not None)


def _wider(opened: Reopened, area: Region, names: tuple[str, ...], *, below: bool) -> tuple[Region, tuple[str, ...]]:
    """One more level: the regions of the observed tensors at the boundary and, with `below`, of the observed readers, which then
    make the outputs."""
    graph, observed = opened.graph, _observed(opened)
    outputs, readers = names, tuple[str, ...]()
    if below:
        children = observe(graph, observed | frozenset(names)).children
        readers = tuple(dict.fromkeys(child for name in names for child in children[name]))
        kept = [name for name in names if name in graph.outputs or not children[name]]
        outputs = tuple(dict.fromkeys((*kept, *readers)))
    nodes = set(area.nodes)
    for name in (*area.boundary, *readers):
        if name in graph.order:
            nodes.update(region(graph, name, observed).nodes)
    order = tuple(sorted(nodes))
    made = {name for index in order for name in graph.nodes[index].makes}
    reads = {name for index in order for name in graph.nodes[index].reads}
    boundary = tuple(n for n in (*graph.inputs, *graph.tensors) if n in reads and n not in made and n not in graph.settled)
    hidden, settled = (tuple(n for n in graph.tensors if n in reads & names) for names in (made, graph.settled.keys() - made))
    return Region(outputs[0], order, boundary, hidden, settled), outputs
