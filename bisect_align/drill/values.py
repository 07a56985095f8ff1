"""What a pair of tensors shows when one looks closer: its worst elements, where along each axis the error sits, how large it is.

One pass in blocks of rows; nothing larger than a block is copied (a row that is larger than that counts as one).
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]
Index: TypeAlias = tuple[int, ...]

BLOCK = 1 << 18  # elements
WORST = 16


@dataclass(frozen=True, slots=True)
class Element:
    """One element: where, and its two values."""

    index: Index
    golden: float
    target: float

    @property
    def error(self) -> float:
        """|target - golden|; infinite where only one of them is finite, or they are different infinities."""
        if self.golden == self.target or (math.isnan(self.golden) and math.isnan(self.target)):
            return 0.0
        gap = abs(self.target - self.golden)
        return gap if math.isfinite(gap) else math.inf


@dataclass(frozen=True, slots=True)
class Survey:
    """worst: elements that differ, largest error first (ties: first in C order). along: for each axis the rms error at each index
    of it, over elements finite in both. decades: exponent n -> elements with 10^n <= |error| < 10^(n+1). equal, odd: elements
    without an error, and those where a NaN or Inf has no equal partner.
    """

    worst: tuple[Element, ...]
    along: tuple[Array, ...]
    decades: dict[int, int]
    equal: int
    odd: int

    @property
    def telling_axis(self) -> int | None:
        """The axis along which the error is spread least evenly: where to look for a pattern. None where nothing differs."""
        best, telling = 0.0, None
        for axis, rms in enumerate(self.along):
            energy = np.square(rms)
            if rms.size > 1 and energy.any():
                # how far from even: 1 where a single index holds all of it
                uneven = 1 - float(energy.sum()) ** 2 / float(np.square(energy).sum()) / rms.size
                if uneven > best + 1e-9:
                    best, telling = uneven, axis
        return telling


def is_numeric(array: Array) -> bool:
    """Can its elements be looked at as numbers?"""
    return array.dtype.kind in "biuf" or np.can_cast(array.dtype, np.float64)


def real(array: Array) -> Array:
    """A part of a tensor as float64."""
    return np.asarray(array).astype(np.float64)


def survey(golden: Array, target: Array, count: int = WORST) -> Survey:
    """Look at all elements once. Both of one shape and numeric, else ValueError."""
    if golden.shape != target.shape:
        raise ValueError(f"shapes differ: golden {golden.shape}, target {target.shape}")
    if not (is_numeric(golden) and is_numeric(target)):
        raise ValueError(f"{golden.dtype} and {target.dtype} are no numbers to look at")
    axes, shape = golden.ndim, golden.shape or (1,)
    golden, target = golden.reshape(shape), target.reshape(shape)
    sums = [np.zeros(size) for size in shape]
    counts = [np.zeros(size) for size in shape]
    worst: list[tuple[float, int]] = []
    decades: Counter[int] = Counter()
    equal = odd = 0
    with np.errstate(all="ignore"):
        for start, g, t in _blocks(golden, target):
            same = (g == t) | (np.isnan(g) & np.isnan(t))
            gaps = np.where(same, 0.0, np.abs(t - g))
            finite = np.isfinite(g) & np.isfinite(t)
            gaps[~same & ~np.isfinite(gaps)] = np.inf
            square = np.where(finite, np.square(gaps), 0.0)
            _add_up(sums, counts, start, square, finite)
            equal += int(same.sum())
            odd += int((~same & ~finite).sum())
            decades.update(np.floor(np.log10(gaps[~same & finite])).astype(int).tolist())
            worst = _larger(worst, gaps, start * math.prod(shape[1:]), count)
    elements = (np.unravel_index(at, shape) for _, at in worst)
    places = [tuple(int(i) for i in index) for index in elements]
    found = tuple(Element(place[:axes], float(real(golden[place])), float(real(target[place]))) for place in places)
    along = tuple(np.sqrt(total / np.maximum(n, 1)) for total, n in zip(sums, counts, strict=True))
    return Survey(found, along[:axes], dict(sorted(decades.items(), reverse=True)), equal, odd)


def _blocks(golden: Array, target: Array) -> Iterator[tuple[int, Array, Array]]:
    """(first row, rows of both as float64)."""
    rows = max(1, BLOCK * len(golden) // max(golden.size, 1)) if golden.size else 1
    for start in range(0, len(golden), rows):
        yield start, real(golden[start : start + rows]), real(target[start : start + rows])


def _add_up(sums: list[Array], counts: list[Array], start: int, square: Array, finite: Array) -> None:
    for axis in range(square.ndim):
        others = tuple(i for i in range(square.ndim) if i != axis)
        rows = slice(start, start + len(square)) if axis == 0 else slice(None)
        sums[axis][rows] += square.sum(axis=others)
        counts[axis][rows] += finite.sum(axis=others)


def _larger(worst: list[tuple[float, int]], gaps: Array, offset: int, count: int) -> list[tuple[float, int]]:
    """The `count` largest errors so far, largest first; of equal ones the first."""
    flat = gaps.reshape(-1)
    if not flat.size:
        return worst
    count_here = min(count, flat.size)
    least = np.partition(flat, flat.size - count_here)[flat.size - count_here]
    at_least = np.flatnonzero((flat >= least) & (flat > 0))
    chosen = at_least[np.argsort(-flat[at_least], kind="stable")[:count]]
    fresh = [(float(flat[i]), offset + int(i)) for i in chosen]
    return heapq.nsmallest(count, worst + fresh, key=lambda item: (-item[0], item[1]))
