"""What a reader finds in a file, before the catalogue gives it a key, names and a role."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
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
