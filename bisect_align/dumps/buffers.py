"""Bytes of a file as arrays: mapped read-only, and never more than the file holds."""

from __future__ import annotations

import math
import mmap
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from bisect_align.dumps.entry import Array
from bisect_align.errors import DumpError

Bytes: TypeAlias = NDArray[np.uint8]

MOST_ELEMENTS = 2**62
"""Beyond it numpy's own size arithmetic overflows; no file reaches it."""


def unreadable(error: OSError, path: Path) -> DumpError:
    """The one sentence for a file that is gone, forbidden or broken."""
    return DumpError(f"cannot be read: {(error.strerror or str(error)).lower()}", where=str(path))


def size_of(path: Path) -> int:
    """Bytes of the file now. Raises DumpError."""
    try:
        return path.stat().st_size
    except OSError as error:
        raise unreadable(error, path) from error


def head(path: Path, count: int) -> bytes:
    """The first `count` bytes of the file, fewer where it is shorter. Raises DumpError."""
    try:
        with path.open("rb") as handle:
            return handle.read(count)
    except OSError as error:
        raise unreadable(error, path) from error


def whole(path: Path) -> bytes:
    """All bytes of the file, copied. Raises DumpError."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise unreadable(error, path) from error


def window(path: Path, offset: int, nbytes: int) -> Bytes:
    """`nbytes` bytes from `offset` on, memory-mapped read-only. Raises DumpError where the file is gone or shorter by now."""
    try:
        with path.open("rb") as handle:
            held = handle.seek(0, 2)
            if held < offset + nbytes:
                raise DumpError(f"holds {held} bytes, {offset + nbytes} are needed", where=str(path))
            if nbytes == 0:
                return np.empty(0, np.uint8)
            mapped = mmap.mmap(handle.fileno(), offset + nbytes, access=mmap.ACCESS_READ)
    except OSError as error:
        raise unreadable(error, path) from error
    return np.frombuffer(mapped, np.uint8, nbytes, offset)


def shaped(data: Bytes, dtype: np.dtype[Any], shape: tuple[int, ...], *, fortran: bool = False) -> Array:
    """`data` seen as an array of this type and shape, in the machine's own byte order; copied only where it must be.

    Booleans are "not zero", since other bit patterns are no numpy booleans; four-bit and two-bit types lie one a byte.
    """
    values: Array
    if dtype.kind == "b":
        values = data != 0
    elif dtype.name in NARROW:
        values = _narrow(data, dtype)
    else:
        values = np.require(data.view(dtype), requirements="A")
        if not dtype.isnative:
            values = values.astype(dtype.newbyteorder("="))
    return values.reshape(shape[::-1]).T if fortran else values.reshape(shape)


NARROW = {"int4": (-8, 7), "uint4": (0, 15), "int2": (-2, 1), "uint2": (0, 3)}


def _narrow(data: Bytes, dtype: np.dtype[Any]) -> Array:
    low, high = NARROW[dtype.name]
    wide = data.view(np.int8 if low < 0 else np.uint8)
    if wide.size and (wide.min() < low or wide.max() > high):
        raise DumpError(f"holds bytes beyond the range of {dtype.name} (one value a byte is expected)")
    return wide.astype(dtype)


def packed_size(dtype: np.dtype[Any], shape: tuple[int, ...]) -> int:
    """Bytes of this many integers of four or two bits, packed without gaps."""
    return -(-math.prod(shape) * _bits(dtype) // 8)


def unpacked(data: Bytes, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Array:
    """Packed integers of four or two bits as an array; the first one is in the low bits of the first byte, as ONNX packs them."""
    bits, count = _bits(dtype), math.prod(shape)
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    codes = ((data[:, None] >> shifts) & np.uint8((1 << bits) - 1)).reshape(-1)[:count].astype(np.int8)
    if NARROW[dtype.name][0] < 0:
        codes = np.where(codes >= 1 << (bits - 1), codes - np.int8(1 << bits), codes)
    return codes.astype(dtype).reshape(shape)


def _bits(dtype: np.dtype[Any]) -> int:
    return 4 if dtype.name.endswith("4") else 2


def checked_shape(value: object) -> tuple[int, ...]:
    """`value` as a shape. Raises DumpError where it is none, or larger than any file could be."""
    if not isinstance(value, list | tuple) or len(value) > 64:
        raise DumpError(f"the shape {str(value)[:80]} is no list of sizes")
    if not all(isinstance(size, int) and not isinstance(size, bool) and size >= 0 for size in value):
        raise DumpError(f"the shape {str(value)[:80]} is no list of sizes")
    if math.prod(max(size, 1) for size in value) > MOST_ELEMENTS:
        raise DumpError(f"the shape {str(value)[:80]} is larger than any file")
    return tuple(value)


def checked_size(dtype: np.dtype[Any], shape: tuple[int, ...], held: int, *, exact: bool = True) -> int:
    """Bytes that this type and shape need. Raises DumpError where fewer are held, or (`exact`) where not just these are."""
    needed = math.prod(shape) * dtype.itemsize
    if held < needed or (exact and held != needed):
        raise DumpError(f"holds {held} bytes of values, but {dtype.name} {list(shape)} takes {needed}")
    return needed
