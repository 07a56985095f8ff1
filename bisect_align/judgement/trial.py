"""One region on the target's own boundary values: what did it introduce, and can noise explain it? (A raw score, before peers.)"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from bisect_align.golden.protocol import Unavailable
from bisect_align.judgement import discrete, special, statistics
from bisect_align.judgement.bench import DESTROYED, Bench, destroyer, jitters, leaves, predict, replay_jittered
from bisect_align.judgement.jitter import weights_of
from bisect_align.judgement.precision import (
    BOUNDED,
    FP16,
    TABLE_STEP,
    WEIGHT_HYPOTHESES,
    Precision,
    grid_step,
    print_step,
    rms,
    round_to,
    step_of,
    storing_cost,
)
from bisect_align.metrics.inner import relative
from bisect_align.model.dtypes import is_float
from bisect_align.model.operators import DATA_SHAPED, KEEPS, SUMS
from bisect_align.model.region import Region
from bisect_align.result.result import Kind

Array: TypeAlias = NDArray[Any]

REPLAYS = 8
FLIP_UNITS = (2.0, 4.0)  # jitter under which a discrete flip is benign
WIDE_UNITS = 16.0
TIE_UNITS = 4.0
# Precision loss: introduced error above this, while the format's own noise exceeds half of the signal.
LOSS = {"fp16": 0.01, "bf16": 0.05, "int8": 0.2}
FP16_MAX = 65504.0
CLIP_NORM, CLIP_EXCESS = 0.05, 0.1  # of norm and range: so much that is clipped is judged, however well the rest fits
ONE_SIDED = 100.0  # score of one-sided rounding: peers cannot soften it
SATURATES = 1.9  # below what convicts: an int8 tensor that is only clipped is suspect, never convicted


@dataclass(frozen=True, slots=True)
class Score:
    """value: introduced error over what noise explains, before class factors; None = could not be judged, `note` says why.

    introduced, expected: relative L2 of the introduced error and of the modelled noise. kind: hard evidence, or precision loss.
    reach: how many times the expected noise an error that is spread like it comes to at a value of 1. floor: relative L2 below which
    an error is immaterial, whatever its score.
    """

    value: float | None
    statistic: str = ""
    introduced: float = 0.0
    expected: float = 0.0
    kind: Kind | None = None
    note: str = ""
    fixed: bool = False  # hard evidence or exact comparison: peers do not soften it
    reach: float = 1.0
    floor: float = special.IMMATERIAL_L2

    @property
    def unknown(self) -> bool:
        return self.value is None


@dataclass(frozen=True, slots=True)
class _Given:
    """What all steps of one trial share."""

    bench: Bench
    region: Region
    feeds: Mapping[str, Array]
    precision: Precision

    @property
    def op(self) -> str:
        """The operator that makes the output."""
        return self.bench.graph.nodes[self.bench.graph.producer[self.region.output]].op

    @property
    def computing(self) -> int:
        """How many nodes of the region round what they make; at least 1."""
        return max(1, sum(self.bench.graph.nodes[i].op not in KEEPS for i in self.region.nodes))

    @property
    def ops(self) -> set[str]:
        """The operators of the region."""
        return {self.bench.graph.nodes[i].op for i in self.region.nodes}


def _unknown(note: str) -> Score:
    return Score(None, note=note)


def _relative(d: Array, y: Array) -> float:
    return relative(rms(d), rms(y))


def try_region(
    bench: Bench, region: Region, feeds: Mapping[str, Array], target: Array, precision: Precision, replays: int = REPLAYS
) -> Score:
    """Judge the target's value of region.output against the region replayed on the feeds."""
    y0 = predict(bench, region, feeds)
    if isinstance(y0, Unavailable):
        return _unknown(f"the region cannot be replayed: {y0.reason}")
    given = _Given(bench, region, feeds, precision)
    if target.shape != y0.shape:
        if given.op in DATA_SHAPED or any(bench.graph.nodes[i].op in DATA_SHAPED for i in region.nodes):
            return _unknown(f"shape depends on data: target {target.shape}, replay {y0.shape}")
        return Score(np.inf, "shape", np.inf, 0.0, Kind.WRONG_SHAPE, f"shape {target.shape} instead of {y0.shape}", fixed=True)
    if not is_float(y0.dtype):
        return _discrete(given, target, y0)
    return _continuous(given, target, y0, replays)


