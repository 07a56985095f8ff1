"""One observed tensor against its golden: GOOD, BAD or UNKNOWN, alike in a run and in one that is open again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from numpy.typing import NDArray

from bisect_align.errors import BisectAlignError
from bisect_align.golden.protocol import Unavailable, Value
from bisect_align.judgement.policy import RELATIVE_ERROR, state_of
from bisect_align.judgement.shadow import NoiseLevel
from bisect_align.metrics.distributions import FULL, extended
from bisect_align.metrics.measure import measure
from bisect_align.metrics.places import located
from bisect_align.model.dtypes import is_float
from bisect_align.result.result import Figures, State
from bisect_align.session.case import Case

Array: TypeAlias = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Compared:
    """State of one observed tensor against the golden."""

    state: State
    reason: str
    figures: Figures | None = None


def compared(
    case: Case, tensor: str, golden: Value, target: Callable[[str], Array], noise: NoiseLevel | None, precision: str
) -> Compared:
    """State by the policy of the run, with its reason. target: gives the target's value of the tensor, or raises BisectAlignError."""
    if isinstance(golden, Unavailable):
        return Compared(State.UNKNOWN, golden.reason)
    try:
        value = target(tensor)
    except BisectAlignError as trouble:
        return Compared(State.UNKNOWN, str(trouble))
    if value.shape != golden.shape:
        return Compared(State.BAD, f"shape {value.shape}, the golden has {golden.shape}")
    figures, discrete = figures_of(case, tensor, golden, value), not is_float(golden.dtype)
    state, reason = state_of(figures, noise, case.policy, precision, discrete=discrete)
    if state is State.BAD and not case.policy.calibrated and not discrete:
        count, first = located(golden, value, RELATIVE_ERROR)
        if first is not None:
            reason += f"; {count} of {golden.size} elements off by more than {RELATIVE_ERROR:.0%}, the first at {list(first)}"
    return Compared(state, reason, figures)


def figures_of(case: Case, tensor: str, golden: Array, target: Array) -> Figures:
    """Figures of a pair of one shape; all that there are, where the user asked for them or limits one of them."""
    found = measure(golden, target)
    if case.options.metrics != "full" and FULL.isdisjoint(case.policy.thresholds):
        return found
    return extended(found, golden, target, scores=tensor in case.model.graph.outputs)
