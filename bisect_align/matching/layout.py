"""Layout fixes: how an entry's elements become those of a tensor, as data that can be applied, inverted and reported.

A fix moves elements and may cut off padded channels; it never changes a value. Layouts that two fixes would explain by the same
index map are listed once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]
Shape: TypeAlias = tuple[int, ...]

MAX_RANK = 5  # of the dims other than 1; five equal dims have 120 orders already
CROPS = 1 << 16
MAX_FIXES = 24
BLOCKS = (16, 8, 4, 32)  # channels that vector units take at once, commonest first
FRACTALS = ((16, 16), (16, 32))  # rows and columns that a matrix unit takes at once; the second one is that of int8
ALIGNMENTS = (4, 8, 16, 32, 64)  # channels are padded to a multiple of one of these


@dataclass(frozen=True, slots=True)
class Reshape:
    """The same C order under another shape."""

    shape: Shape


@dataclass(frozen=True, slots=True)
class Transpose:
    """Axis i of what comes out is axis perm[i] of what goes in."""

    perm: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Crop:
    """Keep the first shape[i] places of axis i."""

    shape: Shape


Step: TypeAlias = Reshape | Transpose | Crop


@dataclass(frozen=True, slots=True)
class LayoutFix:
    """From an entry of shape `source` to its tensor.

    label: `id` (same dims but for 1s), `CL` (channels last), `HWC` (channels last, no batch axis), `p…` (order of the entry's
    dims other than 1), `flat` (same C order, other shape), `flat CL`, `flat HWC`, `fold…` (the batch folded into that
    axis), `NC1HWC0`, `NDC1HWC0`, `blk…` (channel blocks behind the plain shape), `FRACTAL_NZ` (a matrix in tiles, tile columns
    first), `nz…` (such tiles of that many columns behind the plain shape), `crop`, `CL crop` (padded channels).
    shown: the entry's own shape shows the fix, so that it needs no vote over the dump.
    """

    source: Shape
    steps: tuple[Step, ...]
    label: str
    shown: bool = True

    @property
    def target(self) -> Shape:
        """The shape that comes out."""
        return self._shapes()[-1]

    @property
    def crops(self) -> bool:
        """True if elements are cut off: then there is no inverse."""
        return any(isinstance(step, Crop) for step in self.steps)

    def apply(self, array: Array) -> Array:
        """The entry in the tensor's layout; a view where numpy can. Raises ValueError if the shape is not `source`."""
        if array.shape != self.source:
            raise ValueError(f"layout {self.label!r} is for shape {self.source}, got {array.shape}")
        for step in self.steps:
            if isinstance(step, Reshape):
                array = array.reshape(step.shape)
            elif isinstance(step, Transpose):
                array = array.transpose(step.perm)
            else:
                array = array[tuple(slice(size) for size in step.shape)]
        return array

    def invert(self, array: Array) -> Array:
        """A tensor in the entry's layout. Raises ValueError if the shape is not `target`, or if the fix crops."""
        shapes = self._shapes()
        if array.shape != shapes[-1]:
            raise ValueError(f"layout {self.label!r} makes shape {shapes[-1]}, got {array.shape}")
        for step, before in zip(reversed(self.steps), reversed(shapes[:-1]), strict=True):
            if isinstance(step, Crop):
                raise ValueError(f"layout {self.label!r} crops and has no inverse")
            array = array.reshape(before) if isinstance(step, Reshape) else array.transpose(_inverse(step.perm))
        return array

    def then(self, other: LayoutFix) -> LayoutFix:
        """First this fix, then another one. Raises ValueError if their shapes do not meet."""
        if other.source != self.target:
            raise ValueError(f"layout {other.label!r} is for shape {other.source}, {self.label!r} makes {self.target}")
        label = " ".join(fix.label for fix in (self, other) if fix.label != "id") or "id"
        return LayoutFix(self.source, self.steps + other.steps, label, self.shown and other.shown)

    def _shapes(self) -> list[Shape]:
        """The shape before each step, and the last one."""
        shapes = [self.source]
        for step in self.steps:
            shape = tuple(shapes[-1][axis] for axis in step.perm) if isinstance(step, Transpose) else step.shape
            shapes.append(shape)
        return shapes


