"""Scales of integer entries from a file of their own: quantisation parameters as calibration tools write them.

Two shapes are read, {"tensors": {name: {...}}} and {"activation_encodings": {name: {...} or [{...}, ...]}} (AIMET, QNN; a list
of {"name": ..., ...} too). The sign is told by the key and by nothing else:

    "zero_point": real = (q - zero_point) * scale      ONNX, TFLite
    "offset":     real = (q + offset) * scale          AIMET, QNN

A calibration range ("min" of AIMET) tells which integers an offset counts: those from 0, or signed ones; the other kind is shifted.
"""

from __future__ import annotations

import difflib
import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from bisect_align.dumps import dtypes, raw
from bisect_align.dumps.entry import Array, Catalogue, Entry, Quant
from bisect_align.errors import DumpError, UsageError
from bisect_align.matching.names import sanitised

TABLES = ("tensors", "activation_encodings")
SHAPE = '{"tensors": {"name": {"scale": 0.1, "zero_point": 3}}}, or AIMET\'s activation_encodings'
LARGEST = 256 << 20
GRID_SLACK = 1.0  # steps by which a rounded offset may miss the end of the calibration range


@dataclass(frozen=True, slots=True)
class Parameters:
    """Of one tensor. scale, zero: of equal length, real = (q - zero) * scale. axis: along which, where there are several.

    dtype: of the codes, where the file says it. signed: the codes that `zero` counts are signed; None: those of the entry, whichever.
    """

    scale: Array
    zero: Array
    axis: int | None = None
    dtype: np.dtype[Any] | None = None
    bits: int = 8
    signed: bool | None = None

    def of(self, entry: Entry, dtype: np.dtype[Any]) -> Quant:
        """As they apply to the codes of an entry. Raises UsageError where several scales do not go with its shape."""
        shift = 0
        if self.signed is not None and self.signed != (dtype.kind == "i"):
            shift = (1 if self.signed else -1) << (self.bits - 1)
        zero = self.zero + shift
        if self.scale.size == 1:
            return Quant(self.scale.reshape(()), zero.reshape(()))
        axis = self.axis
        if axis is None:
            raise UsageError(f"{self.scale.size} scales, but no axis", where=entry.key)
        if entry.shape is not None:
            if not -len(entry.shape) <= axis < len(entry.shape) or entry.shape[axis] != self.scale.size:
                raise UsageError(
                    f"{self.scale.size} scales, but axis {axis} of {list(entry.shape)} is not that long", where=entry.key
                )
            axis %= len(entry.shape)
        return Quant(self.scale, zero, axis)


def with_parameters(found: Catalogue, path: Path) -> tuple[Catalogue, list[str]]:
    """The catalogue with the scales of the file at its integer entries, and what to say of it. They go before those of the dump.

    Names are those of the entries, exact or as a sanitiser writes them. A headerless file is read as codes where the file of
    parameters names their type ("dtype": "uint8"). Raises UsageError for a file that is none, or that names no entry.
    """
    parameters = _read(path)
    forms = spellings(parameters)
    by_entry = {entry.key: hit for entry in found.entries if (hit := named(entry, parameters, forms))}
    if not by_entry:
        raise UsageError("names no entry of the dump", where=str(path), hint=_nearest(parameters, found.entries))
    entries, used = [], 0
    for entry in found.entries:
        name = by_entry.get(entry.key)
        given = _applied(entry, parameters[name], path, name) if name is not None else None
        used += given is not None
        entries.append(given or entry)
    said = [] if used else [f"{path.name} gives scales to {len(by_entry)} entries, but none of them holds integers"]
    return replace(found, entries=tuple(entries)), said


def _applied(entry: Entry, parameters: Parameters, path: Path, name: str) -> Entry | None:
    """The entry with its scales; None where it holds no integers."""
    if entry.dtype is None and entry.format == "raw" and parameters.dtype is not None:
        try:
            piece = raw.elements(entry.source, parameters.dtype)
        except DumpError as error:
            raise UsageError(f"{name!r} has dtype {parameters.dtype}, but {entry.key} {error.what}", where=str(path)) from None
        entry = replace(entry, dtype=piece.dtype, reader=piece.reader)
    if entry.dtype is None or entry.dtype.kind not in "iu":
        return None
    try:
        return replace(entry, quant=parameters.of(entry, entry.dtype))
    except UsageError as error:
        raise UsageError(f"{name!r} has {error.what}", where=str(path)) from None


# --- names ----------------------------------------------------------------------------------------------------------------


def spellings(names: Iterable[str]) -> dict[str, str]:
    """Spelling -> name, for what sanitisers make of names; a spelling of two names is neither's."""
    owners: defaultdict[str, set[str]] = defaultdict(set)
    for name in names:
        for form in sanitised(name):
            owners[form].add(name)
    return {form: next(iter(found)) for form, found in owners.items() if len(found) == 1}


def named(entry: Entry, names: Collection[str], forms: Mapping[str, str]) -> str | None:
    """The name that means this entry: its own, else a sanitised one, on either side. forms: `spellings` of the names."""
    called = (*entry.names, entry.key)
    if exact := next((name for name in called if name in names), None):
        return exact
    if written := next((forms[name] for name in called if name in forms), None):
        return written
    own = {form for name in called for form in sanitised(name) if form in names}
    return own.pop() if len(own) == 1 else None


