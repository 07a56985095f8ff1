"""Inputs that steer an operator (shapes, axes, counts, scales) and inputs that hold indices: never to be fed or jittered."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

import numpy as np
import onnx

from bisect_align.model.dtypes import is_float
from bisect_align.model.graph import Graph, Node
from bisect_align.model.infer import TensorType
from bisect_align.model.scopes import bodies

# Up to this many elements a float tensor may well be the sizes or scales of a Resize; activations are larger.
SMALL = 64

_REDUCE = ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")
_UNARY_QLINEAR = ("AveragePool", "GlobalAveragePool", "LeakyRelu", "ReduceMean", "Sigmoid", "Softmax")

# Positions of steering inputs, from the ONNX operator specifications (all versions; a position that an older version does
# not have is simply absent) and from ONNX Runtime's contributed operators.
_STEERING: Mapping[str, tuple[int, ...]] = {
    "AffineGrid": (1,),
    "Attention": (6,),
    "BlackmanWindow": (0,),
    "CenterCropPad": (1,),
    "Col2Im": (1, 2),
    "Compress": (1,),
    "ConstantOfShape": (0,),
    "ConvInteger": (2, 3),
    "CumProd": (1,),
    "CumSum": (1,),
    "DequantizeLinear": (1, 2),
    "DFT": (1, 2),
    "Dropout": (1, 2),
    "DynamicQuantizeMatMul": (2, 3),
    "Expand": (1,),
    "GRU": (4,),
    "HammingWindow": (0,),
    "HannWindow": (0,),
    "If": (0,),
    "Loop": (0, 1),
    "LSTM": (4,),
    "MatMulInteger": (2, 3),
    "MatMulIntegerToFloat": (2, 3, 4, 5),
    "MaxUnpool": (2,),
    "MelWeightMatrix": (0, 1, 2, 3, 4),
    "NonMaxSuppression": (2, 3, 4),
    "OneHot": (1,),
    "Pad": (1, 3),
    "QGemm": (1, 2, 4, 5, 7, 8),
    "QLinearAdd": (1, 2, 4, 5, 6, 7),
    "QLinearConv": (1, 2, 4, 5, 6, 7),
    "QLinearMatMul": (1, 2, 4, 5, 6, 7),
    "QLinearMul": (1, 2, 4, 5, 6, 7),
    "QLinearWhere": (2, 3, 5, 6, 7, 8),
    "QuantizeLinear": (1, 2),
    "Range": (0, 1, 2),
    "Reshape": (1,),
    "Resize": (1, 2, 3),
    "RNN": (4,),
    "SequenceAt": (1,),
    "SequenceErase": (1,),
    "SequenceInsert": (2,),
    "Slice": (1, 2, 3, 4),
    "Split": (1,),
    "SplitToSequence": (1,),
    "Squeeze": (1,),
    "STFT": (1, 3),
    "Tile": (1, 2),
    "TopK": (1,),
    "Trilu": (1,),
    "Unsqueeze": (1,),
    "Upsample": (1,),
    **{f"Reduce{kind}": (1,) for kind in _REDUCE},
    **{f"QLinear{kind}": (1, 2, 3, 4) for kind in _UNARY_QLINEAR},
}

_INDICES: Mapping[str, tuple[int, ...]] = {
    "ArrayFeatureExtractor": (1,),
    "EmbedLayerNormalization": (0, 1),
    "Gather": (1,),
    "GatherBlockQuantized": (1,),
    "GatherElements": (1,),
    "GatherND": (1,),
    "MaxUnpool": (1,),
    "NegativeLogLikelihoodLoss": (1,),
    "OneHot": (0,),
    "ReverseSequence": (1,),
    "RoiAlign": (2,),
    "Scatter": (1,),
    "ScatterElements": (1,),
    "ScatterND": (1,),
    "SoftmaxCrossEntropyLoss": (1,),
    "TensorScatter": (2,),
}

# What is computed from a shape only: its own input is an ordinary value.
_SHAPES = frozenset({"Shape", "Size"})


def shape_parameters(node: Node) -> frozenset[str]:
    """The node's inputs that steer shape, index range, sampling, or quantisation scale; they must stay initializers where
    they are constants, and must never be fed or jittered.
    """
    return frozenset(_steering(node.op, node.inputs))


def indices(node: Node) -> frozenset[str]:
    """The node's inputs that hold ids, indices or lengths: values out of range are an error, not noise."""
    places = _INDICES.get(node.op, ())
    if node.op == "RotaryEmbedding":  # position ids stand second in ONNX Runtime's own operator, last in the standard one
        places = (1,) if node.domain else (3,)
    return frozenset(_pick(node.inputs, places))


