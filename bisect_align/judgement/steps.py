"""How wide an int8 target's steps are, told from the tensors that it dumped."""

from __future__ import annotations

import statistics as stats
from collections.abc import Sequence
from dataclasses import replace

from bisect_align.judgement.bench import Bench, Observed
from bisect_align.judgement.judge import sample
from bisect_align.judgement.precision import Precision, grid_step, step_of

SAMPLE, TENSOR_MIN = 24, 64  # tensors looked at, and elements from which a tensor's levels are told
SEVERAL = 3  # grids from which the target's habit is told
WIDEST = 4.0  # symmetric steps that are powers of two come to this: a signed half of the range, rounded up


def fitted(bench: Bench, observed: Observed, tensors: Sequence[str], precision: Precision) -> Bench:
    """The bench with the steps of this target, where the precision has steps."""
    return replace(bench, coarse=coarseness(bench, observed, tensors)) if precision.stepped else bench


def coarseness(bench: Bench, observed: Observed, tensors: Sequence[str]) -> float:
    """Median of dumped step over the step that the golden's range asks for, 1 to 4; 1 where fewer than three grids are dumped.

    Symmetric scales, powers of two and wide calibration make every step of a chip wider, also those of tensors that nobody sees.
    """
    steps: dict[str, float] = {}
    for name in sample(tensors, SAMPLE):
        values = observed.value(name)
        if values.dtype.kind == "f" and values.size >= TENSOR_MIN and (step := grid_step(values)) is not None:
            steps[name] = step
    if len(steps) < SEVERAL:
        return 1.0
    wider = stats.median(step / step_of(None, *bench.ranges(name)) for name, step in steps.items())
    return min(max(wider, 1.0), WIDEST)
