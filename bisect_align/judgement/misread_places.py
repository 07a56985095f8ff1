"""Misreadings of where things stand: indices, groups, memory, and how a resize finds its places."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from bisect_align.judgement.misreadings import answer
from bisect_align.judgement.rival import NEW, Rival, Site, altered

Array: TypeAlias = NDArray[Any]


def unwrapped(site: Site) -> Iterator[Rival]:
    """GatherND, Gather: a negative index is added to the offset in memory as it is, and so fetches what stands before."""
    x, indices = site.given(0), site.given(1)
    if x is None or indices is None or indices.dtype.kind != "i" or not (indices < 0).any():
        return
    if site.proto.op_type == "Gather":
        axis = int(site.attribute("axis") or 0) % max(x.ndim, 1)
        inner, length = int(np.prod(x.shape[axis + 1 :])), x.shape[axis]
        start = np.arange(int(np.prod(x.shape[:axis])))[:, None, None] * length
        offsets = (start + indices.reshape(1, -1, 1)) * inner + np.arange(inner)
        shape = (*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :])
    elif not site.attribute("batch_dims"):
        depth = indices.shape[-1]
        inner = int(np.prod(x.shape[depth:]))
        strides = np.array([int(np.prod(x.shape[a + 1 :])) for a in range(depth)], np.int64)
        offsets = (indices @ strides).reshape(-1, 1) + np.arange(inner)
        shape = (*indices.shape[:-1], *x.shape[depth:])
    else:
        return
    flat, places = x.reshape(-1), offsets.reshape(shape)
    for text, value in (
        ("negative indices not counted from the end", flat[places % flat.size]),
        (
            "negative indices not counted from the end, zero before the first element",
            np.where(places < 0, 0, flat[np.maximum(places, 0)]),
        ),
    ):
        yield answer(site, text, value.astype(x.dtype))
    yield answer(site, "zero for negative indices", _zeroed(site, x, indices, flat, places, shape))


def _zeroed(site: Site, x: Array, indices: Array, flat: Array, places: Array, shape: tuple[int, ...]) -> Array:
    """Zero where any index is negative."""
    bad: Array = np.asarray(indices < 0)
    if site.proto.op_type == "GatherND":
        bad = np.asarray(bad.any(axis=-1)).reshape([*indices.shape[:-1], *[1] * (len(shape) - indices.ndim + 1)])
    else:
        axis = int(site.attribute("axis") or 0) % max(x.ndim, 1)
        bad = bad.reshape([1] * axis + list(indices.shape) + [1] * (x.ndim - axis - 1))
    return np.where(bad, 0, flat[np.maximum(places, 0) % flat.size]).astype(x.dtype)


def groups_interleaved(site: Site) -> Iterator[Rival]:
    """Conv with groups: channels dealt out to the groups in turn, on one side or the other."""
    group, x, w = int(site.attribute("group") or 1), site.given(0), site.given(1)
    if group < 2 or x is None or w is None:
        return
    for place, value, axis, what in ((0, x, 1, "input"), (1, w, 0, "output")):
        length = value.shape[axis]
        dealt = np.arange(length).reshape(group, -1).T.reshape(-1)
        if length % group == 0 and not np.array_equal(dealt, np.arange(length)):
            fed = {f"{NEW}{place}": np.take(value, dealt, axis)}
            yield Rival(f"{what} channels of the groups interleaved", (altered(site, {}, {place: f"{NEW}{place}"}),), fed)


def scales_of_sizes(site: Site) -> Mapping[int, Array | None] | None:
    """Resize: scales worked out again from the sizes, which are whole numbers."""
    x, scales = site.given(0), site.given(2)
    if x is None or scales is None or scales.size != x.ndim:
        return None
    sizes = np.floor(np.array(x.shape, np.float64) * scales)
    again = (sizes / np.array(x.shape)).astype(scales.dtype)
    return None if np.array_equal(again, scales) else {2: again}


def column_by_column(site: Site) -> Iterator[Rival]:
    """Reshape and Flatten: the memory read column by column."""
    x, made = site.given(0), site.given(1)
    if x is None or made is None or x.ndim < 2 or (made < 0).sum() > 1:
        return
    shape = [x.shape[i] if n == 0 and i < x.ndim else int(n) for i, n in enumerate(made)]
    yield answer(site, "memory read column by column", x.reshape(-1, order="F").reshape(shape, order="F"))


def depth_first(site: Site) -> Iterator[Rival]:
    """SpaceToDepth: the channel before the place in its block."""
    x, size = site.given(0), site.attribute("blocksize")
    if x is None or x.ndim != 4 or not size:
        return
    n, c, h, w = x.shape
    blocks = x.reshape(n, c, h // size, size, w // size, size).transpose(0, 1, 3, 5, 2, 4)
    yield answer(site, "channels before the places of a block", blocks.reshape(n, c * size * size, h // size, w // size))


def axes_exchanged(site: Site) -> Iterator[Rival]:
    """ReverseSequence: time for batch; or the lengths not read."""
    batch, time = site.attribute("batch_axis"), site.attribute("time_axis")
    yield Rival(f"batch_axis={time}, time_axis={batch}", (altered(site, {"batch_axis": time, "time_axis": batch}),))
    x, lengths = site.given(0), site.given(1)
    if x is not None and lengths is not None:
        fed = {f"{NEW}1": np.full_like(lengths, x.shape[time])}
        yield Rival("sequence_lens ignored", (altered(site, {}, {1: f"{NEW}1"}),), fed)