def _discrete(given: _Given, t: Array, y0: Array) -> Score:
    if np.array_equal(t, y0):
        return Score(0.0, "exact", fixed=True)
    if t.dtype.kind not in "iub" or y0.dtype.kind not in "iub":
        return _unknown(f"{t.dtype} cannot be compared with {y0.dtype}")
    bench, region, op = given.bench, given.region, given.op
    matrices = weights_of(bench.graph, region.nodes)
    base = {w: bench.graph.constant(w) for w in matrices}
    flipped, wide = np.zeros(y0.shape, bool), np.zeros(y0.shape, bool)
    # every replay draws anew: an exact half goes the other way in one draw of two, whatever the amount
    for turn, (units, into) in enumerate((*((u, flipped) for u in FLIP_UNITS), (WIDE_UNITS, wide))):
        for jitter in jitters(bench, region, given.precision, units, REPLAYS, "flip", turn * REPLAYS):
            y = replay_jittered(bench, region, given.feeds, jitter, base, matrices)
            if y is not None and y.shape == y0.shape:
                into |= y != y0
    wide |= flipped
    note = ""
    if op in discrete.ARG and t.shape == y0.shape:
        flipped, wide, note = _arg_ties(given, t, y0, flipped, wide)
    flips = discrete.compare(t, y0, flipped, wide)
    score = flips.score(op)
    text = (
        note
        or f"{flips.mismatched} of {flips.size} differ, {flips.unexcused} beyond a near-tie; {flips.up} up, {flips.down} down"
    )
    introduced = _relative(t.astype(np.float64) - y0.astype(np.float64), y0.astype(np.float64))
    return Score(score, "flips", introduced, 0.0, None, text, fixed=True)


def _arg_ties(given: _Given, t: Array, y0: Array, flipped: Array, wide: Array) -> tuple[Array, Array, str]:
    """Excuse by the value at the chosen index; an exact tie on an observed boundary that is exact in the golden is no excuse."""
    bench, feeds, precision = given.bench, given.feeds, given.precision
    node = bench.graph.nodes[given.region.nodes[-1]]
    attributes = {a.name: a.i for a in node.proto.attribute}
    source = node.inputs[0]
    if source not in feeds:
        return flipped, wide, ""
    scores = feeds[source]
    axis, keepdims = int(attributes.get("axis", 0)), bool(attributes.get("keepdims", 1))
    gap, valid = discrete.chosen_gap(scores, t, y0, axis, keepdims)
    unit = precision.unit or grid_step(scores) or step_of(None, *bench.ranges(source))
    peak = float(np.abs(scores[np.isfinite(scores)]).max(initial=0.0)) if not precision.stepped else 1.0
    near = valid & (gap <= TIE_UNITS * unit * peak)
    tie = valid & (gap == 0) & (t != y0)
    if tie.any():
        golden = bench.golden(source)
        if golden is not None and golden.shape == scores.shape:
            exact_gap, _ = discrete.chosen_gap(golden, t, y0, axis, keepdims)
            tie &= exact_gap == 0
            count = int(np.count_nonzero(tie))
            return near & ~tie, near & ~tie, f"{count} exact ties decided against the operator's rule" if count else ""
    return near, near, ""


@dataclass(frozen=True, slots=True)
class _Reading:
    """The target read as if its weights were rounded in one way (how, see WEIGHT_HYPOTHESES).

    weights: rounded so. y: the replay with them; a: what storing y costs; d: target - y, without what calibration clipped;
    clip: (norm, excess) of that, see statistics.clipped.
    """

    how: str
    weights: Mapping[str, Array]
    y: Array
    a: Array
    d: Array
    clip: tuple[float, float]


