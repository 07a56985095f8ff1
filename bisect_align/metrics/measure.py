"""Error figures of one pair of tensors: one pass in blocks, float64 accumulators, no copy larger than a block."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from bisect_align.result.result import Figures

Array: TypeAlias = NDArray[Any]

BLOCK = 131_072  # elements: three float64 buffers of this size stay in the second-level cache
ROW = 8_192  # elements: longer dot products wake BLAS threads, which costs more than it saves and changes last bits
EPSILON = 1e-8  # keeps relative errors finite where the golden is zero
SAFE_NORM = 1e-250, 1e300  # squared norms of float64 pairs outside may have lost digits to underflow or overflow


def measure(golden: Array, target: Array) -> Figures:
    """The error figures of `target` (t) against `golden` (g); both of one shape, any dtype each.

    Numbers (floats, ints, bools, complex, ml_dtypes): both are read as float64 (complex128), d = t - g, N = elements that are
    finite in both. Sums, means and extremes run over those N.

    - elements: size of the tensor, N or not.
    - cosine: g·t / (‖g‖ ‖t‖); 1 where both are all zero, 0 where one is. Complex: of the real vectors (re, im).
    - max_abs: max |d|; inf where a non-finite element has no equal partner.
    - mean_abs: mean |d|. mse: mean |d|². rmse: √mse. rel_l2: ‖d‖ / ‖g‖; 0 where d is zero, else inf where g is zero.
    - rel_rmse: rmse / mean |g|, with the same two rules. Unit 1.
    - psnr: 10 log10(peak² / mse) in dB, peak = max g - min g (complex: of |g|); inf where d is zero, else -inf where peak is.
    - sqnr: 10 log10(‖g‖² / ‖d‖²) in dB; inf where d is zero, else -inf where g is.
    - max_rel, mean_rel: max and mean of |d| / (|g| + 1e-8).
    - max_ulp: largest number of float32 steps between g and t (-0 is 0); only where both are float32, else None.
    - mismatched: elements that differ in value, over all elements. Two NaNs are equal, two Infs of one sign are; -0 equals 0.
    - nan_golden, nan_target, inf_golden, inf_target: elements that are NaN or infinite (complex: in either part, NaN first).
    - exact: mismatched is 0.
    - worst: index of the first non-finite mismatch, else of the first largest |d|; None where exact.
      worst_golden, worst_target: the values there (complex: magnitudes).

    64-bit integers are subtracted as integers, so that max_abs, mismatched and worst hold beyond 2^53.
    Zero-size: the figures of an exact match. N = 0 with mismatches (a target of only NaN): the worst value of every figure.
    float64 pairs whose squared norms leave the range of float64 are measured again, scaled by a power of two.

    Other dtypes (strings, objects, records, dates) are compared for equality, bytes as UTF-8: only elements, mismatched, exact
    and worst (the first that differs) are set. A pair of a number and a text differs everywhere.

    Memory: a few blocks of 131,072 elements, whatever the layout; memory maps and strided views are never copied whole.
    Raises ValueError where the shapes differ. Block size and rows: measured, see BLOCK and ROW.
    """
    golden, target = np.asarray(golden), np.asarray(target)
    if golden.shape != target.shape:
        raise ValueError(f"shapes differ: golden {golden.shape}, target {target.shape}")
    if not (_is_number(golden.dtype) and _is_number(target.dtype)):
        return _compare(golden, target)
    with np.errstate(all="ignore"):  # Inf and NaN are data here
        sums = _scan(golden, target)
        scale = 1.0
        if _is_wide(golden.dtype) or _is_wide(target.dtype):
            low, high = SAFE_NORM
            if not low < sums.gg + sums.tt < high or not sums.dd < high:
                scale = _scale(golden, target)
        scaled = sums if scale == 1.0 else _scan(golden, target, scale)
    return _figures(golden, target, sums, scaled, scale)


@dataclass(slots=True)
class _Sums:
    """What a pass accumulates. Vectors hold the elements that are finite in both; `worst` is a flat index in C order."""

    finite: int = 0
    gg: float = 0.0
    tt: float = 0.0
    gt: float = 0.0
    dd: float = 0.0
    abs_g: float = 0.0
    abs_d: float = 0.0
    rel: float = 0.0
    max_rel: float = 0.0
    max_abs: float = 0.0
    max_g: float = -math.inf
    min_g: float = math.inf
    max_ulp: int = 0
    mismatched: int = 0
    nan_golden: int = 0
    nan_target: int = 0
    inf_golden: int = 0
    inf_target: int = 0
    worst: int | None = None

    def raise_to(self, error: float, position: int) -> None:
        """Remember where the largest error was first met."""
        if error > self.max_abs:
            self.max_abs, self.worst = error, position


def _scan(golden: Array, target: Array, scale: float = 1.0) -> _Sums:
    """One pass; `scale`, a power of two, multiplies both tensors first."""
    sums = _Sums()
    is_complex = "c" in (golden.dtype.kind, target.dtype.kind)
    wide = np.complex128 if is_complex else np.float64
    size = min(golden.size, BLOCK)
    buffers = np.empty(size, wide), np.empty(size, wide)
    gaps = np.empty(size, np.float64)
    subtract_as_int = _is_wide_int(golden.dtype) and _is_wide_int(target.dtype)
    count_ulps = golden.dtype == target.dtype == np.float32
    start = 0
    for x, y in _blocks(golden, target):
        n = x.size
        q, p = buffers[0][:n], buffers[1][:n]
        q[...], p[...] = x, y
        if scale != 1.0:
            q *= scale
            p *= scale
        positions = None
        gg, tt = _dot(q, q), _dot(p, p)
        if not gg + tt < math.inf:
            positions = _set_specials_aside(sums, q, p, start)
            if positions is not None:
                x, y, q, p = x[positions], y[positions], q[positions], p[positions]
                gg, tt = _dot(q, q), _dot(p, p)
        if q.size:
            d = gaps[: q.size]
            if subtract_as_int:
                d[...] = _integer_gaps(x, y)
            elif is_complex:
                np.abs(p - q, out=d)
            else:
                np.subtract(p, q, out=d)
                np.abs(d, out=d)
            sums.gg += gg
            sums.tt += tt
            if _add(sums, q, p, d, start, positions) and count_ulps:
                sums.max_ulp = max(sums.max_ulp, _ulps(x, y))
        start += n
    return sums


def _add(sums: _Sums, q: Array, p: Array, d: Array, start: int, positions: Array | None) -> bool:
    """Add a block of finite pairs, d = |p - q|; whether any pair differs."""
    magnitude = np.abs(q)
    signed = magnitude if np.iscomplexobj(q) else q
    sums.finite += q.size
    sums.max_g = max(sums.max_g, float(signed.max()))
    sums.min_g = min(sums.min_g, float(signed.min()))
    sums.abs_g += float(magnitude.sum())
    sums.gt += _dot(q, p)
    differing = int(np.count_nonzero(d))
    if not differing:
        return False
    sums.mismatched += differing
    sums.dd += _dot(d, d)
    sums.abs_d += float(d.sum())
    at = int(d.argmax())
    sums.raise_to(float(d[at]), start + (at if positions is None else int(positions[at])))
    magnitude += EPSILON
    np.divide(d, magnitude, out=magnitude)
    sums.rel += float(magnitude.sum())
    sums.max_rel = max(sums.max_rel, float(magnitude.max()))
    return True


def _set_specials_aside(sums: _Sums, q: Array, p: Array, start: int) -> Array | None:
    """Count NaN and Inf of a block; the positions that are finite in both, or None where all are (the norm overflowed)."""
    finite = np.isfinite(q) & np.isfinite(p)
    if finite.all():
        return None
    nan_q, nan_p = np.isnan(q), np.isnan(p)
    sums.nan_golden += int(nan_q.sum())
    sums.nan_target += int(nan_p.sum())
    sums.inf_golden += int((np.isinf(q) & ~nan_q).sum())
    sums.inf_target += int((np.isinf(p) & ~nan_p).sum())
    odd = np.flatnonzero(~(finite | (nan_q & nan_p) | (q == p)))
    if odd.size:
        sums.mismatched += odd.size
        sums.raise_to(math.inf, start + int(odd[0]))
    return np.flatnonzero(finite)


def _figures(golden: Array, target: Array, sums: _Sums, scaled: _Sums, scale: float) -> Figures:
    """The figures of one pass; norms come from the scaled pass, counts and places from the plain one."""
    n = sums.finite
    if n:
        mse = scaled.dd / n / scale / scale
        rms = math.sqrt(scaled.dd / n)
        norm_g, norm_t, norm_d = math.sqrt(scaled.gg), math.sqrt(scaled.tt), math.sqrt(scaled.dd)
        norms = norm_g * norm_t
        figures = {
            "cosine": max(-1.0, min(1.0, scaled.gt / norms)) if norms and norm_d else float(norm_g == norm_t),
            "mean_abs": scaled.abs_d / n / scale,
            "mse": mse,
            "rmse": rms / scale,
            "rel_l2": _ratio(norm_d, norm_g),
            "rel_rmse": _ratio(rms, scaled.abs_g / n),
            "psnr": _decibel(_ratio(rms, scaled.max_g - scaled.min_g)),
            "sqnr": _decibel(_ratio(norm_d, norm_g)),
            "max_rel": sums.max_rel,
            "mean_rel": sums.rel / n,
        }
    else:
        worst = math.inf if sums.mismatched else 0.0
        figures = dict.fromkeys(("mean_abs", "mse", "rmse", "rel_l2", "rel_rmse", "max_rel", "mean_rel"), worst)
        figures |= {"cosine": float(not sums.mismatched), "psnr": _decibel(worst), "sqnr": _decibel(worst)}
    place = None if sums.worst is None else tuple(int(i) for i in np.unravel_index(sums.worst, golden.shape))
    return Figures(
        elements=golden.size,
        max_abs=sums.max_abs,
        max_ulp=float(sums.max_ulp) if golden.dtype == target.dtype == np.float32 else None,
        mismatched=sums.mismatched,
        nan_golden=sums.nan_golden,
        nan_target=sums.nan_target,
        inf_golden=sums.inf_golden,
        inf_target=sums.inf_target,
        exact=not sums.mismatched,
        worst=place,
        worst_golden=None if place is None else _number(golden[place]),
        worst_target=None if place is None else _number(target[place]),
        **figures,
    )


def _compare(golden: Array, target: Array) -> Figures:
    """Equality only: texts and whatever else is no number."""
    mismatched, worst, start = 0, None, 0
    both_texts = not (_is_number(golden.dtype) or _is_number(target.dtype))
    for x, y in _blocks(golden, target):
        odd = [i for i, (g, t) in enumerate(zip(x.tolist(), y.tolist(), strict=True)) if not both_texts or _text(g) != _text(t)]
        if odd and worst is None:
            worst = tuple(int(i) for i in np.unravel_index(start + odd[0], golden.shape))
        mismatched += len(odd)
        start += x.size
    return Figures(elements=golden.size, mismatched=mismatched, exact=not mismatched, worst=worst)


def _blocks(golden: Array, target: Array) -> Iterator[tuple[Array, Array]]:
    """Both tensors as flat blocks in C order: views where both are contiguous, else copies of one block each."""
    if golden.flags.c_contiguous and target.flags.c_contiguous:
        x, y = golden.reshape(-1), target.reshape(-1)
        for start in range(0, x.size, BLOCK):
            yield x[start : start + BLOCK], y[start : start + BLOCK]
    elif golden.size <= BLOCK:
        yield golden.reshape(-1), target.reshape(-1)
    else:
        length = len(golden)
        rows = max(1, BLOCK * length // golden.size)
        for start in range(0, length, rows):
            part = slice(start, start + rows) if length > 1 else 0
            yield from _blocks(golden[part], target[part])


def _dot(x: Array, y: Array) -> float:
    """Real inner product in rows of 8,192; complex vectors count as (re, im)."""
    x, y = x.view(np.float64), y.view(np.float64)
    whole = x.size // ROW * ROW
    total = float(x[whole:] @ y[whole:])
    if whole:
        total += float(np.vecdot(x[:whole].reshape(-1, ROW), y[:whole].reshape(-1, ROW)).sum())
    return total


def _ulps(x: Array, y: Array) -> int:
    """Largest distance of two finite float32 vectors on the scale of representable numbers."""
    i, j = np.ascontiguousarray(x).view(np.int32), np.ascontiguousarray(y).view(np.int32)
    crossing = (i ^ j) < 0
    steps = np.abs(i - j)  # right, and free of overflow, where the signs agree
    if not crossing.any():
        return int(steps.max())
    steps[crossing] = 0
    mask = np.int32(0x7FFFFFFF)
    across = (i[crossing] & mask).astype(np.int64) + (j[crossing] & mask)
    return max(int(steps.max()), int(across.max()))


def _integer_gaps(x: Array, y: Array) -> Array:
    """|x - y| of 64-bit integers, exact before it is rounded to float64."""
    if x.dtype.kind != y.dtype.kind:
        gaps: Array = np.abs(x.astype(object) - y.astype(object))
        return gaps.astype(np.float64)
    wrapped: Array = np.maximum(x, y) - np.minimum(x, y)  # wraps around in int64, right again as uint64
    return wrapped.view(np.uint64).astype(np.float64)


def _scale(golden: Array, target: Array) -> float:
    """The power of two that brings the largest finite magnitude of a float64 pair near 1; 1 where all is zero."""
    peak = 0.0
    for pair in _blocks(golden, target):
        for block in pair:
            parts = np.ascontiguousarray(block)
            parts = np.abs(parts.view(parts.real.dtype) if parts.dtype.kind == "c" else parts.astype(np.float64))
            peak = max(peak, float(parts.max(initial=0.0, where=np.isfinite(parts))))
    return math.ldexp(1.0, min(-math.frexp(peak)[1], 1023)) if peak else 1.0


def _ratio(error: float, size: float) -> float:
    if not error:
        return 0.0
    return error / size if size else math.inf


def _decibel(noise: float) -> float:
    """Signal to noise in dB of a noise amplitude relative to the signal."""
    return -20 * math.log10(noise) + 0.0 if noise else math.inf


def _number(value: Any) -> float:
    """A tensor's element as float; of a complex one the magnitude."""
    return float(abs(value)) if isinstance(value, np.complexfloating) else float(value)


def _text(value: Any) -> Any:
    return value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else value


def _is_number(dtype: np.dtype[Any]) -> bool:
    return dtype.kind in "biufc" or np.can_cast(dtype, np.float64)  # the second for ml_dtypes


def _is_wide(dtype: np.dtype[Any]) -> bool:
    """float64 and wider, or complex of such: their squares can leave the range of float64."""
    return (dtype.kind == "f" and dtype.itemsize >= 8) or (dtype.kind == "c" and dtype.itemsize >= 16)


def _is_wide_int(dtype: np.dtype[Any]) -> bool:
    return dtype.kind in "iu" and dtype.itemsize == 8
