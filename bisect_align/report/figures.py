"""Figures in words."""

from __future__ import annotations

from bisect_align.metrics.distributions import bins_of
from bisect_align.result.result import Figures
from bisect_align.result.words import count


def number(value: float | None) -> str:
    """Three significant digits, more where a cosine near 1 needs them; "-" where it was not computed."""
    if value is None:
        return "-"
    if 0.99 < value < 1:
        return f"{value:.7g}"
    return f"{value:.3g}"


def phrase(figures: Figures) -> str:
    """One line that says how far apart two tensors are, and where it is worst."""
    if figures.exact:
        return "equal"
    errors = {"relative L2": figures.rel_l2, "max abs": figures.max_abs}
    parts = [f"{name} {number(value)}" for name, value in errors.items() if value is not None]
    if figures.elements:
        parts.append(f"{figures.mismatched} of {figures.elements} elements off")
    if figures.nan_target > figures.nan_golden:
        parts.append(f"{figures.nan_target - figures.nan_golden} new NaN")
    if figures.inf_target > figures.inf_golden:
        parts.append(f"{figures.inf_target - figures.inf_golden} new Inf")
    if figures.worst is not None:
        index = ", ".join(map(str, figures.worst))
        parts.append(f"worst at [{index}]: {number(figures.worst_golden)} became {number(figures.worst_target)}")
    return ", ".join(parts) or "not comparable element by element"


def distributions(figures: Figures) -> str:
    """The figures that are computed on request, in one line."""
    named = {
        "KL": figures.kl,
        "histogram distance": figures.histogram,
        "median relative error": figures.median_rel,
        "Top-1": figures.top1,
        "Top-5": figures.top5,
    }
    coarse = f" ({count(bins_of(figures.elements), 'bin')})" if figures.histogram == 0 and not figures.exact else ""
    told = {"histogram distance": coarse}
    return ", ".join(f"{name} {number(value)}{told.get(name, '')}" for name, value in named.items() if value is not None)
