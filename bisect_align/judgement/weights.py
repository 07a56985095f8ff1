"""How a weight may differ from the model's: its axes or its memory in another order, turned round, negated, or rounded.

One table for both uses: the operator is replayed with each (a guess), and a weight that the dump holds is compared with each (a finding).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import permutations
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from bisect_align.judgement.precision import rms, round_to
from bisect_align.judgement.rival import NEW, Change, Rival, Site, altered

Array: TypeAlias = NDArray[Any]

AXES_MOST = 4
LAYOUTS = {2: ((1, 0),), 3: ((0, 2, 1), (2, 1, 0)), 4: ((0, 2, 3, 1), (2, 3, 1, 0), (1, 2, 3, 0), (3, 2, 1, 0))}
EQUAL = 1e-6  # of its size: a weight that is the same
STORES = 0.1  # of its size: what storing it may cost a weight that is the same (int8 with one step leaves about a hundredth)


def _steps(bits: int, *, power_of_two: bool = False) -> Callable[[Array], Array]:
    """Symmetric levels, one step for all."""

    def rounded(w: Array) -> Array:
        peak = float(np.abs(w).max()) if w.size else 0.0
        step = peak / (2 ** (bits - 1) - 1) if peak > 0 else 1.0
        step = 2.0 ** np.ceil(np.log2(step)) if power_of_two else step
        return np.asarray(np.rint(w / step) * step, np.float32)

    return rounded


# Ways to round a weight, the finest first. To add one, add a line.
ROUNDINGS: dict[str, Callable[[Array], Array]] = {
    "rounded to float16": lambda w: round_to(w, "fp16"),
    "rounded to bfloat16": lambda w: round_to(w, "bf16"),
    "cut off to bfloat16": lambda w: round_to(w, "bf16 truncated"),
    "rounded to int8, a step for each index of axis 0": lambda w: round_to(w, "int8 channel"),
    "rounded to int8, one step": lambda w: round_to(w, "int8 tensor"),
    "rounded to int8, steps of a power of two": _steps(8, power_of_two=True),
    "rounded to int4, one step": _steps(4),
}


def orders(w: Array) -> Iterator[tuple[str, Array]]:
    """The same numbers in other places, in the same shape."""
    for order in permutations(range(w.ndim)) if 2 <= w.ndim <= AXES_MOST else ():
        moved = w.transpose(order)
        if order != tuple(range(w.ndim)) and moved.shape == w.shape:
            yield f"axes {list(order)} exchanged", moved
    for order in LAYOUTS.get(w.ndim, ()):
        if w.transpose(order).shape != w.shape:
            yield f"memory of axes {list(order)} read as it stands", np.ascontiguousarray(w.transpose(order)).reshape(w.shape)
            back = np.argsort(order)
            yield f"memory read as axes {list(order)}", w.reshape([w.shape[a] for a in order]).transpose(back)
    for axis in range(min(w.ndim, 2)):
        yield f"axis {axis} in reverse order", np.flip(w, axis)
        yield f"axis {axis} moved on by one", np.roll(w, 1, axis)
    if w.ndim > 2:
        yield "the kernel turned round", np.flip(w, tuple(range(2, w.ndim)))


def variants(w: Array) -> Iterator[tuple[str, Array]]:
    """(what was done, the weight after it), for a float weight; those that change nothing left out."""
    for text, other in (*orders(w), ("negated", -w), *((text, way(w)) for text, way in ROUNDINGS.items())):
        if not np.array_equal(other, w):
            yield text, np.ascontiguousarray(other, w.dtype)


def misread_weight(place: int) -> Change:
    """The operator with the constant at this input misread in each of these ways."""

    def change(site: Site) -> Iterator[Rival]:
        name = site.proto.input[place] if place < len(site.proto.input) else ""
        w = site.value(name) if name in site.fixed else None
        if w is None or w.dtype.kind != "f" or w.size < 2:
            return
        for text, other in variants(w):
            fed = f"{NEW}{place}"
            yield Rival(f"weight {name!r} {text}", (altered(site, {}, {place: fed}),), {fed: other})

    return change


def difference(model: Array, dumped: Array) -> tuple[str, float]:
    """What the dumped weight is to the model's (of one shape): in words, and the relative L2 between the two.

    "" where they are equal as far as float32 goes; "as none of the known mistakes" where none of the ways explains the difference.
    """
    w, held = model.astype(np.float64), dumped.astype(np.float64)
    level = rms(w)
    apart = rms(held - w) / level if level > 0 else float(np.any(held != 0))
    if apart <= EQUAL:
        return "", apart
    found = [(rms(held - other) / level, text) for text, other in variants(model.astype(np.float32))] if level > 0 else []
    factor = float(np.sum(w * held) / np.sum(np.square(w))) if level > 0 else 0.0
    if factor and abs(factor + 1) > STORES:
        found.append((rms(held / factor - w) / level, f"{factor:.6g} times the model's"))
    left, text = min(found, default=(np.inf, ""))
    return (text if left <= STORES * apart else "as none of the known mistakes"), apart


def misplaced(model: Array, other: Array) -> str:
    """The order or sign in which the model's weight is the other one (of one shape), in words; "" where none is, or it is the same."""
    w, held = model.astype(np.float64), other.astype(np.float64)
    level = rms(w)
    if level == 0 or rms(held - w) <= STORES * level:
        return ""
    left, text = min((rms(held - o) / level, text) for text, o in (*orders(w), ("negated", -w)))
    return text if left <= STORES else ""
