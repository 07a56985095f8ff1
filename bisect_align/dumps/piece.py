"""What a reader finds in a file, before the catalogue gives it a key, names and a role."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from bisect_align.dumps.entry import Array, Expect, Quant


@dataclass(frozen=True, slots=True)
class Piece:
    """An array in `source`. name: as the payload gives it (None: the file's name is all there is). member: its place in a
    container of several. reference: the container itself says that this is not the target's value.
    """

    source: Path
    format: str
    nbytes: int
    reader: Callable[[Expect | None], Array]
    dtype: np.dtype[Any] | None = None
    shape: tuple[int, ...] | None = None
    name: str | None = None
    member: str | None = None
    order: int | None = None
    quant: Quant | None = None
    reference: bool = False
    step: float = 0.0


@dataclass(frozen=True, slots=True)
class Fault:
    """An array that cannot be read, and why."""

    source: Path
    reason: str
    name: str | None = None


@dataclass(frozen=True, slots=True)
class Listing:
    """What one file holds; notes are for the user."""

    pieces: tuple[Piece, ...] = ()
    faults: tuple[Fault, ...] = ()
    notes: tuple[str, ...] = ()


def reinterpreted(found: Piece, dtype: np.dtype[Any]) -> Piece:
    """The piece with its stored bytes read as another type of the same size (bfloat16 kept as uint16, float8 as uint8); unchanged
    where the types are equal or differ in size, or where the stored one is no integer."""
    stored = found.dtype
    if stored is None or stored == dtype or stored.kind not in "iu" or stored.itemsize != dtype.itemsize or dtype.kind in "biu":
        return found
    return replace(found, dtype=dtype, reader=partial(_viewed, found.reader, dtype))


def _viewed(reader: Callable[[Expect | None], Array], dtype: np.dtype[Any], expect: Expect | None) -> Array:
    values = reader(expect)
    return values.view(dtype) if values.ndim else values.reshape(1).view(dtype).reshape(())