def _continuous(given: _Given, target: Array, y0: Array, replays: int) -> Score:
    bench, region, precision = given.bench, given.region, given.precision
    if not y0.size:
        return Score(0.0, "exact", fixed=True)
    t, y = target.astype(np.float64), y0.astype(np.float64)
    if (hard := _non_finite(t, y, precision)) is not None:
        return hard
    odd = ~np.isfinite(y)
    if odd.any():  # equal non-finite values: nothing to compare there
        t, y = np.where(odd, 0, t), np.where(odd, 0, y)
    if np.array_equal(t, y):
        return Score(0.0, "exact", fixed=bool(odd.mean() > 0.5))  # equal NaN all over say nothing about the precision
    step = step_of(t, *bench.ranges(region.output)) if precision.stepped else 0.0
    printed = print_step(t)
    matrices = weights_of(bench.graph, region.nodes)
    exact = {w: bench.graph.constant(w) for w in matrices}
    readings: list[_Reading] = []
    for how in WEIGHT_HYPOTHESES[precision.name] if exact else ("",):
        base = {
            w: round_to(x, how) if how and x.dtype == np.float32 and (matrices[w] or not precision.stepped) else x
            for w, x in exact.items()
        }
        yh = y if not how else _plain(given, base)
        if yh is None or yh.shape != y.shape:
            continue
        yh = np.where(odd, 0, yh)
        if not np.isfinite(yh).all():
            continue
        a = storing_cost(precision, yh, given.op, step) + printed / 2
        reference, clip = yh, (0.0, 0.0)
        if precision.stepped:
            reference, share, excess = statistics.clipped(t, yh, a, step)
            clip = (share, excess)
        d = np.nan_to_num(t - reference)
        if precision.name == "fp16":
            d = _unflushed(d, t, yh)
        passed = statistics.gate(d, a)
        if passed is not None and not (clip[0] > CLIP_NORM and clip[1] > CLIP_EXCESS):
            if precision.stepped and special.masked_away(d, y):
                note = "one value, such as that of a mask, owns the range: the step is as wide as what it hides"
                return Score(passed, "bulk", _relative(d, y), _relative(a, y), Kind.PRECISION_LOSS, note)
            return Score(passed, "gate", _relative(d, y), _relative(a, y))
        readings.append(_Reading(how, base, yh, a, d, clip))
    best = min(readings, key=lambda one: rms(one.d))
    chosen = [best] if not best.how else [best, *(one for one in readings if not one.how)]
    scores = []
    for one in chosen:
        deviations = _deviations(given, one, matrices, replays, odd)
        if deviations:
            scores.append(_score(given, t, one, deviations, step, bool(exact)))
    if not scores:
        return _unknown("the region cannot be replayed on perturbed values")
    return min(scores, key=lambda s: s.value if s.value is not None else np.inf)


def _plain(given: _Given, base: Mapping[str, Array]) -> Array | None:
    output = given.region.output
    got = given.bench.engine.replay(given.region.nodes, given.feeds, [output], weights=base or None)[output]
    return None if isinstance(got, Unavailable) else got.astype(np.float64)


def _deviations(given: _Given, reading: _Reading, matrices: Mapping[str, bool], replays: int, odd: Array) -> list[Array]:
    """Perturbed replays minus the unperturbed replay of the same session; where they are not finite any more, all of the value."""
    plain = _plain(given, reading.weights)
    if plain is None:
        return []
    found = []
    for jitter in jitters(given.bench, given.region, given.precision, 1.0, replays, reading.how):
        y = replay_jittered(given.bench, given.region, given.feeds, jitter, reading.weights, matrices)
        if y is not None and y.shape == odd.shape:
            with np.errstate(invalid="ignore"):  # infinite minus infinite, where both are odd
                moved = y.astype(np.float64) - plain
            found.append(np.where(odd, 0, np.where(np.isfinite(moved), moved, plain)))
    return found


