"""The smallest case that still computes one element: found by trying, so that it works for any operator.

First it is measured which stretch of each axis the element depends on (by moving everything outside: two binary searches an axis).
Then axes are cropped to these stretches, all at once, else one by one with the axes that go with them. A crop is taken only if the
golden of the element stays what it was, on the real values and on others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto, numpy_helper

from bisect_align.model.dtypes import is_float
from bisect_align.model.graph import Graph, graph_of
from bisect_align.model.parameters import indices, shape_parameters
from bisect_align.repro.crop import Crop, Small, run

Array: TypeAlias = NDArray[Any]
Axis: TypeAlias = tuple[str, int]
Stretch: TypeAlias = tuple[int, int]

ROUNDS = 3
TRIES = 400  # crops that are tried before what was found has to do
WIDER = 8  # how far a stretch is widened to the left, where strides or pads do not fit
CLOSE = 2.0**-20  # relative error up to which two goldens are one: sums of another length may end in other bits
BORDER = 4  # from here on it does not matter how far an element is from the border
BIG = 8.0  # of the largest magnitude: a value that no maximum and no sum overlooks


@dataclass(frozen=True, slots=True)
class Shrunk:
    """small: the case. golden: of its whole output; exact: the element's golden has the bits that it had in the whole."""

    small: Small
    golden: Array
    exact: bool


def shrink(small: Small) -> Shrunk | None:
    """The smallest case that was found; None where the case as it is cannot be run."""
    start = run(small.model, small.inputs)
    if start is None:
        return None
    with np.errstate(all="ignore"):
        best = _Search(small, start)
        for _ in range(ROUNDS):
            before = best.small.size, _weight(best.small)
            best.improve()
            if (best.small.size, _weight(best.small)) == before:
                break
        golden = run(best.small.model, best.small.inputs)
    if golden is None:
        return None
    return Shrunk(best.small, golden, _same(golden[best.small.at], start[small.at]))


def _weight(small: Small) -> int:
    return sum(int(values.size) for values in small.constants().values())


class _Search:
    """The best case so far. wanted: goldens of the element in the whole, on real and on other values; now: its golden in this case."""

    def __init__(self, small: Small, output: Array) -> None:
        self.small, self.shape, self._left = small, output.shape, TRIES
        rng = np.random.default_rng(0)
        self._others = {n: _other(x, rng) for n, x in small.inputs.items()}
        other = run(small.model, self._others)
        self._wanted = [output[small.at]]
        if other is not None and other.shape == output.shape:
            self._wanted.append(other[small.at])
        self._now = self._wanted[0]

    def improve(self) -> None:
        """One round over all axes."""
        reach = {axis: stretch for axis in self._axes() if (stretch := self._stretch(axis)) is not None}
        if reach and any(self._take(crop) for crop in self._at_once(reach)):
            return
        order = sorted(reach, key=lambda axis: (axis[0] not in self.small.inputs, -self._length(axis)))
        for axis in order:
            if self._length(axis) > reach[axis][1] - reach[axis][0]:
                any(self._take(crop) for crop in self._along(axis, reach))

    # --- what there is ----------------------------------------------------------------------------------------------------------

    def _values(self) -> dict[str, Array]:
        graph = graph_of(self.small.model)
        fixed = {name for node in graph.nodes for name in shape_parameters(node)}
        constants = {n: x for n, x in self.small.constants().items() if n not in fixed}
        return {**{n: x for n, x in self.small.inputs.items() if n not in fixed}, **constants}

    def _axes(self) -> list[Axis]:
        return [(n, a) for n, x in self._values().items() for a in range(x.ndim) if x.shape[a] > 1]

    def _length(self, axis: Axis) -> int:
        values = self._values().get(axis[0])
        return values.shape[axis[1]] if values is not None and axis[1] < values.ndim else 0

    # --- on which stretch of an axis does the element depend? -------------------------------------------------------------------

    def _stretch(self, axis: Axis) -> Stretch | None:
        """(first, end) along the axis; None where that cannot be told."""
        name, along = axis
        values = self._values()[name]
        length = values.shape[along]
        free = _largest(length, lambda k: not self._depends(name, values, along, 0, k))
        if free == length:
            return 0, 1
        end = length - _largest(length - free, lambda k: not self._depends(name, values, along, length - k, length))
        return free, max(end, free + 1)

    def _depends(self, name: str, values: Array, along: int, first: int, end: int) -> bool:
        place = (slice(None),) * along + (slice(first, end),)
        for moved in _moved(values[place], values):
            changed = values.copy()
            changed[place] = moved
            output = self._run_with(name, changed)
            if output is None or output.shape != self.shape or not _same(output[self.small.at], self._now):
                return True
        return False

    def _run_with(self, name: str, values: Array) -> Array | None:
        if name in self.small.inputs:
            return run(self.small.model, {**self.small.inputs, name: values})
        return run(_with_constant(self.small, name, values), self.small.inputs)

    # --- crops ------------------------------------------------------------------------------------------------------------------

    def _at_once(self, reach: dict[Axis, Stretch]) -> Iterator[Crop]:
        parts = tuple((n, a, *reach[n, a]) for n, a in reach if self._length((n, a)) > reach[n, a][1] - reach[n, a][0])
        if parts:
            yield from self._variants(parts)

    def _along(self, axis: Axis, reach: dict[Axis, Stretch]) -> Iterator[Crop]:
        """Crops of one axis, narrowest first, alone and with other axes of the same length."""
        length = self._length(axis)
        first, end = reach[axis]
        mates = [other for other in reach if other != axis and other[0] != axis[0] and self._length(other) == length]
        same = [other for other in mates if reach[other] == (first, end)]
        groups = [g for g in (same, mates, []) if g or g is not same]
        windows = [(f, e) for f in range(first, max(first - WIDER, 0) - 1, -1) for e in (end, end + 1, end + 2, length)]
        for f, e in sorted({(f, min(e, length)) for f, e in windows} | {(0, end), (first, length)}, key=lambda w: w[1] - w[0]):
            if e - f >= length:
                continue
            for group in groups:
                yield from self._variants(tuple((n, a, f, e) for n, a in (axis, *group)), ((length, e - f),))

    def _variants(self, parts: tuple[tuple[str, int, int, int], ...], sizes: tuple[tuple[int, int], ...] = ()) -> Iterator[Crop]:
        """The same crop with the edits that an operator may need beside it."""
        graph = graph_of(self.small.model)
        crop = Crop(parts)
        yield crop
        if shifts := tuple(_shifts(graph, parts)):
            yield replace(crop, shifts=shifts)
        if any(a.name == "group" and a.i > 1 for node in graph.nodes for a in node.proto.attribute):
            yield replace(crop, ungroup=True)
        if sizes:
            yield replace(crop, sizes=sizes)

    def _take(self, crop: Crop) -> bool:
        """Keep the crop if the element is still what it was, on the real values and on others."""
        if self._left <= 0:
            return False
        self._left -= 1
        tried = self.small.cropped(crop)
        output = run(tried.model, tried.inputs)
        if output is None or output.ndim != len(self.shape) or not output.size:
            return False
        others = {n: crop.array(n, x) for n, x in self._others.items()}
        outputs = [output]
        if len(self._wanted) > 1:
            second = run(tried.model, others)
            if second is None or second.shape != output.shape:
                return False
            outputs.append(second)
        at = _place(outputs, self._wanted, self.small.at, self.shape)
        if at is None:
            return False
        self.small, self.shape, self._others = replace(tried, at=at), output.shape, others
        self._now = output[at]
        return True


