"""Did the target run on another input? Its first tensors are replayed on what the input may have been instead.

A region that follows from the input in another form is healthy, unless an operator at fault would have made the same of the right
one. Each kind of relation has its own doubts: operators that only move values may put them in another order, and cannot change
their range; an output that is scaled and shifted as a whole says nothing of the input, but for a range that inputs are known to
have; what is shifted before a quantised sum may be a wrong zero point.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from bisect_align.golden.protocol import Unavailable
from bisect_align.judgement.bench import Bench
from bisect_align.judgement.hypotheses import misfit, tolerated
from bisect_align.judgement.input_relations import SAME, Kind, Relation, after, arrangements, groups, recoded, scaled, solved
from bisect_align.judgement.precision import Precision
from bisect_align.model.dtypes import is_float
from bisect_align.model.graph import Node
from bisect_align.model.operators import CONVOLUTIONS, MATRIX
from bisect_align.model.region import Region

Array: TypeAlias = NDArray[Any]

SAMPLE = 1 << 14  # elements of an output by which scale and shift are fitted
LINEAR = 1e-3  # relative error up to which a region counts as linear
SPREAD_MIN = 16  # elements that the error must be spread over: any of many forms may give one class or a few numbers by chance
UNSCALED = 0.02  # a fitted scale so near to 1 is none
SHIFTS = 2  # so many channels of an output, for each shift that is fitted, tell it from a wrong bias
# Operators that give the same values, channels in the same order.
KEEPS = frozenset({"Cast", "Flatten", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze"})
CLAMPS = frozenset({"Clip", "Relu"})
# Operators by which a model may exchange channels itself: a target that drops them looks like reversed channels.
PICKS = frozenset({"Gather", "GatherElements", "GatherND", "Split"})


@dataclass(frozen=True, slots=True)
class OtherInput:
    """A region that follows from another form of an input. before, left: misfit of the target's value on the input as it was given,
    and on that of `relation`."""

    relation: Relation
    before: float
    left: float


@dataclass(frozen=True)
class _Scene:
    """A region, what it was fed, and what the target made of it. limit: the misfit that noise explains."""

    bench: Bench
    region: Region
    feeds: Mapping[str, Array]
    name: str
    target: Array
    precision: Precision
    expected: float

    def make(self, values: Array, tensor: str = "") -> Array | None:
        wanted = tensor or self.region.output
        made = self.bench.engine.replay(self.region.nodes, {**self.feeds, self.name: values}, [wanted])[wanted]
        return None if isinstance(made, Unavailable) else made

    def misfit(self, values: Array) -> float:
        made = self.make(values)
        return float("inf") if made is None else misfit(self.target, made)

    @cached_property
    def nodes(self) -> list[Node]:
        graph = self.bench.graph
        return [n for n in (graph.nodes[i] for i in self.region.nodes) if not all(graph.is_constant(m) for m in n.makes)]

    @cached_property
    def before(self) -> float:
        return self.misfit(self.feeds[self.name])

    @cached_property
    def limit(self) -> float:
        return tolerated(self.bench, self.region, self.target, self.before, self.precision, self.expected)

    @cached_property
    def spread(self) -> float:
        """Over how many elements the error is spread: (sum of squares)^2 / sum of fourth powers."""
        y = self.make(self.feeds[self.name])
        if y is None or y.shape != self.target.shape:
            return 0.0
        squares = np.square(self.target.astype(np.float64) - y.astype(np.float64))
        whole = float(squares.sum())
        return whole**2 / float(np.square(squares).sum()) if 0 < whole < float("inf") else 0.0

    @cached_property
    def moves(self) -> bool:
        return all(n.op in KEEPS for n in self.nodes)

    @cached_property
    def multiplies(self) -> bool:
        return any(n.op in MATRIX for n in self.nodes)

    @cached_property
    def scaled_as_a_whole(self) -> bool:
        """The region's own output, scaled and shifted, explains the target: that may be any operator's fault."""
        y = self.make(self.feeds[self.name])
        if y is None or y.shape != self.target.shape or not np.isfinite(y).all():
            return True
        flat, t = y.astype(np.float64).reshape(-1), self.target.astype(np.float64).reshape(-1)
        some = flat[_spread(flat.size)]
        found = solved([some, np.ones_like(some)], t[_spread(flat.size)])
        return found is None or misfit(t, found[0] * flat + found[1]) <= self.limit

    @cached_property
    def end(self) -> str:
        """The tensor above the clamp at the region's end, where there is one."""
        graph, end = self.bench.graph, self.region.output
        while (node := graph.nodes[graph.producer[end]]).op in CLAMPS and node.inputs[0] in self.region.hidden:
            end = node.inputs[0]
        return end

    @cached_property
    def linear(self) -> bool:
        """Up to that tensor: what the region makes of two parts of the input is, together, what it makes of both."""
        x = self.feeds[self.name]
        part = np.random.default_rng(0).random(x.shape) < 0.5  # fixed: the same run gives the same answer
        made = [self.make(np.where(kept, x, 0).astype(x.dtype), self.end) for kept in (True, part, ~part, False)]
        whole, one, other, none = ((m.astype(np.float64) if m is not None else np.array(np.nan)) for m in made)
        return misfit(whole - none, one + other - 2 * none) <= LINEAR