@lru_cache(maxsize=4096)
def fixes(entry_shape: Shape | None, tensor_shape: Shape) -> tuple[LayoutFix, ...]:
    """All layouts that may turn an entry into a tensor, `id` first, then what the shape shows, then what it hides.

    entry_shape: None for a headerless file of the tensor's own size. () where no layout explains the shape, which is a finding.
    """
    entry = (math.prod(tensor_shape),) if entry_shape is None else entry_shape
    candidates = list(_same_size(entry, tensor_shape))
    if 0 not in entry and 0 not in tensor_shape:
        candidates += [
            *_blocked(entry, tensor_shape),
            *_tiled(entry, tensor_shape),
            *_folded(entry, tensor_shape),
            *_padded(entry, tensor_shape),
            *_hidden_orders(entry, tensor_shape),
        ]
    candidates.sort(key=lambda fix: (fix.label != "id", not fix.shown))
    found: dict[object, LayoutFix] = {}
    for fix in candidates:
        found.setdefault(_index_map(fix), fix)
    return tuple(found.values())[:MAX_FIXES]


def _same_size(entry: Shape, tensor: Shape) -> Iterator[LayoutFix]:
    """Plain, channels last and flattened readings, and the order that the entry's shape shows."""
    if math.prod(entry) != math.prod(tensor):
        return
    same = _squeezed(entry) == _squeezed(tensor)
    if same:
        yield _fix(entry, entry, _identity(entry), tensor, "id", True)
    if math.prod(entry) <= 1:
        if not same:
            yield _fix(entry, entry, _identity(entry), tensor, "flat", True)
        return
    orders = [] if same else list(_orders(_squeezed(entry), _squeezed(tensor), 2))
    for label, last, perm in _channels_last(tensor):
        if _squeezed(entry) == _squeezed(last):
            # Which of two equal dims is the channels, the shape does not show.
            shown = not same and (len(orders) == 1 or orders[:1] == [_squeezed_perm(last, perm)])
            yield _fix(entry, last, perm, tensor, label, shown)
        else:
            yield _fix(entry, last, perm, tensor, f"flat {label}", False)
    if len(orders) == 1:
        yield _order(entry, orders[0], tensor, shown=True)
    if not same:
        yield _fix(entry, entry, _identity(entry), tensor, "flat", not orders)


def _hidden_orders(entry: Shape, tensor: Shape) -> Iterator[LayoutFix]:
    """Every order of the entry's dims that has the tensor's shape."""
    for perm in _orders(_squeezed(entry), _squeezed(tensor), MAX_FIXES + 1):
        if perm != _identity(perm):
            yield _order(entry, perm, tensor, shown=False)


