"""What the target may have done instead: its own inputs through a misread operator, compared with what it made.

What is tried stands in `hypothesis_table`, one entry a misreading.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from bisect_align.golden.protocol import Unavailable, Value
from bisect_align.judgement.hypothesis_table import TABLE
from bisect_align.judgement.precision import Precision, rms, step_of, storing_cost
from bisect_align.judgement.rival import Change, Site
from bisect_align.judgement.trial import Bench
from bisect_align.model.dtypes import is_float
from bisect_align.model.graph import Node
from bisect_align.model.region import Region

Array: TypeAlias = NDArray[Any]

MOST = 4  # hypotheses listed
NODES_MOST = 16  # a larger region is not doubted node by node
RIVALS_MOST = 96  # replays for one culprit
LEFT, LEFT_NOISE, LEFT_MOST = 0.1, 4.0, 0.5  # what may be left: of the error, of the noise; never more than half of the error
FLIPS_LEFT = 0.1  # of the mismatches of integers


@dataclass(frozen=True, slots=True)
class _Fit:
    text: str
    left: float


def hypotheses(
    bench: Bench,
    region: Region,
    boundary: Mapping[str, Array],
    target: Array,
    replay: Array,
    *,
    precision: Precision,
    expected: float,
) -> tuple[str, ...]:
    """The misreadings that bring the error down to noise, "behaves as if `count_include_pad=0`: relative error 0.16 -> 1.2e-07".

    boundary: what the region was fed; replay: what it should have made of it. expected: relative L2 of healthy noise here. Each node
    of a small region is doubted alone while the others stay as they are, then all nodes of one operator together. Several that fit
    equally well are all named (at most four).
    """
    if not 0 < len(region.nodes) <= NODES_MOST:
        return ()
    before = misfit(target, replay)
    if before == 0:
        return ()
    limit = tolerated(bench, region, target, before, precision, expected)
    fits: list[_Fit] = []
    for value, text in _made(bench, region, boundary):
        left = misfit(target, value)
        if left <= limit:
            fits.append(_Fit(text, left))
    if not fits:
        return ()
    best = min(f.left for f in fits)
    equal = [f for f in fits if f.left <= max(2 * best, expected)]
    kind = "relative error" if is_float(target.dtype) else "share of wrong elements"
    shown = f"{before:.3g}" if np.isfinite(before) else "beyond comparison"
    return tuple(dict.fromkeys(f"behaves as if {f.text}: {kind} {shown} -> {f.left:.2g}" for f in equal))[:MOST]


def misfit(target: Array, value: Array) -> float:
    """Relative L2, or the share of integers that differ; infinite where that cannot be said."""
    if target.shape != value.shape or is_float(target.dtype) != is_float(value.dtype):
        return float("inf")
    if not is_float(value.dtype):
        return float(np.mean(target != value)) if value.size else 0.0
    t, y = target.astype(np.float64), value.astype(np.float64)
    same = (t == y) | (np.isnan(t) & np.isnan(y))
    level = rms(np.where(np.isfinite(y), y, 0))
    error = rms(np.where(same, 0, t - y))
    if error == 0:
        return 0.0
    return error / level if level > 0 and np.isfinite(error) else float("inf")


def tolerated(bench: Bench, region: Region, target: Array, before: float, precision: Precision, expected: float) -> float:
    """What a hypothesis may leave of an error, as `misfit` counts it."""
    if not is_float(target.dtype):
        return FLIPS_LEFT * min(before, 1.0)
    t = np.nan_to_num(target.astype(np.float64), posinf=0, neginf=0)
    level = rms(t)
    op = bench.graph.nodes[region.nodes[-1]].op
    step = step_of(t, *bench.ranges(region.output)) if precision.stepped else 0.0
    noise = max(expected, rms(storing_cost(precision, t, op, step)) / level if level > 0 else 0.0)
    return min(LEFT_NOISE * noise, max(LEFT * before, noise), LEFT_MOST * before)


def _made(bench: Bench, region: Region, boundary: Mapping[str, Array]) -> Iterator[tuple[Array, str]]:
    """(what the region makes of its boundary, the misreading in words), for each misreading of each operator."""
    count = 0
    for nodes in _doubted(bench, region):
        where = "" if len(region.nodes) == 1 else f" at {nodes[0].op} {', '.join(repr(n.label) for n in nodes)}"
        fed = _fed(bench, region, nodes[0], boundary)
        for change in TABLE[nodes[0].op] if fed is not None else ():
            for rival in change(_site(bench, nodes[0], fed or {})):
                count += 1
                if count > RIVALS_MOST:
                    return
                value = _run(bench, region, boundary, {n.index for n in nodes}, change, rival.text)
                if value is not None:
                    yield value, f"`{rival.text}`{where}"


def _doubted(bench: Bench, region: Region) -> Iterator[tuple[Node, ...]]:
    """Each node whose operator is in the table, the last one first; then all of one operator together (a kernel is wrong everywhere)."""
    graph = bench.graph
    known = [graph.nodes[i] for i in region.nodes if graph.nodes[i].op in TABLE and graph.nodes[i].domain == ""]
    known = [n for n in known if n.proto.domain in ("", "ai.onnx") and not all(graph.is_constant(m) for m in n.makes)]
    for node in reversed(known):
        yield (node,)
    for op in dict.fromkeys(n.op for n in known):
        together = tuple(n for n in known if n.op == op)
        if len(together) > 1:
            yield together


def _fed(bench: Bench, region: Region, node: Node, boundary: Mapping[str, Array]) -> dict[str, Array] | None:
    """What the node reads but for constants; None where some of it cannot be had."""
    hidden = [n for n in node.reads if n not in boundary and n not in bench.graph.constants]
    made = bench.engine.replay([i for i in region.nodes if i < node.index], boundary, hidden) if hidden else {}
    values = {n: boundary[n] for n in node.reads if n in boundary}
    for name, value in made.items():
        if isinstance(value, Unavailable):
            return None
        values[name] = value
    return values


def _site(bench: Bench, node: Node, fed: Mapping[str, Array]) -> Site:
    graph = bench.graph

    def value(name: str) -> Array | None:
        return fed[name] if name in fed else graph.constant(name) if name in graph.constants else None

    return Site(node.proto, graph.opsets.get("", 1), value)


def _run(
    bench: Bench, region: Region, boundary: Mapping[str, Array], doubted: set[int], change: Change, text: str
) -> Array | None:
    """The region's output where the doubted nodes are misread; None where that cannot run."""
    graph = bench.graph
    values: dict[str, Array] = dict(boundary)
    stood_in: dict[str, Value] = {}

    def hook(name: str, value: Value) -> Array | None:
        node = graph.nodes[graph.producer[name]]
        if node.index in doubted:
            if name not in stood_in:
                stood_in.update(_stand_in(bench, node, values, change, text))
            value = stood_in.get(name, Unavailable("the misreading does not apply"))
        if isinstance(value, Unavailable):
            values.pop(name, None)
            return None
        if name not in boundary:
            values[name] = value
        return value if node.index in doubted else None

    try:
        bench.engine.local(boundary, hook, region.nodes)
    except ValueError:  # another dtype than the model says
        return None
    return values.get(region.output)


def _stand_in(bench: Bench, node: Node, values: Mapping[str, Array], change: Change, text: str) -> dict[str, Value]:
    """What the misread node makes."""
    fed = {n: values[n] for n in node.reads if n in values}
    for rival in change(_site(bench, node, fed)):
        if rival.text == text:
            read = {name for proto in rival.nodes for name in proto.input}
            feeds = {k: v for k, v in {**fed, **rival.feeds}.items() if k in read}
            own = [name for name in node.makes if any(name in proto.output for proto in rival.nodes)]
            return bench.engine.try_nodes(rival.nodes, feeds, own, opset=rival.opset)
    return {}
