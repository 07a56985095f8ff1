"""Reader of .npy: header versions 1 to 3, any byte order; never pickle."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from bisect_align.dumps import buffers, dtypes
from bisect_align.dumps.entry import Array, Expect
from bisect_align.dumps.piece import Piece
from bisect_align.errors import DumpError

MAGIC = b"\x93NUMPY"
LONGEST = 10_000
"""Characters of a header: numpy's own limit, which keeps the literal parser from being fed megabytes."""
HEAD = LONGEST + 12


@dataclass(frozen=True, slots=True)
class Header:
    """Of one array: type as stored, shape, order, where the values begin, and how many bytes they take."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    fortran: bool
    offset: int
    nbytes: int


def header(start: bytes, held: int) -> Header:
    """Parse the header at the `start` of a stream of `held` bytes.

    Raises DumpError where it is damaged, its type is no plain one, or fewer bytes follow than it claims.
    """
    if held == 0:
        raise DumpError("is empty")
    if not start.startswith(MAGIC):
        raise DumpError("does not begin like an .npy file")
    width = {1: 2, 2: 4, 3: 4}.get(start[6] if len(start) > 6 else 0)
    if width is None:
        raise DumpError("is an .npy file of an unknown version")
    offset = 8 + width + int.from_bytes(start[8 : 8 + width], "little")
    if offset > len(start):
        raise DumpError("has an .npy header longer than itself, or than any tensor needs")
    text = start[8 + width : offset].decode("utf-8" if start[6] == 3 else "latin-1", "replace")
    try:
        fields = ast.literal_eval(re.sub(r"(?<=\d)L\b", "", text).strip())  # 3L: written by Python 2
    except Exception as error:  # a malformed literal raises anything from SyntaxError to RecursionError
        raise DumpError("has a damaged .npy header") from error
    if not isinstance(fields, dict) or not {"descr", "fortran_order", "shape"} <= fields.keys():
        raise DumpError("has a damaged .npy header")
    dtype = dtypes.described(fields["descr"])
    shape = buffers.checked_shape(fields["shape"])
    nbytes = buffers.checked_size(dtype, shape, held - offset, exact=False)
    return Header(dtype, shape, bool(fields["fortran_order"]), offset, nbytes)


def native(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The same type in the machine's byte order: what a loaded array has."""
    return dtype if dtype.isnative else dtype.newbyteorder("=")


def piece(path: Path) -> Piece:
    """The array of an .npy file, its header read. Raises DumpError."""
    found = header(buffers.head(path, HEAD), buffers.size_of(path))
    return Piece(path, "npy", found.nbytes, partial(_load, path, found), native(found.dtype), found.shape)


def _load(path: Path, found: Header, expect: Expect | None) -> Array:
    return values(buffers.window(path, found.offset, found.nbytes), found)


def values(data: buffers.Bytes, found: Header) -> Array:
    """The array over the bytes behind the header."""
    return buffers.shaped(data, found.dtype, found.shape, fortran=found.fortran)
