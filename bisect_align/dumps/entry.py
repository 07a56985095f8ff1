"""One array found in a dump: listed without being read, loaded on demand."""

from __future__ import annotations

import re
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
class Rewrite:
    """One step of what a toolchain does to a name: every match of `pattern` becomes `by`."""

    pattern: str
    by: str

    def apply(self, name: str) -> str:
        return re.sub(self.pattern, self.by, name)


@dataclass(frozen=True, slots=True)
class Entry:
    """key: unique in its catalogue and stable from run to run. names: what it may be called, best first (a name inside the
    payload, the file's stem, its path in the folder without the ending). dtype, shape: from the header; None when headerless.

    decoration: what the toolchain's convention took off the key to get names[0] (""; else names[0] is a weaker claim than a name
    that stands there whole). whole: what stands behind a tensor's name is no decoration, so no part of the key is a claim.
    view: which side of a quantise/dequantise pair the value is from, where the convention tells ("before", "consumers", "codes");
    a hint for readers of the catalogue, nothing is judged by it.
    step: of a text whose numbers all have the same decimals, the last of them (1e-6 for "%.6f"); 0 where nothing is known.
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
    decoration: str = ""
    whole: bool = False
    view: str = ""
    step: float = 0.0
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
    """All that a dump holds; `ignored` counts files that are no tensors (logs, graphs, sidecars) by their ending.

    convention: the toolchain's rules it was read by, with `rewrites` (what they do to a model's names, in this order).
    """

    root: Path
    entries: tuple[Entry, ...]
    problems: tuple[Problem, ...] = ()
    ignored: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    convention: str = "generic"
    rewrites: tuple[Rewrite, ...] = ()
