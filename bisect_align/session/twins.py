"""Weights of a quantised twin that are not the model's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from bisect_align.judgement.weights import misplaced
from bisect_align.model.graph import Graph

Array: TypeAlias = NDArray[Any]

# How toolchains name the codes of a weight, and what dequantising them makes.
DECORATIONS = ("_DequantizeLinear_Output", "_dequantized", "_DequantizeLinear", "_quantized")


def twins_apart(original: Graph, twin: Graph) -> list[str]:
    """Weights of the quantised twin that are the model's in another order or with another sign, one sentence each.

    Nothing else is said: a twin's weights may be rounded, and scaled where a normalisation was folded into them.
    """
    said = []
    for names, values in _dequantised(twin):
        bare = (name.removesuffix(ending) for name in names for ending in ("", *DECORATIONS))
        plain = next((name for name in bare if name in original.constants), None)
        if plain is None:
            continue
        model = original.constant(plain)
        if model.dtype.kind == "f" and model.shape == values.shape and (words := misplaced(model, values)):
            said.append(f"weight {plain!r} of the quantised model differs from the model's: {words}")
    return said


def _dequantised(graph: Graph) -> Iterator[tuple[tuple[str, str], Array]]:
    """(name of the codes, name of what is made of them), and the real values, where all of it is constant."""
    for node in graph.nodes:
        if node.op != "DequantizeLinear" or not all(name in graph.constants for name in node.reads):
            continue
        codes, scale, *zero = (graph.constant(name) for name in node.reads)
        axis = next((a.i for a in node.proto.attribute if a.name == "axis"), 1)
        if scale.size > 1 and (scale.ndim != 1 or codes.shape[axis] != scale.size):
            continue  # blocks
        real = codes.astype(np.float32) - (_along(zero[0], axis, codes.ndim).astype(np.float32) if zero else 0)
        yield (node.inputs[0], node.outputs[0]), real * _along(scale, axis, codes.ndim).astype(np.float32)


def _along(vector: Array, axis: int, ndim: int) -> Array:
    return vector.reshape([-1 if a == axis % ndim else 1 for a in range(ndim)]) if vector.size > 1 else vector.reshape(())
