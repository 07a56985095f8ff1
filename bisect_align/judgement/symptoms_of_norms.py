"""Normalisations whose variance was computed as E[x²] - E[x]²: wrong in the rows whose mean hides their spread, right in all others."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from bisect_align.judgement.pair import OFF, Pair
from bisect_align.judgement.precision import rms
from bisect_align.result.result import Symptom

Array: TypeAlias = NDArray[Any]

# First axis of a row by operator, where it says nothing else.
ROWS = {"LayerNormalization": -1, "RMSNormalization": -1, "InstanceNormalization": 2}
LEAST = 1e-5  # noise of any kernel, of the output
HIDDEN = 100.0  # mean² over variance from which half precision loses a digit of the variance


def cancellation(pair: Pair) -> Symptom | None:
    """All wrong rows have a larger mean, beside their spread, than any right one."""
    x = next((v for v in (pair.boundary or {}).values() if v.shape == pair.target.shape and v.dtype.kind == "f"), None)
    if pair.op not in ROWS or x is None or x.ndim < 2 or not np.isfinite(x).all():
        return None
    axes = tuple(range(ROWS[pair.op] % x.ndim, x.ndim))
    lost = (~np.isfinite(pair.target) & np.isfinite(pair.replay)).any(axis=axes)
    noise = max(pair.noise, LEAST * rms(pair.y))
    wrong = lost | (np.sqrt(np.mean(pair.square, axis=axes)) > OFF * noise)
    wide = x.astype(np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        hides = np.square(wide.mean(axis=axes)) / wide.var(axis=axes)
    if not 0 < np.count_nonzero(wrong) <= wrong.size / 2 or not float(hides[wrong].min()) > max(
        float(hides[~wrong].max()), HIDDEN
    ):
        return None
    text = (
        f"{np.count_nonzero(wrong)} of {wrong.size} rows are wrong, those whose mean is largest beside their spread (mean² over variance "
        f"from {hides[wrong].min():.3g}, of the right ones up to {hides[~wrong].max():.3g}): as of a variance computed as E[x²] - E[x]²"
    )
    left = rms(np.where(np.expand_dims(wrong, axes), 0, pair.d))
    return Symptom("cancellation", text, 1.0) if lost.any() else pair.symptom("cancellation", text, left)
