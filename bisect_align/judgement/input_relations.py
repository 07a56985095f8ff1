"""How the input that a target ran on may follow from the one given: channels reversed, another layout, another range of values.

Each relation is an array that the target would then have been fed. Where the target's first tensors follow from it, and not from
the input given, the operators above them are healthy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]

MEAN, DEVIATION = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])
"""Of ImageNet's pixels, 0 to 1, by channel: what most image models are trained to have taken out."""
CODINGS: Mapping[str, tuple[Array | float, Array | float]] = {
    "0 to 1": (1.0, 0.0),
    "0 to 255": (255.0, 0.0),
    "-1 to 1": (2.0, -1.0),
    "ImageNet's mean and deviation taken out": (1 / DEVIATION, -MEAN / DEVIATION),
    "0 to 255 with ImageNet's mean taken out": (255.0, -255 * MEAN),
}
"""How pixels of 0 to 1 are written: scale and shift, by channel where they are vectors."""
COLOURS = 3
CHANNELS_FITTED = 4  # with more of them, scale and shift are fitted for all in common
FLAT = 1e-3  # a channel that is scaled by less than this part of the others was not read: no relation of inputs
SAME = 1e-3  # scales and shifts that differ by less are one


class Kind(StrEnum):
    """What of the input differs: the order of its channels, the order of its axes in memory, or its values."""

    ORDER = "order"
    LAYOUT = "layout"
    VALUES = "values"


@dataclass(frozen=True, slots=True)
class Relation:
    """text: behind the input's name, "with its channels reversed". values: what the target was fed, in the input's type and shape."""

    kinds: frozenset[Kind]
    text: str
    values: Array


def channel_axis(shape: Sequence[int]) -> int | None:
    """The axis of an image's channels: the shorter end of (N, C, H, W), (N, H, W, C), or of one image without a batch."""
    first = len(shape) - 3
    if first not in (0, 1):
        return None
    axis = first if shape[first] <= shape[-1] else len(shape) - 1
    return axis if first == 1 or 1 < shape[axis] <= CHANNELS_FITTED else None


def arrangements(x: Array) -> Iterator[Relation]:
    """The same values in other places: channels reversed, memory read in another layout, height and width exchanged, and each of
    these with the channels reversed as well."""
    axis = channel_axis(x.shape)
    if axis is None:
        return
    yield from (Relation(frozenset({Kind.LAYOUT}), text, turned) for text, turned in _layouts(x, axis))
    if x.shape[axis] == COLOURS:
        flipped = Relation(frozenset({Kind.ORDER}), "with its channels reversed (RGB for BGR)", np.flip(x, axis))
        yield flipped
        for text, turned in _layouts(flipped.values, axis):
            yield after(flipped, Relation(frozenset({Kind.LAYOUT}), text, turned))


def _layouts(x: Array, axis: int) -> Iterator[tuple[str, Array]]:
    first = x.ndim - 3
    batch = tuple(range(first))
    channels_first = axis == first
    here, there = ("NCHW", "NHWC") if channels_first else ("NHWC", "NCHW")
    order = (*batch, first + 1, first + 2, first) if channels_first else (*batch, first + 2, first, first + 1)
    yield f"stored as {there[1 - first :]} and read as {here[1 - first :]}", x.transpose(order).reshape(x.shape)
    moved = x.reshape([x.shape[a] for a in order]).transpose(np.argsort(order))
    yield f"read as if it were {there[1 - first :]}", moved
    height, width = (a for a in range(first, x.ndim) if a != axis)
    if x.shape[height] == x.shape[width]:
        yield "with height and width exchanged", np.swapaxes(x, height, width)


def codings(x: Array) -> Iterator[Relation]:
    """The same pixels in another range of values, whichever of the known ranges the given ones are in."""
    axis = channel_axis(x.shape)
    coloured = axis is not None and x.shape[axis] == COLOURS
    for given, (scale, shift) in CODINGS.items():
        for fed, (other_scale, other_shift) in CODINGS.items():
            if given == fed or (not coloured and (np.ndim(shift) or np.ndim(other_shift))):
                continue
            ratio = np.asarray(other_scale / scale)
            yield scaled(x, ratio, np.asarray(other_shift - ratio * shift), axis, f" ({fed} in the place of {given})")


