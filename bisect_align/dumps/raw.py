"""Reader of headerless files: type and shape come from a manifest, else from what the model expects and the file's size."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from bisect_align.dumps import buffers
from bisect_align.dumps.entry import Array, Expect
from bisect_align.dumps.piece import Piece
from bisect_align.errors import DumpError

HINT = 'put a manifest.json beside it: {"tensors": [{"file", "name", "dtype", "shape"}]}'
INTEGER_LIMIT = 1 << 24
"""Below it in magnitude, four bytes that are an integer would be a subnormal or NaN as float32: the two cannot be mixed up."""


def piece(path: Path) -> Piece:
    """A headerless file. Raises DumpError where it is gone or empty."""
    held = buffers.size_of(path)
    if held == 0:
        raise DumpError("is empty", where=str(path))
    return Piece(path, "raw", held, partial(_load, path))


def typed(path: Path, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Piece:
    """A headerless file whose type and shape a manifest tells. Raises DumpError where the size is another.

    Integers of four and two bits may lie one a byte, or packed, the first one in the low bits.
    """
    held = buffers.size_of(path)
    stored = dtype if dtype.isnative else dtype.newbyteorder("=")
    if dtype.name in buffers.NARROW and held == buffers.packed_size(dtype, shape) != math.prod(shape):
        return Piece(path, "raw", held, partial(_load_packed, path, dtype, shape), stored, shape)
    held = buffers.checked_size(dtype, shape, held)
    return Piece(path, "raw", held, partial(_load_typed, path, dtype, shape), stored, shape)


def elements(path: Path, dtype: np.dtype[Any]) -> Piece:
    """A headerless file of which only the type is told; the shape comes from the model. Raises DumpError."""
    held = buffers.size_of(path)
    if held == 0:
        raise DumpError("is empty", where=str(path))
    if held % dtype.itemsize:
        raise DumpError(f"holds {held} bytes, which are no {dtype.name}", where=str(path))
    return Piece(path, "raw", held, partial(_load_elements, path, dtype), dtype)


def _load_typed(path: Path, dtype: np.dtype[Any], shape: tuple[int, ...], expect: Expect | None) -> Array:
    return buffers.shaped(buffers.window(path, 0, math.prod(shape) * dtype.itemsize), dtype, shape)


def _load_packed(path: Path, dtype: np.dtype[Any], shape: tuple[int, ...], expect: Expect | None) -> Array:
    return buffers.unpacked(buffers.window(path, 0, buffers.packed_size(dtype, shape)), dtype, shape)


def _load_elements(path: Path, dtype: np.dtype[Any], expect: Expect | None) -> Array:
    held = buffers.size_of(path)
    shape = expect.shape if expect else (held // dtype.itemsize,)
    if held != math.prod(shape) * dtype.itemsize:
        return _load(path, expect)  # the size contradicts what was told: judged by the size alone
    return buffers.shaped(buffers.window(path, 0, held), dtype, shape)


def _load(path: Path, expect: Expect | None) -> Array:
    held = buffers.size_of(path)
    if expect is None:
        raise DumpError("has no header: its type and shape are not known", where=str(path), hint=HINT)
    data = buffers.window(path, 0, held)
    return buffers.shaped(data, stored(data, expect, path), expect.shape)


def stored(data: buffers.Bytes, expect: Expect, path: Path) -> np.dtype[Any]:
    """The type of the values on disk: the expected one, or the one other that their size allows. Raises DumpError."""
    count = math.prod(expect.shape)
    wanted = expect.dtype
    if data.size == count * wanted.itemsize:
        return wanted
    if data.size == 4 * count:
        if wanted.kind in "biu":
            return _word(data)
        if wanted.kind == "f" or "float" in wanted.name:  # the small floats of ml_dtypes are of kind V
            return np.dtype(np.float32)
    if data.size == 2 * count and wanted == np.float32:
        raise DumpError("2 bytes an element: float16 or bfloat16? say which in a manifest", where=str(path), hint=HINT)
    if data.size == count and wanted.itemsize > 1:
        why = "1 byte an element: quantised? say dtype, scale and zero_point in a manifest"
        raise DumpError(why, where=str(path), hint=HINT)
    needed = f"{wanted.name} {list(expect.shape)} takes {count * wanted.itemsize}"
    raise DumpError(f"holds {data.size} bytes, but {needed}", where=str(path))


def _word(data: buffers.Bytes) -> np.dtype[Any]:
    """int32 or float32, for a tensor of integers that comes with four bytes an element."""
    words = data.view(np.int32)
    small = words.size == 0 or (int(words.min()) > -INTEGER_LIMIT and int(words.max()) < INTEGER_LIMIT)
    return np.dtype(np.int32 if small else np.float32)
