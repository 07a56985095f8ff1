"""Local functions of a model: who calls them, with which element types and attributes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import onnx
from onnx import AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, TensorProto

from bisect_align.model.scopes import bodies

Key: TypeAlias = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class Call:
    """One way in which a function is called. types: element types of the tensors inside, as far as they are known."""

    types: Mapping[str, int]
    attributes: Mapping[str, AttributeProto]


Callsites: TypeAlias = dict[Key, list[Call]]


def function_key(function: FunctionProto) -> Key:
    """Domain, name and overload: what a node must state to call it."""
    return (function.domain, function.name, function.overload)


def callsites(model: ModelProto, types: Mapping[str, int]) -> Callsites:
    """All distinct ways in which the model's functions are called, from bodies and other functions as well."""
    functions = {function_key(function): function for function in model.functions}
    found: Callsites = {}
    seen: set[tuple[Key, tuple[int, ...], tuple[tuple[str, bytes], ...]]] = set()

    def visit(nodes: Iterable[NodeProto], scope: Mapping[str, int], bound: Mapping[str, AttributeProto]) -> None:
        for node in nodes:
            for body in bodies(node):
                visit(body.node, {**scope, **stated_types(body)}, bound)
            function = functions.get((node.domain, node.op_type, node.overload))
            if function is not None:
                call(function, node, scope, bound)

    def call(function: FunctionProto, node: NodeProto, scope: Mapping[str, int], bound: Mapping[str, AttributeProto]) -> None:
        attributes = {attribute.name: attribute for attribute in function.attribute_proto}
        for attribute in node.attribute:
            given = bound.get(attribute.ref_attr_name) if attribute.ref_attr_name else attribute
            if given is not None:
                attributes[attribute.name] = given
        arguments = tuple(scope.get(name, 0) for name in node.input)
        key = function_key(function)
        mark = (key, arguments, tuple(sorted((name, a.SerializeToString()) for name, a in attributes.items())))
        if mark in seen:
            return
        seen.add(mark)
        given = {name: kind for name, kind in zip(function.input, arguments, strict=False) if kind}
        inside = infer_types(model, function.node, given, function.opset_import, function.value_info)
        found.setdefault(key, []).append(Call(inside, attributes))
        visit(function.node, inside, attributes)

    if functions:
        visit(model.graph.node, types, {})
    return found


def stated_types(graph: GraphProto) -> dict[str, int]:
    """Element types of the tensors that a graph states itself, Constant nodes included."""
    types = {
        value.name: value.type.tensor_type.elem_type
        for value in (*graph.value_info, *graph.output, *graph.input)
        if value.type.WhichOneof("value") == "tensor_type"
    }
    types.update({tensor.name: tensor.data_type for tensor in graph.initializer})
    types.update(_constant_types(graph.node))
    return {name: kind for name, kind in types.items() if kind != TensorProto.UNDEFINED}


def type_attributes(model: ModelProto, function: FunctionProto, plain: frozenset[str]) -> frozenset[str]:
    """Attributes of the function that end in an attribute which holds an element type (`plain` names those of operators)."""
    functions = {function_key(known): known for known in model.functions}

    def attributes(current: FunctionProto, above: frozenset[Key]) -> frozenset[str]:
        names: set[str] = set()
        stack = list(current.node)
        while stack:
            node = stack.pop()
            stack.extend(inner for body in bodies(node) for inner in body.node)
            key = (node.domain, node.op_type, node.overload)
            called = functions.get(key)
            if called is not None and key not in above:
                typed = attributes(called, above | {key})
            else:
                typed = plain if called is None else frozenset()
            names.update(a.ref_attr_name for a in node.attribute if a.ref_attr_name and a.name in typed)
        return frozenset(names)

    return attributes(function, frozenset({function_key(function)}))


def _constant_types(nodes: Iterable[NodeProto]) -> dict[str, int]:
    return {
        node.output[0]: attribute.t.data_type
        for node in nodes
        if node.op_type == "Constant" and node.output
        for attribute in node.attribute
        if attribute.name == "value" and attribute.type == AttributeProto.TENSOR
    }


def infer_types(
    model: ModelProto,
    nodes: Iterable[NodeProto],
    known: Mapping[str, int],
    opsets: Iterable[onnx.OperatorSetIdProto],
    stated: Iterable[onnx.ValueInfoProto] = (),
) -> dict[str, int]:
    """Element types of the tensors that nodes of a function or a body make, from those that they read."""
    graph = GraphProto(name="inside")
    graph.node.extend(nodes)
    graph.value_info.extend(stated)
    graph.input.extend(onnx.helper.make_tensor_value_info(name, kind, None) for name, kind in known.items() if kind)
    sure = stated_types(graph)
    probe = ModelProto(ir_version=max(model.ir_version, 8), graph=graph)
    probe.opset_import.extend(opsets)
    probe.functions.extend(model.functions)
    try:
        inferred = stated_types(onnx.shape_inference.infer_shapes(probe).graph)
    except Exception:  # never fatal: what is not known is not rounded, and said so
        inferred = {}
    return {**inferred, **sure}
