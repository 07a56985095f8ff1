"""One array found in a dump: listed without being read, loaded on demand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]


class Role(StrEnum):
    """What an entry is: only target values are compared with the golden."""

    TARGET = "target"
    REFERENCE = "reference"
    INPUT = "input"
    WEIGHT = "weight"


@dataclass(frozen=True, slots=True)
class Expect:
    """What the model says of a tensor; used to read headerless files and texts."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Quant:
    """real = (q - zero_point) * scale, along `axis` where the two are vectors."""

    scale: Array
    zero_point: Array
    axis: int | None = None


@dataclass(frozen=True, slots=True)
class Entry:
    """key: unique in its catalogue and stable from run to run. names: what it may be called, best first (a name inside the
    payload, the file's stem, its path in the folder without the ending). dtype, shape: from the header; None when headerless.
    """

    key: str
    names: tuple[str, ...]
    source: Path
    format: str
    nbytes: int
    dtype: np.dtype[Any] | None = None
    shape: tuple[int, ...] | None = None
    role: Role = Role.TARGET
    quant: Quant | None = None
    order: int | None = None
    reader: Callable[[Expect | None], Array] = field(repr=False, compare=False, kw_only=True)

    def load(self, expect: Expect | None = None) -> Array:
        """The array, in the entry's own layout and unit (memory-mapped where the format allows). Raises DumpError."""
        return self.reader(expect)


@dataclass(frozen=True, slots=True)
class Problem:
    """A file that cannot be read: its tensor is UNKNOWN with this reason, the rest goes on."""

    source: Path
    names: tuple[str, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class Catalogue:
    """All that a dump holds; `ignored` counts files that are no tensors (logs, graphs, sidecars) by their ending."""

    root: Path
    entries: tuple[Entry, ...]
    problems: tuple[Problem, ...] = ()
    ignored: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
