"""What a target wrote as one output of a case: read, and brought to the golden's type and layout where that changes no value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from bisect_align.dumps import npy, pb
from bisect_align.errors import DumpError
from bisect_align.matching.fit import LOOSEST, PLAIN, Votes, fit
from bisect_align.model.dtypes import is_float
from bisect_align.model.operators import MOVES
from bisect_align.repro.alone import raw, shaped

Array: TypeAlias = NDArray[Any]

ENDINGS = (".npy", ".pb", ".bin")


@dataclass(frozen=True, slots=True)
class Returned:
    """An output as the golden has it. taken: what was done to read it so, in words, "" where it came like that."""

    values: Array
    taken: str = ""


def found(place: Path, k: int) -> Path | None:
    """The file of output k, the first of its endings; None where the target left none."""
    return next((f for end in ENDINGS if (f := place / f"output_{k}{end}").is_file()), None)


def returned(file: Path, golden: Array, half: str, op: str, feeds: Mapping[str, Array]) -> Returned:
    """The output in the file. half: the model's own type of it, where the golden is that in float32. Raises DumpError where the file
    is damaged, or of a type that cannot be compared with the golden's. A shape that no layout explains stays what it is."""
    if file.suffix == ".bin":
        try:
            values = raw(file, golden, half)
        except (OSError, ValueError) as error:
            raise DumpError(str(error)) from error
    else:
        values = stored(file)
    values, retyped = _typed(values, golden.dtype)
    values, layout = _laid(values, golden, op, feeds)
    return Returned(values, ", ".join(said for said in (retyped, layout) if said))


def stored(file: Path) -> Array:
    """The array of an .npy or .pb file. Raises DumpError."""
    values: Array = (pb if file.suffix == ".pb" else npy).piece(file).reader(None)
    return values


def _typed(values: Array, dtype: np.dtype[Any]) -> tuple[Array, str]:
    """Values in the golden's type, and what to say of it. Raises DumpError where that would change their meaning."""
    given = values.dtype
    if given == dtype:
        return values, ""
    if not is_float(given) and (is_float(dtype) or given.kind not in "biu"):
        raise DumpError(f"holds {given} where the output is {dtype}")
    if is_float(dtype):
        return values.astype(dtype), ""
    wide = values.astype(np.float64) if is_float(given) else values
    if is_float(given) and not np.array_equal(wide, np.rint(wide)):
        raise DumpError(f"holds {given} with fractions or NaN where the output is {dtype}")
    low, high = (0, 1) if dtype.kind == "b" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    if wide.size and (wide.min().item() < low or wide.max().item() > high):
        raise DumpError(f"holds {given} values that {dtype}, the type of the output, does not have")
    return wide.astype(dtype), f"{given} where the output is {dtype}"


def _laid(values: Array, golden: Array, op: str, feeds: Mapping[str, Array]) -> tuple[Array, str]:
    """Values in the golden's layout, and its name, where they are as many and a layout tells the shapes apart.

    Not of an operator that moves values and returned its input's shape: it was left out, and a layout would put that right.
    """
    values = shaped(values, golden)
    if values.shape == golden.shape or values.size != golden.size or not values.size:
        return values, ""
    if op in MOVES and any(values.shape == fed.shape for fed in feeds.values()):
        return values, ""
    got = fit(values, golden, Votes(), LOOSEST)
    if got is None or (got.fix.label in PLAIN and values.ndim > 1):
        return values, ""
    return got.values, f"laid out {got.fix.label}"
