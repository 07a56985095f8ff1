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
SUM_TO_ONE = 1e-3  # how far from 1 a row of probabilities may sum up, in half precision


def extended(figures: Figures, golden: Array, target: Array, *, scores: bool) -> Figures:
    """The figures with kl, histogram, median_rel, and of class scores (where `scores` says that it may be some) top1 and top5.

    Both tensors of one shape, of real numbers (floats, ints, ml_dtypes); of bools, complex numbers and texts nothing is added. Where
    either side is NaN or infinite, the element is left out; of class scores, a row with a NaN counts as a miss.
    kl: of class scores what the classes' probabilities lose (class_divergence), of all else the divergence of the histograms of the
    values. median_rel: median of |t - g| / (|g| + 1e-8). A tensor without elements (or without finite ones): 0 for all three.
    """
    golden, target = np.asarray(golden), np.asarray(target)
    if golden.dtype.kind in "bcOUST" or target.dtype.kind in "bcOUST" or golden.shape != target.shape:
        return figures
    g, t = golden.astype(np.float64), target.astype(np.float64)
    rows = class_rows(g, t) if scores and golden.dtype.kind not in "iu" else None
    best, top = agreement(g, t) if rows is not None else (None, None)
    with np.errstate(all="ignore"):  # Inf and NaN are data here
        fine = np.isfinite(g) & np.isfinite(t)
        g, t = g[fine], t[fine]
        p, q = histograms(g, t)
        relative = np.abs(t - g) / (np.abs(g) + EPSILON)
        return replace(
            figures,
            kl=divergence(p, q) if rows is None else class_divergence(*rows),
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
    bins = bins_of(golden.size)
    scale = float(max(abs(low), abs(high))) or 1.0  # the span of values near the end of float64 is infinite
    edges = float(low) / scale, float(high) / scale
    if not edges[0] < edges[1] or bins == 1:
        return np.array([float(golden.size)]), np.array([float(target.size)])
    return tuple(np.histogram(x / scale, bins, edges)[0].astype(np.float64) for x in (golden, target))  # type: ignore[return-value]


def bins_of(elements: int) -> int:
    """How many bins the histogram of so many values has: a smaller shift than one of them is not seen."""
    return min(BINS_MOST, max(1, math.isqrt(elements)))


def divergence(p: Array, q: Array) -> float:
    """Kullback-Leibler divergence Σ p ln(p/q) in nats of two histograms (golden, target), half an element added to each bin.

    0 where the histograms are equal; finite always.
    """
    a, b = (p + PRIOR) / (p + PRIOR).sum(), (q + PRIOR) / (q + PRIOR).sum()
    return max(0.0, float((a * np.log(a / b)).sum()))


def distance(p: Array, q: Array) -> float:
    """Share of the elements that stand in another bin, ½ Σ |p/N - q/N|: 0 for equal histograms, 1 for disjoint ones."""
    return float(np.abs(p - q).sum() / 2 / max(p.sum(), 1.0))


def class_rows(golden: Array, target: Array) -> tuple[Array, Array] | None:
    """Both as rows of class scores: a vector, or rows of at least two classes, once axes of size 1 (other than the first) are left
    out. None where the tensor is none."""
    if not golden.ndim or not golden.size:
        return None
    batch = golden.shape[0] if golden.ndim > 1 else 1
    classes = golden.size // batch
    if classes < 2 or sum(n > 1 for n in golden.shape[1 if golden.ndim > 1 else 0 :]) != 1:
        return None
    return golden.reshape(batch, classes), target.reshape(batch, classes)


def class_divergence(golden: Array, target: Array) -> float:
    """Mean over the rows of the Kullback-Leibler divergence Σ p ln(p/q) in nats of the classes' probabilities: the softmax of each
    row, or the row itself where the golden's are probabilities already (none negative, their sum 1).

    Rows that are not finite on both sides are left out; 0 where none is left. A probability below 1e-8 counts as 1e-8.
    """
    known = (np.isfinite(golden) & np.isfinite(target)).all(axis=1)
    g, t = golden[known], target[known]
    if not len(g):
        return 0.0
    told = (g.min() >= 0) and bool((np.abs(g.sum(axis=1) - 1) < SUM_TO_ONE).all())
    p, q = (np.maximum(x if told else _softmax(x), EPSILON) for x in (g, t))
    p, q = p / p.sum(axis=1, keepdims=True), q / q.sum(axis=1, keepdims=True)
    return max(0.0, float((p * np.log(p / q)).sum(axis=1).mean()))


def _softmax(rows: Array) -> Array:
    powers = np.exp(rows - rows.max(axis=1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=1, keepdims=True))


def agreement(golden: Array, target: Array) -> tuple[float | None, float | None]:
    """(Top-1, Top-5) agreement of class scores, each a share from 0 to 1; None where the tensor is none or has too few classes.

    Top-1: rows whose best target class is a best class of the golden (any of those that share the golden's maximum). Top-5: how many
    of the golden's five best classes are among the target's five, averaged; needs more than five classes. Ties go to the lower index.
    A row with a NaN on either side agrees in nothing.
    """
    rows = class_rows(golden, target)
    if rows is None:
        return None, None
    g, t = rows
    classes = g.shape[1]
    known = ~(np.isnan(g) | np.isnan(t)).any(axis=1)
    chosen = np.take_along_axis(g, t.argmax(axis=1)[:, None], axis=1)[:, 0]
    best = float((known & (chosen == g.max(axis=1))).mean())
    if classes <= TOP:
        return best, None
    tops = [np.argsort(-x, axis=1, kind="stable")[:, :TOP] for x in (g, t)]
    shared = (tops[0][:, :, None] == tops[1][:, None, :]).any(axis=2).mean(axis=1)
    return best, float(np.where(known, shared, 0.0).mean())
