"""Reader of texts: numbers separated by white space or commas, one or several a line; type and shape come from the model.

Three toolchains write a few words of their own in front (OpenVINO, nncase: the shape) or before each value (Paddle Lite: an index).
"""

from __future__ import annotations

import math
import re
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from bisect_align.dumps import buffers
from bisect_align.dumps.entry import Array, Expect
from bisect_align.dumps.piece import Piece
from bisect_align.errors import DumpError

HEAD = 4096
"""Bytes by which a file is judged to be a text."""
BOM = b"\xef\xbb\xbf"
NUMBER = re.compile(rb"[+-]?((\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|inf(inity)?|nan)\Z", re.IGNORECASE)


_BLOB = re.compile(rb"\w+ +\d+D shape: *(?P<dims>(?:\d+ +)*)\(\d+\) by address[^\n]*\n")
"""OpenVINO's CPU plugin: "FP32 4D shape: 1 8 4 4 (128) by address 0x55d0"."""
_LAYER = re.compile(rb"shape: *\[(?P<axes>[\w:, ]+)\] *\(count: *\d+[^\n]*\n")
"""OpenVINO's GPU plugin: "shape: [b:1, f:8, x:4, y:4, z:1, w:1, g:1] (count: 128, original format: b_fs_yx_fsv16)"."""
_TYPED = re.compile(rb"[^\n]{0,200}\r?\ntype: *\w*\r?\nshape: *(?P<dims>[\d ]*|scalar)\r?\n")
"""nncase: the operator, the type's code and the shape, each on a line."""
_INDEX = re.compile(rb"^\[\d+\][ \t]+", re.MULTILINE)


def _head(start: bytes) -> tuple[int, tuple[int, ...] | None]:
    """Length of what stands before the numbers, and the shape told there. Raises DumpError for an impossible shape."""
    if found := _BLOB.match(start) or _TYPED.match(start):
        dims = () if found["dims"] == b"scalar" else tuple(int(size) for size in found["dims"].split())
        return found.end(), buffers.checked_shape(dims)
    if found := _LAYER.match(start):
        axes = dict(re.findall(rb"(\w):(\d+)", found["axes"]))
        ones = all(axes.get(axis, b"1") == b"1" for axis in (b"g", b"w", b"z"))
        shape = tuple(int(axes[axis]) for axis in (b"b", b"f", b"y", b"x") if axis in axes)
        return found.end(), buffers.checked_shape(shape) if ones and len(shape) == 4 else None
    return 0, None


def piece(path: Path) -> Piece | None:
    """A text of numbers; None where it is a text of something else (a log, a table). Raises DumpError where it is no text."""
    start = buffers.head(path, HEAD).removeprefix(BOM)
    if not start:
        raise DumpError("is empty", where=str(path))
    cut = len(start) >= HEAD - len(BOM)
    length, shape = _head(start)
    start = start[length:]
    if b"\0" in start:
        raise DumpError("is no text", where=str(path))
    words = (_INDEX.sub(b"", start) if start.startswith(b"[") else start).replace(b",", b" ").split()
    if cut:
        words = words[:-1]  # may be cut in the middle
    if (not words and 0 not in (shape or ())) or not all(NUMBER.match(word) for word in words):
        return None
    return Piece(path, "text", buffers.size_of(path), partial(_load, path, shape), None, shape, step=_step(words))


def _step(words: list[bytes]) -> float:
    """The last decimal, where all numbers have the same: 1e-6 for "%.6f". 0 for whole numbers and exponents."""
    decimals = {len(word.partition(b".")[2]) for word in words if word.lower().lstrip(b"+-") not in (b"nan", b"inf", b"infinity")}
    fixed = len(decimals) == 1 and not any(b"e" in word.lower() for word in words)
    return 10.0 ** -decimals.pop() if fixed and decimals != {0} else 0.0


def _load(path: Path, told: tuple[int, ...] | None, expect: Expect | None) -> Array:
    data = buffers.whole(path).removeprefix(BOM)
    data = data[_head(data[:HEAD])[0] :]
    data = (_INDEX.sub(b"", data) if data.startswith(b"[") else data).replace(b",", b" ")
    whole_numbers = expect is not None and expect.dtype.kind in "iu"
    numbers = (
        _parse(data, np.int64, path) if whole_numbers and not re.search(rb"[.eEnN]", data) else _parse(data, np.float64, path)
    )
    shape = told if told is not None else expect.shape if expect else numbers.shape
    if numbers.size != math.prod(shape):
        needed = f"{list(shape)} takes {math.prod(shape)}"
        raise DumpError(f"holds {numbers.size} numbers, but {needed}", where=str(path))
    return (_cast(numbers, expect.dtype) if expect else numbers).reshape(shape)


def _parse(data: bytes, dtype: type[np.int64] | type[np.float64], path: Path) -> Array:
    if not data.strip():
        return np.empty(0, dtype)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", DeprecationWarning)  # numpy only warns where it stops half-way
            return np.fromstring(data.decode("ascii"), dtype, sep=" ")
    except (ValueError, DeprecationWarning, OverflowError) as error:
        raise DumpError("holds words that are no numbers", where=str(path)) from error


def _cast(numbers: Array, wanted: np.dtype[Any]) -> Array:
    """To the expected type where nothing is lost beyond a text's own precision; floats of 16 bits and fewer come as float32."""
    if wanted.kind == "b":
        return numbers != 0 if np.isin(numbers, (0, 1)).all() else numbers
    if wanted.kind in "iu":
        bounds = np.iinfo(wanted)
        with np.errstate(invalid="ignore"):
            fits = np.isfinite(numbers) & (numbers == np.rint(numbers)) & (numbers >= bounds.min) & (numbers <= bounds.max)
        return numbers.astype(wanted) if fits.all() else numbers
    if wanted == np.float64:
        return numbers.astype(np.float64)
    with np.errstate(over="ignore"):
        return numbers.astype(np.float32)
