"""What a second implementation says of a culprit, in one sentence."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from bisect_align.golden.protocol import Unavailable, Value
from bisect_align.judgement.hypotheses import misfit
from bisect_align.model.dtypes import is_float

Array: TypeAlias = NDArray[Any]

SIDES = 0.1  # it sides with whom it differs from by less than this share of its difference from the other


def witnessed(value: Value, by: str, golden: Array, target: Array) -> str:
    """golden, target: the two values of the region's output on the same boundary; value: the second implementation's, or why there is
    none; by: its name. A note for the reader: it neither convicts nor acquits."""
    if isinstance(value, Unavailable):
        return f"no second opinion on the golden: {by} was not heard, {value.reason}"
    if value.shape != golden.shape or is_float(value.dtype) != is_float(golden.dtype):
        return (
            f"a second implementation ({by}) agrees with neither: shape {list(value.shape)}, the golden has {list(golden.shape)}"
        )
    own, theirs = misfit(value, golden), misfit(value, target)
    kind = "relative L2" if is_float(golden.dtype) else "share of unequal elements"
    figures = f"{kind} {own:.2g} from the golden, {_shown(theirs)} from the target"
    if own <= SIDES * theirs:
        return f"a second implementation ({by}) agrees with the golden: {figures}"
    if theirs <= SIDES * own:
        return f"a second implementation ({by}) sides with the target: {figures}; alone it proves nothing, ask a third"
    return f"a second implementation ({by}) agrees with neither: {figures}"


def _shown(error: float) -> str:
    return f"{error:.2g}" if np.isfinite(error) else "no number"