def _largest(most: int, holds: Callable[[int], bool]) -> int:
    """The largest k in 0..most for which `holds`, which once false stays so (0 always holds)."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if holds(middle) else (low, middle - 1)
    return low


def _moved(part: Array, whole: Array) -> Iterator[Array]:
    """Other values for a part of a tensor: so large that nothing overlooks them, or other ids of the same tensor."""
    if is_float(whole.dtype):
        finite = np.abs(whole[np.isfinite(whole)])
        big = BIG * float(finite.max(initial=0.0)) + 1
        yield np.full_like(part, big)
        yield np.full_like(part, -big)
        yield (part + np.where(np.arange(part.size).reshape(part.shape) % 2, 0.37, -0.53) * (big / BIG)).astype(part.dtype)
    elif whole.dtype.kind == "b":
        yield ~part
    else:
        yield np.full_like(part, whole.max())
        yield np.full_like(part, whole.min())


def _other(values: Array, rng: np.random.Generator) -> Array:
    """Values of the same kind and size that are not the same; ids and bools stay."""
    if not is_float(values.dtype) or not values.size:
        return values
    spread = float(np.abs(values[np.isfinite(values)]).mean()) if np.isfinite(values).any() else 1.0
    return (values + 0.5 * (spread or 1.0) * rng.standard_normal(values.shape)).astype(values.dtype)


def _with_constant(small: Small, name: str, values: Array) -> ModelProto:
    model = ModelProto()
    model.CopyFrom(small.model)
    for tensor in model.graph.initializer:
        if tensor.name == name:
            tensor.CopyFrom(numpy_helper.from_array(values, name))
    return model


def _shifts(graph: Graph, parts: tuple[tuple[str, int, int, int], ...]) -> Iterator[tuple[str, int | None, int, int]]:
    """Indices into a cropped axis count from its new start."""
    for node in graph.nodes:
        for ids in indices(node):
            for name, axis, first, end in parts:
                if name == node.inputs[0]:
                    yield ids, axis if node.op in ("GatherND", "ScatterND") else None, first, end - first


def _same(x: Any, y: Any) -> bool:
    return bool(np.asarray(x).tobytes() == np.asarray(y).tobytes() or (x != x and y != y))


def _close(values: Array, wanted: Any) -> Array:
    if not is_float(values.dtype):
        return np.asarray(values == wanted)
    x, w = values.astype(np.float64), float(wanted)
    return np.asarray((x == w) | (np.abs(x - w) <= CLOSE * abs(w)) | (np.isnan(x) & np.isnan(w)))


def _place(outputs: list[Array], wanted: list[Any], at: tuple[int, ...], shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """Where the element stands now: exact places first, then those as far from the borders as it was."""
    new = outputs[0].shape
    axes = [range(n) if n != old else (i,) for n, old, i in zip(new, shape, at, strict=True)]
    close = [_close(made, value) for made, value in zip(outputs, wanted, strict=True)]
    places = [p for p in product(*axes) if all(c[p] for c in close)]
    if not places:
        return None
    exact = [p for p in places if all(_same(made[p], value) for made, value in zip(outputs, wanted, strict=True))]

    def moved(place: tuple[int, ...]) -> int:
        sides = zip(place, at, new, shape, strict=True)
        return sum(
            abs(min(p, BORDER) - min(i, BORDER)) + abs(min(n - 1 - p, BORDER) - min(o - 1 - i, BORDER)) for p, i, n, o in sides
        )

    return min(exact or places, key=moved)
