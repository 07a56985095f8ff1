"""Reader of texts: numbers separated by white space or commas, one or several a line; type and shape come from the model."""

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
BOM = b"\xef\xbb\xbf"
NUMBER = re.compile(rb"[+-]?((\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|inf(inity)?|nan)\Z", re.IGNORECASE)


def piece(path: Path) -> Piece | None:
    """A text of numbers; None where it is a text of something else (a log, a table). Raises DumpError where it is no text."""
    start = buffers.head(path, HEAD).removeprefix(BOM)
    if not start:
        raise DumpError("is empty", where=str(path))
    if b"\0" in start:
        raise DumpError("is no text", where=str(path))
    words = start.replace(b",", b" ").split()
    if len(start) >= HEAD - len(BOM):
        words = words[:-1]  # may be cut in the middle
    if not words or not all(NUMBER.match(word) for word in words):
        return None
    return Piece(path, "text", buffers.size_of(path), partial(_load, path))


def _load(path: Path, expect: Expect | None) -> Array:
    data = buffers.whole(path).removeprefix(BOM).replace(b",", b" ")
    whole_numbers = expect is not None and expect.dtype.kind in "iu"
    numbers = (
        _parse(data, np.int64, path) if whole_numbers and not re.search(rb"[.eEnN]", data) else _parse(data, np.float64, path)
    )
    if expect is None:
        return numbers
    if numbers.size != math.prod(expect.shape):
        needed = f"{list(expect.shape)} takes {math.prod(expect.shape)}"
        raise DumpError(f"holds {numbers.size} numbers, but {needed}", where=str(path))
    return _cast(numbers, expect.dtype).reshape(expect.shape)


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
