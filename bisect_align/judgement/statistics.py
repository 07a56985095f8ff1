"""Is a difference larger than rounding can make it? Statistics of one region, each over its healthy ceiling.

d = target - replay, a = cost of storing the tensor, n = largest deviation of the perturbed replays per element, sigma = a + n.
A score is the largest of (statistic / ceiling); 1 is the edge of what healthy regions showed, 2 convicts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from bisect_align.judgement.precision import Precision, rms
from bisect_align.metrics.inner import inner

Array: TypeAlias = NDArray[Any]

SLICE_MIN = 8  # elements a slice must have before its rms says anything
SLICES_FROM = 32  # elements a tensor must have before its slices are judged
GAIN_CEILING = OFFSET_CEILING = 2.5
SLICE_CEILING = 2.0
PEAK_CEILING = 4.0
NOISE_FLOOR = 0.4  # of the median of the non-zero deviations: few replays leave elements untouched by chance
CLIP_NORM, CLIP_EXCESS = 0.07, 0.15
DROWNED = 20.0  # where the noise itself is half of the signal, a score below it proves nothing


@dataclass(frozen=True, slots=True)
class Statistics:
    """score: the largest statistic over its ceiling, named by `worst`. reach: how many times sigma an error that is spread like it
    comes to at a score of 1."""

    score: float
    worst: str
    reach: float = 1.0


def gate(d: Array, a: Array) -> float | None:
    """Score of a difference that storing the tensor alone explains (rms(d/a) <= 1, max <= 4), else None."""
    z = np.abs(d) / a
    level = rms(z)
    return 0.3 * level if level <= 1 and (not z.size or float(z.max()) <= 4) else None


def noise_of(deviations: Sequence[Array]) -> Array:
    """Largest absolute deviation per element over the perturbed replays, floored."""
    n: Array = np.max(np.abs(np.stack(deviations)), axis=0)
    positive = n[n > 0]
    return np.maximum(n, NOISE_FLOOR * float(np.median(positive))) if positive.size else n


def _worst_slice(d: Array, sigma: Array) -> float:
    """Largest rms(d) / rms(sigma) over the slices along every axis (one channel, one image of a batch, one row)."""
    worst = 0.0
    for axis in range(d.ndim):
        if d.shape[axis] < 2 or d.size // d.shape[axis] < SLICE_MIN:
            continue
        rest = tuple(i for i in range(d.ndim) if i != axis)
        top, bottom = np.square(d).mean(axis=rest), np.square(sigma).mean(axis=rest)
        ratio = np.sqrt(np.divide(top, bottom, out=np.where(top > 0, np.inf, 0.0), where=bottom > 0))
        worst = max(worst, float(ratio.max()))
    return worst


def _gain(d: Array, y: Array, power: float) -> float:
    return abs(inner(d.ravel(), y.ravel())) / power if power > 0 else 0.0


def judge(
    d: Array, y0: Array, a: Array, deviations: Sequence[Array], *, precision: Precision, nodes: int, clip: tuple[float, float]
) -> Statistics:
    """Score d (float64, any shape; non-finite elements already zeroed) against storing cost and perturbed replays.

    nodes: how many operators of the region round. clip: (norm, excess in ranges) of what calibration clipped, int8 only.
    """
    n = noise_of(deviations)
    sigma = a + n
    size = d.size
    z = np.divide(np.abs(d), sigma, out=np.where(d != 0, np.inf, 0.0), where=sigma > 0)
    power = inner(y0.ravel(), y0.ravel())
    level = rms(y0)
    cost = rms(a)
    resolution = cost / (np.sqrt(3 * size) * level) if level > 0 else 0.0
    gain_floor = 2.0**-9 + resolution if precision.stepped else max(precision.unit / 2 * (1 + (nodes - 1) / 4), resolution)
    gain = _gain(d, y0, power) / (gain_floor + max(_gain(k, y0, power) for k in deviations))
    offset, room = abs(float(d.mean())), cost / 2 + max(abs(float(k.mean())) for k in deviations)
    offset = offset / room if room > 0 else (np.inf if offset > 0 else 0.0)  # the sum of nothing is stored without any cost
    peak_ceiling = PEAK_CEILING * max(1.0, float(np.sqrt(np.log(max(size, 2)) / 6.9))) * (2 if precision.stepped else 1)
    reach = 1 + 3 / float(np.sqrt(size))
    figures = {
        "energy": rms(z) / reach,
        "peak": float(z.max()) / peak_ceiling,
        "gain": gain / GAIN_CEILING,
        "offset": offset / OFFSET_CEILING,
        "slice": _worst_slice(d, sigma) / SLICE_CEILING if size >= SLICES_FROM else 0.0,
        "clip": min(clip[0] / CLIP_NORM, clip[1] / CLIP_EXCESS),
    }
    worst = max(figures, key=lambda k: figures[k])
    score = figures[worst]
    if rms(n) > 0.5 * level:
        reach *= DROWNED / 2
        if score < DROWNED:
            score = min(score, 1.2)
    return Statistics(float(score), worst, reach)


def clipped(t: Array, y0: Array, a: Array, step: float) -> tuple[Array, float, float]:
    """int8: y0 within the range that the dump shows, where that is plausible calibration clipping.

    Returns (y0 or its clipped form, ||y0 - clip(y0)|| / ||y0||, largest excess in ranges). Not clipped where t spans less than half
    of y0's span, nor where more than max(5 %, 2.5 / N) of the elements lie beyond the range by over 2a.
    """
    low, high = float(t.min()), float(t.max())
    span = float(y0.max()) - float(y0.min())
    inside = np.clip(y0, low, high)
    beyond = np.abs(y0 - inside)
    share = float(np.mean(beyond > 2 * a))
    if high - low < 0.5 * span or share > max(0.05, 2.5 / y0.size):
        return y0, 0.0, 0.0
    norm = rms(y0)
    return inside, (rms(beyond) / norm if norm > 0 else 0.0), float(beyond.max()) / (255 * step)