def _score(given: _Given, t: Array, reading: _Reading, deviations: list[Array], step: float, weighted: bool) -> Score:
    y, a, d, precision = reading.y, reading.a, reading.d, given.precision
    got = statistics.judge(d, y, a, deviations, precision=precision, nodes=given.computing, clip=reading.clip)
    value, statistic, kind, note = got.score, got.worst, None, ""
    introduced = _relative(d, y)
    noise = statistics.noise_of(deviations)
    expected = _relative(a + noise, y)
    share = special.SUMS_SHARE if given.ops <= SUMS else 1.0
    if special.immaterial(d, y, share):
        value, note = min(value, 1.0), "immaterial"
    if precision.stepped and value > SATURATES:
        driven = leaves(y, *given.bench.ranges(given.region.output))
        if special.saturates(t, y, a + noise, driven=driven):
            value = SATURATES
            note = f"saturates at [{t.min():.4g}, {t.max():.4g}]: calibration or fault cannot be told without the scales"
    if precision.stepped and not weighted and _rounds_once(given) and special.biased_rounding(t, d, step):
        value, statistic, note = max(value, ONE_SIDED), "rounding", "one-sided rounding of the levels"
    elif precision.name in LOSS and not _tabled(given, d):
        if special.masked_away(d, y):
            kind, note = Kind.PRECISION_LOSS, "the format destroys the signal here"
        elif introduced > LOSS[precision.name] and rms(noise) > DESTROYED * rms(y):
            # many roundings in a row may add up to as much in a sound format: one must do it alone
            if (name := destroyer(given.bench, given.region, given.feeds, precision)) is not None:
                kind, note = Kind.PRECISION_LOSS, f"the format destroys the signal where {name!r} is rounded"
            else:
                note = "noise is as large as the signal: proves nothing"
    return Score(value, statistic, introduced, expected, kind, note, reach=got.reach, floor=share * special.IMMATERIAL_L2)


def _rounds_once(given: _Given) -> bool:
    """No hidden tensor is rounded before the output is: what follows can turn that into a bias (a norm of rounded values)."""
    types = given.bench.graph.types
    return not any(h in types and is_float(types[h].dtype) for h in given.region.hidden)


def _tabled(given: _Given, d: Array) -> bool:
    """A bounded activation speaks on the scale of 1: what one step of a table hides was no signal, however small its values."""
    return given.op in BOUNDED and rms(d) < TABLE_STEP


def _unflushed(d: Array, t: Array, y: Array) -> Array:
    """d without what float16 hardware may flush to zero (below its least normal number), where that carries next to nothing of y, or
    where the target holds no such number at all and most of y is left."""
    gone = (t == 0) & (np.abs(y) < FP16.least)
    flushes = not ((t != 0) & (np.abs(t) < FP16.least)).any()
    share = DESTROYED if flushes else LOSS["fp16"]
    return np.where(gone, 0, d) if rms(np.where(gone, y, 0)) <= share * rms(y) else d


def _non_finite(t: Array, y: Array, precision: Precision) -> Score | None:
    """NaN and Inf are looked for before any tolerance."""
    fine_y, fine_t = np.isfinite(y), np.isfinite(t)
    agree = (fine_y & fine_t) | (np.isnan(y) & np.isnan(t)) | (y == t)
    if agree.all():
        return None
    new = fine_y & ~fine_t
    if not new.any():
        return _unknown("the replay is not finite where the target is")
    count = int(np.count_nonzero(new))
    peak = float(np.abs(y[new]).max())
    overflow = precision.name == "fp16" and peak > 0.9 * FP16_MAX
    note = f"{count} of {t.size} elements are NaN or infinite, the replay there is finite (up to {peak:.3g})"
    return Score(
        np.inf,
        "non-finite",
        np.inf,
        0.0,
        Kind.NON_FINITE,
        note + ("; beyond the range of float16" if overflow else ""),
        fixed=True,
    )
