"""Element types and shapes of a model's tensors, as far as they are stated or can be inferred; never fatal."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, TensorProto, TensorShapeProto, TypeProto

from bisect_align.model.dtypes import STRING, numpy_dtype
from bisect_align.model.sorting import sorted_nodes

# Shape inference reads the values of small tensors (Reshape shapes, Slice bounds); larger ones only weigh.
_READABLE = 64


@dataclass(frozen=True, slots=True)
class TensorType:
    """What the model says of a tensor.

    dtype: ml_dtypes for bfloat16, float8 and int4; object for strings; None = not known, or no tensor.
    shape: a symbol's name or None for a dimension that is not known; None = rank not known.
    kind: tensor | sequence | optional | map | string | unknown.
    """

    dtype: np.dtype[Any] | None
    shape: tuple[int | str | None, ...] | None
    kind: str = "tensor"

    @property
    def size(self) -> int | None:
        """Number of elements, where every dimension is known."""
        if self.shape is None:
            return None
        known = [d for d in self.shape if isinstance(d, int)]
        return math.prod(known) if len(known) == len(self.shape) else None


UNKNOWN = TensorType(None, None, "unknown")


# What exporters write for a size that they do not know: no name, so two of them need not be equal.
_NAMELESS = frozenset({"", "?", "-1", "None"})


def _dim(proto: TensorShapeProto.Dimension) -> int | str | None:
    """A size, its name, or None; a negative size is an exporter's word for unknown."""
    if proto.HasField("dim_value"):
        return proto.dim_value if proto.dim_value >= 0 else None
    return None if proto.dim_param in _NAMELESS else proto.dim_param


def tensor_type(proto: TypeProto) -> TensorType:
    """The type that a TypeProto states."""
    kind = proto.WhichOneof("value")
    if kind not in ("tensor_type", "sparse_tensor_type"):
        name = {"sequence_type": "sequence", "optional_type": "optional", "map_type": "map"}.get(kind or "", "unknown")
        return TensorType(None, None, name)
    inner = proto.tensor_type if kind == "tensor_type" else proto.sparse_tensor_type
    shape: tuple[int | str | None, ...] | None = None
    if inner.HasField("shape"):
        shape = tuple(_dim(d) for d in inner.shape.dim)
    dtype = numpy_dtype(inner.elem_type)
    if inner.elem_type == STRING:
        return TensorType(dtype, shape, "string")
    return TensorType(dtype, shape, "tensor" if dtype is not None else "unknown")


def light(model: ModelProto, *, sort: bool = False) -> ModelProto:
    """A copy in which large initializers (and large Constant nodes) are graph inputs of the same type.

    Cheap to serialise, whatever the model weighs: protobuf refuses 2 GB. sort: nodes in topological order, without which
    inference gives up.
    """
    slim = ModelProto(ir_version=model.ir_version, producer_name=model.producer_name)
    slim.opset_import.extend(model.opset_import)
    slim.functions.extend(model.functions)
    source, graph = model.graph, slim.graph
    graph.name = source.name or "graph"
    graph.input.extend(source.input)
    graph.output.extend(source.output)
    graph.value_info.extend(source.value_info)
    graph.sparse_initializer.extend(source.sparse_initializer)
    stated = {value.name for value in source.input}

    def announce(name: str, tensor: TensorProto) -> None:
        if name not in stated:
            graph.input.append(onnx.helper.make_tensor_value_info(name, tensor.data_type, list(tensor.dims)))

    for tensor in source.initializer:
        if math.prod(tensor.dims) <= _READABLE and tensor.data_location != TensorProto.EXTERNAL:
            graph.initializer.append(tensor)
        else:
            announce(tensor.name, tensor)
    for node in sorted_nodes(source.node) if sort else source.node:
        value = next((a.t for a in node.attribute if a.name == "value"), None) if node.op_type == "Constant" else None
        if value is not None and (math.prod(value.dims) > _READABLE or value.data_location == TensorProto.EXTERNAL):
            announce(node.output[0], value)
        else:
            graph.node.append(node)
    return slim


def type_protos(model: ModelProto) -> dict[str, TypeProto]:
    """Types of the top-level tensors: what inference finds, completed by what the file states. Never raises."""
    found: dict[str, TypeProto] = {}
    try:
        inferred = onnx.shape_inference.infer_shapes(light(model, sort=True), data_prop=True).graph
    except Exception:  # inference is a comfort: whatever it stumbles over, the model may still run
        inferred = onnx.GraphProto()
    for graph in (model.graph, inferred):
        for value in (*graph.value_info, *graph.output, *graph.input):
            if value.type.WhichOneof("value") is not None:
                found[value.name] = value.type
    return found
