"""Reader of Polygraphy's run results: one JSON, each array a whole .npy in base64.

The first iteration of each runner is taken. The text of the arrays stays in memory while the catalogue lives: JSON cannot be
read from the middle.
"""

from __future__ import annotations

import base64
import binascii
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from bisect_align.dumps import npy
from bisect_align.dumps.entry import Array, Expect
from bisect_align.dumps.piece import Fault, Listing, Piece
from bisect_align.errors import DumpError

REFERENCES = ("golden", "reference", "onnxrt")
HEAD = 4 * (npy.HEAD // 3 + 1)


def is_run(document: object) -> bool:
    """Whether the document is what `polygraphy run --save-outputs` writes."""
    return isinstance(document, dict) and document.get("polygraphy_class") == "RunResults"


def listing(path: Path, document: dict[str, Any]) -> Listing:
    """The outputs of the first runner that is no reference; the other runners' are references."""
    runners = _runners(document, path)
    order = [name for name, _ in runners]
    target = next((name for name in order if not any(word in name.lower() for word in REFERENCES)), order[0])
    pieces: list[Piece] = []
    faults: list[Fault] = []
    notes: list[str] = []
    for name, iterations in runners:
        if len(iterations) > 1:
            notes.append(f"{path.name}: {len(iterations)} iterations of runner {name}; the first one is read")
        for position, (tensor, value) in enumerate(_outputs(iterations[:1])):
            member = tensor if name == target else f"{name}::{tensor}"
            try:
                piece = _piece(path, value, tensor, member, position, reference=name != target)
            except DumpError as error:
                if name == target:
                    faults.append(Fault(path, error.what, tensor))
            else:
                pieces.append(piece)
    if len(order) > 1:
        others = ", ".join(name for name in order if name != target)
        notes.append(f"{path.name}: runner {target} is taken for the target, {others} for its reference")
    return Listing(tuple(pieces), tuple(faults), tuple(notes))


def _runners(document: dict[str, Any], path: Path) -> list[tuple[str, list[Any]]]:
    found: dict[str, list[Any]] = {}
    lists = document.get("lst")
    for item in lists if isinstance(lists, list) else ():
        if isinstance(item, list) and len(item) == 2 and isinstance(item[0], str) and isinstance(item[1], list):
            found.setdefault(item[0], item[1])
    if not found:
        raise DumpError("is a Polygraphy file without run results", where=str(path))
    return list(found.items())


def _outputs(iterations: list[Any]) -> list[tuple[str, Any]]:
    outputs = iterations[0].get("outputs") if iterations and isinstance(iterations[0], dict) else None
    return list(outputs.items()) if isinstance(outputs, dict) else []


def _piece(path: Path, value: Any, tensor: str, member: str, order: int, *, reference: bool) -> Piece:
    text = _text(value)
    held = len(text) // 4 * 3 - text[-2:].count("=")
    found = npy.header(_decoded(text[:HEAD]), held)
    reader = partial(_load, text)
    kind = npy.native(found.dtype)
    return Piece(path, "polygraphy", found.nbytes, reader, kind, found.shape, tensor, member, order, reference=reference)


def _text(value: Any) -> str:
    for _ in range(3):  # {"values": {"array": text}} today, {"array": text} in older versions
        if isinstance(value, dict):
            value = value.get("array", value.get("values"))
    if not isinstance(value, str):
        raise DumpError("is no array that Polygraphy wrote")
    return value


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise DumpError("is a damaged base64 text") from error


def _load(text: str, expect: Expect | None) -> Array:
    data = np.frombuffer(_decoded(text), np.uint8)
    found = npy.header(data[: npy.HEAD].tobytes(), data.size)
    return npy.values(data[found.offset : found.offset + found.nbytes], found)
