"""Where a statistic of the judgement is at its largest: the slice or the element that convicts."""

from __future__ import annotations

import numpy as np

from bisect_align.golden.protocol import Array
from bisect_align.judgement.statistics import SLICE_MIN


def place_of(statistic: str, right: Array, target: Array, sigma: Array) -> str:
    """Such as "index 480 of axis 1" for `slice`, "[0, 3]" for `peak`; "" for what has no place. All of one shape, sigma: what noise
    explains per element."""
    off = np.nan_to_num(np.abs(target.astype(np.float64) - right.astype(np.float64)))
    if statistic == "peak" and off.size:
        found = np.divide(off, sigma, out=np.where(off > 0, np.inf, 0.0), where=sigma > 0).argmax()
        return f"{[int(i) for i in np.unravel_index(int(found), off.shape)]}"
    if statistic != "slice":
        return ""
    best, place = 0.0, ""
    for axis, size in enumerate(off.shape):
        if size < 2 or off.size // size < SLICE_MIN:
            continue
        rest = tuple(i for i in range(off.ndim) if i != axis)
        top, bottom = np.square(off).mean(axis=rest), np.square(sigma).mean(axis=rest)
        ratio = np.divide(top, bottom, out=np.where(top > 0, np.inf, 0.0), where=bottom > 0)
        if float(ratio.max()) > best:
            best, place = float(ratio.max()), f"index {int(ratio.argmax())} of axis {axis}"
    return place
