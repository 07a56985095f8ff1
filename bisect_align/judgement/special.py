"""What is decided in spite of a score: saturation, one-sided rounding, signals that the format destroys, trifles."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from bisect_align.judgement.precision import grid_step, rms

Array: TypeAlias = NDArray[Any]

BULK = 100.0  # a tensor whose peak is 100 medians has a bulk of its own (masked scores)
BULK_MIN = 8
IMMATERIAL_L2, IMMATERIAL_PEAK = 2e-4, 2e-3
SUMS_SHARE = 0.1  # of both, where nothing but sums and products is computed: no library approximates these
ROUNDING_MEAN, ROUNDING_STD, ROUNDING_MIN = 0.25, 0.2, 1000
SATURATED_INSIDE, SATURATED_SPAN, SATURATED_PEAK = 0.1, 0.1, 8.0


def biased_rounding(t: Array, d: Array, step: float) -> bool:
    """int8: the levels inside the range lie to one side of the replay (as truncation leaves them), and not by one constant."""
    if d.size < ROUNDING_MIN or grid_step(t) is None:
        return False
    inside = (t > t.min()) & (t < t.max())
    if int(np.count_nonzero(inside)) < ROUNDING_MIN:
        return False
    off = d[inside] / step
    return abs(float(off.mean())) > ROUNDING_MEAN and float(off.std()) > ROUNDING_STD


def saturates(t: Array, y: Array, sigma: Array, *, driven: bool = False) -> bool:
    """int8: the target is the replay clipped to a narrower range (and is no constant: some of the replay must lie inside, unless a
    fault above has driven it beyond the golden's range)."""
    low, high = float(t.min()), float(t.max())
    inside = (y >= low - sigma) & (y <= high + sigma)
    if not driven and (float(inside.mean()) < SATURATED_INSIDE or high - low < SATURATED_SPAN * float(np.ptp(y))):
        return False
    z = (t - np.clip(y, low, high)) / sigma
    return rms(z) <= 1 and float(np.abs(z).max()) <= SATURATED_PEAK


def masked_away(d: Array, y: Array) -> bool:
    """The elements beyond the bulk are all one constant (a mask), and the bulk is lost in the step that they demand."""
    bulk = bulk_of(y)
    if bulk.all() or int(np.count_nonzero(bulk)) < BULK_MIN:
        return False
    masked = y[~bulk]
    if float(np.ptp(masked)) > 0.01 * float(np.abs(masked).max()):
        return False
    spread = float(y[bulk].std())
    return spread > 0 and rms(d[bulk]) / spread > 0.5


def immaterial(d: Array, y: Array, share: float = 1.0) -> bool:
    """Small beside the bulk of y: a mask of -10000 must not decide what is small for the scores beside it. share: of the limits."""
    bulk = bulk_of(y)
    level = share * rms(y[bulk])
    return rms(d[bulk]) < IMMATERIAL_L2 * level and float(np.abs(d).max()) < IMMATERIAL_PEAK * level


def bulk_of(y: Array) -> Array:
    """Elements that are not far beyond the median (all of them, where more than half are zero)."""
    size = np.abs(y)
    median = float(np.median(size))
    return size <= BULK * median if median > 0 else np.ones(y.shape, bool)