def recoded(x: Array, turned: Iterable[Relation]) -> Iterator[Relation]:
    """Codings of the input and of those rearrangements in which only its channels are reversed."""
    yield from codings(x)
    for one in turned:
        if one.kinds == {Kind.ORDER}:
            yield from (after(one, coded) for coded in codings(one.values))


def between(given: Array, seen: Array, same: Callable[[Array, Array], bool]) -> str:
    """What `seen` is of `given`, both of one shape: the text of a relation that makes it the same, "" where there is none."""
    turned = list(arrangements(given))
    exact = (*turned, *(recoded(given, turned) if given.dtype.kind == "f" else ()))
    if (found := next((r for r in exact if same(r.values, seen)), None)) is not None or given.dtype.kind != "f":
        return found.text if found is not None else ""
    plain = Relation(frozenset(), "", given)
    for one in (plain, *turned):
        for axis, masks in groups(given.shape):
            both = (one.values, np.ones_like(one.values))
            flat = [np.where(mask, fed, 0).astype(np.float64).reshape(-1) for mask in masks for fed in both]
            if (line := solved(flat, seen.astype(np.float64).reshape(-1))) is not None:
                relation = scaled(one.values, *line, axis)
                if same(relation.values, seen):
                    return relation.text if one is plain else after(one, relation).text
    return ""


def scaled(x: Array, scale: Array, shift: Array, axis: int | None, why: str = "") -> Relation:
    """scale * x + shift, along the axis where they are vectors."""
    plain = scale.size == shift.size == 1
    if plain or axis is None:
        by, more = scale.reshape(()), shift.reshape(())
        text = f"as {_line(float(by), float(more))}"
    else:
        along = [-1 if a == axis else 1 for a in range(x.ndim)]
        by, more = (np.broadcast_to(v, x.shape[axis]).reshape(along) for v in (scale, shift))
        text = "as " + ", ".join(_line(float(s), float(o)) for s, o in zip(by.flat, more.flat, strict=True)) + " by channel"
    return Relation(frozenset({Kind.VALUES}), f"{text}{why}", (by * x.astype(np.float64) + more).astype(x.dtype))


def _line(scale: float, shift: float) -> str:
    shown = "x" if abs(scale - 1) < SAME / 10 else f"{scale:.3g} * x" if abs(scale) > 0.01 else f"x / {1 / scale:.3g}"
    return shown if not shift or abs(shift) < SAME / 10 * abs(scale) else f"{shown} {'-' if shift < 0 else '+'} {abs(shift):.3g}"


def after(first: Relation, second: Relation) -> Relation:
    """Both, one after the other; the second was made from the first's values."""
    return Relation(first.kinds | second.kinds, f"{first.text}, {second.text}", second.values)


def groups(shape: Sequence[int]) -> Iterator[tuple[int | None, list[Array]]]:
    """Masks of the elements that share a scale and a shift: all of them, then each of a few channels (with their axis)."""
    yield None, [np.ones((1,) * len(shape), bool)]
    axis = channel_axis(shape)
    if axis is not None and 1 < shape[axis] <= CHANNELS_FITTED:
        along = [-1 if a == axis else 1 for a in range(len(shape))]
        yield axis, [np.arange(shape[axis]).reshape(along) == c for c in range(shape[axis])]


def solved(columns: Sequence[Array], made: Array) -> tuple[Array, Array] | None:
    """(scales, shifts) for which the sum of scale * (what the values give) + shift * (what ones give) is nearest to `made`.

    columns: of both by turns, flat and of one length. None where they do not tell the two apart, or where a channel was not read.
    """
    matrix = np.stack(columns, axis=1)
    if not np.isfinite(matrix).all() or not np.isfinite(made).all() or made.size < 4 * len(columns):
        return None
    sizes = np.linalg.norm(matrix, axis=0)
    if not sizes.all():
        return None
    found, _, rank, _ = np.linalg.lstsq(matrix / sizes, made, rcond=1e-6)
    if rank < len(columns):
        return None
    scales, shifts = (found / sizes)[::2], (found / sizes)[1::2]
    return None if (np.abs(scales) < FLAT * np.abs(scales).max(initial=0.0)).any() or not scales.any() else (scales, shifts)
