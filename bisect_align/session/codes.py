"""Integers under the name of a real tensor, where the model is quantised: they are the codes that it makes of that tensor.

A chip that runs the quantised twin of a float model often dumps its integers under the float model's names. The twin holds both: the
real tensor, and the codes that a QuantizeLinear makes of it (or that a DequantizeLinear reads to make it). The entry is taken for
the codes, so that integers are compared with integers in the twin's own scales. As with any name, the values decide.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from bisect_align.dumps.entry import Array, Catalogue, Entry, Expect, Role
from bisect_align.model.dtypes import is_float
from bisect_align.model.graph import Graph
from bisect_align.session.quant import named, spellings

ENDING = "_quantized"  # of ONNX Runtime's names for the codes of a tensor that its QOperator form no longer holds


def with_codes(found: Catalogue, graph: Graph) -> tuple[Catalogue, list[str]]:
    """The catalogue with such entries under the names of the codes, and one sentence on them; as it was where there are none."""
    codes = _codes(graph)
    forms = spellings(codes)
    entries: list[Entry] = []
    said: list[str] = []
    for entry in found.entries:
        name = named(entry, codes, forms) if entry.role is Role.TARGET and entry.quant is None else None
        taken = name is not None and codes[name] not in entry.names  # else it is called after the codes already
        given = _as_codes(entry, graph, name, codes[name]) if name is not None and taken else None
        entries.append(given or entry)
        if given is not None and name is not None:
            said.append(f"{entry.key!r} as {codes[name]!r}")
    if not said:
        return found, []
    more = f" and {len(said) - 1} more" if len(said) > 1 else ""
    return replace(found, entries=tuple(entries)), [
        f"integers under the names of real tensors are read as the quantised model's codes: {said[0]}{more}"
    ]


def _codes(graph: Graph) -> dict[str, str]:
    """Real tensor -> its codes: what is made of it, else what it is made from, else (no longer in the graph) by ONNX Runtime's names."""
    found: dict[str, str] = {}
    for op in ("QuantizeLinear", "DequantizeLinear"):
        for node in graph.nodes:
            if node.op == op and not graph.is_constant(node.outputs[0]):
                real, made = node.inputs[0], node.outputs[0]
                real, made = (real, made) if op == "QuantizeLinear" else (made, real)
                found.setdefault(real, made)
    for name in graph.tensors:
        real = name.removesuffix(ENDING)
        if real != name and real not in graph.order and _dtype(graph, name) is not None:
            found.setdefault(real, name)
    return found


def _dtype(graph: Graph, codes: str) -> np.dtype[Any] | None:
    known = graph.types.get(codes)
    return known.dtype if known is not None and known.dtype is not None and known.dtype.kind in "iu" else None


def _as_codes(entry: Entry, graph: Graph, real: str, codes: str) -> Entry | None:
    """The entry under the name of the codes; None where it holds real values, or where that cannot be told."""
    dtype = _dtype(graph, codes)
    if dtype is None:
        return None
    names = (codes, *entry.names)
    if entry.dtype is None:
        known = graph.types.get(real) or graph.types[codes]
        sizes = [size for size in known.shape or (None,) if isinstance(size, int)]
        whole = known.shape is not None and len(sizes) == len(known.shape)
        fits = whole and entry.format == "raw" and dtype.itemsize < 4 and entry.nbytes == math.prod(sizes) * dtype.itemsize
        return replace(entry, names=names) if fits else None
    if is_float(entry.dtype) or entry.dtype.kind not in "iu":
        return None
    if entry.dtype.kind == dtype.kind or entry.dtype.itemsize != dtype.itemsize:
        return replace(entry, names=names)
    return replace(entry, names=names, dtype=dtype, reader=_flipped(entry.reader, dtype))


def _flipped(reader: Callable[[Expect | None], Array], dtype: np.dtype[Any]) -> Callable[[Expect | None], Array]:
    """Codes counted from the other end: signed where the model has unsigned ones, or the reverse; the same but for the first bit."""

    def read(expect: Expect | None) -> Array:
        codes: Array = reader(expect).view(dtype) ^ np.asarray(1 << (8 * dtype.itemsize - 1)).astype(dtype)
        return codes

    return read
