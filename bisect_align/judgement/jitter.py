"""Perturbed replays: the same region again, with boundary, weights and hidden tensors moved by the precision's rounding.

Every draw is uniform in (-1, 1), fresh per element and replay, and seeded by (model, region, replay): the same run gives the same bits.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from bisect_align.judgement.precision import BOUNDED, TABLE_STEP, TABLE_STEP_INT8, Precision, grid_step, print_step, step_of
from bisect_align.model.dtypes import is_float
from bisect_align.model.graph import Graph
from bisect_align.model.operators import KEEPS, MATRIX
from bisect_align.model.parameters import never_fed, shape_parameters

Array: TypeAlias = NDArray[Any]
Ranges: TypeAlias = Callable[[str], tuple[float, float]]

# Which input of an operator is a matrix of weights (or a table of embeddings) that int8 quantises with a scale of its own (biases and
# norm parameters keep 32 bits).
MATRIX_INPUTS = {
    "Conv": (1,),
    "ConvTranspose": (1,),
    "MatMul": (0, 1),
    "Gemm": (0, 1),
    "Gather": (0,),
    "LSTM": (1, 2),
    "GRU": (1, 2),
    "RNN": (1, 2),
}
FINE_INT8 = 2.0**-10  # relative jitter of a value that int8 runs keep in 32 bits
EXACT_WEIGHTS = 0.1  # share of the weight jitter that is left once the target's own weight rounding is known
CLIPPED = 0.1  # of its range is what calibration may cut off a tensor that nobody saw
ON_GRID = 0.1  # of a step: a dumped int8 value is exact but for its scale


def seed(*parts: object) -> np.random.Generator:
    """A generator that depends on the parts alone."""
    digest = hashlib.blake2b("\0".join(map(str, parts)).encode(), digest_size=8).digest()
    return np.random.default_rng(int.from_bytes(digest, "little"))


def draw(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Uniform in (-1, 1), float32."""
    return np.asarray(2 * rng.random(shape, dtype=np.float32) - 1)


