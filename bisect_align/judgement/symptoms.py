"""What an error looks like: a short list of explanations that each remove nearly all of it, with their figures.

To add a detector, write a function from a Pair to a Symptom (or None, where its explanation leaves too much), and name it in DETECTORS.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from bisect_align.judgement import symptoms_of_order as order
from bisect_align.judgement import symptoms_of_values as values
from bisect_align.judgement.pair import Pair
from bisect_align.judgement.symptoms_of_norms import cancellation
from bisect_align.judgement.symptoms_of_places import places
from bisect_align.model.dtypes import is_float
from bisect_align.result.result import Symptom

Array: TypeAlias = NDArray[Any]
Detector: TypeAlias = Callable[[Pair], "Symptom | None"]

MOST = 4
ELEMENTS_MOST = 1 << 25  # above, only what needs no places is looked for
FP16_MAX = 65504.0

# The most telling first: of two that explain as much, the first one is named first. True: it needs places.
DETECTORS: tuple[tuple[Detector, bool], ...] = (
    (values.passed_through, False),
    (values.constant, False),
    (values.rounding, False),
    (values.sign, False),
    (values.scale, False),
    (values.offset, False),
    (order.shifted, True),
    (order.permuted, True),
    (order.transposed, True),
    (values.clamp, False),
    (values.unclamped, False),
    (values.coarse, False),
    (values.levels, False),
    (values.one_sided, False),
    (values.ties, False),
    (values.per_channel, True),
)


def symptoms(
    target: Array,
    replay: Array,
    op: str,
    *,
    boundary: Mapping[str, Array],
    noise_rms: float,
    inner: Mapping[str, Array] | None = None,
) -> tuple[Symptom, ...]:
    """At most four, the best first. replay: what should have come out; boundary: what the operator was fed, by name; inner: what a region
    of several operators makes on the way.

    noise_rms: rms of the absolute error that a healthy target introduces here; 0 where values are exact. Silent where no explanation
    leaves less than a tenth of the error or twice the noise.
    """
    if target.shape != replay.shape:
        wrong = order.shape(target, replay)
        return (wrong,) if wrong is not None else ()
    if not target.size or not all(is_float(x.dtype) or x.dtype.kind in "iub" for x in (target, replay)):
        return ()
    with np.errstate(all="ignore"):
        found = [*_non_finite(target, replay)]
        pair = Pair(target, replay, op, boundary, noise_rms, inner)
        if (symptom := cancellation(pair)) is not None:
            found.append(symptom)
        if pair.before > 0 and not any(s.name in ("NaN", "Inf") for s in found):
            for detector, needs_places in DETECTORS:
                if (not needs_places or target.size <= ELEMENTS_MOST) and (symptom := detector(pair)) is not None:
                    found.append(symptom)
            if target.size <= ELEMENTS_MOST:
                found += places(pair)
                if not found and (symptom := values.affine_per_channel(pair)) is not None:
                    found.append(symptom)
    return tuple(_ranked(found, noise_rms / pair.before if pair.before > 0 else 0.0)[:MOST])


def _ranked(found: list[Symptom], noise: float) -> list[Symptom]:
    """Those that leave about as little as the best one (three times that, or the noise; shares of the error) as they are, then the rest."""
    left = [max(1 - s.confidence, 0.0) ** 0.5 for s in found]
    equal = max(3 * min(left, default=0.0), noise, 0.02)
    return sorted(found, key=lambda s: max(max(1 - s.confidence, 0.0) ** 0.5, equal))


def _non_finite(target: Array, replay: Array) -> Iterable[Symptom]:
    """NaN and Inf where the replay has numbers, and on which indices they stand."""
    if not is_float(target.dtype):
        return
    fine = np.isfinite(replay)
    for name, bad in (("NaN", np.isnan(target) & fine), ("Inf", np.isinf(target) & fine)):
        count = int(np.count_nonzero(bad))
        if not count:
            continue
        peak = float(np.abs(replay[bad].astype(np.float64)).max())
        text = f"{count} of {target.size} elements{_where(bad)}; the replay there is finite (up to {peak:.3g})"
        if name == "Inf" and peak > 0.9 * FP16_MAX:
            text += ", beyond the range of float16"
        yield Symptom(name, text, 1.0)


def _where(bad: Array) -> str:
    """The axis on which the fewest indices are hit, if that says anything."""
    best: tuple[float, int, Array] | None = None
    for axis in range(bad.ndim):
        hit = np.flatnonzero(bad.any(axis=tuple(a for a in range(bad.ndim) if a != axis)))
        share = hit.size / bad.shape[axis]
        if share < 1 and (best is None or share < best[0]):
            best = share, axis, hit
    if best is None:
        return ", all over" if bad.all() else ""
    _, axis, hit = best
    listed = ", ".join(map(str, hit[:4])) + (f" and {hit.size - 4} more" if hit.size > 4 else "")
    return f", all on {'index' if hit.size == 1 else 'indices'} {listed} of axis {axis}"
