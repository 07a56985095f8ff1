"""Simpler ways to name a culprit, for comparison: each takes a run and returns the observed tensor that it accuses, or None."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]

COSINE = 0.99
FLOORS = {"fp32": 1e-4, "tf32": 5e-3, "fp16": 5e-3, "bf16": 3e-2, "int8": 6e-2}
"""Relative L2 that a region may introduce."""


@dataclass(frozen=True, slots=True)
class Run:
    """observed: the float tensors of the dump, in the order of the graph, under their right names. replay: the region of a tensor
    computed on the target's own values."""

    observed: Sequence[str]
    outputs: Sequence[str]
    golden: Mapping[str, Array]
    target: Mapping[str, Array]
    precision: str
    replay: Callable[[str], Array]

    def bad(self, tensor: str) -> bool:
        """Cosine against the golden below COSINE."""
        return not cosine(self.golden[tensor], self.target[tensor]) >= COSINE


def first_cosine(run: Run) -> str | None:
    """The first tensor whose cosine is below COSINE."""
    return next((tensor for tensor in run.observed if run.bad(tensor)), None)


def fixed_floor(run: Run) -> str | None:
    """The first region whose introduced error is above the floor of its precision."""
    return next(
        (tensor for tensor in run.observed if relative(run.replay(tensor), run.target[tensor]) > FLOORS[run.precision]), None
    )


def index_bisection(run: Run) -> str | None:
    """Bisection by position, as if all were bad after the first bad one (Polygraphy's `debug reduce`); none if the outputs are
    good."""
    if not any(run.bad(tensor) for tensor in run.outputs if tensor in run.observed):
        return None
    low, high = 0, len(run.observed) - 1
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if run.bad(run.observed[middle]) else (middle + 1, high)
    return run.observed[low]


METHODS: dict[str, Callable[[Run], str | None]] = {
    "first cosine < 0.99": first_cosine,
    "replay, fixed floor": fixed_floor,
    "index bisection": index_bisection,
}


def cosine(a: Array, b: Array) -> float:
    """Of two tensors; 1 where both are zero, NaN where one is not finite or of another shape."""
    if a.shape != b.shape:
        return float("nan")
    x, y = (v.astype(np.float64).reshape(-1) for v in (a, b))
    with np.errstate(all="ignore"):
        size = float(np.linalg.norm(x) * np.linalg.norm(y))
        return float(x @ y / size) if size else float(np.array_equal(x, y))


def relative(replay: Array, dumped: Array) -> float:
    """L2 of the difference over that of the replay; infinite for a new NaN or another shape."""
    if replay.shape != dumped.shape or (np.isfinite(replay) & ~np.isfinite(dumped)).any():
        return float("inf")
    x, y = (np.nan_to_num(v.astype(np.float64), posinf=0.0, neginf=0.0) for v in (replay, dumped))
    return float(np.linalg.norm(y - x) / max(float(np.linalg.norm(x)), 1e-30))
