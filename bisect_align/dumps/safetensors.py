"""Reader of .safetensors: eight bytes of length, a JSON header, then the values, memory-mapped."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from bisect_align.dumps import buffers
from bisect_align.dumps.entry import Array, Expect
from bisect_align.dumps.piece import Fault, Listing, Piece
from bisect_align.errors import DumpError

TYPES: dict[str, np.dtype[Any]] = {
    "BOOL": np.dtype(np.bool_),
    **{f"{code}{bits}": np.dtype(f"{kind}int{bits}") for code, kind in (("I", ""), ("U", "u")) for bits in (8, 16, 32, 64)},
    **{f"F{bits}": np.dtype(f"float{bits}") for bits in (16, 32, 64)},
    "C64": np.dtype(np.complex64),
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "F8_E4M3": np.dtype(ml_dtypes.float8_e4m3fn),
    "F8_E5M2": np.dtype(ml_dtypes.float8_e5m2),
}


def listing(path: Path) -> Listing:
    """All tensors of the file, in the order of their values. Raises DumpError where the header is damaged."""
    held = buffers.size_of(path)
    length = int.from_bytes(buffers.head(path, 8), "little")
    if held < 8 or length > held - 8:
        raise DumpError("has a damaged .safetensors header", where=str(path))
    try:
        header = json.loads(buffers.window(path, 8, length).tobytes())
    except (ValueError, RecursionError) as error:
        raise DumpError("has a damaged .safetensors header", where=str(path)) from error
    if not isinstance(header, dict):
        raise DumpError("has a damaged .safetensors header", where=str(path))
    pieces: list[Piece] = []
    faults: list[Fault] = []
    for name, fields in header.items():
        if name == "__metadata__":
            continue
        try:
            pieces.append(_piece(path, name, fields, 8 + length, held))
        except DumpError as error:
            faults.append(Fault(path, error.what, name))
    return Listing(tuple(pieces), tuple(faults))


def _piece(path: Path, name: str, fields: object, base: int, held: int) -> Piece:
    if not isinstance(fields, dict):
        raise DumpError("has a damaged description")
    code = fields.get("dtype")
    dtype = TYPES.get(code) if isinstance(code, str) else None
    if dtype is None:
        raise DumpError(f"has the type {str(code)[:40]!r}, which is not known")
    shape = buffers.checked_shape(fields.get("shape"))
    begin, end = _offsets(fields.get("data_offsets"))
    if base + end > held:
        raise DumpError(f"ends at byte {base + end} of a file of {held}")
    nbytes = buffers.checked_size(dtype, shape, end - begin)
    reader = partial(_load, path, base + begin, dtype, shape, nbytes)
    return Piece(path, "safetensors", nbytes, reader, dtype, shape, name=name, member=name, order=begin)


def _offsets(value: object) -> tuple[int, int]:
    if isinstance(value, list) and len(value) == 2 and all(type(offset) is int for offset in value):
        begin, end = value
        if 0 <= begin <= end:
            return begin, end
    raise DumpError("has damaged offsets")


def _load(path: Path, offset: int, dtype: np.dtype[Any], shape: tuple[int, ...], nbytes: int, expect: Expect | None) -> Array:
    return buffers.shaped(buffers.window(path, offset, nbytes), dtype, shape)
