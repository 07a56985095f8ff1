"""Which precision did the target run at? The finest one under which its regions look healthy."""

from __future__ import annotations

import statistics as stats
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bisect_align.judgement.judge import Judge, sample
from bisect_align.judgement.precision import INT8, LADDER, Precision, grid_step, rounded_to
from bisect_align.model.dtypes import is_float

SAMPLE = 48  # regions tried at each precision
MEDIAN_MAX = 0.7
BEYOND, BEYOND_SHARE = 2.0, 0.05
FAMILY_MIN = 2  # regions of one family of matrix operators that are all beyond noise
MATRIX_MIN = 6  # matrix operators that decide when the others do not fit (a fault that hits every operator of another kind)
SEVERAL = 3  # regions from which any precision but the finest may be inferred
ENOUGH = 8  # regions from which int8 may be inferred without a grid in the dump
GRID_SAMPLE, GRID_SIZE, GRID_MIN, GRID_SHARE = 24, 64, 3, 0.2
STORED_SHARE = 0.75  # of the tensors, whose numbers all lie on a half-wide format, tell that the run stored them so
FEW = 3  # regions that may be faulty in a small dump without changing the precision


@dataclass(frozen=True, slots=True)
class Inferred:
    """precision, how it was found, and whether any precision fitted at all. explains: False where even that precision leaves most
    regions beyond noise: then names, model or inputs are more likely wrong than that many operators. shown: False where the size of
    the errors alone speaks for it, and not the numbers in the dump."""

    precision: Precision
    evidence: str
    fitted: bool
    explains: bool = True
    shown: bool = True


def infer(judge_at: Callable[[Precision], Judge], tensors: Sequence[str], candidates: Sequence[Precision] = LADDER) -> Inferred:
    """Try each candidate, finest first. Fits: median raw score below 0.7 and few regions beyond 2.

    Regions that only move values say nothing and are left out; so are those that hold nothing but NaN.
    """
    tried: list[str] = []
    # values may lie on a grid by nature (whole numbers all the way); those of an int8 run do not follow from one another in fp32
    stepped = INT8 in candidates and on_int8_grid(judge_at(INT8), tensors)
    matrices = sample([t for t in tensors if judge_at(candidates[0]).families(t)], SAMPLE)
    multiplying = [t for t in matrices if judge_at(candidates[0]).multiplies(t)]
    for precision in candidates:
        judge = judge_at(precision)
        telling = _computed(judge, tensors)
        stored = _stored_as(judge, telling, precision)
        if stepped and precision is not candidates[0] and not precision.stepped and not stored:
            continue
        scores = _scores(judge, telling)
        if not scores:
            return Inferred(precision, "nothing that was compared is computed in floating point", True)
        median = stats.median(scores)
        beyond = sum(v > BEYOND for v in scores)
        tried.append(f"{precision.name}: median {median:.2g}, {beyond} of {len(scores)} beyond noise")
        if stepped and precision is INT8:
            return Inferred(INT8, "; ".join((*tried, "dumped tensors lie on grids of at most 256 levels")), True)
        # where NaN has spoilt most regions, that is the fault: the few that are left must fit
        spoilt = 2 * len(scores) < len(telling)
        coarser = [judge_at(p) for p in candidates[candidates.index(precision) + 1 :] if not p.stepped]
        if _fits(judge, telling, coarser, strict=spoilt) and not _family_beyond(judge, matrices, coarser):
            # so coarse a format explains nearly anything in a few regions, unless something else in this dump speaks for it
            needed = ENOUGH if precision is INT8 else SEVERAL if precision is not candidates[0] else 0
            sure = len(scores) >= needed or stored
            doubt = "" if sure else f"; too few regions to tell {precision.name} from a fault"
            return Inferred(precision, "; ".join(tried) + doubt, sure, shown=stored or precision is candidates[0])
        matrix = _scores(judge, multiplying)
        if len(matrix) >= MATRIX_MIN and _fits(judge, multiplying, coarser, strict=True):
            evidence = f"; the {len(matrix)} matrix operators fit {precision.name}, others do not"
            return Inferred(precision, "; ".join(tried) + evidence, True)
    fallback = next((p for p in candidates if _median_fits(judge_at(p), tensors)), candidates[-1])
    judge = judge_at(fallback)
    scores = [v for t in _computed(judge, tensors) if (v := judge.raw(t).value) is not None]
    explains = len(scores) < ENOUGH or 2 * sum(v > BEYOND for v in scores) <= len(scores)
    return Inferred(fallback, "; ".join(tried) + "; none fits", False, explains)


