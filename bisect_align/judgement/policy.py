"""GOOD, BAD or UNKNOWN: the state of a tensor by its accumulated error."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from bisect_align.errors import UsageError
from bisect_align.judgement.shadow import NoiseLevel
from bisect_align.result.result import Figures, State

NOISE_FACTOR = 4.0  # accumulated error beyond this many times the modelled noise is BAD
# Below both, an accumulated error is nobody's business (approximated activations in an fp32 run reach 2e-4).
IMMATERIAL_L2, IMMATERIAL_PEAK = 1e-3, 1e-2
# The best single thresholds measured, in dB of signal to error, where the user gives no number (policy classic).
SQNR_LIMIT = {"fp32": 64.0, "tf32": 36.0, "fp16": 36.0, "bf16": 20.0, "int8": 8.0}
COSINE_GOOD, COSINE_RED = 0.999, 0.99
LOOSE_COSINE_GOOD, LOOSE_COSINE_RED = 0.99, 0.95
PSNR_GOOD, PSNR_RED = 40.0, 30.0  # dB
# What the last look allows: absolute, but for int8, where it is one level of 255 in the golden's range.
MAX_ABS = {"fp32": 1e-5, "tf32": 1e-3, "fp16": 1e-3, "bf16": 1e-2, "int8": 1.0}
RELATIVE_ERROR = 0.01  # elements beyond it are where a BAD tensor is wrong
# Which way each threshold of --threshold points: at least (similarities) or at most (errors).
AT_LEAST = frozenset({"cosine", "psnr", "sqnr", "top1", "top5"})
AT_MOST = frozenset({"max_abs", "mean_abs", "mse", "rmse", "rel_l2", "rel_rmse", "max_rel", "mean_rel", "max_ulp", "mismatched"})
AT_MOST |= {"kl", "histogram", "median_rel"}
CLASSIC = ("classic", "classic:loose")


@dataclass(frozen=True, slots=True)
class Policy:
    """name: calibrated, classic or classic:loose. thresholds: the user's, by metric."""

    name: str = "calibrated"
    thresholds: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.name not in ("calibrated", *CLASSIC):
            raise UsageError(f"no such policy: {self.name!r}", where="--policy", hint="calibrated, classic or classic:loose")
        for metric in self.thresholds:
            if metric not in AT_LEAST | AT_MOST:
                known = ", ".join(sorted(AT_LEAST | AT_MOST))
                raise UsageError(f"no such metric: {metric!r}", where="--threshold", hint=f"one of {known}")

    @property
    def calibrated(self) -> bool:
        return self.name == "calibrated"

    @property
    def loose(self) -> bool:
        return self.name == "classic:loose"


def beyond(figures: Figures, thresholds: Mapping[str, float]) -> str:
    """Which threshold the figures miss, in words; "" where they keep all. A figure that is not defined misses nothing."""
    for metric, limit in thresholds.items():
        value = getattr(figures, metric)
        if value is None:
            continue
        if value != value or (value < limit if metric in AT_LEAST else value > limit):
            sign = "<" if metric in AT_LEAST else ">"
            return f"{metric} {value:.4g} {sign} {limit:g}"
    return ""


def state_of(figures: Figures, noise: NoiseLevel | None, policy: Policy, precision: str, *, discrete: bool) -> tuple[State, str]:
    """State of a compared tensor and the reason in figures."""
    if figures.exact:
        return State.GOOD, "equal"
    if figures.max_abs == math.inf:  # before any tolerance: the other figures are of the finite elements only
        odd, given = figures.nan_target + figures.inf_target, figures.nan_golden + figures.inf_golden
        return State.BAD, f"{odd} NaN or infinite elements, the golden has {given}" + (" elsewhere" if odd == given else "")
    if policy.calibrated:
        return _calibrated(figures, noise or NoiseLevel(), discrete)
    if discrete:
        return State.BAD, f"{figures.mismatched} of {figures.elements} differ"
    missed = beyond(figures, policy.thresholds) if policy.thresholds else funnel(figures, precision, loose=policy.loose)
    return (State.BAD, missed) if missed else (State.GOOD, "within thresholds")


def funnel(figures: Figures, precision: str, *, loose: bool) -> str:
    """What the thresholds that engineers know say against a float tensor, "" for nothing: cosine first, then PSNR, then max abs.

    1. Cosine below red (0.99, loose 0.95) is BAD. So is a tensor that cosine cannot see to be wrong, since it is only scaled: SQNR
       below the limit of the precision, loose: PSNR below 30 dB.
    2. Cosine of good (0.999, loose 0.99) and above is GOOD.
    3. Between: PSNR from 40 dB is GOOD, below 30 dB BAD; between: GOOD where max abs is within MAX_ABS.
    The peak of PSNR is the golden's range, loose: 1. A figure that is not defined says nothing against a tensor.
    """
    good, red = (LOOSE_COSINE_GOOD, LOOSE_COSINE_RED) if loose else (COSINE_GOOD, COSINE_RED)
    psnr = _psnr_of_one(figures.mse) if loose else figures.psnr
    seen = Figures(cosine=figures.cosine, psnr=psnr, sqnr=figures.sqnr)
    scale = {"psnr": PSNR_RED} if loose else {"sqnr": SQNR_LIMIT[precision]}
    missed = beyond(seen, {"cosine": red, **scale})
    if missed or not beyond(seen, {"cosine": good}):
        return missed
    low = f"cosine {figures.cosine:.4g} < {good:g}"
    if missed := beyond(seen, {"psnr": PSNR_RED}):
        return f"{low}, {missed}"
    if not beyond(seen, {"psnr": PSNR_GOOD}):
        return ""
    limit = MAX_ABS[precision]
    if precision == "int8" and figures.rmse is not None and figures.psnr is not None:
        limit *= figures.rmse * 10 ** (figures.psnr / 20) / 255  # the golden's range, from the PSNR that refers to it
    missed = beyond(figures, {"max_abs": limit})
    return f"{low}, psnr {psnr:.4g} < {PSNR_GOOD:g}, {missed}" if missed else ""


def _psnr_of_one(mse: float | None) -> float | None:
    """PSNR in dB against a peak of 1."""
    if mse is None:
        return None
    return -10 * math.log10(mse) if mse > 0 else math.inf


def _calibrated(figures: Figures, noise: NoiseLevel, discrete: bool) -> tuple[State, str]:
    if discrete:
        share = figures.mismatched / max(figures.elements, 1)
        good = share <= NOISE_FACTOR * noise.share
        return (
            State.GOOD if good else State.BAD
        ), f"{figures.mismatched} of {figures.elements} differ, near-ties explain {noise.share:.2g}"
    relative, peak = figures.rel_l2 or 0.0, figures.max_abs or 0.0
    text = f"relative L2 {relative:.2g}, noise explains {noise.relative:.2g}"
    if relative <= IMMATERIAL_L2 and peak <= IMMATERIAL_PEAK * noise.level:
        return State.GOOD, text
    if relative > NOISE_FACTOR * noise.relative:
        return State.BAD, text
    if peak > NOISE_FACTOR * noise.peak:
        return State.BAD, f"largest error {peak:.3g}, noise explains {noise.peak:.2g}"
    return State.GOOD, text
