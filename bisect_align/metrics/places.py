"""Where a tensor is wrong: the elements beyond a relative error."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from bisect_align.metrics.measure import EPSILON

Array: TypeAlias = NDArray[Any]


def located(golden: Array, target: Array, limit: float) -> tuple[int, tuple[int, ...] | None]:
    """How many elements of two numeric tensors of one shape are off by more than `limit` × (|golden| + 1e-8), and the index of the
    first (None where none is). NaN and infinite elements that have no equal partner are among them.
    """
    g, t = np.asarray(golden, np.float64), np.asarray(target, np.float64)
    with np.errstate(all="ignore"):
        same = (g == t) | (np.isnan(g) & np.isnan(t))
        off = ~same & ~(np.isfinite(g) & (np.abs(t - g) <= limit * (np.abs(g) + EPSILON)))
    count = int(np.count_nonzero(off))
    return count, tuple(int(i) for i in np.unravel_index(int(off.argmax()), off.shape)) if count else None
