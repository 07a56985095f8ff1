"""Slices of a tensor that fit on a screen: a plane through an element, and the steps from one to the next."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from bisect_align.drill.values import Index, real

Array: TypeAlias = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Plane:
    """A 2-D cut through a tensor at an element. rows, columns: its axes (None: there is none, the size is 1)."""

    rows: int | None
    columns: int | None
    element: Index

    @property
    def spot(self) -> tuple[int, int]:
        """The element's place in the plane."""
        return (
            0 if self.rows is None else self.element[self.rows],
            0 if self.columns is None else self.element[self.columns],
        )

    @property
    def title(self) -> str:
        """Such as [0, 7, :, :]."""
        return "[" + ", ".join(":" if i in (self.rows, self.columns) else str(at) for i, at in enumerate(self.element)) + "]"

    def of(self, array: Array) -> Array:
        """The plane's values: 2-D, a view."""
        if not array.ndim:
            return array.reshape(1, 1)
        key = tuple(slice(None) if i in (self.rows, self.columns) else at for i, at in enumerate(self.element))
        flat = array[key]
        if self.rows is not None and self.columns is not None:
            return flat if self.rows < self.columns else flat.T
        return flat.reshape(1, -1) if self.rows is None else flat.reshape(-1, 1)


def plane(shape: tuple[int, ...], element: Index, turn: int = 0) -> Plane:
    """The cut along the last two axes that have more than one place; `turn` goes through the other pairs of axes."""
    long = [axis for axis, size in enumerate(shape) if size > 1]
    if not long:
        return Plane(None, None, element)
    if len(long) == 1:
        return Plane(None, long[0], element)
    pairs = [(r, c) for c in reversed(long) for r in reversed(long) if r < c]
    rows, columns = pairs[turn % len(pairs)]
    return Plane(rows, columns, element)


def turns(shape: tuple[int, ...]) -> int:
    """How many planes `plane` can lay through an element."""
    long = sum(size > 1 for size in shape)
    return max(1, long * (long - 1) // 2)


def inside(element: Index | None, shape: tuple[int, ...]) -> bool:
    """Is it an element of a tensor of this shape?"""
    return (
        element is not None
        and len(element) == len(shape)
        and all(0 <= at < size for at, size in zip(element, shape, strict=True))
    )


def stepped(shape: tuple[int, ...], here: Plane, by: int) -> Index:
    """The same spot in the next plane (or the one before): the axes that are not shown count like an odometer."""
    fixed = [axis for axis in range(len(shape)) if axis not in (here.rows, here.columns)]
    sizes = tuple(shape[axis] for axis in fixed)
    if not sizes or not math.prod(sizes):
        return here.element
    at = int(np.ravel_multi_index(tuple(here.element[axis] for axis in fixed), sizes))
    moved = np.unravel_index((at + by) % math.prod(sizes), sizes)
    element = list(here.element)
    for axis, place in zip(fixed, moved, strict=True):
        element[axis] = int(place)
    return tuple(element)


def moved(shape: tuple[int, ...], here: Plane, rows: int, columns: int) -> Index:
    """The element some rows and columns away, held at the edges of the plane."""
    element = list(here.element)
    for axis, by in ((here.rows, rows), (here.columns, columns)):
        if axis is not None:
            element[axis] = min(max(element[axis] + by, 0), shape[axis] - 1)
    return tuple(element)


def pooled(values: Array, height: int, width: int) -> Array:
    """A plane made smaller to fit: the largest magnitude of each cell (NaN wins)."""
    magnitudes = np.abs(real(values))
    magnitudes[np.isnan(magnitudes)] = np.inf
    for axis, most in ((0, height), (1, width)):
        size = magnitudes.shape[axis]
        if size > most:
            starts = np.arange(most) * size // most
            magnitudes = np.maximum.reduceat(magnitudes, starts, axis=axis)
    return magnitudes
