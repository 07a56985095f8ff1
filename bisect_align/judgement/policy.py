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
COSINE_RED = 0.99
# Which way each threshold of --threshold points: at least (similarities) or at most (errors).
AT_LEAST = frozenset({"cosine", "psnr", "sqnr"})
AT_MOST = frozenset({"max_abs", "mean_abs", "mse", "rmse", "rel_l2", "rel_rmse", "max_rel", "mean_rel", "max_ulp", "mismatched"})
PRESETS: dict[str, dict[str, float]] = {"classic:loose": {"cosine": 0.95, "psnr": 30.0}}


@dataclass(frozen=True, slots=True)
class Policy:
    """name: calibrated, classic or classic:loose. thresholds: the user's, by metric."""

    name: str = "calibrated"
    thresholds: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.name not in ("calibrated", "classic", *PRESETS):
            raise UsageError(f"no such policy: {self.name!r}", where="--policy", hint="calibrated, classic or classic:loose")
        for metric in self.thresholds:
            if metric not in AT_LEAST | AT_MOST:
                known = ", ".join(sorted(AT_LEAST | AT_MOST))
                raise UsageError(f"no such metric: {metric!r}", where="--threshold", hint=f"one of {known}")

    @property
    def calibrated(self) -> bool:
        return self.name == "calibrated"


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
    thresholds = policy.thresholds or PRESETS.get(policy.name) or {"cosine": COSINE_RED, "sqnr": SQNR_LIMIT[precision]}
    if discrete:
        return State.BAD, f"{figures.mismatched} of {figures.elements} differ"
    missed = beyond(figures, thresholds)
    return (State.BAD, missed) if missed else (State.GOOD, "within thresholds")


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
