"""Figures that look at values as a distribution or as class scores: on request, since they cost several passes and a sort."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from bisect_align.metrics.measure import EPSILON
from bisect_align.result.result import Figures

Array: TypeAlias = NDArray[Any]

FULL = frozenset({"kl", "histogram", "median_rel", "top1", "top5"})  # figures that only `extended` fills
BINS_MOST = 128  # of a histogram; tensors with fewer than its square have as many bins as the root of their size
PRIOR = 0.5  # elements added to each bin for the divergence: an empty bin is rare, not impossible
TOP = 5


def extended(figures: Figures, golden: Array, target: Array, *, scores: bool) -> Figures:
    """The figures with kl, histogram, median_rel, and of class scores (where `scores` says that it may be some) top1 and top5.

    Both tensors of one shape, of real numbers (floats, ints, ml_dtypes); of bools, complex numbers and texts nothing is added. Where
    either side is NaN or infinite, the element is left out; of class scores, a row with a NaN counts as a miss.
    median_rel: median of |t - g| / (|g| + 1e-8). A tensor without elements (or without finite ones): 0 for all three.
    """
    golden, target = np.asarray(golden), np.asarray(target)
    if golden.dtype.kind in "bcOUST" or target.dtype.kind in "bcOUST" or golden.shape != target.shape:
        return figures
    g, t = golden.astype(np.float64), target.astype(np.float64)
    best, top = agreement(g, t) if scores and golden.dtype.kind not in "iu" else (None, None)
    with np.errstate(all="ignore"):  # Inf and NaN are data here
        fine = np.isfinite(g) & np.isfinite(t)
        g, t = g[fine], t[fine]
        p, q = histograms(g, t)
        relative = np.abs(t - g) / (np.abs(g) + EPSILON)
        return replace(
            figures,
            kl=divergence(p, q),
            histogram=distance(p, q),
            median_rel=float(np.median(relative)) if relative.size else 0.0,
            top1=best,
            top5=top,
        )


def histograms(golden: Array, target: Array) -> tuple[Array, Array]:
    """Counts of the finite float64 values of both in the same equal bins, min to max of both; √N of them, at most 128.

    One bin where all values are equal, or where there are none.
    """
    if not golden.size:
        return np.zeros(1), np.zeros(1)
    low, high = min(golden.min(), target.min()), max(golden.max(), target.max())
    bins = min(BINS_MOST, max(1, math.isqrt(golden.size)))
    scale = float(max(abs(low), abs(high))) or 1.0  # the span of values near the end of float64 is infinite
    edges = float(low) / scale, float(high) / scale
    if not edges[0] < edges[1] or bins == 1:
        return np.array([float(golden.size)]), np.array([float(target.size)])
    return tuple(np.histogram(x / scale, bins, edges)[0].astype(np.float64) for x in (golden, target))  # type: ignore[return-value]


def divergence(p: Array, q: Array) -> float:
    """Kullback-Leibler divergence Σ p ln(p/q) in nats of two histograms (golden, target), half an element added to each bin.

    0 where the histograms are equal; finite always.
    """
    a, b = (p + PRIOR) / (p + PRIOR).sum(), (q + PRIOR) / (q + PRIOR).sum()
    return max(0.0, float((a * np.log(a / b)).sum()))


def distance(p: Array, q: Array) -> float:
    """Share of the elements that stand in another bin, ½ Σ |p/N - q/N|: 0 for equal histograms, 1 for disjoint ones."""
    return float(np.abs(p - q).sum() / 2 / max(p.sum(), 1.0))


def agreement(golden: Array, target: Array) -> tuple[float | None, float | None]:
    """(Top-1, Top-5) agreement of class scores, each a share from 0 to 1; None where the tensor is none or has too few classes.

    Class scores are a vector, or rows of at least two classes, once axes of size 1 (other than the first) are left out. Top-1: rows
    whose best target class is a best class of the golden (any of those that share the golden's maximum). Top-5: how many of the
    golden's five best classes are among the target's five, averaged; needs more than five classes. Ties go to the lower index. A
    row with a NaN on either side agrees in nothing.
    """
    if not golden.ndim or not golden.size:
        return None, None
    batch = golden.shape[0] if golden.ndim > 1 else 1
    classes = golden.size // batch
    if classes < 2 or sum(n > 1 for n in golden.shape[1 if golden.ndim > 1 else 0 :]) != 1:
        return None, None
    g, t = golden.reshape(batch, classes), target.reshape(batch, classes)
    known = ~(np.isnan(g) | np.isnan(t)).any(axis=1)
    chosen = np.take_along_axis(g, t.argmax(axis=1)[:, None], axis=1)[:, 0]
    best = float((known & (chosen == g.max(axis=1))).mean())
    if classes <= TOP:
        return best, None
    tops = [np.argsort(-x, axis=1, kind="stable")[:, :TOP] for x in (g, t)]
    shared = (tops[0][:, :, None] == tops[1][:, None, :]).any(axis=2).mean(axis=1)
    return best, float(np.where(known, shared, 0.0).mean())
