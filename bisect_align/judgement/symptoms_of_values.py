"""What was done to the values, wherever they stand: scaled, shifted, clamped, rounded, left out.

Each detector gives a symptom where its explanation removes nearly all of the error, else None.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from bisect_align.judgement.pair import Pair
from bisect_align.judgement.precision import GRID_MIN_LEVELS, grid_step, rms
from bisect_align.model.dtypes import is_float
from bisect_align.result.result import Symptom

Array: TypeAlias = NDArray[Any]

ONE_SIDED = 0.02  # share of flips to the other side that near-ties may make
FEW = 8  # elements below which a fit proves nothing
MANY, ASIDE = 256, 0.2  # elements, and the mean in steps, from which a rounding is called one-sided
CLAMPED = 3  # elements at a bound before it is called one
PER_CHANNEL = 3, 8  # elements a channel must have for a constant of its own to mean something; for two of them
MANTISSA, BITS_MOST = 23, 16  # float32; more bits kept than this are no coarse rounding
LEVELS_MOST = 256  # levels of a coarse rounding
MOST_SHAKEN = 0.25  # of a step: near-ties that noise may decide

ROUNDINGS: dict[str, Callable[[Array], Array]] = {
    "to nearest": np.rint,
    "down (floor)": np.floor,
    "up (ceil)": np.ceil,
    "towards zero (truncation)": np.trunc,
    "half up": lambda x: np.floor(x + 0.5),
    "half away from zero": lambda x: np.copysign(np.floor(np.abs(x) + 0.5), x),
    "half down": lambda x: np.ceil(x - 0.5),
}


def constant(pair: Pair) -> Symptom | None:
    """All that is off is zero, or one other value (a block that was never written, a sentinel)."""
    off = pair.off
    count = int(np.count_nonzero(off))
    if count < FEW:
        return None
    held = pair.t[off]
    value = float(held[0])
    if not (held == value).all() or float(np.ptp(pair.y[off])) <= 4 * pair.noise or _on_bound(pair, value):
        return None
    left = rms(np.where(off, 0, pair.d))
    if not pair.explains(left):
        return None
    what = "zero" if value == 0 else f"{value:.6g}"
    where = "all" if count == off.size else f"{count} of {off.size}"
    return pair.symptom("zero" if value == 0 else "constant", f"{where} elements hold {what}", left)


def _on_bound(pair: Pair, value: float) -> bool:
    """The value is a bound of what is right elsewhere: a clamp, not a block."""
    inside = pair.t[~pair.off]
    if inside.size < CLAMPED or float(np.ptp(inside)) == 0:
        return False
    wrong = pair.y[pair.off]
    above, below = bool((wrong > value).all()), bool((wrong < value).all())
    return (above and value >= float(inside.max())) or (below and value <= float(inside.min()))


def sign(pair: Pair) -> Symptom | None:
    """Turned round, or lost."""
    pair = pair.thin
    if pair.t.size < FEW:
        return None
    for text, right in (("the sign is flipped", -pair.y), ("the sign is lost: absolute values", np.abs(pair.y))):
        left = rms(pair.t - right)
        if pair.explains(left):
            return pair.symptom("sign", text, left)
    return None


def scale(pair: Pair) -> Symptom | None:
    """One factor."""
    pair = pair.thin
    energy = float(np.sum(np.square(pair.y)))
    if pair.t.size < FEW or energy == 0 or float(np.ptp(pair.y)) == 0:
        return None
    factor = float(np.sum(pair.y * pair.t)) / energy
    left = rms(pair.t - factor * pair.y)
    if not pair.explains(left) or abs(factor + 1) < 0.01 or abs(factor) < 1e-6:
        return None
    return pair.symptom("scale", f"{factor:.6g} times what it should be", left)


def offset(pair: Pair) -> Symptom | None:
    """One constant, added."""
    pair = pair.thin
    added = float(pair.d.mean()) if pair.d.size >= FEW else 0.0
    left = rms(pair.d - added)
    if not pair.explains(left) or float(np.ptp(pair.t)) == 0 or float(np.ptp(pair.y)) == 0:
        return None
    return pair.symptom("offset", f"{added:+.6g} at every element", left)


def clamp(pair: Pair) -> Symptom | None:
    """The replay, held between bounds that it exceeds."""
    pair = pair.thin
    if pair.t.size < FEW:
        return None
    low, high = float(pair.t.min()), float(pair.t.max())
    level = rms(pair.y)
    if high - low <= 4 * pair.noise or level == 0:
        return None
    bounds, held = [], 0
    for bound, word in ((low, "below"), (high, "above")):
        slack = 4 * pair.noise * max(1.0, abs(bound) / level)
        beyond = pair.y < bound - slack if word == "below" else pair.y > bound + slack
        count = int(np.count_nonzero(beyond))
        if count and float(np.abs(pair.t[beyond] - bound).max()) > slack + 1e-6 * abs(bound):
            return None
        if count:
            bounds.append(f"{word} {bound:.6g} ({count} elements)")
            held += count
    left = rms(pair.t - np.clip(pair.y, low, high))
    return (
        pair.symptom("clamp", f"nothing {' and nothing '.join(bounds)}", left)
        if held >= CLAMPED and pair.explains(left)
        else None
    )


def unclamped(pair: Pair) -> Symptom | None:
    """The target, held between the bounds of the replay, is the replay: a Relu or Clip was left out."""
    pair = pair.thin
    if pair.t.size < FEW:
        return None
    low, high = float(pair.y.min()), float(pair.y.max())
    if high <= low:
        return None
    bounds = [("below", low), ("above", high)]
    words = [f"{w} {b:.6g}" for w, b in bounds if int(np.count_nonzero(pair.off & (pair.y == b))) >= CLAMPED]
    left = rms(np.clip(pair.t, low, high) - pair.y)
    if not words or not pair.explains(left):
        return None
    return pair.symptom("dropped activation", f"values {' and '.join(words)} are not held there", left)


def passed_through(pair: Pair) -> Symptom | None:
    """The target is something that the operator was fed."""
    for inner, fed in ((False, pair.boundary), (True, pair.inner)):
        for name, value in (fed or {}).items():
            if value.shape == pair.target.shape and (is_float(value.dtype) or value.dtype.kind in "iub"):
                left = Pair(pair.target, value).before
                if pair.explains(left):
                    what = f"{name!r}, from which it is computed" if inner else f"its own input {name!r}, unchanged"
                    return pair.symptom("passed through", f"it holds {what}", left)
    return None


def per_channel(pair: Pair) -> Symptom | None:
    """A constant for each index of an axis: a bias that is missing, or another one."""
    for axis in _channelled(pair, PER_CHANNEL[0]):
        rest = tuple(a for a in range(pair.d.ndim) if a != axis)
        means = pair.d.mean(axis=rest, keepdims=True, dtype=np.float64)
        left = float(np.sqrt(max(pair.energy / pair.d.size - float(np.mean(np.square(means))), 0.0)))
        many = int(np.count_nonzero(np.abs(means) > pair.noise)) >= max(2, means.size // 4)  # fewer: these channels are wrong
        if many and pair.explains(left) and float(np.ptp(means)) > pair.noise and _varies(pair, rest):
            text = f"a constant for each of the {pair.d.shape[axis]} indices of axis {axis} ({means.min():+.4g} to {means.max():+.4g})"
            return pair.symptom("bias", text + ", as of a bias left out or of another one", left)
    return None


def affine_per_channel(pair: Pair) -> Symptom | None:
    """A factor and a constant for each index of an axis (other statistics or parameters). Loose: for what nothing else explains."""
    for axis in _channelled(pair, PER_CHANNEL[1]):
        rest = tuple(a for a in range(pair.d.ndim) if a != axis)
        factor, added = _affine(pair, rest)
        left = rms(pair.d - (factor - 1) * pair.y - added)
        if pair.explains(left) and float(np.ptp(factor)) > 1e-4 and _varies(pair, rest):
            spread = f"factors {factor.min():.4g} to {factor.max():.4g}, constants {added.min():+.4g} to {added.max():+.4g}"
            text = f"a factor and a constant for each of the {pair.d.shape[axis]} indices of axis {axis} ({spread})"
            return pair.symptom("scale per channel", text + ", as of other statistics or parameters", left)
    return None


def _channelled(pair: Pair, least: int) -> list[int]:
    """Axes whose indices have elements enough, the usual channel axes first."""
    shape = pair.d.shape
    axes = [a for a in range(pair.d.ndim) if shape[a] > 1 and pair.d.size // shape[a] >= least]
    return sorted(axes, key=lambda a: (a != 1, -a))


def _varies(pair: Pair, rest: tuple[int, ...]) -> bool:
    """Neither value is constant along the other axes: a constant there would explain anything."""
    return all(rms(x - x.mean(axis=rest, keepdims=True)) > max(pair.allowed, 1e-3 * rms(x)) for x in (pair.t, pair.y))


def _affine(pair: Pair, rest: tuple[int, ...]) -> tuple[Array, Array]:
    """Least squares of t = factor * y + added, for each index of the axis that is not in `rest`."""
    my, mt = (x.mean(axis=rest, keepdims=True, dtype=np.float64) for x in (pair.y, pair.t))
    spread = np.mean(np.square(pair.y - my), axis=rest, keepdims=True)
    together = np.mean((pair.y - my) * (pair.t - mt), axis=rest, keepdims=True)
    factor = np.divide(together, spread, out=np.ones_like(spread), where=spread > 0)
    return factor, mt - factor * my


def coarse(pair: Pair) -> Symptom | None:
    """Rounded to a step, or to a few bits of mantissa, more coarsely than the replay; and which way."""
    pair = pair.thin
    if pair.t.size < FEW or pair.target.dtype.kind in "iub":
        return None
    bits = _bits(pair.t)
    if bits is not None and bits < BITS_MOST and ((exact := _bits(pair.y)) is None or exact > bits):
        with np.errstate(divide="ignore"):
            step = np.exp2(np.floor(np.log2(np.abs(pair.y))) - bits)
        found = _rounded(pair, np.where(step > 0, step, 1.0))
        if found is not None:
            return pair.symptom("coarse rounding", f"{bits} bits of mantissa, rounded {found[0]}", found[1])
    own, best = grid_step(pair.y), None
    for step in filter(None, (_spacing(pair), grid_step(pair.t), _two_levels(pair))):
        origin = float(pair.t.min()) - step * round(float(pair.t.min()) / step)
        found = _rounded(pair, np.float64(step), origin if abs(origin) > 0.05 * step else 0.0)
        if found is not None and (own is None or own < 0.9 * step) and (best is None or found[1] < best[1]):
            best = f"multiples of {step:.6g}, rounded {found[0]}", found[1]
    return pair.symptom("coarse rounding", *best) if best else None


def _spacing(pair: Pair) -> float | None:
    """The step of levels that were themselves stored in a coarse format, so that they are multiples only about; None where there is none.

    Found from the small levels, which are stored most exactly, and made exact by the large ones (least squares over their numbers).
    """
    levels = np.unique(pair.t)
    if not GRID_MIN_LEVELS <= levels.size <= min(LEVELS_MOST, pair.t.size // 2):
        return None
    slack = 2 * pair.noise
    gaps = np.diff(levels)
    gaps = gaps[gaps > slack]
    if not gaps.size:
        return None
    step = float(np.median(gaps[gaps <= 1.5 * gaps.min()]))
    for _ in range(4):
        number = np.rint(levels / step)
        if not number.any():
            return None
        step = float(np.sum(number * levels) / np.sum(np.square(number)))
    off = np.abs(levels - np.rint(levels / step) * step)
    return step if float(off.max()) <= max(slack, 0.1 * step) else None


def _two_levels(pair: Pair) -> float | None:
    """The gap where there are two different values only, and many in the replay."""
    low, high = float(pair.t.min()), float(pair.t.max())
    few = high > low and bool(((pair.t == low) | (pair.t == high)).all())
    return high - low if few and np.unique(pair.y).size > FEW else None


def _bits(x: Array) -> int | None:
    """Bits of mantissa that all elements get along with."""
    single = x.astype(np.float32)
    if not np.array_equal(single, x):
        return None
    used = int(np.bitwise_or.reduce(single.view(np.uint32) & np.uint32((1 << MANTISSA) - 1), axis=None))
    return 0 if not used else MANTISSA - ((used & -used).bit_length() - 1)


def _rounded(pair: Pair, step: Array | np.float64, origin: float = 0.0) -> tuple[str, float] | None:
    """The way of rounding that leaves least, where that is little enough; "to nearest" wins a draw.

    Where noise decides to which side a value goes, either is right.
    """
    found = []
    shake = np.minimum(4 * pair.noise * pair.sized, MOST_SHAKEN * step)
    for text, way in ROUNDINGS.items():
        sides = [np.abs(pair.t - (way((pair.y + moved - origin) / step) * step + origin)) for moved in (0.0, shake, -shake)]
        found.append((rms(np.minimum.reduce(sides)), rms(sides[0]), text))
    left, _, text = min(found, key=lambda f: (round(f[0] / pair.before, 2), f[1]))
    return (text, left) if pair.explains(left) else None


def rounding(pair: Pair) -> Symptom | None:
    """What was fed, rounded another way than the operator says."""
    if pair.op not in ("Round", "Cast"):
        return None
    for fed in (pair.boundary or {}).values():
        if fed.shape != pair.target.shape or fed.dtype.kind != "f":
            continue
        for text, way in ROUNDINGS.items():
            left = rms(np.where(np.isfinite(fed), pair.t - way(fed.astype(np.float64)), 0))
            if pair.explains(left):
                return pair.symptom("rounding", f"the input rounded {text}", left)
    return None


def one_sided(pair: Pair) -> Symptom | None:
    """On steps, and on average well to one side: what is left without that mean is what rounding may leave."""
    pair = pair.thin
    step = grid_step(pair.t) if is_float(pair.target.dtype) and pair.t.size >= MANY else None
    if step is None or float(np.abs(pair.d).max()) > 1.1 * step:
        return None
    inside = pair.d[(pair.t > pair.t.min()) & (pair.t < pair.t.max())]
    if inside.size < MANY or abs(float(inside.mean())) < ASIDE * step:
        return None
    left, mean = float(inside.std()), float(inside.mean()) / step
    side = "below: truncation or floor" if mean < 0 else "above: ceil, or truncation of negative values"
    text = f"on average {abs(mean):.2f} of a step of {step:.6g} {side}, where rounding to nearest has no side"
    return pair.symptom("rounding", text, left) if left <= step / 2 else None


def ties(pair: Pair) -> Symptom | None:
    """ArgMax and ArgMin: another one of several equal values was chosen."""
    if pair.op not in ("ArgMax", "ArgMin") or pair.target.dtype.kind not in "iu":
        return None
    for name, fed in (pair.boundary or {}).items():
        for axis in range(fed.ndim):
            kept = [n if a != axis else 1 for a, n in enumerate(fed.shape)]
            shapes = (tuple(kept), tuple(n for a, n in enumerate(fed.shape) if a != axis))
            if (
                pair.target.shape not in shapes
                or min(pair.t.min(), pair.y.min()) < 0
                or max(pair.t.max(), pair.y.max()) >= fed.shape[axis]
            ):
                continue
            chosen, right = (np.take_along_axis(fed, x.reshape(kept).astype(np.int64), axis) for x in (pair.target, pair.replay))
            wrong = (pair.target != pair.replay).reshape(kept)
            if (chosen == right)[wrong].all():
                text = f"{int(wrong.sum())} of {wrong.size} choose another one of several equal values of {name!r}"
                return pair.symptom("ties", text, 0.0)
    return None


def levels(pair: Pair) -> Symptom | None:
    """Integers off by one level, always to the same side, or always towards zero."""
    if pair.target.dtype.kind not in "iu":
        return None
    left = rms(np.where(np.abs(pair.d) == 1, 0, pair.d))
    if not pair.explains(left):
        return None
    up, down = pair.y[pair.d == 1], pair.y[pair.d == -1]
    if min(up.size, down.size) >= FEW and (up.max() <= down.min() or up.min() >= down.max()):
        towards = bool(up.max() <= down.min())
        middle = (float(up.max()) + float(down.min())) / 2 if towards else (float(up.min()) + float(down.max())) / 2
        way = "towards" if towards else "away from"
        how = "as by truncation" if towards else "as by rounding away from zero"
        where = "zero" if abs(middle) <= 1 else f"level {middle:.4g}"
        text = f"{up.size + down.size} of {pair.d.size} elements are one level off, always {way} {where}, {how}"
        return pair.symptom("rounding", text, left)
    for side, moved in (
        ("down, as by floor or by truncation", -pair.d),
        ("up, as by ceil or by rounding half up", pair.d),
        ("towards zero, as by truncation", -pair.d * np.sign(pair.y)),  # with a few near-ties that went the other way
    ):
        there, back = (int(np.count_nonzero(moved == by)) for by in (1, -1))
        if there >= FEW and back <= ONE_SIDED * there:
            text = f"{there + back} of {pair.d.size} elements are one level off, {'' if not back else 'nearly '}always {side}"
            return pair.symptom("rounding", text, left)
    return None