def _nearest(names: Mapping[str, object], entries: Sequence[Entry]) -> str:
    name = next(iter(names))
    near = difflib.get_close_matches(name, [entry.names[0] for entry in entries[:2000]], 1, 0)
    return f"it has {name!r}, the dump {near[0]!r}" if near else f"it has {name!r}"


# --- the file -------------------------------------------------------------------------------------------------------------


def _read(path: Path) -> dict[str, Parameters]:
    try:
        if path.stat().st_size > LARGEST:
            raise UsageError("is larger than any file of scales", where=str(path), hint=SHAPE)
        document = json.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise UsageError(f"cannot be read: {why}", where=str(path), hint="--quant-params takes a JSON file") from None
    except (ValueError, RecursionError):
        raise UsageError("is no JSON", where=str(path), hint=SHAPE) from None
    table = next((document[key] for key in TABLES if key in document), None) if isinstance(document, dict) else None
    if not isinstance(table, (dict, list)) or not table:
        raise UsageError(f"holds neither {' nor '.join(TABLES)}", where=str(path), hint=SHAPE)
    found: dict[str, Parameters] = {}
    for name, value in _items(table, path):
        if name in found:
            raise UsageError(f"{name!r} stands twice", where=str(path))
        try:
            parameters = _parameters(value)
        except (UsageError, DumpError) as error:
            raise UsageError(f"{name!r} has {error.what}", where=str(path), hint=error.hint) from None
        if parameters is not None:
            found[name] = parameters
    if not found:
        raise UsageError("quantises nothing: all its tensors are floats", where=str(path), hint=SHAPE)
    return found


def _items(table: dict[str, Any] | list[Any], path: Path) -> Iterator[tuple[str, object]]:
    if isinstance(table, dict):
        yield from table.items()
        return
    for position, item in enumerate(table):
        if not isinstance(item, dict) or not isinstance(item.get("name"), str):
            raise UsageError(f"encoding {position} has no name", where=str(path), hint=SHAPE)
        yield item["name"], item


def _parameters(value: object) -> Parameters | None:
    """None for what is a float. Raises UsageError (what follows "has") where the figures are none."""
    listed = value if isinstance(value, list) else [value]
    parts: list[dict[str, Any]] = [part for part in listed if isinstance(part, dict)]
    if not parts or len(parts) != len(listed):
        raise UsageError("no scale", hint=SHAPE)
    first = parts[0]
    if str(first.get("dtype", "")).lower() in ("float", "bfloat"):
        return None
    if any(("zero_point" in part) == ("offset" in part) for part in parts):
        both = "zero_point" in first and "offset" in first
        raise UsageError(
            "both zero_point and offset" if both else "neither zero_point nor offset",
            hint="real = (q - zero_point) * scale, or (q + offset) * scale",
        )
    key = "offset" if "offset" in first else "zero_point"
    scale = np.concatenate([_numbers(part.get("scale"), "scale") for part in parts])
    zero = np.concatenate([_numbers(part.get(key), key) for part in parts])
    if not (scale > 0).all():
        raise UsageError("a scale that is not positive")
    if (zero != np.rint(zero)).any() or zero.size not in (1, scale.size):
        raise UsageError(f"a {key} that does not go with its scale")
    zero = np.broadcast_to(zero, scale.shape).astype(np.int64)
    axis = first.get("axis")
    if axis is not None and type(axis) is not int:
        raise UsageError(f"an axis that is no number: {axis!r}")
    bits = first.get("bitwidth", first.get("bw", 8))
    if type(bits) is not int or not 1 <= bits <= 32:
        raise UsageError(f"a bitwidth that is none: {bits!r}")
    signed = _signed(parts, scale, zero, bits) if key == "offset" else None
    return Parameters(scale, -zero if key == "offset" else zero, axis, _dtype(first.get("dtype")), bits, signed)


def _signed(parts: Sequence[dict[str, Any]], scale: Array, offset: Array, bits: int) -> bool | None:
    """Whether the codes that an offset counts are signed: `min` is then (-2^(bits - 1) + offset) * scale, else offset * scale."""
    if any("min" not in part for part in parts):
        return None
    low = np.concatenate([_numbers(part["min"], "min") for part in parts])
    if low.size != scale.size:
        raise UsageError("a min that does not go with its scale")
    for signed in (False, True):
        if (np.abs(low / scale - (offset - (signed << (bits - 1)))) <= GRID_SLACK).all():
            return signed
    raise UsageError("a min that is not offset * scale", hint="an offset is added: real = (q + offset) * scale")


def _numbers(value: object, what: str) -> Array:
    try:
        numbers: Array = np.atleast_1d(np.asarray(value, dtype=np.float64))
    except (ValueError, TypeError, OverflowError):
        numbers = np.empty(0)
    if numbers.ndim != 1 or not numbers.size or not np.isfinite(numbers).all():
        raise UsageError(f"a {what} that is no number")
    return numbers


def _dtype(name: object) -> np.dtype[Any] | None:
    """None where the file does not say, or says "int" alone."""
    if name is None or str(name).lower() == "int":
        return None
    if not isinstance(name, str):
        raise UsageError(f"a dtype that is no text: {name!r}")
    try:
        dtype = dtypes.named(name)
    except DumpError as error:
        raise UsageError(f"a dtype that is not known: {name[:40]!r}", hint=error.hint) from None
    if dtype.kind not in "iu":
        raise UsageError(f"the dtype {name}, which holds no codes", hint="int8, uint8, int16, uint16 or int32")
    return dtype
