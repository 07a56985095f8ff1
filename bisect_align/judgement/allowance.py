"""What noise explains of one region, as plain figures that travel with a case: no engine is needed to judge by them later."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from bisect_align.judgement.bench import Bench, jitters, replay_jittered
from bisect_align.judgement.jitter import weights_of
from bisect_align.judgement.precision import Precision, step_of, storing_cost
from bisect_align.judgement.statistics import noise_of
from bisect_align.judgement.trial import REPLAYS, WIDE_UNITS
from bisect_align.metrics.inner import inner
from bisect_align.model.dtypes import is_float
from bisect_align.model.region import Region

Array: TypeAlias = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Allowance:
    """sigma: per element, what storing it costs and what rounding on the way can move it by (float64; integers: the widest flip).
    gain, offset: the common factor and the mean shift that noise explains."""

    sigma: Array
    gain: float
    offset: float


def allowance(
    bench: Bench,
    region: Region,
    feeds: Mapping[str, Array],
    golden: Array,
    precision: Precision,
    target: Array | None = None,
) -> Allowance:
    """The allowance of a healthy target of this precision. golden: the region's output replayed on the feeds; target: a value whose
    quantisation grid counts for int8."""
    discrete = not is_float(golden.dtype)
    matrices = weights_of(bench.graph, region.nodes)
    base = {name: bench.graph.constant(name) for name in matrices}
    y0 = golden.astype(np.float64)
    deviations = []
    units, tag = (WIDE_UNITS, "flip") if discrete else (1.0, "")
    for jitter in jitters(bench, region, precision, units, REPLAYS, tag):
        y = replay_jittered(bench, region, feeds, jitter, base, matrices)
        if y is not None and y.shape == golden.shape:
            moved = y.astype(np.float64) - y0
            deviations.append(np.where(np.isfinite(moved), moved, np.nan_to_num(y0, posinf=0, neginf=0)))
    if discrete:
        return Allowance(np.max(np.abs(deviations), axis=0) if deviations else np.zeros(golden.shape), 0.0, 0.0)
    finite = np.where(np.isfinite(y0), y0, 0)
    op = bench.graph.nodes[bench.graph.producer[region.output]].op
    step = step_of(target, *bench.ranges(region.output)) if precision.stepped else 0.0
    cost = storing_cost(precision, finite, op, step)
    power = inner(finite.ravel(), finite.ravel())
    gains = [abs(inner(d.ravel(), finite.ravel())) / power for d in deviations] if power > 0 else []
    return Allowance(
        cost + (noise_of(deviations) if deviations and golden.size else 0.0),
        max(gains, default=0.0) + (precision.unit or 2.0**-9),
        max((abs(float(d.mean())) for d in deviations if d.size), default=0.0) + float(cost.mean() / 2 if cost.size else 0.0),
    )