def on_int8_grid(judge: Judge, tensors: Sequence[str]) -> bool:
    """True where a good part of the dump's float tensors have at most 256 evenly spaced values: no other format does that.

    Tensors above the first computation are left out: an image of 256 grey levels lies on a grid in any run.
    """
    first = next((i for i, t in enumerate(tensors) if judge.computes(t)), len(tensors))
    values = [judge.observed.value(t) for t in sample(tensors[first:], GRID_SAMPLE)]
    telling = [v for v in values if is_float(v.dtype) and v.size >= GRID_SIZE]
    stepped = sum(grid_step(v) is not None for v in telling)
    return stepped >= max(GRID_MIN, GRID_SHARE * len(telling))


def _stored_as(judge: Judge, tensors: Sequence[str], precision: Precision) -> bool:
    """True where these tensors (but for few, which may be faulty) hold only numbers of that half-wide format, and enough to tell."""
    values = [v for t in tensors if is_float((v := judge.observed.value(t)).dtype)]
    rounded = [v.size for v in values if rounded_to(v, precision)]
    return sum(rounded) >= GRID_SIZE and len(rounded) >= STORED_SHARE * len(values)


def _fits(judge: Judge, tensors: Sequence[str], coarser: Sequence[Judge], *, strict: bool = False) -> bool:
    """Median below 0.7 and few beyond 2 (strict: one in twenty at most)."""
    scores = _scores(judge, tensors)
    if not scores:
        return False
    few = 0.0 if strict else min(FEW, 0.34 * len(scores))
    return stats.median(scores) < MEDIAN_MAX and _sites(judge, tensors, coarser) <= max(BEYOND_SHARE * len(scores), few)


def _sites(judge: Judge, tensors: Sequence[str], coarser: Sequence[Judge]) -> int:
    """How many regions are beyond 2. Those that share a node and that no coarser float format explains are one: a fault in a tensor
    that nobody dumped shows in each region that holds it."""
    explained, sites = 0, list[set[int]]()
    for tensor in tensors:
        score = judge.raw(tensor)
        if score.value is None or score.fixed or score.value <= BEYOND:
            continue
        if any(_explains(other, tensor) for other in coarser):
            explained += 1
            continue
        nodes = set(judge.region(tensor).nodes)
        apart = [site for site in sites if site.isdisjoint(nodes)]
        sites = [*apart, nodes.union(*(site for site in sites if not site.isdisjoint(nodes)))]
    return explained + len(sites)


def _explains(judge: Judge, tensor: str, limit: float = BEYOND) -> bool:
    value = judge.raw(tensor).value
    return value is not None and value <= limit


def _family_beyond(judge: Judge, tensors: Sequence[str], coarser: Sequence[Judge]) -> bool:
    """True where most regions that hold a matrix operator of one family, or of any, are beyond noise (two at least): that family ran
    coarser, and mixed runs are judged by their coarsest part. One that stands alone must fit a coarser float format well."""
    if len(tensors) == 1 and (value := judge.raw(tensors[0]).value) is not None and value > BEYOND:
        return any(_explains(other, tensors[0], MEDIAN_MAX) for other in coarser)
    families: dict[str, list[float]] = defaultdict(list)
    for tensor in tensors:
        score = judge.raw(tensor)
        if score.value is not None and not score.fixed:
            for family in judge.families(tensor) | {"*"}:
                families[family].append(score.value)
    return any(len(values) >= FAMILY_MIN and stats.median_low(values) > BEYOND for values in families.values())


def _median_fits(judge: Judge, tensors: Sequence[str]) -> bool:
    """Median alone: for dumps in which many regions are wrong."""
    scores = _scores(judge, _computed(judge, tensors))
    return bool(scores) and stats.median(scores) < MEDIAN_MAX


def _computed(judge: Judge, tensors: Sequence[str]) -> list[str]:
    return sample([t for t in tensors if judge.computes(t)], SAMPLE)


def _scores(judge: Judge, tensors: Sequence[str]) -> list[float]:
    """Raw scores of those that can be judged and are no hard evidence."""
    return [s.value for t in tensors if not (s := judge.raw(t)).fixed and s.value is not None]
