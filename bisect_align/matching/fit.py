"""How well does an entry, laid out as a tensor, fit a prediction of that tensor?"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from bisect_align.dumps.entry import Entry, Expect, Quant
from bisect_align.errors import DumpError
from bisect_align.matching.layout import LayoutFix, fixes
from bisect_align.metrics.inner import norm, relative
from bisect_align.model.dtypes import is_float

Array: TypeAlias = NDArray[Any]

BETTER = 4.0  # one candidate must be this many times better than the next before it is believed
CODES_MIN, CODES_LEVELS, CODES_TOP, CODES_FIT = 16, 8, 65535.0, 0.1  # what whole numbers must show to be taken for codes
BITS = 24.0  # evidence from which a fit is no accident
BITS_ELEMENTS, BITS_FLOOR = 64, 2.0**-24  # elements that count as independent, and the residual below which all are equal
VOTES_MIN, VOTES_SHARE = 3, 0.05  # what a layout that an entry's shape hides needs


@dataclass(frozen=True, slots=True)
class Tolerance:
    """fits: relative L2 up to which an entry fits a prediction (matching, not judging). tie: below it two candidates are equal."""

    fits: float
    tie: float


# By the level of the residuals that the dump itself shows: (upper end of the level, tolerance). Levels are those of healthy
# fp32, fp16, bf16 and int8 runs, whose introduced errors are near 2e-7, 5e-4, 4e-3 and 2e-2.
LEVELS = (
    (3e-5, Tolerance(2e-3, 1e-5)),
    (2e-3, Tolerance(3e-2, 2e-3)),
    (9e-3, Tolerance(8e-2, 8e-3)),
    (np.inf, Tolerance(0.35, 2e-2)),
)
LOOSEST = LEVELS[-1][1]


def learn(residuals: list[float]) -> Tolerance:
    """Tolerance of a dump from the residuals of tensors that are computed, not moved: the level of their median (less than half of
    the entries of any dump seen were misnamed)."""
    found = sorted(r for r in residuals if r < 1)
    if not found:
        return LOOSEST
    level = found[len(found) // 2]
    return next(t for top, t in LEVELS if level <= top)


# The same elements in the same order: nothing to be believed, whatever the shape.
PLAIN = ("id", "flat")


def reorders(label: str) -> bool:
    """True for layouts that only put axes in another order (as a wrong transposition would), not for blocks, padding or shape."""
    return label.startswith("p") or "CL" in label or "HWC" in label


@dataclass(slots=True)
class Votes:
    """Which layout labels the dump has shown, per (entry rank, tensor rank): only clear winners vote. settled: believed anyway."""

    counts: dict[tuple[int, int], Counter[str]] = field(default_factory=dict)
    settled: frozenset[tuple[tuple[int, int], str]] = frozenset()

    def add(self, key: tuple[int, int], label: str) -> None:
        self.counts.setdefault(key, Counter())[label] += 1

    def believed(self, key: tuple[int, int], label: str) -> bool:
        """Has the dump shown this layout often enough to take it where the shape hides it? A reordering of axes could also be an
        operator's fault that its neighbours inherit, so it must be no rarer than the plain order."""
        if (key, label) in self.settled:
            return True
        counter = self.counts.get(key)
        if not counter or counter[label] < VOTES_MIN:
            return False
        rival = counter["id"] if reorders(label) else VOTES_SHARE * max(counter.values())
        return counter[label] >= rival

    def plain(self, key: tuple[int, int]) -> bool:
        """Has the dump shown that such entries are in the tensor's own order, where another one would fit their shape too?"""
        return self.counts.get(key, Counter())["id"] >= VOTES_MIN

    def doubtful(self) -> list[tuple[tuple[int, int], str]]:
        """Layouts that some entry fits clearly and that are not believed, most votes first."""
        found = [(-n, key, label) for key, c in self.counts.items() for label, n in c.items() if label not in PLAIN]
        return [(key, label) for _, key, label in sorted(found) if not self.believed(key, label)]

    def settled_on(self, key: tuple[int, int], label: str) -> Votes:
        """Votes yet to be cast by a dump that is known to have this layout."""
        return Votes(settled=self.settled | {(key, label)})

    def all_believed(self) -> set[tuple[tuple[int, int], str]]:
        """Every layout that is believed by now."""
        return {(key, label) for key, counter in self.counts.items() for label in counter if self.believed(key, label)}

    def favourite(self, key: tuple[int, int]) -> str | None:
        """The layout for an entry that fits nothing: the settled one, else the one with most votes."""
        settled = next((label for at, label in sorted(self.settled) if at == key), None)
        if settled is not None:
            return settled
        counter = self.counts.get(key)
        return counter.most_common(1)[0][0] if counter else None


