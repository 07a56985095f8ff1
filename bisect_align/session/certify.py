"""A convicted region with the figures that prove it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx

from bisect_align.golden.opinion import second_opinion
from bisect_align.golden.protocol import Array, Unavailable
from bisect_align.judgement.allowance import allowance
from bisect_align.judgement.conviction import Ruling
from bisect_align.judgement.hypotheses import NODES_MOST, hypotheses
from bisect_align.judgement.opinion import witnessed
from bisect_align.judgement.precision import rms
from bisect_align.judgement.symptoms import symptoms
from bisect_align.model.dtypes import is_float
from bisect_align.model.graph import Graph, Node
from bisect_align.model.region import Region
from bisect_align.result.result import (
    BoundaryTensor,
    Certificate,
    Culprit,
    Figures,
    Kind,
    NodeInfo,
    Noise,
    RegionInfo,
    State,
    Symptom,
)
from bisect_align.session.hunt import Hunt
from bisect_align.session.places import place_of
from bisect_align.session.weights import wrong_weight


def culprit(hunt: Hunt, ruling: Ruling) -> Culprit:
    """One convicted region with its certificate."""
    area = ruling.judged.region
    target = hunt.evidence.observations.value(ruling.tensor)
    right = hunt.evidence.court.replayed(ruling.tensor, ruling.replaced)
    golden = hunt.golden.value(ruling.tensor)
    introduced = _measured(hunt, area.output, right, target)
    looks, guesses, witness = explained(hunt, ruling, target, right)
    fed = tuple(boundary(hunt, b, ruling) for b in area.boundary)
    certificate = Certificate(fed, introduced, ruling.consumed, ruling.by, hunt.deterministic(area.output))
    return Culprit(
        kind=ruling.judged.score.kind or Kind.WRONG_RESULT,
        region=region_info(hunt.case.model.graph, area),
        introduced=introduced,
        noise=noise_of(hunt, ruling, _place(hunt, ruling, right, target)),
        certificate=certificate,
        accumulated=_measured(hunt, area.output, golden, target),
        inherited=_measured(hunt, area.output, golden, right),
        gain=hunt.gain(area.output),
        symptoms=looks,
        hypotheses=guesses,
        witness=witness,
    )


def explained(
    hunt: Hunt, ruling: Ruling, target: Array, right: Array | None
) -> tuple[tuple[Symptom, ...], tuple[str, ...], str | None]:
    """What the error looks like, the misreadings of the operator that account for it, and what a second implementation says."""
    if right is None:
        return (), (), None
    area, score, fed = ruling.judged.region, ruling.judged.score, hunt.evidence.court.fed(ruling.tensor, ruling.replaced)
    finite = right[np.isfinite(right)] if is_float(right.dtype) else right[:0]
    graph, inner = hunt.case.model.graph, _inner(hunt, area, fed)
    op = graph.nodes[graph.producer[ruling.tensor]].op
    looks = symptoms(target, right, op, boundary=fed, noise_rms=score.expected * rms(finite), inner=inner)
    weight = wrong_weight(hunt, ruling, fed, target, right)
    precision = hunt.evidence.precision.precision
    guesses = hypotheses(hunt.bench, area, fed, target, right, precision=precision, expected=score.expected)
    sizes = {name: value.size for name, value in {**inner, area.output: right}.items()}
    opinion = second_opinion(graph, area.nodes, fed, area.output, sizes)
    return (*((weight,) if weight else ()), *looks), guesses, witnessed(opinion.value, opinion.by, right, target)


def _inner(hunt: Hunt, area: Region, fed: Mapping[str, Array]) -> dict[str, Array]:
    """What a region of a few operators makes on the way to its output."""
    if not area.hidden or len(area.nodes) > NODES_MOST:
        return {}
    made = hunt.bench.engine.replay(area.nodes, fed, area.hidden)
    return {name: value for name, value in made.items() if not isinstance(value, Unavailable)}


def _measured(hunt: Hunt, tensor: str, reference: Array | None, values: Array | None) -> Figures:
    """Figures of a pair; without any where one is missing or their shapes differ."""
    if reference is None or values is None or reference.shape != values.shape:
        return Figures()
    return hunt.figures(tensor, reference, values)


def noise_of(hunt: Hunt, ruling: Ruling, place: str = "") -> Noise:
    """What noise explains here. place: where the statistic that scores is at its largest, if that is known."""
    score, value = ruling.judged.score, ruling.judged.value
    return Noise(
        expected=score.expected,
        score=value if value is not None else float("nan"),
        precision=hunt.evidence.precision.precision.name,
        hides=ruling.judged.hides,
        statistic=": ".join(text for text in (score.statistic, place or score.note) if text),
    )


def _place(hunt: Hunt, ruling: Ruling, right: Array | None, target: Array) -> str:
    """The slice or the element that convicts."""
    score = ruling.judged.score
    if score.statistic not in ("slice", "peak") or score.note or right is None or right.shape != target.shape:
        return ""
    fed = hunt.evidence.court.fed(ruling.tensor, ruling.replaced)
    room = allowance(hunt.bench, ruling.judged.region, fed, right, hunt.evidence.precision.precision, target)
    return place_of(score.statistic, right, target, room.sigma)


def boundary(hunt: Hunt, name: str, ruling: Ruling) -> BoundaryTensor:
    """Where a value that the region was replayed on came from."""
    if name not in hunt.case.model.graph.order:
        return BoundaryTensor(name, State.GOOD, f"graph input, {hunt.case.inputs.source}")
    hunt.compare([name])
    compared = hunt.findings.compared[name]
    entry = hunt.evidence.matched.placed[name].claim.entry
    source = "replayed: its entry is not believed" if name in ruling.replaced else f"dump: {entry}"
    return BoundaryTensor(name, compared.state, source, compared.figures)


def region_info(graph: Graph, area: Region) -> RegionInfo:
    """The region's operators, computed constants left out, unless the output is such a constant itself."""
    every = [graph.nodes[i] for i in area.nodes]
    nodes = [n for n in every if not all(graph.is_constant(m) for m in n.makes)] or every
    return RegionInfo(area.output, area.boundary, tuple(node_info(n) for n in nodes))


def node_info(node: Node) -> NodeInfo:
    return NodeInfo(node.index, node.name, node.op, node.domain, node.outputs, {a.name: _shown(a) for a in node.proto.attribute})


def _shown(attribute: Any) -> str:
    if attribute.type == onnx.AttributeProto.GRAPH:
        return f"graph {attribute.g.name!r}"
    if attribute.type == onnx.AttributeProto.TENSOR:
        return f"tensor {list(attribute.t.dims)}"
    value = onnx.helper.get_attribute_value(attribute)
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, float):
        return f"{value:.7g}"
    return str(list(value)) if hasattr(value, "__len__") and not isinstance(value, str) else str(value)
