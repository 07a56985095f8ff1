"""Edge values for a single operator: what its real inputs become, while ids, masks and whatever steers it stay valid."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from bisect_align.model.dtypes import is_float
from bisect_align.model.graph import Graph, Node
from bisect_align.model.parameters import SMALL, indices, never_fed, shape_parameters

Array: TypeAlias = NDArray[Any]

SPECIAL_EVERY = 7  # every so manieth element is NaN or infinite: enough that each row has one, few enough that most has none

# Positions of coordinates: what lies far outside any image is no value of theirs, and kernels index with it.
COORDINATES: Mapping[str, tuple[int, ...]] = {"DeformConv": (2,), "GridSample": (1,), "MaxRoiPool": (1,), "RoiAlign": (1,)}
# ONNX leaves open what becomes of these values on their way to an integer.
TO_INTEGERS = frozenset({"Cast", "CastLike", "DynamicQuantizeLinear", "QuantizeLinear"})
WITHOUT_INTEGER = frozenset({"huge", "nan", "inf"})


def _scaled(x: Array, peak: float) -> Array:
    """The finite values, their largest magnitude moved to `peak` (ones where all are zero)."""
    y = np.where(np.isfinite(x), x, 0).astype(np.float64)
    top = float(np.abs(y).max(initial=0.0))
    return np.asarray(y / top * peak if top else np.full(x.shape, peak)).astype(x.dtype)


def _salted(x: Array, salts: tuple[float, ...]) -> Array:
    y = x.copy()
    places = np.arange(0, x.size, SPECIAL_EVERY)
    y.reshape(-1)[places] = np.resize(np.asarray(salts, x.dtype), places.size)
    return y


def _zeros(x: Array, _: Any) -> Array:
    return _salted(np.zeros_like(x), (-0.0,))


# Largest magnitudes: squares and small sums of `huge` are still finite, products with `tiny` too.
KINDS: Mapping[str, Callable[[Array, Any], Array]] = {
    "zeros": _zeros,
    "negatives": lambda x, _: -np.abs(x),
    "tiny": lambda x, info: _scaled(x, float(info.smallest_normal) * 64),
    "huge": lambda x, info: _scaled(x, float(np.sqrt(float(info.max))) / 16),
    "denormal": lambda x, info: _scaled(x, float(info.smallest_normal) / 2),
    "nan": lambda x, _: _salted(x, (np.nan,)),
    "inf": lambda x, _: _salted(x, (np.inf, -np.inf)),
}


def edges(graph: Graph, node: Node, feeds: Mapping[str, Array], info: Any) -> dict[str, dict[str, Array]]:
    """Kind -> feeds of the node. Only real tensors change: no integers or bools, nothing that steers shapes or holds indices or
    coordinates, no mask (values of 0 and 1, or 0 and large negatives). info: finfo of the type that the model computes in.
    """
    placed = {n for i, n in enumerate(node.inputs) if i in COORDINATES.get(node.op, ())}
    fixed = shape_parameters(node) | indices(node) | never_fed(graph) | placed
    free = [n for n, x in feeds.items() if n not in fixed and is_float(x.dtype) and x.size and not _is_mask(x)]
    if not free:
        return {}
    made = {}
    with np.errstate(all="ignore"):
        for kind, change in KINDS.items():
            if node.op in TO_INTEGERS and kind in WITHOUT_INTEGER:
                continue
            made[kind] = {n: np.asarray(change(x, info), x.dtype) if n in free else x for n, x in feeds.items()}
    return made


def _is_mask(x: Array) -> bool:
    levels = np.unique(x)[:3]
    return x.size > SMALL and levels.size == 2 and bool((levels == 0).any() and ((levels == 1).any() or levels[0] <= -1e3))
