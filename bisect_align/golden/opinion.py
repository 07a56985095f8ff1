"""A second opinion on a few nodes: onnx's ReferenceEvaluator, in float64 where the operators allow it. Never believed alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, NodeProto, TensorProto, numpy_helper
from onnx.reference import ReferenceEvaluator

from bisect_align.golden.protocol import Array, Unavailable, Value
from bisect_align.golden.sessions import plain_words
from bisect_align.model.graph import Graph, Node
from bisect_align.model.segment import segment

FLATTENING = frozenset({"Softmax", "LogSoftmax", "Hardmax"})
RECURRENT = frozenset({"LSTM", "GRU", "RNN"})

# Where the ReferenceEvaluator was found wrong, in at least one version that is in use: (operators, when, what is wrong).
# To add one, add a line.
DEFECTS: tuple[tuple[frozenset[str], Callable[[NodeProto, int], bool], str], ...] = (
    (FLATTENING, lambda node, opset: opset < 13, "normalises one axis before opset 13"),
    (frozenset({"LRN"}), lambda node, opset: True, "normalises as many channels as there are images"),
    (frozenset({"BatchNormalization"}), lambda node, opset: opset < 14, "mixes in the batch's statistics before opset 14"),
    (frozenset({"MaxPool"}), lambda node, opset: _lopsided(node), "exchanges pads that differ"),
    (RECURRENT, lambda node, opset: _attribute(node, "direction", b"forward") != b"forward", "ignores the direction"),
)

# Its kernels are numpy where these are not among them: these step through elements of their window in Python, 2 to 3 µs each.
STEPPING = frozenset(
    {"MaxPool", "AveragePool", "LpPool", "ConvTranspose", "DeformConv", "Col2Im", "RoiAlign", "GridSample", "Resize", "Upsample"}
    | {"NonMaxSuppression", "MaxUnpool"}
)
STEPS_MOST = 1 << 18  # elements times window of those, half a second
NODES_MOST = 16
PRODUCTS_MOST = 1 << 26  # multiplications of anything else, less than a second


@dataclass(frozen=True, slots=True)
class Opinion:
    """value: what it makes of the feeds, or why it was not asked; by: who, and in which format."""

    value: Value
    by: str


def second_opinion(
    graph: Graph, nodes: Sequence[int], feeds: Mapping[str, Array], output: str, sizes: Mapping[str, int]
) -> Opinion:
    """The output of some nodes (indices, topological order) on the feeds, computed by another implementation.

    sizes: elements of the tensors that the nodes make, as far as known. Not asked where it is known to be wrong or would take seconds.
    Raises nothing.
    """
    if len(nodes) > NODES_MOST:
        return Opinion(Unavailable(f"the region has {len(nodes)} nodes, at most {NODES_MOST} are put to it"), _name(""))
    for index in nodes:
        if why := _unfit(graph, graph.nodes[index], sizes):
            return Opinion(Unavailable(why), _name(""))
    reason = ""
    made = [graph.types[name] for index in nodes for name in graph.nodes[index].makes if name in graph.types]
    stepped = any(known.dtype is not None and known.dtype.kind in "iu" for known in made)  # float64 turns ties into near-ties
    for dtype in (np.float32,) if stepped else (np.float64, np.float32):
        fed = {name: _as(value, dtype) for name, value in feeds.items()}
        try:
            model = _in_dtype(segment(graph, nodes, {name: value.dtype for name, value in fed.items()}, [output]), dtype)
            with np.errstate(all="ignore"):
                (value,) = ReferenceEvaluator(model).run(None, fed)
        except Exception as error:  # its kernels raise whatever numpy raises on what they were not written for
            reason = reason or f"it cannot run this: {plain_words(error)}"
            continue
        return Opinion(np.asarray(value), _name("float64" if dtype is np.float64 else "float32"))
    return Opinion(Unavailable(reason), _name(""))


def _name(dtype: str) -> str:
    return f"onnx ReferenceEvaluator {onnx.__version__}" + (f" in {dtype}" if dtype else "")


def _unfit(graph: Graph, node: Node, sizes: Mapping[str, int]) -> str:
    """Why it is not asked about a node; nothing where it is."""
    if node.domain == "":
        for ops, when, what in DEFECTS:
            if node.op in ops and when(node.proto, graph.opsets.get("", 1)):
                return f"its {node.op} {what}"
    work = sum(sizes.get(name, 0) for name in node.makes) * _window(graph, node)
    most = STEPS_MOST if node.op in STEPPING else PRODUCTS_MOST
    return f"{node.op} would take it seconds ({work:.2g} steps, {most:.2g} are allowed)" if work > most else ""


def _window(graph: Graph, node: Node) -> int:
    """Elements that go into one of the output: of the kernel, of a weight's column."""
    kernel = math.prod(_attribute(node.proto, "kernel_shape", [1]))
    weight = graph.types.get(node.inputs[1]) if len(node.inputs) > 1 else None
    shape = [n for n in (weight.shape or ()) if isinstance(n, int)] if weight is not None else []
    if node.op in ("Conv", "ConvTranspose", "DeformConv") and len(shape) > 2:
        return int(math.prod(shape[1:]))
    if node.op in ("MatMul", "Gemm") and len(shape) > 1:
        return int(max(shape[-2:]))
    if node.op in ("GridSample", "Resize", "Upsample"):
        return 16
    return int(kernel)


def _lopsided(node: NodeProto) -> bool:
    """Pads that are not the same at the begin and the end of every axis."""
    pads = list(_attribute(node, "pads", []))
    return pads[: len(pads) // 2] != pads[len(pads) // 2 :]


def _attribute(node: NodeProto, name: str, otherwise: Any) -> Any:
    return next((onnx.helper.get_attribute_value(a) for a in node.attribute if a.name == name), otherwise)


def _as(value: Array, dtype: type[np.floating[Any]]) -> Array:
    return value.astype(dtype) if value.dtype == np.float32 else value


def _in_dtype(model: ModelProto, dtype: type[np.floating[Any]]) -> ModelProto:
    """float32 initializers in another width; numpy carries it through the nodes."""
    if dtype is not np.float64:
        return model
    for tensor in model.graph.initializer:
        if tensor.data_type == TensorProto.FLOAT:
            tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float64), tensor.name))
    return model
