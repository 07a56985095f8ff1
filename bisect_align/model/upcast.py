"""A float16 or bfloat16 model as the same graph in float32, in which values are rounded only where the model says Cast.

Half-precision CPU kernels carry noise of their own (and for bfloat16 there are none), so that a golden is computed from this
graph. All tensor names are kept and no node is added: a Cast to half becomes a call of a local function that casts to half
and back to float32, so that its output keeps its name and holds the rounded values. The bare pair of Casts inside is what
ONNX Runtime executes as written at every optimisation level.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import (
    AttributeProto,
    FunctionProto,
    GraphProto,
    ModelProto,
    NodeProto,
    TensorProto,
    TypeProto,
    ValueInfoProto,
    numpy_helper,
)

from bisect_align.model.constants import STORED, array_of, is_external
from bisect_align.model.dtypes import BFLOAT16, FLOAT, is_half_type, numpy_dtype
from bisect_align.model.graph import ROUNDING_DOMAIN
from bisect_align.model.infer import type_protos
from bisect_align.model.local import Callsites, callsites, function_key, infer_types, stated_types, type_attributes
from bisect_align.model.scopes import bodies, captured
from bisect_align.model.sorting import sorted_nodes

# Attributes that hold an element type (Cast's own `to` is treated apart).
TYPE_ATTRIBUTES = frozenset(
    ("dtype", "output_dtype", "output_datatype", "precision", "softmax_precision", "stash_type", "to", "out_dtype")
)

# Local functions exist since IR version 8; bfloat16 in Cast since opset 13.
_FUNCTIONS_IR = 8
_BFLOAT16_OPSET = 13


def half_of(model: ModelProto) -> np.dtype[Any] | None:
    """float16 or bfloat16, whichever the model uses (more), or None."""
    count: Counter[int] = Counter(kind for kind in _element_types(model) if is_half_type(kind))
    return numpy_dtype(count.most_common(1)[0][0]) if count else None


def upcast(model: ModelProto) -> tuple[ModelProto, tuple[str, ...]]:
    """The model in float32, as a new model, and warnings. External half weights stay in their file and are widened on reading.

    Exact: float32 holds every float16 and bfloat16 value. Where Cast or CastLike aims at half, the result is rounded to it.
    """
    types = {
        name: proto.tensor_type.elem_type
        for name, proto in type_protos(model).items()
        if proto.WhichOneof("value") == "tensor_type"
    }
    types.update({tensor.name: tensor.data_type for tensor in model.graph.initializer})
    typed = {function_key(function): type_attributes(model, function, TYPE_ATTRIBUTES) for function in model.functions}
    state = _State(model, callsites(model, types), typed)
    new = ModelProto()
    for name in ("producer_name", "producer_version", "domain", "model_version", "doc_string"):
        if model.HasField(name):
            setattr(new, name, getattr(model, name))
    new.ir_version = max(model.ir_version, _FUNCTIONS_IR)
    new.opset_import.extend(model.opset_import)
    new.metadata_props.extend(model.metadata_props)
    _graph(model.graph, types, state, new.graph)
    for function in model.functions:
        new.functions.append(_function(function, state))
    if state.rounded:
        new.opset_import.append(onnx.helper.make_opsetid(ROUNDING_DOMAIN, 1))
        imports = [opset for owner in (model, *model.functions) for opset in owner.opset_import]
        opset = max((known.version for known in imports if known.domain in ("", "ai.onnx")), default=_BFLOAT16_OPSET)
        new.functions.extend(_rounding(op, kind, opset) for op, kind in sorted(state.rounded))
    return new, tuple(state.warnings)


@dataclass(slots=True)
class _State:
    model: ModelProto
    calls: Callsites
    type_attributes: Mapping[tuple[str, str, str], frozenset[str]]
    rounded: set[tuple[str, int]] = field(default_factory=set)
    warnings: list[str] = field(default_factory=list)


def _rounding(op: str, kind: int, opset: int) -> FunctionProto:
    """Cast_float16(x) or CastLike_float16(x, like): to half and back; `to` is carried only to be read by people."""
    make, half = onnx.helper.make_node, _half_name(kind)
    if kind == BFLOAT16:
        opset = max(opset, _BFLOAT16_OPSET)
    inputs = ["x"] if op == "Cast" else ["x", "like"]
    nodes = [make("Cast", ["x"], ["half"], to=kind), make("Cast", ["half"], ["y"], to=FLOAT)]
    imports = [onnx.helper.make_opsetid("", opset)]
    return onnx.helper.make_function(ROUNDING_DOMAIN, f"{op}_{half}", inputs, ["y"], nodes, imports, attributes=["to"])


def _half_name(kind: int) -> str:
    return "bfloat16" if kind == BFLOAT16 else "float16"


def _graph(graph: GraphProto, outer: Mapping[str, int], state: _State, new: GraphProto) -> None:
    """Fill `new` with the graph in float32."""
    scope = {**outer, **stated_types(graph)}
    likes = [node.input[1] for node in graph.node if node.op_type == "CastLike" and len(node.input) > 1]
    if any(name not in scope for name in likes):  # made inside a body, of whose tensors nothing is stated
        read = {name for node in graph.node for name in (*node.input, *captured(node))}
        known = {name: kind for name, kind in scope.items() if name in read}
        scope.update(infer_types(state.model, sorted_nodes(graph.node), known, state.model.opset_import))
    new.name, new.doc_string = graph.name, graph.doc_string
    new.node.extend(_node(node, scope, state) for node in graph.node)
    new.initializer.extend(_tensor(tensor) for tensor in graph.initializer)
    new.sparse_initializer.extend(_sparse(sparse) for sparse in graph.sparse_initializer)
    new.input.extend(_value(value) for value in graph.input)
    new.output.extend(_value(value) for value in graph.output)
    new.value_info.extend(_value(value) for value in graph.value_info)
    new.quantization_annotation.extend(graph.quantization_annotation)


def _function(function: FunctionProto, state: _State) -> FunctionProto:
    key = function_key(function)
    new = FunctionProto()
    new.CopyFrom(function)
    for name in ("node", "value_info", "attribute_proto"):
        new.ClearField(name)
    before = len(state.rounded)
    calls = state.calls.get(key, ())
    typed = state.type_attributes[key]
    for node in function.node:
        targets = {_target(_bound(node, call.attributes), call.types) for call in calls} if calls else {_target(node, {})}
        halves = {kind for kind in targets if is_half_type(kind)}
        scope = calls[0].types if calls else {}
        if len(targets) == 1 and halves:
            new.node.append(_round(node, halves.pop(), state))
            continue
        if halves:
            state.warnings.append(
                f"function {function.name} casts to half in some calls only, where {node.name or node.op_type} does not round"
            )
        new.node.append(_node(node, scope, state, inside=True))
    new.value_info.extend(_value(value) for value in function.value_info)
    new.attribute_proto.extend(_attribute(a, typed, {}, state) for a in function.attribute_proto)
    if any(node.domain == ROUNDING_DOMAIN for node in _all_nodes(new.node)) or len(state.rounded) > before:
        new.opset_import.append(onnx.helper.make_opsetid(ROUNDING_DOMAIN, 1))
    return new


def _all_nodes(nodes: Iterable[NodeProto]) -> Iterator[NodeProto]:
    for node in nodes:
        yield node
        for body in bodies(node):
            yield from _all_nodes(body.node)


def _bound(node: NodeProto, attributes: Mapping[str, AttributeProto]) -> NodeProto:
    """The node of a function with the attributes of a call put in."""
    if not any(attribute.ref_attr_name for attribute in node.attribute):
        return node
    new = NodeProto()
    new.CopyFrom(node)
    for attribute in new.attribute:
        given = attributes.get(attribute.ref_attr_name)
        if attribute.ref_attr_name and given is not None:
            name = attribute.name
            attribute.CopyFrom(given)
            attribute.name = name
    return new


def _target(node: NodeProto, scope: Mapping[str, int]) -> int:
    """The element type that a Cast or CastLike aims at; 0 where it is none or not known."""
    if node.domain not in ("", "ai.onnx"):
        return 0
    if node.op_type == "Cast":
        return next((int(a.i) for a in node.attribute if a.name == "to" and not a.ref_attr_name), 0)
    if node.op_type == "CastLike" and len(node.input) > 1:
        return scope.get(node.input[1], 0)
    return 0


def _round(node: NodeProto, kind: int, state: _State) -> NodeProto:
    state.rounded.add((node.op_type, kind))
    new = NodeProto(name=node.name, doc_string=node.doc_string, domain=ROUNDING_DOMAIN, input=node.input, output=node.output)
    new.op_type = f"{node.op_type}_{_half_name(kind)}"
    new.metadata_props.extend(node.metadata_props)
    new.attribute.append(onnx.helper.make_attribute("to", kind))
    return new


def _node(node: NodeProto, scope: Mapping[str, int], state: _State, *, inside: bool = False) -> NodeProto:
    kind = 0 if inside else _target(node, scope)
    if is_half_type(kind):
        return _round(node, kind, state)
    if node.op_type == "CastLike" and not inside and not kind:
        state.warnings.append(f"CastLike {node.name or node.output[0]!r} is not rounded: the type it aims at is not known")
    typed = state.type_attributes.get((node.domain, node.op_type, node.overload), TYPE_ATTRIBUTES)
    new = NodeProto()
    new.CopyFrom(node)
    new.ClearField("attribute")
    new.attribute.extend(_attribute(attribute, typed, scope, state) for attribute in node.attribute)
    return new


def _attribute(attribute: AttributeProto, typed: frozenset[str], scope: Mapping[str, int], state: _State) -> AttributeProto:
    new = AttributeProto()
    new.CopyFrom(attribute)
    kind = attribute.type
    if kind == AttributeProto.INT and attribute.name in typed and is_half_type(attribute.i):
        new.i = FLOAT
    elif kind == AttributeProto.TENSOR:
        new.t.CopyFrom(_tensor(attribute.t))
    elif kind == AttributeProto.SPARSE_TENSOR:
        new.sparse_tensor.CopyFrom(_sparse(attribute.sparse_tensor))
    elif kind == AttributeProto.GRAPH:
        new.ClearField("g")
        _graph(attribute.g, scope, state, new.g)
    elif kind == AttributeProto.TYPE_PROTO:
        _widen(new.tp)
    elif kind == AttributeProto.TENSORS:
        new.ClearField("tensors")
        new.tensors.extend(_tensor(tensor) for tensor in attribute.tensors)
    elif kind == AttributeProto.SPARSE_TENSORS:
        new.ClearField("sparse_tensors")
        new.sparse_tensors.extend(_sparse(sparse) for sparse in attribute.sparse_tensors)
    elif kind == AttributeProto.GRAPHS:
        new.ClearField("graphs")
        for body in attribute.graphs:
            _graph(body, scope, state, new.graphs.add())
    elif kind == AttributeProto.TYPE_PROTOS:
        for proto in new.type_protos:
            _widen(proto)
    return new


def _tensor(tensor: TensorProto) -> TensorProto:
    if not is_half_type(tensor.data_type):
        return tensor
    if is_external(tensor):
        new = TensorProto()
        new.CopyFrom(tensor)
        new.data_type = FLOAT
        new.external_data.add(key=STORED, value=str(tensor.data_type))
        return new
    return numpy_helper.from_array(array_of(tensor).astype(np.float32), tensor.name)


def _sparse(sparse: onnx.SparseTensorProto) -> onnx.SparseTensorProto:
    if not is_half_type(sparse.values.data_type):
        return sparse
    new = onnx.SparseTensorProto()
    new.CopyFrom(sparse)
    new.values.CopyFrom(_tensor(sparse.values))
    return new


def _value(value: ValueInfoProto) -> ValueInfoProto:
    new = ValueInfoProto()
    new.CopyFrom(value)
    _widen(new.type)
    return new


def _widen(proto: TypeProto) -> None:
    kind = proto.WhichOneof("value")
    if kind in ("tensor_type", "sparse_tensor_type"):
        inner = getattr(proto, kind)
        if is_half_type(inner.elem_type):
            inner.elem_type = FLOAT
    elif kind in ("sequence_type", "optional_type"):
        _widen(getattr(proto, kind).elem_type)
    elif kind == "map_type":
        _widen(proto.map_type.value_type)


def _element_types(model: ModelProto) -> Iterator[int]:
    """Element types of all that the model states: values, weights, constants, targets of Casts; bodies and functions too."""
    yield from _graph_types(model.graph)
    for function in model.functions:
        yield from _value_types(function.value_info)
        yield from _node_types(function.node)


def _graph_types(graph: GraphProto) -> Iterator[int]:
    yield from _value_types((*graph.input, *graph.output, *graph.value_info))
    yield from (tensor.data_type for tensor in graph.initializer)
    yield from (sparse.values.data_type for sparse in graph.sparse_initializer)
    yield from _node_types(graph.node)


def _value_types(values: Iterable[ValueInfoProto]) -> Iterator[int]:
    for value in values:
        proto = value.type
        while (kind := proto.WhichOneof("value")) in ("sequence_type", "optional_type"):
            proto = getattr(proto, kind).elem_type
        if kind in ("tensor_type", "sparse_tensor_type"):
            yield int(getattr(proto, kind).elem_type)


def _node_types(nodes: Iterable[NodeProto]) -> Iterator[int]:
    for node in nodes:
        for attribute in node.attribute:
            if attribute.type == AttributeProto.INT and attribute.name in TYPE_ATTRIBUTES:
                yield int(attribute.i)
            elif attribute.type == AttributeProto.TENSOR:
                yield int(attribute.t.data_type)
            elif attribute.type == AttributeProto.SPARSE_TENSOR:
                yield int(attribute.sparse_tensor.values.data_type)
        for body in bodies(node):
            yield from _graph_types(body)
