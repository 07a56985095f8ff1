"""Right values in wrong places: another shape, permuted channels, transposed axes, a shift by one."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise, permutations, product
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from bisect_align.judgement.pair import LEFT, LEFT_NOISE, Pair
from bisect_align.judgement.precision import rms
from bisect_align.result.result import Symptom

Array: TypeAlias = NDArray[Any]

PROBES = 4096  # elements by which an arrangement is tried before all of it is
CHANNELS_MOST, MARKS = 2048, 64  # channels that are compared with each other, by so many elements each
CHANNEL_LEAST = 4  # elements that tell channels apart; with fewer, ALONE elements must have moved, and exactly
ALONE, EXACT = 6, 1e-3  # EXACT: left of the error where there is no noise
DISTINCT = 0.7  # of the channels that moved: those that are another one each
AXES_MOST = 5  # 120 orders of axes
REST = 0.5  # share of the tensor that a shift must leave to compare
CROPS = 64  # places at which a replay is looked for in a larger target
LISTED = 6


def shape(target: Array, replay: Array) -> Symptom | None:
    """Shapes that differ, and where the right values stand, if they are all there (but for a tenth of them, which any noise leaves)."""
    if target.shape == replay.shape:
        return None
    text = f"{list(target.shape)} instead of {list(replay.shape)}"
    finite = all(np.isfinite(x).all() for x in (target, replay) if x.dtype.kind in "fc")
    level = rms(replay.astype(np.float64)) if finite and replay.size else 0.0
    found = [
        (rms(seen.astype(np.float64) - right.astype(np.float64)), words)
        for words, right, seen in (_arrangements(target, replay) if level > 0 else ())
        if right.size
    ]
    left, words = min(found, key=lambda f: f[0], default=(np.inf, ""))
    return Symptom("wrong shape", f"{text}; {words}" if left <= LEFT * level else text, 1.0)


def _arrangements(target: Array, replay: Array) -> Iterator[tuple[str, Array, Array]]:
    """(words, right values, the same of the target)."""
    if target.size == replay.size:
        yield "the values are right", replay.reshape(-1), target.reshape(-1)
        if replay.ndim <= AXES_MOST:
            for order in permutations(range(replay.ndim)):
                moved = replay.transpose(order)
                if moved.shape == target.shape and moved.shape != replay.shape:
                    yield f"the values are right with axes {list(order)}", moved, target
    if target.ndim != replay.ndim:
        return
    for words, large, small in (("larger", target, replay), ("smaller", replay, target)):
        room = [a - b for a, b in zip(large.shape, small.shape, strict=True)]
        if min(room) < 0 or np.prod([r + 1 for r in room]) > CROPS:
            continue
        for start in product(*(range(r + 1) for r in room)):
            part = large[tuple(slice(s, s + n) for s, n in zip(start, small.shape, strict=True))]
            right, seen = (small, part) if words == "larger" else (part, small)
            where = "the right values stand" if words == "larger" else "it is the part of the right values"
            yield f"{where} at {list(start)}", right, seen


def permuted(pair: Pair) -> Symptom | None:
    """Each index of an axis holds what belongs to another one (or to the same as a neighbour)."""
    for axis, length in enumerate(pair.d.shape):
        if not 2 <= length <= CHANNELS_MOST:
            continue
        y, t = (np.moveaxis(x, axis, 0).reshape(length, -1) for x in (pair.y, pair.t))
        few, exactly = y.shape[1] < CHANNEL_LEAST, max(LEFT_NOISE * pair.noise, EXACT * pair.before)
        wrong = np.flatnonzero(np.square(t - y).sum(axis=1) > (exactly if few else pair.allowed) ** 2 * y.shape[1])
        if wrong.size < 1:
            continue
        holds = _holders(t, y, wrong)
        if (holds == np.arange(length)).all():
            continue
        left = rms(t - y[holds])
        exact = left <= exactly
        taken = np.unique(holds[wrong]).size
        onto = taken == wrong.size and bool(np.isin(holds[wrong], wrong).all())
        onto = onto or (exact and taken >= DISTINCT * wrong.size)  # equal channels are each other's
        if few:
            told = wrong.size * y.shape[1] >= ALONE or (wrong.size > 1 and left <= EXACT * pair.before)
            sure = exact and onto and told
        elif onto:
            sure = wrong.size > 1 or left <= LEFT * pair.before  # some other channel is always nearest
        else:
            sure = exact and float(np.ptp(y[holds[wrong]], axis=1).min()) > pair.allowed  # copies, but not of an empty channel
        if sure and pair.explains(left):
            return pair.symptom("permuted channels", f"axis {axis}: {_moves(holds)}", left)
    return None


def _holders(t: Array, y: Array, wrong: Array) -> Array:
    """For each channel the one that it holds: itself, or for a wrong one the nearest (single numbers: in order of size)."""
    holds = np.arange(len(t))
    if y.shape[1] == 1:
        holds[wrong[np.argsort(t[wrong, 0], kind="stable")]] = wrong[np.argsort(y[wrong, 0], kind="stable")]
        return holds
    columns = np.linspace(0, y.shape[1] - 1, min(MARKS, y.shape[1])).astype(int)
    gaps = _distances(t[np.ix_(wrong, columns)], y[:, columns])
    holds[wrong] = gaps.argmin(axis=1)
    if np.unique(holds[wrong]).size < wrong.size:  # of channels that are equal each is taken once
        near = gaps <= gaps.min(axis=1, keepdims=True) + 1e-9 * np.abs(gaps).max()
        free = np.ones(len(t), bool)
        for row, channel in enumerate(wrong):
            left = near[row] & free
            holds[channel] = int(left.argmax()) if left.any() else holds[channel]
            free[holds[channel]] = False
    return holds


def _distances(a: Array, b: Array) -> Array:
    """Squared distances of all rows of a to all rows of b."""
    gaps: Array = np.square(a).sum(axis=1)[:, None] - 2 * np.einsum("ik,jk->ij", a, b) + np.square(b).sum(axis=1)[None]
    return gaps


def _moves(holds: Array) -> str:
    length = holds.size
    if (holds == np.arange(length)[::-1]).all():
        return "in reverse order"
    moved = np.flatnonzero(holds != np.arange(length))
    if moved.size == 2 and holds[moved[0]] == moved[1] and holds[moved[1]] == moved[0]:
        return f"{moved[0]} and {moved[1]} are swapped"
    listed = ", ".join(f"{i} holds {holds[i]}" for i in moved[:LISTED])
    return listed + (f" and {moved.size - LISTED} more" if moved.size > LISTED else "")


def transposed(pair: Pair) -> Symptom | None:
    """The axes in another order: read with the shape that is expected, or exchanged where they are of one length."""
    shape = pair.d.shape
    if not 2 <= pair.d.ndim <= AXES_MOST or sum(n > 1 for n in shape) < 2:
        return None
    probes = np.linspace(0, pair.d.size - 1, min(PROBES, pair.d.size)).astype(np.int64)
    seen = pair.t.reshape(-1)[probes]
    told = rms(seen - pair.y.reshape(-1)[probes])
    for order in permutations(range(pair.d.ndim)):
        moved = pair.y.transpose(order)
        at = np.unravel_index(probes, moved.shape)
        if told == 0 or rms(seen - moved[at]) > max(2 * pair.allowed, 0.5 * told):
            continue
        left = rms(pair.t - moved.reshape(shape))
        if pair.explains(left):
            how = "exchanged" if moved.shape == shape else "in memory"
            return pair.symptom("transposed axes", f"axes {list(order)} {how}", left)
    return None


def _every(shape: tuple[int, ...], count: int) -> tuple[slice, ...]:
    """Every n-th index of the longest axis, so that about so many elements are left (its length limits that)."""
    longest = int(np.argmax(shape))
    stride = max(1, min(shape[longest] // 8, int(np.prod(shape)) // count))
    return tuple(slice(None, None, stride if a == longest else 1) for a in range(len(shape)))


def shifted(pair: Pair) -> Symptom | None:
    """The same values one place on, along one axis or two neighbouring ones; what the shift brings in is not compared."""
    best: tuple[float, tuple[int, ...]] | None = None
    axes = [a for a, n in enumerate(pair.d.shape) if n >= 3]
    steps = [{a: s} for a in axes for s in (1, -1)]
    steps += [{a: s, b: r} for a, b in pairwise(axes) for s in (1, -1) for r in (1, -1)]
    for step in steps:
        by = tuple(step.get(a, 0) for a in range(pair.d.ndim))
        here = tuple(slice(max(s, 0), n + min(s, 0)) for s, n in zip(by, pair.d.shape, strict=True))
        there = tuple(slice(max(-s, 0), n + min(-s, 0)) for s, n in zip(by, pair.d.shape, strict=True))
        t, y, d = pair.t[here], pair.y[there], pair.d[here]
        if t.size < REST * pair.d.size:
            continue
        probe = _every(t.shape, PROBES)
        if rms(t[probe] - y[probe]) > 0.5 * rms(d[probe]) or rms(d) < 0.5 * pair.before:
            continue
        left = rms(t - y)
        if pair.explains(left) and (best is None or left < best[0]):
            best = left, by
    if best is None:
        return None
    where = " and ".join(f"{s:+d} along axis {a}" for a, s in enumerate(best[1]) if s)
    return pair.symptom("shift by one", f"each value stands {where} of where it belongs", best[0])
