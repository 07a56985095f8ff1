"""What the error of an output is made of, where nobody is at fault: the output without what single regions introduced.

A region is taken to have done right: its replay stands in the place of the target's value. Every region that reads it is replayed on
what it would then have been fed, and adds what it introduced in fact: t' = replay(fed') + (t - replay(fed)). So all other errors stay,
and what changes at the output is this region's part, amplified, damped or cancelled as the net does it. It is exact where the other
regions introduce the same error whatever they are fed, and near it for rounding errors of all kinds.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from bisect_align.golden.protocol import Unavailable
from bisect_align.judgement.bench import Bench, Observed, feeds_of, predict
from bisect_align.model.dtypes import is_float
from bisect_align.model.observed import ObservedGraph
from bisect_align.model.region import region

Array: TypeAlias = NDArray[Any]


def candidates(graph: ObservedGraph, output: str, introduced: Mapping[str, float], gains: Mapping[str, float]) -> tuple[str, ...]:
    """Tensors above the output (itself among them) by what their introduced error may come to there, the largest first.

    introduced: relative L2 by tensor, those without are left out. gains: of each region; the best path counts, an unknown gain is 1.
    An order to try them in, no measurement: errors of many paths add up and cancel.
    """
    reach: dict[str, float] = {output: 1.0}
    for name in reversed(graph.order):
        if name in reach:
            for parent in graph.parents[name]:
                reach[parent] = max(reach.get(parent, 0.0), reach[name] * gains.get(name, 1.0))
    weight = {t: introduced[t] * reach[t] for t in graph.order if t in reach and introduced.get(t, 0.0) > 0}
    return tuple(sorted(weight, key=lambda t: -weight[t]))


def output_without(
    bench: Bench,
    inputs: Mapping[str, Array],
    graph: ObservedGraph,
    observed: Observed,
    removed: Collection[str],
    output: str,
) -> Array | None:
    """The target's output if the regions of the `removed` tensors had introduced no error; None where it cannot be computed.

    One local pass over the nodes above the output, and one replay of each region below a removed one.
    """
    changed: set[str] = set()
    for name in graph.order:
        if name in removed or any(parent in changed for parent in graph.parents[name]):
            changed.add(name)
    found: dict[str, Array] = {}

    def hook(name: str, predicted: Array | Unavailable) -> Array | None:
        if name not in graph.parents:
            return None
        value = observed.value(name)
        if name in changed and not isinstance(predicted, Unavailable) and predicted.shape == value.shape:
            value = predicted if name in removed else _carried(bench, observed, name, predicted, value)
        if name == output:
            found[name] = value
        return value

    bench.engine.local(inputs, hook, _above(bench, output))
    return found.get(output)


def _carried(bench: Bench, observed: Observed, name: str, predicted: Array, value: Array) -> Array:
    """The prediction with what this region introduced in fact; of integers, the target's where its inputs make no difference."""
    area = region(bench.graph, name, observed)
    replay = predict(bench, area, feeds_of(area, observed, {}))
    if isinstance(replay, Unavailable) or replay.shape != value.shape:
        return value
    if not is_float(value.dtype):
        return np.where(predicted == replay, value, predicted)
    with np.errstate(all="ignore"):
        moved = predicted.astype(np.float64) + (value.astype(np.float64) - replay.astype(np.float64))
    return np.where(np.isfinite(moved), moved, value.astype(np.float64)).astype(value.dtype)


def _above(bench: Bench, output: str) -> Sequence[int]:
    """The nodes that the output is computed by."""
    return region(bench.graph, output, frozenset()).nodes
