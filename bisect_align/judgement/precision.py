"""What a number format does to a value: rounding units, steps, and the absolute cost of storing a tensor.

The constants were set by measurement on simulated chips and real dumps (docs/notes/judgement.md); none comes from a standard alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from bisect_align.errors import UsageError

Array: TypeAlias = NDArray[Any]

# A bounded activation is often a table look-up: its error is absolute, about half a table step, whatever the format.
BOUNDED = frozenset({"Sigmoid", "Tanh", "Softmax", "Erf", "HardSigmoid", "LogSoftmax", "Sin", "Cos"})
TABLE_STEP = 2.0**-13
TABLE_STEP_INT8 = 2.0**-8  # a table of 8 bits holds 0 to 1, however little of that the run needs
INT8_LEVELS = 256
# Of a run whose steps are not known, a level grid is only believed when enough distinct levels are there to space it.
GRID_MIN_LEVELS = 3
PRINT_SAMPLE, PRINT_MIN = 2048, 8  # elements looked at, and how many different ones must lie on a decimal grid


@dataclass(frozen=True, slots=True)
class Precision:
    """unit: relative rounding unit of the format (fp32: 2^-20, since kernels differ by several ulp); 0 for int8, which has steps.
    subnormal: what is lost near zero by rounding; never 0, so that a tensor of zeros has a cost to compare with. least: the least
    normal number, below which hardware may flush to zero. cuts: units that take the format may cut off what they do not hold, which
    moves all values to one side."""

    name: str
    unit: float
    subnormal: float = 2.0**-126
    least: float = 2.0**-126
    cuts: bool = False

    @property
    def stepped(self) -> bool:
        """True for int8: errors are counted in quantisation steps, not relative units."""
        return self.unit == 0.0


FP32 = Precision("fp32", 2.0**-20)
TF32 = Precision("tf32", 2.0**-10, cuts=True)
FP16 = Precision("fp16", 2.0**-11, 2.0**-25, 2.0**-14)
BF16 = Precision("bf16", 2.0**-8)
INT8 = Precision("int8", 0.0)
PRECISIONS = {p.name: p for p in (FP32, TF32, FP16, BF16, INT8)}
# Finest first: the order in which an unknown precision is tried.
LADDER = (FP32, FP16, BF16, INT8)
HALVES = {FP16.name: np.dtype(np.float16), BF16.name: np.dtype(ml_dtypes.bfloat16)}


def given(name: str) -> Precision | None:
    """The precision that the user names, None for auto. Raises UsageError for another word."""
    if name not in ("auto", *PRECISIONS):
        raise UsageError(f"no such precision: {name!r}", where="--precision", hint=f"auto or one of {', '.join(PRECISIONS)}")
    return PRECISIONS.get(name)


def rms(x: Array) -> float:
    """Root mean square, 0 for an empty array."""
    return float(np.sqrt(np.mean(np.square(x, dtype=np.float64)))) if x.size else 0.0


def grid_step(values: Array) -> float | None:
    """Spacing of the levels where the values have at most 256 evenly spaced levels, else None.

    Uneven gaps are allowed when every gap is a whole multiple of the smallest (levels that no element took).
    """
    levels = np.unique(values[np.isfinite(values)])
    if not GRID_MIN_LEVELS <= levels.size <= INT8_LEVELS:
        return None
    gaps = np.diff(levels.astype(np.float64))
    step = float(gaps.min())
    # float32 levels q * s carry a rounding error of their own size, hence the relative slack
    slack = 4e-7 * max(abs(float(levels[0])), abs(float(levels[-1]))) / step
    multiples = gaps / step
    if slack > 0.2 or gaps.sum() / step > INT8_LEVELS:
        return None
    return step if float(np.abs(multiples - np.rint(multiples)).max()) <= 0.05 + 2 * slack else None


def rounded_to(values: Array, precision: Precision) -> bool:
    """True where every finite value is a number of that half-wide format: a float32 file of an fp16 run tells what it was."""
    kept = values[np.isfinite(values)]
    half = HALVES.get(precision.name)
    with np.errstate(over="ignore"):
        return half is not None and bool(np.array_equal(kept.astype(half).astype(kept.dtype), kept))


def print_step(values: Array) -> float:
    """10^-k where the values look printed with k decimals, 3 to 9 (the small ones among them lie on that grid); 0 where they do not.

    Multiples of 2^-10 tell nothing: they lie on decimal grids by nature.
    """
    sample = values.reshape(-1)[:: max(1, values.size // PRINT_SAMPLE)].astype(np.float64)
    small = sample[(np.abs(sample) < 1) & (sample * 1024 != np.rint(sample * 1024))]
    for decimals in range(3, 10):
        ticks = small * 10.0**decimals
        slack = np.abs(ticks) * 2.0**-24  # float32 holds no decimal exactly
        told, slack = ticks[slack < 0.05], slack[slack < 0.05]
        if np.unique(told).size >= PRINT_MIN and bool((np.abs(told - np.rint(told)) <= slack + 1e-6).all()):
            return float(10.0**-decimals)
    return 0.0


def step_of(values: Array | None, lowest: float, highest: float) -> float:
    """int8 step of a tensor: that of its dumped grid, else of a 255-step range that spans zero and [lowest, highest]."""
    step = grid_step(values) if values is not None else None
    if step is not None:
        return step
    return max((max(highest, 0.0) - min(lowest, 0.0)) / (INT8_LEVELS - 1), 1e-30)


def storing_cost(precision: Precision, y: Array, op: str, step: float) -> Array:
    """Per element, what storing y (made by `op`) costs in this precision; `step` is used by int8 only."""
    if precision.stepped:
        return np.full(y.shape, max(step, TABLE_STEP_INT8 if op in BOUNDED else 0.0) / 2)
    u = precision.unit
    cost = u * (np.abs(y) + 0.1 * rms(y)) + precision.subnormal
    if op in BOUNDED:
        cost = cost + 0.5 * max(u, TABLE_STEP)
    return np.asarray(cost)


def round_to(values: Array, how: str) -> Array:
    """The weights as a target may hold them: 'fp16', 'bf16', 'bf16 truncated', 'int8 channel', 'int8 tensor' (symmetric)."""
    w = values.astype(np.float32)
    if how in HALVES:
        with np.errstate(over="ignore"):
            half = w.astype(HALVES[how]).astype(np.float32)
        return np.where(np.isinf(half), w, half)  # beyond the format's range is a fault, not a way of rounding
    if how == "bf16 truncated":
        return np.asarray((w.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32))
    axes = tuple(range(1, w.ndim)) if how == "int8 channel" and w.ndim > 1 else None
    peak = np.abs(w).max(axis=axes, keepdims=True) if w.size else np.ones((1,) * w.ndim, np.float32)
    step = np.where(peak > 0, peak / 127, 1).astype(np.float32)
    return np.asarray(np.rint(w / step) * step, np.float32)


# How a target of each precision may have rounded its weights; "" = as they are.
WEIGHT_HYPOTHESES: dict[str, tuple[str, ...]] = {
    "fp32": ("",),
    "tf32": ("",),
    "fp16": ("", "fp16"),
    "bf16": ("", "bf16", "bf16 truncated"),
    "int8": ("", "int8 channel", "int8 tensor"),
}