def other_input(
    bench: Bench, region: Region, feeds: Mapping[str, Array], name: str, target: Array, *, precision: Precision, expected: float
) -> OtherInput | None:
    """The form of input `name` from which the region makes the target's value, up to noise; None where there is none, or where an
    operator at fault would look the same.

    feeds: what the region was fed. expected: relative L2 of healthy noise here. Channels and layouts are tried first, then known
    ranges of values, then any scale and shift that the region, where it is linear, tells.
    """
    x = feeds[name]
    scene = _Scene(bench, region, feeds, name, target, precision, expected)
    if not 0 < scene.before < float("inf") or scene.spread < SPREAD_MIN:
        return None
    for relations in (_rearranged, _recoded, _rescaled):
        fits = [
            one for r in relations(scene, x) if (one := OtherInput(r, scene.before, scene.misfit(r.values))).left <= scene.limit
        ]
        if fits:
            return min(fits, key=lambda one: one.left)
    return None


def _rearranged(scene: _Scene, x: Array) -> Iterator[Relation]:
    reverses = any(_may_reverse(scene, n) for n in scene.nodes if scene.name in n.reads)
    for relation in arrangements(x):
        if not (Kind.LAYOUT in relation.kinds and scene.moves) and not (Kind.ORDER in relation.kinds and reverses):
            yield relation


def _may_reverse(scene: _Scene, node: Node) -> bool:
    if node.op != "Slice" or len(node.inputs) < 5:
        return node.op in PICKS
    graph = scene.bench.graph
    return node.inputs[4] not in graph.constants or bool((graph.constant(node.inputs[4]) < 0).any())


def _recoded(scene: _Scene, x: Array) -> Iterator[Relation]:
    """Other ranges of values, in the order given and with the channels reversed."""
    if not is_float(x.dtype) or not is_float(scene.target.dtype):
        return
    if not (scene.moves or scene.multiplies) and scene.scaled_as_a_whole:
        return
    yield from recoded(x, _rearranged(scene, x))


def _rescaled(scene: _Scene, x: Array) -> Iterator[Relation]:
    """Any scale and shift, in common or by channel; the first that fits is enough."""
    if not is_float(x.dtype) or not is_float(scene.target.dtype):
        return
    if (scene.scaled_as_a_whole and not scene.moves) or not scene.linear:
        return
    for turned in (None, *_rearranged(scene, x)):
        values = x if turned is None else turned.values
        for axis, masks in groups(x.shape):
            found = _fitted(scene, values, masks)
            if found is None:
                continue
            relation = scaled(values, *found, axis)
            if scene.misfit(relation.values) <= scene.limit:
                yield relation if turned is None else after(turned, relation)
                return


def _fitted(scene: _Scene, values: Array, masks: Sequence[Array]) -> tuple[Array, Array] | None:
    """Scales and shifts of the masked parts by least squares."""
    target = scene.target.astype(np.float64).reshape(-1)
    told = np.arange(target.size)
    if scene.end != scene.region.output:  # a clamp leaves what lies between its ends as it is
        told = np.flatnonzero((target > target.min()) & (target < target.max()))
    told = told[_spread(told.size)]

    def made(fed: Array) -> Array | None:
        got = scene.make(np.ascontiguousarray(fed, values.dtype), scene.end)
        return None if got is None or got.size != target.size else got.astype(np.float64).reshape(-1)[told]

    ones = np.ones_like(values)
    zero = made(np.zeros_like(values))
    parts = [made(np.where(mask, fed, 0)) for mask in masks for fed in (values, ones)]
    if zero is None or any(part is None for part in parts):
        return None
    found = solved([part - zero for part in parts if part is not None], target[told] - zero)
    if found is None or (scene.precision.stepped and (np.abs(found[0] - 1) < UNSCALED).all()):
        return None
    if not scene.moves and (np.abs(found[1]) < SAME * np.abs(found[0])).all():
        return None  # a factor alone is what the operator's own alpha, or the scale of its weights, may be
    return found if scene.moves or _channels(scene) >= SHIFTS * len(masks) else None


def _channels(scene: _Scene) -> int:
    """How many channels the output has: along axis 1 of a convolution and of what follows it, else along the last one."""
    convolves = any(n.op in CONVOLUTIONS for n in scene.nodes)
    return scene.target.shape[1 if convolves and scene.target.ndim > 2 else -1] if scene.target.ndim else 1


def _spread(size: int) -> slice:
    """Evenly spaced places."""
    return slice(None, None, max(1, size // SAMPLE))
