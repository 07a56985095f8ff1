"""Operators that draw at random, and whether a golden can stand on them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum

import onnx
from onnx import numpy_helper

from bisect_align.model.graph import Graph, Node

_DRAWS = frozenset({"RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike", "Multinomial", "Bernoulli"})


class Chance(Enum):
    """NONE: no draw. SEEDED: repeatable, but only by the first run of a session. FREE: differs at every run."""

    NONE = 0
    SEEDED = 1
    FREE = 2


def chance_of(node: Node, graph: Graph) -> Chance:
    """What a node draws, bodies and local functions included.

    A Dropout whose training_mode is computed counts as training: whether it draws is not known before it runs.
    """
    functions = {(function.domain, function.name): function for function in graph.functions}
    return _worst(node.proto, graph.constants, functions)


def _worst(
    node: onnx.NodeProto,
    constants: Mapping[str, onnx.TensorProto],
    functions: Mapping[tuple[str, str], onnx.FunctionProto],
) -> Chance:
    key = ("" if node.domain == "ai.onnx" else node.domain, node.op_type)
    if key in functions:
        inner = functions[key].node
        # A function sees none of the outer constants.
        return _worst_of(inner, _constants(inner), {k: f for k, f in functions.items() if k != key})
    if key[0] == "" and (node.op_type in _DRAWS or (node.op_type == "Dropout" and _trains(node, constants))):
        return Chance.SEEDED if any(attribute.name == "seed" for attribute in node.attribute) else Chance.FREE
    found = Chance.NONE
    for attribute in node.attribute:
        for body in [attribute.g, *attribute.graphs] if attribute.type in (attribute.GRAPH, attribute.GRAPHS) else ():
            known = {**constants, **_constants(body.node), **{tensor.name: tensor for tensor in body.initializer}}
            found = max(found, _worst_of(body.node, known, functions), key=lambda chance: chance.value)
    return found


def _worst_of(
    nodes: Iterable[onnx.NodeProto],
    constants: Mapping[str, onnx.TensorProto],
    functions: Mapping[tuple[str, str], onnx.FunctionProto],
) -> Chance:
    return max((_worst(node, constants, functions) for node in nodes), key=lambda chance: chance.value, default=Chance.NONE)


def _trains(dropout: onnx.NodeProto, constants: Mapping[str, onnx.TensorProto]) -> bool:
    if len(dropout.input) < 3 or not dropout.input[2]:
        return False
    given = constants.get(dropout.input[2])
    return given is None or bool(numpy_helper.to_array(given).any())


def _constants(nodes: Iterable[onnx.NodeProto]) -> dict[str, onnx.TensorProto]:
    return {
        node.output[0]: attribute.t
        for node in nodes
        if node.op_type == "Constant"
        for attribute in node.attribute
        if attribute.name == "value"
    }
