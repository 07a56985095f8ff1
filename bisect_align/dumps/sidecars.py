"""Files beside a dump that tell names, shapes, types and scales: tables, JSON objects, the graph that QNN's converter writes.

Look-ups are exact. A key that a table gives two names tells nothing.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from bisect_align.dumps import buffers, dtypes
from bisect_align.dumps.convention import Sidecar
from bisect_align.dumps.entry import Quant
from bisect_align.errors import DumpError

LARGEST = 256 << 20
"""Bytes of a sidecar that are read: real ones hold a line a tensor."""
QNN_TYPES = {
    0x0008: "int8",
    0x0016: "int16",
    0x0032: "int32",
    0x0064: "int64",
    0x0108: "uint8",
    0x0116: "uint16",
    0x0132: "uint32",
    0x0164: "uint64",
    0x0216: "float16",
    0x0232: "float32",
    0x0264: "float64",
    0x0508: "bool",
    0x0308: "int8",
    0x0316: "int16",
    0x0332: "int32",
    0x0408: "uint8",
    0x0416: "uint16",
    0x0432: "uint32",
}
"""Element types of Qualcomm's API; the fixed-point ones are integers with a scale."""


@dataclass(frozen=True, slots=True)
class Note:
    """What a sidecar tells of one key. dtype: as stored natively by the device; order: its place in the file."""

    name: str | None = None
    shape: tuple[int, ...] | None = None
    dtype: np.dtype[Any] | None = None
    quant: Quant | None = None
    order: int | None = None


@dataclass(slots=True)
class Notes:
    """What one sidecar tells, by key; said: what the user should know of it."""

    by_key: dict[str, Note] = field(default_factory=dict)
    said: list[str] = field(default_factory=list)


def read(path: Path, rule: Sidecar) -> Notes:
    """The sidecar at `path`; an unreadable or foreign file tells nothing and says so. Never raises."""
    try:
        if buffers.size_of(path) > LARGEST:
            raise DumpError("is larger than any table of names")
        text = buffers.whole(path).decode("utf-8-sig", "replace")
        if rule.format in ("columns", "csv"):
            return _table(_rows(text, rule), path)
        document = json.loads(text)
        if rule.format == "json":
            return _table(_pairs(document, rule), path)
        found = _qnn(document) if rule.format == "qnn-net" else _details(document)
        return Notes(found)
    except (ValueError, RecursionError):
        return Notes(said=[f"{path.name} is no JSON; it is not used"])
    except DumpError as error:
        return Notes(said=[f"{path.name} {error.what}; it is not used"])


def _table(pairs: Iterator[tuple[str, str]], path: Path) -> Notes:
    found: dict[str, Note] = {}
    twice: set[str] = set()
    for order, (key, name) in enumerate(pairs):
        if key in found and found[key].name != name:
            twice.add(key)
        found.setdefault(key, Note(name, order=order))
    for key in twice:
        found[key] = replace(found[key], name=None)
    said = [f"{path.name} gives {len(twice)} keys two names each; they are not used"] if twice else []
    return Notes(found, said)


def _rows(text: str, rule: Sidecar) -> Iterator[tuple[str, str]]:
    key, name = rule.key or 0, rule.name or 0
    rows = csv.reader(text.splitlines()) if rule.format == "csv" else (_columns(line, key, name) for line in text.splitlines())
    try:
        for row in rows:
            cells = [cell.strip() for cell in row]
            ends = (*rule.equal, key, name)
            if not all(-len(cells) <= end < len(cells) for end in ends) or len({cells[end] for end in rule.equal}) > 1:
                continue
            if cells[key] and cells[name]:
                yield cells[key], cells[name]
    except csv.Error as error:
        raise DumpError(f"is no table: {error}") from None


def _columns(line: str, key: int, name: int) -> list[str]:
    """Cells between white space; where the last column is the key and the first one the name, a name may hold spaces."""
    return line.rsplit(maxsplit=1) if (key, name) in ((-1, 0), (1, 0)) else line.split()


def _pairs(document: object, rule: Sidecar) -> Iterator[tuple[str, str]]:
    if not isinstance(document, dict):
        raise DumpError("is no JSON object of names")
    for key, name in document.items():
        if isinstance(name, str):
            yield (name, key) if rule.invert else (key, name)


