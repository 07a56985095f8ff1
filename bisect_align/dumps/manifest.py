"""Manifests of raw dumps: {"tensors": [{"file", "name", "dtype", "shape", "index"?, "scale"?, "zero_point"?, "axis"?}]}.

The bare list is read too. Files are looked for beside the manifest and never outside its folder.
"""

from __future__ import annotations

import difflib
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from bisect_align.dumps import buffers, dtypes, npy, raw
from bisect_align.dumps.entry import Quant
from bisect_align.dumps.piece import Fault, Listing, Piece, reinterpreted
from bisect_align.errors import DumpError

Items: TypeAlias = list[Any]

NAME = "manifest.json"
TABLE = "tensors"
KEYS = ("file", "name", "dtype", "shape", "index", "scale", "zero_point", "axis")
MEANT = 0.75  # difflib ratio from which an unknown key is a known one misspelt: "axes" is, "sample" is no "scale"


def items(document: object) -> Items | None:
    """The items of a manifest; None where the document is something else."""
    found = document.get(TABLE) if isinstance(document, dict) else document
    if isinstance(found, list) and found and any(isinstance(item, dict) and isinstance(item.get("file"), str) for item in found):
        return found
    return None


def unread(path: Path, document: object) -> list[str]:
    """Keys of a manifest that nobody reads, a sentence each. Raises DumpError for one that stands in the place of a known key.

    A key of one's own beside those that are known (an operator, a comment) is no mistake.
    """
    tensors = items(document)
    if tensors is None:
        keys = document if isinstance(document, dict) and path.name == NAME and TABLE not in document else ()
        if near := difflib.get_close_matches(TABLE, [key for key in keys if isinstance(key, str)], 1):
            raise DumpError(f"unknown key {near[0]!r}", where=str(path), hint=f"did you mean {TABLE!r}?")
        return []
    unknown: dict[str, int] = {}
    for position, item in enumerate(tensors):
        for key in (key for key in (item if isinstance(item, dict) else ()) if key not in KEYS):
            missing = [known for known in KEYS if known not in item]
            if near := difflib.get_close_matches(key.casefold(), missing, 1, MEANT):
                raise DumpError(f"unknown key {key!r} in item {position}", where=str(path), hint=f"did you mean {near[0]!r}?")
            unknown.setdefault(key, position)
    return [f"{path.name}: unknown key {key!r}, not read (known: {', '.join(KEYS)})" for key in unknown]


def listing(path: Path, tensors: Items) -> Listing:
    """The arrays that the manifest at `path` tells of; a bad item is a fault of its own."""
    pieces: list[Piece] = []
    faults: list[Fault] = []
    for position, item in enumerate(tensors):
        fields = item if isinstance(item, dict) else {}
        name = fields.get("name") if isinstance(fields.get("name"), str) else None
        source = path
        try:
            source = _inside(path.parent, fields.get("file"))
            pieces.append(_piece(source, name or None, fields, position))
        except DumpError as error:
            reason = error.what if source != path else f"item {position} of the manifest {error.what}"
            faults.append(Fault(source, reason, name))
    return Listing(tuple(pieces), tuple(faults))


def _inside(folder: Path, file: object) -> Path:
    if not isinstance(file, str) or not file or "\0" in file:
        raise DumpError("names no file")
    try:
        target = folder / file
        if Path(file).is_absolute() or not target.resolve().is_relative_to(folder.resolve()):
            raise DumpError(f"names a file outside the folder: {file[:80]}")
        if not target.is_file():
            raise DumpError(f"names a file that is not there: {file[:80]}")
    except (OSError, RuntimeError, ValueError) as error:
        raise DumpError(f"names a file that cannot be reached: {file[:80]}") from error
    return target


def _piece(source: Path, name: str | None, fields: dict[str, Any], position: int) -> Piece:
    index = fields.get("index")
    order = index if type(index) is int else position
    if source.suffix == ".npy":
        found = npy.piece(source)
        if isinstance(fields.get("dtype"), str):
            found = reinterpreted(found, dtypes.named(fields["dtype"]))
    elif fields.get("dtype") is None and fields.get("shape") is None:
        found = raw.piece(source)
    else:
        if not isinstance(fields.get("dtype"), str):
            raise DumpError("has no dtype in the manifest")
        found = raw.typed(source, dtypes.named(fields["dtype"]), buffers.checked_shape(fields.get("shape")))
    return replace(found, name=name, order=order, quant=_quant(fields, found.shape))


def _quant(fields: dict[str, Any], shape: tuple[int, ...] | None) -> Quant | None:
    if fields.get("scale") is None:
        return None
    scale = _numbers(fields["scale"], "scale")
    zero = _numbers(fields.get("zero_point") or 0, "zero_point")
    axis = fields.get("axis")
    if not (scale > 0).all():
        raise DumpError("has a scale that is not positive")
    if zero.size not in (1, scale.size) or (zero != np.rint(zero)).any():
        raise DumpError("has a zero_point that does not go with its scale")
    if scale.size == 1:
        return Quant(scale.reshape(()), zero.reshape(()).astype(np.int64))
    if type(axis) is not int:
        raise DumpError("has a scale for each channel, but no axis")
    if shape is not None and (not -len(shape) <= axis < len(shape) or shape[axis] != scale.size):
        raise DumpError(f"has {scale.size} scales, but its axis {axis} of {list(shape)} is not that long")
    axis = axis + len(shape) if shape is not None and axis < 0 else axis
    return Quant(scale, np.broadcast_to(zero, scale.shape).astype(np.int64), axis)


def _numbers(value: object, what: str) -> Any:
    try:
        numbers = np.atleast_1d(np.asarray(value, dtype=np.float64))
    except (ValueError, TypeError, OverflowError) as error:
        raise DumpError(f"has a {what} that is no number") from error
    if numbers.ndim != 1 or not numbers.size or not np.isfinite(numbers).all():
        raise DumpError(f"has a {what} that is no number")
    return numbers