@dataclass(frozen=True, slots=True)
class Jitter:
    """How one replay is perturbed. `amount` multiplies everything (2 or 4 for the excuse of discrete flips), `coarse` the int8 steps
    of what the dump does not show. cuts: values move towards zero alone, as where what the format does not hold is cut off."""

    graph: Graph
    precision: Precision
    ranges: Ranges
    rng: np.random.Generator
    exact_weights: bool = False
    amount: float = 1.0
    coarse: float = 1.0
    cuts: bool = False

    def boundary(self, name: str, x: Array) -> Array:
        """A boundary value as the target may have held it; integers and shape-steering values are left alone."""
        if not is_float(x.dtype) or not x.size:
            return x
        if self.precision.stepped:
            if (step := grid_step(x)) is None:  # its reader quantises it
                return self._quantised(name, x, CLIPPED if self._calibrated(name) else 0.0)
            move = ON_GRID * step * draw(self.rng, x.shape)
        else:
            move = self._unit(x, print_step(x) / 2) * self._draw(x)
        return _moved(x, self.amount * move)

    def _calibrated(self, name: str) -> bool:
        """Read in a range that calibration has chosen, which the dump does not show: graph inputs, and what matrix operators read
        where these alone are quantised."""
        readers = self.graph.consumers.get(name, ())
        return name in self.graph.inputs or any(self.graph.nodes[reader].op in MATRIX for reader in readers)

    def hidden(self, name: str, h: Array) -> Array:
        """A tensor inside the region, rounded as storing it would; what steers shapes is left alone."""
        if not is_float(h.dtype) or not h.size or name in never_fed(self.graph):
            return h
        if self.precision.stepped:
            return self._quantised(name, h, CLIPPED)
        producer = self.graph.producer.get(name)
        op = "" if producer is None else self.graph.nodes[producer].op
        if op in KEEPS:
            return h  # rounded before it was moved
        size = self._unit(h)
        if op in BOUNDED:
            size = np.maximum(size, 0.5 * max(self.precision.unit, TABLE_STEP))
        return _moved(h, self.amount * size * self._draw(h))

    def _draw(self, x: Array) -> Array:
        drawn = draw(self.rng, x.shape)
        return -np.abs(drawn) * np.sign(x) if self.cuts else drawn

    def _unit(self, x: Array, step: float = 0.0) -> Array:
        """Half a unit in the last place of x; what a float format or a printed step loses near zero turns no sign."""
        size = np.abs(x.astype(np.float32))
        return np.asarray(self.precision.unit * size + np.minimum(self.precision.least + step, size / 2))

    def _quantised(self, name: str, x: Array, clipped: float) -> Array:
        """Clipped to what calibration may have left of its range, and moved by half a step: the largest value too may be rounded
        up. Zero stays zero and no sign turns, as in any quantiser (the square root of what was positive must not become NaN)."""
        lowest, highest = self.ranges(name)
        step = self.coarse * step_of(None, lowest, highest)
        if (producer := self.graph.producer.get(name)) is not None and self.graph.nodes[producer].op in BOUNDED:
            step = max(step, TABLE_STEP_INT8)
        move = self.amount * 0.5 * step * draw(self.rng, x.shape)
        left = 1 - clipped * max(0.0, 2 * self.rng.random() - 1)  # calibration may clip, and need not: in half of the draws
        kept = np.clip(x, left * min(lowest, 0.0), left * max(highest, 0.0)) if clipped else x
        moved = _moved(kept, move)
        return np.where(np.isnan(x), x, np.where(np.sign(moved) == np.sign(x), moved, 0)).astype(x.dtype)

    def weight(self, name: str, w: Array, matrix: bool) -> Array:
        """A constant as the target may have rounded it."""
        scale = self.amount * (EXACT_WEIGHTS if self.exact_weights else 1.0)
        if not self.precision.stepped:
            move = w * (self.precision.unit * self._draw(np.abs(w)))
        elif matrix:
            move = float(np.abs(w).max(initial=0.0)) / 254 * draw(self.rng, w.shape)
        else:
            move, scale = w * (FINE_INT8 * draw(self.rng, w.shape)), self.amount
        return _moved(w, scale * move)


def _moved(x: Array, move: Array) -> Array:
    """x + move in x's type; what is not finite, or would no longer be (a mask of the lowest number that there is), stays as it is."""
    with np.errstate(invalid="ignore", over="ignore"):
        moved = np.asarray(x + move).astype(x.dtype, copy=False)
    return moved if np.isfinite(moved).all() else np.where(np.isfinite(moved), moved, x)


# Constants that are exact in every format and must stay so: a squared negative number is NaN under an exponent of 2.0001.
EXPONENTS = {"Pow": (1,)}


def weights_of(graph: Graph, nodes: tuple[int, ...]) -> dict[str, bool]:
    """Float constants that the nodes compute with (not those that steer shapes) -> whether they are weight matrices."""
    found: dict[str, bool] = {}
    steering = never_fed(graph)
    for index in nodes:
        node = graph.nodes[index]
        if steering.intersection(node.makes):  # what a shape is computed with is as exact as the shape
            continue
        skip = shape_parameters(node)
        for position, name in enumerate(node.inputs):
            if name in graph.constants and name not in skip and position not in EXPONENTS.get(node.op, ()):
                dtype = graph.types[name].dtype if name in graph.types else None
                if dtype is not None and is_float(dtype):
                    found[name] = found.get(name, False) or position in MATRIX_INPUTS.get(node.op, ())
    return found


class JitteredWeights(Mapping[str, Array]):
    """The weights of a region, jittered one at a time as they are asked for (none is kept)."""

    def __init__(self, base: Mapping[str, Array], matrices: Mapping[str, bool], jitter: Jitter) -> None:
        self._base, self._matrices, self._jitter = base, matrices, jitter

    def __getitem__(self, name: str) -> Array:
        return self._jitter.weight(name, self._base[name], self._matrices[name])

    def __contains__(self, name: object) -> bool:
        return name in self._matrices

    def __iter__(self) -> Iterator[str]:
        return iter(self._matrices)

    def __len__(self) -> int:
        return len(self._matrices)