def _qnn(document: object) -> dict[str, Note]:
    graph = document.get("graph") if isinstance(document, dict) else None
    tensors = graph.get("tensors") if isinstance(graph, dict) else None
    if not isinstance(tensors, dict):
        raise DumpError("holds no graph.tensors")
    nodes = graph.get("nodes") if isinstance(graph, dict) else None
    outputs = [
        name
        for node in (nodes.values() if isinstance(nodes, dict) else ())
        if isinstance(node, dict) and isinstance(node.get("output_names"), list)
        for name in node["output_names"]
    ]
    order = {name: place for place, name in enumerate(outputs) if isinstance(name, str)}
    found: dict[str, Note] = {}
    for name, fields in tensors.items():
        if isinstance(fields, dict):
            dims = _shape(fields.get("dims", fields.get("current_dims")))
            params = fields.get("quant_params")
            found[name] = Note(None, dims, _qnn_type(fields.get("data_type")), _qnn_quant(params, dims), order.get(name))
    return found


def _qnn_type(code: object) -> np.dtype[Any] | None:
    if isinstance(code, str):
        word = code.upper().removeprefix("QNN_DATATYPE_").replace("UFIXED_POINT", "UINT").replace("SFIXED_POINT", "INT")
        try:
            return dtypes.named(word.replace("_", "").replace("BOOL8", "BOOL"))
        except DumpError:
            return None
    return np.dtype(QNN_TYPES[code]) if isinstance(code, int) and code in QNN_TYPES else None


def _qnn_quant(params: object, shape: tuple[int, ...] | None) -> Quant | None:
    """Real = (q + offset) * scale, so the zero point is the offset with the other sign; per axis only where the file names it."""
    if not isinstance(params, Mapping):
        return None
    single = params.get("scale_offset")
    if isinstance(single, Mapping):
        return _quant([single.get("scale")], [single.get("offset", 0)], None, shape, -1)
    axes = params.get("axis_scale_offset")
    if isinstance(axes, Mapping) and isinstance(axes.get("scale_offsets"), list):
        each = [item if isinstance(item, Mapping) else {} for item in axes["scale_offsets"]]
        return _quant([item.get("scale") for item in each], [item.get("offset", 0) for item in each], axes.get("axis"), shape, -1)
    return None


def _details(document: object) -> dict[str, Note]:
    if not isinstance(document, list):
        raise DumpError("is no list of tensors")
    found: dict[str, Note] = {}
    for place, item in enumerate(document):
        if not isinstance(item, dict) or not isinstance(item.get("name"), str):
            continue
        index = item.get("index")
        params = item.get("quantization_parameters")
        params = params if isinstance(params, dict) else {}
        scales, zeros = params.get("scales", item.get("scale")), params.get("zero_points", item.get("zero_point"))
        shape = _shape(item.get("shape"))
        quant = _quant(_listed(scales), _listed(zeros), params.get("quantized_dimension"), shape, 1)
        found.setdefault(item["name"], Note(quant=quant, order=index if type(index) is int else place))
    return found


def _listed(value: object) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]


def _shape(value: object) -> tuple[int, ...] | None:
    try:
        return buffers.checked_shape(value)
    except DumpError:
        return None


def _quant(scales: list[Any], zeros: list[Any], axis: object, shape: tuple[int, ...] | None, sign: int) -> Quant | None:
    """None where the figures are none, or where they do not go with the shape."""
    try:
        scale = np.array([float(number) for number in scales])
        zero = np.array([int(number) for number in zeros or [0] * len(scales)], np.int64)
    except (TypeError, ValueError, OverflowError):
        return None
    if not scale.size or zero.size not in (1, scale.size) or not (np.isfinite(scale) & (scale > 0)).all():
        return None
    if scale.size == 1:
        return Quant(scale.reshape(()), sign * zero.reshape(-1)[:1].reshape(()))
    if type(axis) is not int or shape is None or not 0 <= axis < len(shape) or shape[axis] != scale.size:
        return None
    return Quant(scale, sign * np.broadcast_to(zero, scale.shape), axis)