@lru_cache(maxsize=2)  # a graph never changes, and every replay asks
def never_fed(graph: Graph) -> frozenset[str]:
    """Tensors from which a shape parameter is computed, the shape parameters themselves included.

    Walks up through integer, bool and small tensors; stops at Shape and Size, at graph inputs and constants (the former are named
    when they are reached), at 8-bit tensors, which are quantised values, and at floats that are large or computed from what a
    float input holds: these are data, also where a condition is read off them in the end.
    """
    data = _from_float_inputs(graph)
    found: set[str] = set()
    stack: list[str] = []
    for node in graph.nodes:
        stack.extend(shape_parameters(node))
        stack.extend(_steering_inside(node.proto, node.captured))
    while stack:
        name = stack.pop()
        if name in found or name in graph.constants:
            continue
        found.add(name)
        source = graph.producer.get(name)
        if source is None or graph.nodes[source].op in _SHAPES:
            continue
        stack.extend(
            above
            for above in graph.nodes[source].reads
            if above not in found and above not in data and _may_steer(graph.types.get(above))
        )
    return frozenset(found)


def _from_float_inputs(graph: Graph) -> set[str]:
    """Float tensors that are computed from the values (not the shapes) of float inputs by float operators all the way."""

    def real(name: str) -> bool:
        kind = graph.types.get(name)
        return kind is not None and kind.dtype is not None and is_float(kind.dtype)

    found = {name for name in graph.inputs if real(name)}
    for node in graph.nodes:
        if found.intersection(node.reads):
            found.update(name for name in node.makes if real(name))
    return found


def _pick(inputs: Iterable[str], places: Iterable[int]) -> list[str]:
    names = list(inputs)
    return [names[place] for place in places if place < len(names) and names[place]]


def _steering(op: str, inputs: Iterable[str]) -> list[str]:
    names = list(inputs)
    if op == "QLinearConcat":  # output scale and zero point, then (tensor, scale, zero point) again and again
        return [name for place, name in enumerate(names) if name and (place < 2 or place % 3 != 2)]
    return _pick(names, _STEERING.get(op, ()))


def _may_steer(kind: TensorType | None) -> bool:
    """Whether the walk goes on through such a tensor. A float of unknown size is taken for small up to rank 1."""
    if kind is None or kind.kind == "unknown":
        return True
    dtype, size = kind.dtype, kind.size
    if kind.kind != "tensor" or dtype is None:
        return kind.kind == "sequence"
    if not is_float(dtype) and not _is_byte(dtype):
        return True
    if size is not None:
        return size <= SMALL
    return kind.shape is not None and len(kind.shape) <= 1


def _is_byte(dtype: np.dtype[Any]) -> bool:
    return dtype.itemsize == 1 and dtype.kind != "b"


def _steering_inside(node: onnx.NodeProto, outer: tuple[str, ...]) -> set[str]:
    """Outer tensors that steer something in the node's bodies: captured ones, and for Loop and Scan the inputs that become
    formal inputs of the body. The body's types are not known, so that every path up to a Shape counts.
    """
    steering: set[str] = set()
    for body in bodies(node):
        inside = _body_steering(body)
        steering.update(inside.intersection(outer))
        if node.op_type == "Loop":
            # body: iteration, condition, carried...; node: trip count, condition, carried...
            pairs = zip(body.input, node.input, strict=False)
            steering.update(given for place, (formal, given) in enumerate(pairs) if place and given and formal.name in inside)
        elif node.op_type == "Scan" and len(body.input) == len(node.input):
            steering.update(
                given for formal, given in zip(body.input, node.input, strict=True) if given and formal.name in inside
            )
    return steering


def _body_steering(body: onnx.GraphProto) -> set[str]:
    maker = {name: node for node in body.node for name in node.output if name}
    stack: list[str] = []
    for node in body.node:
        stack.extend(_steering(node.op_type, node.input))
        names = {n for inner in bodies(node) for sub in inner.node for n in sub.input}
        stack.extend(_steering_inside(node, tuple(names)))
    types = {
        value.name: value.type.tensor_type.elem_type
        for value in (*body.value_info, *body.input)
        if value.type.WhichOneof("value") == "tensor_type"
    }
    found: set[str] = set()
    while stack:
        name = stack.pop()
        if name in found:
            continue
        found.add(name)
        source = maker.get(name)
        if source is not None and source.op_type not in _SHAPES:
            stack.extend(above for above in source.input if above and types.get(above, 0) not in _FLOATS)
    return found


_FLOATS = frozenset((onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16, onnx.TensorProto.DOUBLE))