def _blocked(entry: Shape, tensor: Shape) -> Iterator[LayoutFix]:
    """(N, C1, spatial, C0) or (N, D, C1, H, W, C0) as such, or the former behind the plain (padded) shape, or flattened."""
    batch, channels, *spatial = _lifted(tensor)
    full = _with_batch(entry, len(spatial) + 3, batch)
    if full is not None and (block := full[-1]) > 1:
        groups = -(-channels // block)
        # One group without a batch axis is plain channels last.
        split = full == (batch, groups, *spatial, block) and (groups > 1 or full == entry)
        deep = len(spatial) == 3 and full == (batch, spatial[0], groups, *spatial[1:], block)
        # Which of two equal dims is the groups, the shape does not show.
        shown = not (split and deep and groups > 1)
        if split:
            yield _unblock(entry, full, tensor, "NC1HWC0", shown)
        if deep:
            padded = (batch, groups * block, *spatial)
            yield _fix(entry, full, (0, 2, 5, 1, 3, 4), tensor, "NDC1HWC0", shown, padded=padded)
    for block in BLOCKS:
        groups = -(-channels // block)
        plain = (batch, groups * block, *spatial)
        if _with_batch(entry, len(plain), batch) == plain or entry == (math.prod(plain),):
            yield _unblock(entry, (batch, groups, *spatial, block), tensor, f"blk{block}", False)


def _unblock(entry: Shape, blocked: Shape, tensor: Shape, label: str, shown: bool) -> LayoutFix:
    batch, groups, *spatial, block = blocked
    perm = (0, 1, len(blocked) - 1, *range(2, len(blocked) - 1))
    return _fix(entry, blocked, perm, tensor, label, shown, padded=(batch, groups * block, *spatial))


def _tiled(entry: Shape, tensor: Shape) -> Iterator[LayoutFix]:
    """A matrix, or a stack of them, as (N1, M1, M0, N0): columns of tiles, each row by row; or behind the padded plain shape."""
    if len(tensor) < 2:
        return
    *stack, rows, columns = tensor
    for height, width in FRACTALS:
        high, wide = -(-rows // height), -(-columns // width)
        tiles, padded = (*stack, wide, high, height, width), (*stack, high * height, wide * width)
        first = len(stack)
        perm = (*range(first), first + 1, first + 2, first, first + 3)
        shown = entry[-4:] == tiles[-4:] and _squeezed(entry[:-4]) == _squeezed(tuple(stack))
        if shown or _squeezed(entry) == _squeezed(padded) or entry == (math.prod(padded),):
            label = "FRACTAL_NZ" if shown else f"nz{width}"
            yield _fix(entry, tiles, perm, tensor, label, shown, padded=padded, cropped=tensor)


def _folded(entry: Shape, tensor: Shape) -> Iterator[LayoutFix]:
    """The samples side by side along an axis behind the channels: (C, N * H, W)."""
    if len(tensor) < 3 or tensor[0] == 1:
        return
    batch, channels, *spatial = tensor
    for axis, size in enumerate(spatial, 2):
        before, after = spatial[: axis - 2], spatial[axis - 1 :]
        if _squeezed(entry) == _squeezed((channels, *before, batch * size, *after)):
            view = (channels, *before, batch, size, *after)
            perm = (axis - 1, *range(axis - 1), *range(axis, len(view)))
            yield _fix(entry, view, perm, tensor, f"fold{axis}", True)


def _padded(entry: Shape, tensor: Shape) -> Iterator[LayoutFix]:
    """More channels than the tensor has, by alignment. Any other larger shape is no layout but a wrong shape."""
    batch, channels, *spatial = _lifted(tensor)
    rank = len(spatial) + 2
    full = _with_batch(entry, rank, batch)
    if full is None:
        return
    aligned = {-(-channels // step) * step for step in ALIGNMENTS} - {channels}
    first = full[1] in aligned and full == (batch, full[1], *spatial)
    last = full[-1] in aligned and full == (batch, *spatial, full[-1])
    if first:
        yield _fix(entry, full, _identity(full), tensor, "crop", not last, padded=full)
    if last:
        perm = (0, rank - 1, *range(1, rank - 1))
        yield _fix(entry, full, perm, tensor, "CL crop", not first, padded=(batch, full[-1], *spatial))


def _fix(
    source: Shape,
    view: Shape,
    perm: tuple[int, ...],
    tensor: Shape,
    label: str,
    shown: bool,
    padded: Shape | None = None,
    cropped: Shape | None = None,
) -> LayoutFix:
    """Read `source` as `view`, transpose, crop a padded shape to the tensor's, end in the tensor's own shape. No step is idle.

    cropped: the tensor's shape in the rank of the padded one; that of (N, C, spatial) unless given.
    """
    steps: list[Step] = []
    shape = source

    def reshape(to: Shape) -> None:
        nonlocal shape
        if shape != to:
            steps.append(Reshape(to))
            shape = to

    reshape(view)
    if perm != _identity(perm):
        steps.append(Transpose(perm))
        shape = tuple(view[axis] for axis in perm)
    if padded is not None:
        reshape(padded)
        cropped = _lifted(tensor) if cropped is None else cropped
        if cropped != shape:
            steps.append(Crop(cropped))
            shape = cropped
    reshape(tensor)
    return LayoutFix(source, tuple(steps), label, shown)


def _order(entry: Shape, perm: tuple[int, ...], tensor: Shape, *, shown: bool) -> LayoutFix:
    return _fix(entry, _squeezed(entry), perm, tensor, "p" + "".join(map(str, perm)), shown)


def _orders(entry: Shape, tensor: Shape, limit: int) -> Iterator[tuple[int, ...]]:
    """Permutations that turn one shape into the other, at most `limit`; the first keeps equal dims in their order."""
    if len(entry) > MAX_RANK or sorted(entry) != sorted(tensor) or 0 in entry:
        return
    left = limit

    def extend(chosen: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        nonlocal left
        if len(chosen) == len(tensor):
            left -= 1
            yield chosen
            return
        for axis, size in enumerate(entry):
            if left and size == tensor[len(chosen)] and axis not in chosen:
                yield from extend((*chosen, axis))

    yield from extend(())


def _channels_last(tensor: Shape) -> Iterator[tuple[str, Shape, tuple[int, ...]]]:
    """(label, the tensor's shape with the channels last, the permutation back), where that moves anything."""
    rank = len(tensor)
    if rank >= 3 and tensor[1] > 1 and math.prod(tensor[2:]) > 1:
        batch, channels, *spatial = tensor
        yield "CL", (batch, *spatial, channels), (0, rank - 1, *range(1, rank - 1))
    if rank == 3 and tensor[0] > 1 and math.prod(tensor[1:]) > 1:
        channels, *spatial = tensor
        yield "HWC", (*spatial, channels), (2, 0, 1)


def _lifted(tensor: Shape) -> Shape:
    """A vector or matrix as (N, C, 1, 1): chips know no lower rank."""
    return tensor if len(tensor) >= 3 else (*(1, 1, *tensor)[-2:], 1, 1)


def _with_batch(entry: Shape, rank: int, batch: int) -> Shape | None:
    """The entry's shape in this rank, with a batch axis of 1 where the toolchain drops it; None if it has another rank."""
    if len(entry) == rank:
        return entry
    return (1, *entry) if batch == 1 and len(entry) == rank - 1 else None


def _squeezed(shape: Shape) -> Shape:
    return tuple(size for size in shape if size != 1)


def _squeezed_perm(view: Shape, perm: tuple[int, ...]) -> tuple[int, ...]:
    """The permutation without the axes of size 1."""
    kept = [axis for axis in range(len(view)) if view[axis] != 1]
    return tuple(kept.index(axis) for axis in perm if view[axis] != 1)


def _identity(shape: Shape) -> tuple[int, ...]:
    return tuple(range(len(shape)))


def _inverse(perm: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(int(axis) for axis in np.argsort(perm))


def _index_map(fix: LayoutFix) -> object:
    """Equal for two fixes of one pair of shapes if and only if they move every element alike (where neither is empty, nor crops
    more than CROPS elements: the like of these may stand twice).

    A transposition without its axes of size 1, with axes that stay neighbours made one, is its own normal form. What is left of two
    of them by a crop may be alike, so that a crop is asked for its elements.
    """
    size = math.prod(fix.source)
    if size <= CROPS and any(isinstance(step, Crop) for step in fix.steps):
        return fix.apply(np.arange(size).reshape(fix.source)).tobytes()
    view, perm = fix.source, _identity(fix.source)
    crop: object = None
    for before, step in zip(fix._shapes(), fix.steps, strict=False):
        if isinstance(step, Transpose):
            view, perm = before, step.perm
        elif isinstance(step, Crop):
            crop = _squeezed_pairs(before, step.shape)
    perm, view = _squeezed_perm(view, perm), _squeezed(view)
    runs: list[list[int]] = []
    for axis in perm:
        if runs and runs[-1][-1] == axis - 1:
            runs[-1].append(axis)
        else:
            runs.append([axis])
    moved = tuple((run[0], math.prod(view[axis] for axis in run)) for run in runs) if len(runs) > 1 else ()
    return moved, crop


def _squeezed_pairs(before: Shape, after: Shape) -> tuple[tuple[int, int], ...]:
    """A crop without the axes that have one place before and after."""
    return tuple(pair for pair in zip(before, after, strict=True) if pair != (1, 1))
