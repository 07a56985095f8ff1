"""What the target may have done instead: its own inputs through a misread operator, compared with what it made.

What is tried stands in `hypothesis_table`, one entry a misreading.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from bisect_align.golden.protocol import Unavailable, Value
from bisect_align.judgement.bench import Bench
from bisect_align.judgement.hypothesis_table import TABLE
from bisect_align.judgement.misreadings import WAYS
from bisect_align.judgement.precision import Precision, grid_step, rms, step_of, storing_cost
from bisect_align.judgement.rival import Change, Rival, Site
from bisect_align.model.dtypes import is_float
from bisect_align.model.graph import Node
from bisect_align.model.region import Region

Array: TypeAlias = NDArray[Any]

MOST = 4  # hypotheses listed
NODES_MOST = 16  # a larger region is not doubted node by node
RIVALS_MOST, RIVALS_LEAST, WORK = 256, 24, 1 << 28  # replays for one culprit: fewer where its output is large (elements of all)
SAMPLE = 4096  # elements by which the way of rounding levels is found
PART, LISTED = 4, 4  # a misreading may hold for one channel of four at most, of which so many are listed
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
    clipped = misfit(target, _held(replay, target, precision))
    if clipped <= min(LEFT_NOISE * expected, LEFT_MOST * before):
        return ()  # a range that is too small explains it all
    limit = tolerated(bench, region, target, clipped, precision, expected)
    here = _wrong_indices(target, replay, limit)
    fits: list[_Fit] = []
    most = min(RIVALS_MOST, max(RIVALS_LEAST, WORK // max(replay.size, 1)))
    for value, text in chain(_levels(target, replay, precision), _made(bench, region, boundary, most)):
        left = misfit(target, _held(value, target, precision))
        if left <= limit:
            fits.append(_Fit(text, left))
        elif here is not None and value.shape == replay.shape:
            axis, wrong = here
            part = np.where(_along(wrong, axis, replay.ndim), value, replay)
            left = misfit(target, _held(part, target, precision))
            if left <= limit:
                listed = ", ".join(map(str, np.flatnonzero(wrong)[:LISTED]))
                fits.append(_Fit(f"{text} (at index {listed} of axis {axis} alone)", left))
    if not fits:
        return ()
    best = min(f.left for f in fits)
    equal = [f for f in fits if f.left <= max(2 * best, expected)]
    kind = "relative error" if is_float(target.dtype) else "share of wrong elements"
    shown = f"{before:.3g}" if np.isfinite(before) else "beyond comparison"
    return tuple(dict.fromkeys(f"behaves as if {f.text}: {kind} {shown} -> {f.left:.2g}" for f in equal))[:MOST]


def _held(value: Array, target: Array, precision: Precision) -> Array:
    """Between the bounds of the target, where they may be those of an int8 range."""
    if not precision.stepped or not is_float(value.dtype) or not np.isfinite(target).all() or not target.size:
        return value
    return np.clip(value, target.min(), target.max())


def _levels(target: Array, replay: Array, precision: Precision) -> Iterator[tuple[Array, str]]:
    """An int8 tensor whose levels are not the nearest ones: (the replay rounded so, in words)."""
    if not precision.stepped or not is_float(target.dtype) or target.shape != replay.shape or (step := grid_step(target)) is None:
        return
    levels = replay.astype(np.float64) / step
    nearest = misfit(target, np.rint(levels) * step)
    ways = {text: way(levels) for text, way in WAYS.items()}
    thin = slice(None, None, -(-levels.size // SAMPLE))
    few, seen = levels.reshape(-1)[thin], target.reshape(-1)[thin] / step
    middles = np.unique(np.rint(seen))  # the code 0 may stand at any level
    middle = float(middles[int(np.argmin([rms(_towards(few, m) - seen) for m in middles]))])
    ways[f"truncation towards {middle * step:.4g}"] = _towards(levels, middle)
    for text, made in ways.items():
        if misfit(target, made * step) < nearest / 2:
            yield (made * step).astype(replay.dtype), f"`levels by {text}`"


def _towards(levels: Array, middle: float) -> Array:
    return np.asarray(np.trunc(levels - middle) + middle)


def _wrong_indices(target: Array, replay: Array, limit: float) -> tuple[int, Array] | None:
    """(axis, mask) where a few channels hold all of the error that is not tolerated; None where they do not."""
    if target.shape != replay.shape or target.ndim < 2 or not is_float(target.dtype) or not np.isfinite(target).all():
        return None
    d = np.square(target.astype(np.float64) - replay)
    for axis in (1,) if target.ndim > 3 else (1, target.ndim - 1):
        energy = d.sum(axis=tuple(a for a in range(d.ndim) if a != axis))
        kept = np.cumsum(np.sort(energy)) <= limit**2 * float(np.sum(np.square(replay, dtype=np.float64)))
        count = energy.size - int(np.count_nonzero(kept))
        if 0 < count <= energy.size // PART:
            wrong = np.zeros(energy.size, bool)
            wrong[np.argsort(energy)[energy.size - count :]] = True
            return axis, wrong
    return None


def _along(mask: Array, axis: int, ndim: int) -> Array:
    return mask.reshape([-1 if a == axis else 1 for a in range(ndim)])


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


def _made(bench: Bench, region: Region, boundary: Mapping[str, Array], most: int) -> Iterator[tuple[Array, str]]:
    """(what the region makes of its boundary, the misreading in words), for each misreading of each operator."""
    count = 0
    for nodes in _doubted(bench, region):
        where = "" if len(region.nodes) == 1 else f" at {nodes[0].op} {', '.join(repr(n.label) for n in nodes)}"
        fed = _fed(bench, region, nodes[0], boundary)
        for change in TABLE[nodes[0].op] if fed is not None else ():
            for rival in _rivals(change, _site(bench, nodes[0], fed or {})):
                count += 1
                if count > most:
                    return
                value = _run(bench, region, boundary, {n.index for n in nodes}, change, rival.text)
                if value is not None:
                    yield value, f"`{rival.text}`{where}"


def _rivals(change: Change, site: Site) -> Iterator[Rival]:
    """What a misreading makes of a node; no more of it where the node's values are none that it was written for."""
    try:
        yield from change(site)
    except (ArithmeticError, LookupError, TypeError, ValueError):
        return


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
    hidden = [n for n in node.reads if n not in boundary and not bench.graph.holds(n)]
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
        return fed[name] if name in fed else graph.constant(name) if graph.holds(name) else None

    return Site(node.proto, graph.opsets.get("", 1), value, graph.constants)


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
    for rival in _rivals(change, _site(bench, node, fed)):
        if rival.text == text:
            read = {name for proto in rival.nodes for name in proto.input}
            feeds = {k: v for k, v in {**fed, **rival.feeds}.items() if k in read}
            own = [name for name in node.makes if any(name in proto.output for proto in rival.nodes)]
            return bench.engine.try_nodes(rival.nodes, feeds, own, opset=rival.opset)
    return {}
