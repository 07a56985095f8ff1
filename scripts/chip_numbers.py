"""Number formats of the fake chip: what a value becomes when it is written as float16, bfloat16, TF32 or int8.

Everything here is numpy and shares nothing with the tool that judges it. Arrays are float32 unless said otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]

SMALLEST_NORMAL_FP16 = 2.0**-14
LOWEST, HIGHEST = -128, 127


# ---- floats ----
def to_fp16(x: Array) -> Array:
    """Round to the nearest float16, ties to even; beyond its range: infinite."""
    with np.errstate(over="ignore"):
        return x.astype(np.float16).astype(np.float32)


def to_fp16_flushed(x: Array) -> Array:
    """As to_fp16, with subnormal results replaced by zero."""
    y = to_fp16(x)
    return np.where(np.abs(y) < SMALLEST_NORMAL_FP16, np.float32(0), y)


def to_fp16_stochastic(x: Array, rng: np.random.Generator) -> Array:
    """One of the two float16 neighbours, the nearer one with the greater probability: no bias in the mean."""
    with np.errstate(over="ignore", invalid="ignore"):
        near = x.astype(np.float16)
        error = x - near.astype(np.float32)
        other = np.nextafter(near, np.where(error > 0, np.float16(np.inf), np.float16(-np.inf)))
        gap = np.abs(other.astype(np.float32) - near.astype(np.float32))
        away = rng.random(x.shape) * gap < np.abs(error)
    return np.where(away & np.isfinite(other), other, near).astype(np.float32)


def to_bf16(x: Array) -> Array:
    """Round to the nearest bfloat16, ties to even."""
    return x.astype(ml_dtypes.bfloat16).astype(np.float32)


def to_bf16_truncated(x: Array) -> Array:
    """The upper 16 bits: towards zero, so always too small."""
    return _masked(x, 16)


def to_tf32(x: Array) -> Array:
    """Round to 10 bits of mantissa, half away from zero."""
    bits = np.asarray(x, np.float32, order="C").view(np.uint32)
    rounded = ((bits + np.uint32(1 << 12)) & np.uint32(0xFFFFE000)).view(np.float32)
    return np.where(np.isfinite(x), rounded, x).astype(np.float32)


def to_tf32_truncated(x: Array) -> Array:
    """The lowest 13 bits cut off."""
    return _masked(x, 13)


def _masked(x: Array, dropped: int) -> Array:
    bits = np.asarray(x, np.float32, order="C").view(np.uint32)
    cut = (bits & np.uint32(0xFFFFFFFF << dropped & 0xFFFFFFFF)).view(np.float32)
    return np.where(np.isnan(x), x, cut).astype(np.float32)


def ulps(x: Array, rng: np.random.Generator, most: int = 2) -> Array:
    """Off by a random whole number of float32 units in the last place, -most .. most."""
    steps = rng.integers(-most, most + 1, x.shape)
    return np.asarray(x * (1 + steps * 2.0**-23), np.float32)


# ---- int8 ----
@dataclass(frozen=True, slots=True)
class Grid:
    """256 levels: value = scale * (code - zero); scale and zero are arrays that broadcast against the tensor."""

    scale: Array
    zero: Array

    def codes(self, x: Array) -> Array:
        """int8 codes, clipped at the ends; NaN becomes the zero point."""
        with np.errstate(invalid="ignore"):
            codes = np.nan_to_num(np.rint(x / self.scale), nan=0.0) + self.zero
        return np.clip(codes, LOWEST, HIGHEST).astype(np.int8)

    def values(self, codes: Array) -> Array:
        return ((codes.astype(np.float64) - self.zero) * self.scale).astype(np.float32)

    def __call__(self, x: Array) -> Array:
        return self.values(self.codes(x))


def grid_of_range(low: float, high: float, *, power_of_two: bool = False) -> Grid | None:
    """The grid of a tensor that was seen between low and high: asymmetric, or symmetric with a power of two as its step.

    None where nothing but zero was seen.
    """
    low, high = min(low, 0.0), max(high, 0.0)
    if low == high or not np.isfinite(high - low):
        return None
    if power_of_two:
        return Grid(np.array(2.0 ** np.ceil(np.log2(max(-low, high) / HIGHEST))), np.array(0.0))
    scale = (high - low) / (HIGHEST - LOWEST)
    return Grid(np.array(scale), np.array(np.rint(LOWEST - low / scale)))


def weight_grid(w: Array, axis: int | None, *, power_of_two: bool = False) -> Grid:
    """Symmetric; one step for each index along `axis`, or one for all."""
    others: Sequence[int] = range(w.ndim) if axis is None else [a for a in range(w.ndim) if a != axis % w.ndim]
    largest = np.abs(w).max(axis=tuple(others), keepdims=True).astype(np.float64)
    scale = np.where(largest > 0, largest, 1.0) / HIGHEST
    return Grid(2.0 ** np.ceil(np.log2(scale)) if power_of_two else scale, np.array(0.0))