def dequantise(q: Array, quant: Quant) -> Array:
    """(q - zero_point) * scale in float32, along quant.axis where they are vectors."""
    scale, zero = np.asarray(quant.scale, np.float32), np.asarray(quant.zero_point, np.float32)
    if quant.axis is not None and scale.ndim == 1 and scale.size > 1:
        shape = [1] * q.ndim
        shape[quant.axis] = -1
        scale, zero = scale.reshape(shape), (zero.reshape(shape) if zero.size > 1 else zero)
    return np.asarray((q.astype(np.float32) - zero) * scale)


def read(entry: Entry, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Array:
    """The entry's values in its own layout, in real units, as the tensor's type. Raises DumpError with the reason where that
    cannot be done honestly (integers without scales for a real tensor, fractions for an integer one)."""
    raw = entry.load(Expect(dtype, shape))
    if is_float(dtype):
        if entry.quant is not None and raw.dtype.kind in "iu":
            return dequantise(raw, entry.quant).astype(dtype)
        if not is_float(raw.dtype):
            raise DumpError(
                f"holds {raw.dtype} where the tensor is {dtype}",
                where=entry.key,
                hint="give its scale with --quant-params or in a manifest",
            )
        return raw if raw.dtype == dtype else raw.astype(dtype)
    if is_float(raw.dtype):
        whole = np.rint(raw.astype(np.float64))
        if not np.array_equal(whole, raw.astype(np.float64)):
            raise DumpError(f"holds fractions where the tensor is {dtype}", where=entry.key)
        raw = whole
    if dtype.kind == "b" or raw.dtype == dtype:
        return raw.astype(dtype)
    info = np.iinfo(dtype) if dtype.kind in "iu" else None
    if info is not None and raw.size and (raw.min() < info.min or raw.max() > info.max):
        raise DumpError(f"holds values beyond {dtype}", where=entry.key)
    return raw.astype(dtype)


def residual(values: Array, prediction: Array) -> float:
    """Relative L2 distance from the prediction over the elements finite in both; at least 1 where NaN and Inf do not coincide.

    For integers and bools: the share of elements that differ.
    """
    return compare(values, prediction)[0]


def compare(values: Array, prediction: Array) -> tuple[float, float]:
    """(residual, the same without regard to NaN and Inf that do not coincide, where half of the elements are finite in both).

    The second figure still tells where an entry belongs when an operator has left a NaN in it.
    """
    if not is_float(prediction.dtype):
        share = float(np.mean(values != prediction)) if values.size else 0.0
        return share, share
    with np.errstate(over="ignore", invalid="ignore"):
        v, p = values.astype(np.float64).reshape(-1), prediction.astype(np.float64).reshape(-1)
        both = np.isfinite(v) & np.isfinite(p)
        agree, half = True, True
        if not both.all():
            agree = np.array_equal(v[~both], p[~both], equal_nan=True)
            half = 2 * int(np.count_nonzero(both)) >= both.size
            v, p = v[both], p[both]
        near = relative(norm(v - p), norm(p))
    whole = near if agree else max(1.0, near)
    return whole, near if half else max(1.0, near)


@dataclass(frozen=True, slots=True)
class Fit:
    """An entry laid out as a tensor: by which fix, at what residual, with the values. near: see `compare`. otherwise: a layout that
    the dump has not shown, and under which alone the entry would fit."""

    fix: LayoutFix
    residual: float
    values: Array = field(repr=False)
    near: float = np.inf
    otherwise: str = ""


def fit(raw: Array, prediction: Array, votes: Votes, tolerance: Tolerance, *, vote: bool = False) -> Fit | None:
    """The best believable layout of an entry as the predicted tensor; None where no layout explains its shape.

    A layout that the entry's own shape shows needs no vote; one that the shape hides (equal dims, flattened) is believed only
    where the dump has shown it before, or where without it the shape were wrong and it fits clearly. vote: let this entry vote.
    """
    candidates = fixes(raw.shape, prediction.shape)
    if not candidates:
        return None
    key = (raw.ndim, prediction.ndim)
    first = candidates[0]
    tried: list[Fit] = []
    for fix in candidates:
        values = fix.apply(raw)
        whole, near = compare(values, prediction)
        tried.append(Fit(fix, whole, values, near))
        if fix is first and fix.label == "id" and tried[0].residual <= tolerance.tie:
            if vote and len(candidates) > 1 and carries_evidence(values):
                votes.add(key, "id")
            break
    ranked = sorted(tried, key=lambda f: (f.residual, f.near))
    best = ranked[0]
    rival = next(
        (f.residual for f in ranked[1:] if not np.array_equal(f.values, best.values, equal_nan=is_float(best.values.dtype))),
        np.inf,
    )
    clear = best.residual <= tolerance.fits and best.residual * BETTER < max(rival, tolerance.tie)
    if vote and clear and len(tried) > 1:
        votes.add(key, best.fix.label)
    if clear and carries_evidence(best.values) and not any(f.fix.shown or f.fix.label == "id" for f in tried):
        return best  # the plain reading is a wrong shape, and of all others only this one fits
    allowed = [f for f in ranked if f.fix.shown or f.fix.label in PLAIN or votes.believed(key, f.fix.label)]
    if not allowed:
        return None if all(f.fix.crops for f in tried) else next(f for f in tried if f.fix is first)
    if allowed[0].residual <= tolerance.fits:
        return allowed[0]
    # nothing fits: lay it out as the dump's other entries are, for a fault looks like this
    usual = votes.favourite(key)
    laid = next((f for f in allowed if f.fix.label == usual), next((f for f in allowed if f.fix.label == "id"), allowed[0]))
    doubtful = clear and carries_evidence(best.values) and not votes.plain(key)
    return replace(laid, otherwise=best.fix.label) if doubtful else laid


def like_codes(values: Array, prediction: Array) -> tuple[float, int] | None:
    """(scale, zero point) where whole numbers under a real tensor's name look like codes that nobody has dequantised."""
    if not is_float(prediction.dtype) or values.shape != prediction.shape or values.size < CODES_MIN:
        return None
    q, p = values.astype(np.float64).reshape(-1), prediction.astype(np.float64).reshape(-1)
    if not np.isfinite(p).all() or not np.array_equal(q, np.rint(q)) or np.array_equal(p, np.rint(p)):
        return None
    if float(np.abs(q).max()) > CODES_TOP or np.unique(q).size < CODES_LEVELS:
        return None
    spread = q - q.mean()
    scale = float(spread @ p) / float(spread @ spread)
    shift = float(p.mean() - scale * q.mean())
    off = p - (scale * q + shift)
    # whole numbers of the tensor's own size are its rounding, not its codes
    if scale <= 0 or abs(scale - 1) < CODES_FIT or float(off.std()) > CODES_FIT * float(p.std()):
        return None
    return scale, round(-shift / scale)


def tells_nothing(entry: Entry, got: Fit, prediction: Array, tolerance: Tolerance) -> str:
    """Why the values of an entry are neither right nor wrong: lost in print, or codes without their scale; "" where they are not."""
    if entry.step and is_float(prediction.dtype) and not got.values.any():
        peak = float(np.abs(prediction[np.isfinite(prediction)]).max(initial=0.0))
        if 0 < peak < entry.step:
            return f"was printed in steps of {entry.step:g}, which is more than its values: all of them read as zero"
    if got.residual > tolerance.fits and (codes := like_codes(got.values, prediction)) is not None:
        scale, zero = codes
        return (
            f"holds whole numbers that look like codes which nobody has dequantised, about (q - {zero}) * {scale:.3g}: "
            "give their scale with --quant-params"
        )
    return ""


def carries_evidence(values: Array) -> bool:
    """False for constant, all-zero, all-NaN and empty arrays: they fit too many tensors to prove anything."""
    if values.size < 2:
        return False
    if is_float(values.dtype):
        finite = values[np.isfinite(values)]
        return bool(finite.size > 1 and finite.min() != finite.max())
    return bool(values.min() != values.max())


def bits(size: int, residual: float) -> float:
    """Evidence of a fit, in bits: of its independent elements, each agrees to log2(1 / residual) bits."""
    return float(min(size, BITS_ELEMENTS) * np.log2(1 / max(residual, BITS_FLOOR)))
