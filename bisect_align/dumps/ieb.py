"""Reader of .ieb, the blobs that OpenVINO's CPU plugin dumps: a 72-byte header and dense values, or a text under the same ending.

The header: "IEB0", version 0 and 1, precision, rank, seven uint32 sizes, scaling axis, three reserved bytes, then four uint64:
offset and size of the values, offset and size of the scales. Values are in logical order whatever the layout of the blob was.
"""

from __future__ import annotations

import math
import struct
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from bisect_align.dumps import buffers, dtypes, raw, text
from bisect_align.dumps.entry import Array, Expect
from bisect_align.dumps.piece import Piece
from bisect_align.errors import DumpError

MAGIC = b"IEB0"
HEADER = struct.Struct("<4s2BBB7IB3x4Q")
PRECISIONS = {
    (10, 4): "float32",
    (11, 2): "float16",
    (12, 2): "bfloat16",
    (13, 8): "float64",
    (30, 2): "int16",
    (40, 1): "uint8",
    (41, 1): "bool",
    (50, 1): "int8",
    (60, 2): "uint16",
    (70, 4): "int32",
    (72, 8): "int64",
    (73, 8): "uint64",
    (74, 4): "uint32",
    (1, 1): "bool",
    (2, 2): "bfloat16",
    (3, 2): "float16",
    (4, 4): "float32",
    (5, 8): "float64",
    (7, 1): "int8",
    (8, 2): "int16",
    (9, 4): "int32",
    (10, 8): "int64",
}
"""(precision, bytes an element) -> type. The numbers changed between releases; together with the size they are clear."""


def piece(path: Path) -> Piece | None:
    """The blob of an .ieb file, or its text form. Raises DumpError where the header and the file's size do not agree."""
    start = buffers.head(path, HEADER.size)
    if not start.startswith(MAGIC):
        return text.piece(path)
    if len(start) < HEADER.size:
        raise DumpError("ends within its header", where=str(path))
    fields = HEADER.unpack(start)
    precision, rank, sizes = fields[3], fields[4], fields[5:12]
    offset, nbytes = fields[13], fields[14]
    if fields[1:3] != (0, 1) or rank > 7:
        raise DumpError("is an .ieb file of an unknown version", where=str(path))
    shape = buffers.checked_shape(list(sizes[:rank]))
    held = buffers.size_of(path)
    if offset < HEADER.size or offset + nbytes > held:
        raise DumpError(f"holds {held} bytes, but its header speaks of {offset + nbytes}", where=str(path))
    elements = math.prod(shape)
    if elements and nbytes % elements:
        raise DumpError(f"holds {nbytes} bytes of values, which are no {list(shape)}", where=str(path))
    name = PRECISIONS.get((precision, nbytes // elements if elements else 4))
    if name is None:
        return Piece(path, "ieb", nbytes, partial(_load_guessed, path, offset, nbytes, shape), None, shape)
    dtype = dtypes.named(name)
    return Piece(path, "ieb", nbytes, partial(_load, path, offset, nbytes, dtype, shape), dtype, shape)


def _load(path: Path, offset: int, nbytes: int, dtype: np.dtype[Any], shape: tuple[int, ...], expect: Expect | None) -> Array:
    return buffers.shaped(buffers.window(path, offset, nbytes), dtype, shape)


def _load_guessed(path: Path, offset: int, nbytes: int, shape: tuple[int, ...], expect: Expect | None) -> Array:
    """Of an unknown precision: what the model expects decides, as for headerless files."""
    if expect is None:
        raise DumpError("has a precision that is not known", where=str(path), hint=raw.HINT)
    data = buffers.window(path, offset, nbytes)
    return buffers.shaped(data, raw.stored(data, replace(expect, shape=shape), path), shape)
