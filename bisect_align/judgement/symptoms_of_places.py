"""Where a tensor is wrong, where the rest of it is right: a few elements, an index of an axis, the border, a block.

Of places that hold all of the error the smallest is named: a wrong element is no wrong channel. Sizes are counted in elements that would
show a fault (a channel of zeros with three others in it is three elements), and of places of about one size the plainest is named.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from bisect_align.judgement.pair import Pair
from bisect_align.judgement.symptoms_of_values import offset, scale, sign
from bisect_align.result.result import Symptom

Array: TypeAlias = NDArray[Any]

SINGLE_MOST, SINGLE_SHARE = 16, 32  # single elements are at most so many, and one of so many
INDICES = 4  # a quarter of the indices of an axis at most
DEPTH = 4  # a border is at most a quarter of the axis deep, at each end
BLOCK_SHARE, BLOCK_FILL, BLOCK_LEAST = 0.5, 0.5, 4  # a block holds half of the tensor at most, half of it is off
INDEX_LEAST = 3  # elements that make an index of an axis out of single ones
FILL = 0.1  # of a place: so much of what would show a fault must be off
ALIKE = 1.5  # places that differ by less in size are of one size
STRAYS = 0.005  # share of elements outside the place that heavy noise may make look off
LISTED = 4


@dataclass(frozen=True, slots=True)
class Place:
    """name and text: as said. size: elements in it that would show a fault. left: rms that is left outside. part: what numpy selects by."""

    name: str
    text: str
    size: int
    left: float
    part: tuple[slice | Array, ...] | None = None


def places(pair: Pair) -> Iterator[Symptom]:
    """The smallest place that holds all of the error; with what was done to the values there, where one thing was."""
    if pair.d.ndim == 0 or pair.d.size < SINGLE_SHARE // 2 or pair.before == 0 or not pair.off.any() or pair.off.all():
        return
    count = int(np.count_nonzero(pair.off))
    found = [place for finder in FINDERS for place in finder(pair) if count >= FILL * place.size]
    if found:
        least = min(place.size for place in found)
        place = next(place for place in found if place.size <= ALIKE * least)
        inside = "" if place.part is None else _done(pair.part(place.part))
        yield pair.symptom(place.name, place.text + inside, place.left)


def _done(part: Pair) -> str:
    """What was done to the values of a place."""
    if part.t.size and float(np.ptp(part.t)) == 0:
        return f"; there: {f'{float(part.t.flat[0]):.6g} all over' if part.t.any() else 'zero'}"
    for detector in (sign, scale, offset):
        if (symptom := detector(part)) is not None:
            return f"; there: {symptom.text.partition(' (rms')[0]}"
    return ""


def _fits(pair: Pair, outside: Array) -> float | None:
    """rms left outside a place (a mask, True outside), where that is little and hardly any element there is off; else None."""
    left = float(np.sqrt(np.sum(pair.square, where=outside, dtype=np.float64) / pair.d.size))
    strays = int(np.count_nonzero(pair.off & outside))
    return left if pair.explains(left) and strays <= STRAYS * pair.d.size * (pair.noise > 0) else None


def _elements(pair: Pair) -> Iterator[Place]:
    count = int(np.count_nonzero(pair.off))
    if count > min(SINGLE_MOST, pair.d.size // SINGLE_SHARE):
        return
    left = _fits(pair, ~pair.off)
    if left is None:
        return
    where = [tuple(map(int, index)) for index in np.argwhere(pair.off)[:LISTED]]
    listed = ", ".join(f"{list(i)}: {pair.y[i]:.4g} became {pair.t[i]:.4g}" for i in where)
    more = f" and {count - LISTED} more" if count > LISTED else ""
    text = f"{'a single element' if count == 1 else f'only {count} elements'} of {pair.d.size}: {listed}{more}"
    yield Place("single elements", text, count, left)


def _indices(pair: Pair) -> Iterator[Place]:
    """A few indices of one axis: an image of the batch, channels, rows; or all but a few."""
    for axis, length in enumerate(pair.d.shape):
        spatial = axis > 1 and pair.d.ndim > 3
        if length < 2 or pair.d.size == length:
            continue
        rest = tuple(a for a in range(pair.d.ndim) if a != axis)
        wrong: Array = np.asarray(pair.off.any(axis=rest))
        energy = pair.square.sum(axis=rest, dtype=np.float64)
        kept = np.cumsum(np.sort(energy)) <= pair.allowed**2 * pair.d.size
        count = length - int(np.count_nonzero(kept))
        chosen = np.sort(np.argsort(energy)[length - count :])
        if 0 < count <= max(1, length // INDICES):
            outside = np.ones(length, bool)
            outside[chosen] = False
            left = _fits(pair, np.broadcast_to(_along(outside, axis, pair.d.ndim), pair.d.shape))
            inner = np.flatnonzero(np.diff(np.concatenate(([-1], chosen, [length]))) > 1).size  # stretches that are not chosen
            part: tuple[slice | Array, ...] = (*[slice(None)] * axis, chosen)
            size = int(np.count_nonzero(pair.live[part]))
            if left is not None and size >= INDEX_LEAST and not (spatial and inner == 1):  # that is a border
                yield Place(_named(axis, pair.d.ndim, count), _only(chosen, axis, length), size, left, part)
        right = np.flatnonzero(~wrong)
        if length > 2 and 0 < right.size <= max(1, length // INDICES) and pair.off.mean() > BLOCK_SHARE:
            left = _fits(pair, np.broadcast_to(_along(np.logical_not(wrong), axis, pair.d.ndim), pair.d.shape))
            if left is not None:
                text = f"all but {_only(right, axis, length).removeprefix('only ')}"
                size = int(np.count_nonzero(np.delete(pair.live, right, axis)))
                yield Place("all but one channel" if right.size == 1 else "all but some", text, size, left)


def _along(mask: Array, axis: int, ndim: int) -> Array:
    return mask.reshape([-1 if a == axis else 1 for a in range(ndim)])


def _named(axis: int, ndim: int, count: int) -> str:
    """How an index of an axis is called: images first, then channels; spatial axes have rows."""
    many = count > 1
    if axis == 0 and ndim > 1:
        return "some images" if many else "one image"
    if axis == 1 or ndim <= 3:
        return "some channels" if many else "one channel"
    return "some rows" if many else "one row"


def _only(indices: Array, axis: int, length: int) -> str:
    listed = ", ".join(map(str, indices[:LISTED])) + (f" and {indices.size - LISTED} more" if indices.size > LISTED else "")
    return f"only {'index' if indices.size == 1 else 'indices'} {listed} of {length} on axis {axis}"


def _border(pair: Pair) -> Iterator[Place]:
    """The first and last few rows of the spatial axes (of all but the first, where there are three or fewer)."""
    ndim = pair.d.ndim
    axes = [a for a in range(2 if ndim > 3 else min(1, ndim - 1), ndim) if pair.d.shape[a] >= DEPTH]
    if not axes:
        return
    deepest = max(pair.d.shape[a] // DEPTH for a in axes)
    widths: dict[tuple[int, int], int] = {}
    for depth in range(1, deepest + 1):
        trial = {(a, end): min(depth, pair.d.shape[a] // DEPTH) for a in axes for end in (0, 1)}
        if _fits(pair, _inner(pair, trial)) is not None:
            widths = trial
            break
    if not widths:
        return
    for side in widths:  # shrink each side as far as what is inside stays right
        while widths[side] and _fits(pair, _inner(pair, {**widths, side: widths[side] - 1})) is not None:
            widths[side] -= 1
    inner = _inner(pair, widths)
    left = _fits(pair, inner)
    if left is None or not any(widths.values()):
        return
    said = [
        f"the {('first', 'last')[end]} {f'{w} indices' if w > 1 else 'index'} of axis {a}" for (a, end), w in widths.items() if w
    ]
    yield Place("border only", f"only {', '.join(said)}", int(np.count_nonzero(pair.live & ~inner)), left)


def _inner(pair: Pair, widths: dict[tuple[int, int], int]) -> Array:
    mask = np.zeros(pair.d.shape, bool)
    part = [slice(None)] * pair.d.ndim
    for axis in {a for a, _ in widths}:
        part[axis] = slice(widths[axis, 0], pair.d.shape[axis] - widths[axis, 1])
    mask[tuple(part)] = True
    return mask


def _block(pair: Pair) -> Iterator[Place]:
    """A box in the tensor, or a stretch of its memory."""
    count = int(np.count_nonzero(pair.off))
    if count < BLOCK_LEAST:
        return
    ends = []
    for axis in range(pair.d.ndim):
        hit = np.flatnonzero(pair.off.any(axis=tuple(a for a in range(pair.d.ndim) if a != axis)))
        ends.append((int(hit[0]), int(hit[-1]) + 1))
    size = int(np.prod([b - a for a, b in ends]))
    narrow = [a for a, (start, stop) in enumerate(ends) if stop - start < pair.d.shape[a]]
    outside = np.ones(pair.d.shape, bool)
    part = tuple(slice(a, b) for a, b in ends)
    live = int(np.count_nonzero(pair.live[part]))
    if size <= BLOCK_SHARE * pair.d.size and count >= BLOCK_FILL * live:
        single = len(narrow) == 1 and ends[narrow[0]][1] - ends[narrow[0]][0] == 1
        outside[part] = False
        left = _fits(pair, outside)
        if left is not None and not single:
            box = ", ".join(f"{a}:{b}" for a, b in ends)
            yield Place("one block", f"only the block [{box}], {size} elements", live, left, part)
        return
    flat = np.flatnonzero(pair.off.reshape(-1))
    start, stop = int(flat[0]), int(flat[-1]) + 1
    live = int(np.count_nonzero(pair.live.reshape(-1)[start:stop]))
    if stop - start <= BLOCK_SHARE * pair.d.size and count >= BLOCK_FILL * live:
        outside.reshape(-1)[start:stop] = False
        left = _fits(pair, outside)
        if left is not None:
            text = f"only elements {start} to {stop - 1} in order of memory, {stop - start} of {pair.d.size}"
            yield Place("one block", text, live, left)


# The plainest first: of places of about one size the first is named.
FINDERS = (_indices, _border, _block, _elements)
