"""Accumulated noise: how far a healthy target of this precision strays from the golden by itself, all the way from the inputs.

K shadow runs walk beside the golden in lockstep, every value jittered by the precision's rounding as it is made; only figures are
kept. Their largest deviation is what the precision explains.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from bisect_align.golden.protocol import Unavailable
from bisect_align.judgement.bench import Bench
from bisect_align.judgement.jitter import JitteredWeights, weights_of
from bisect_align.judgement.precision import Precision
from bisect_align.metrics.inner import norm, relative
from bisect_align.model.dtypes import is_float

Array: TypeAlias = NDArray[Any]

SHADOWS = 8


@dataclass(frozen=True, slots=True)
class NoiseLevel:
    """Largest over the shadow runs; infinite where none of them can tell (all fail, or are finite nowhere).

    relative: ||y - g|| / ||g||; peak: max |y - g|; share: elements that differ (integers, bools).
    level: rms of the golden, to which relative figures refer.
    """

    relative: float = 0.0
    peak: float = 0.0
    share: float = 0.0
    level: float = 0.0


def accumulated_noise(
    bench: Bench, inputs: Mapping[str, Array], wanted: Collection[str], precision: Precision, shadows: int = SHADOWS
) -> dict[str, NoiseLevel]:
    """Noise level of every wanted tensor that the golden can make. shadows + 1 passes in lockstep."""
    graph = bench.graph
    matrices = weights_of(graph, tuple(range(len(graph.nodes))))
    jitters = [bench.jitter(precision, "", "shadow", k) for k in range(shadows)]
    lazy = _Constants(bench)
    streams = [
        bench.engine.stream(
            {name: jitter.boundary(name, x) for name, x in inputs.items()},
            wanted,
            weights=JitteredWeights(lazy, matrices, jitter) if matrices else None,
            perturb=jitter.hidden,
        )
        for jitter in jitters
    ]
    found: dict[str, NoiseLevel] = {}
    for (name, golden), *others in zip(bench.engine.stream(inputs, wanted), *streams, strict=True):
        if not isinstance(golden, Unavailable):
            found[name] = _level(golden, [y for _, y in others if not isinstance(y, Unavailable)])
    return found


def _level(golden: Array, shadows: list[Array]) -> NoiseLevel:
    shadows = [y for y in shadows if y.shape == golden.shape]
    if not golden.size:
        return NoiseLevel()
    if not shadows:
        return NoiseLevel(np.inf, np.inf, 1.0)
    if not is_float(golden.dtype):
        return NoiseLevel(share=max(float(np.mean(y != golden)) for y in shadows))
    g = golden.astype(np.float64).reshape(-1)
    size = float(np.sqrt(np.nansum(np.square(g, where=np.isfinite(g), out=np.zeros_like(g)))))
    farthest = peak = 0.0
    told = not np.isfinite(g).any()
    for y in shadows:
        with np.errstate(invalid="ignore"):
            d = y.reshape(-1).astype(np.float64) - g
        d = d[np.isfinite(d)]
        told = told or d.size > 0
        farthest = max(farthest, relative(norm(d), size))
        peak = max(peak, float(np.abs(d).max(initial=0.0)))
    level = size / np.sqrt(g.size)
    return NoiseLevel(farthest, peak, 0.0, level) if told else NoiseLevel(np.inf, np.inf, 0.0, level)


class _Constants(Mapping[str, Array]):
    """The constants of the graph, read as they are asked for."""

    def __init__(self, bench: Bench) -> None:
        self._graph = bench.graph

    def __getitem__(self, name: str) -> Array:
        return self._graph.constant(name)

    def __contains__(self, name: object) -> bool:
        return name in self._graph.constants

    def __iter__(self) -> Any:
        return iter(self._graph.constants)

    def __len__(self) -> int:
        return len(self._graph.constants)
