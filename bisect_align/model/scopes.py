"""Names and scopes of bodies: what If, Loop and Scan read from outside."""

from __future__ import annotations

from collections.abc import Iterator

import onnx


def bodies(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """The node's graph attributes, in file order."""
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            yield attribute.g
        elif attribute.type == onnx.AttributeProto.GRAPHS:
            yield from attribute.graphs


def captured(node: onnx.NodeProto) -> tuple[str, ...]:
    """Outer tensors that the node's bodies read, nested bodies included, each once, in the order of first use."""
    names: dict[str, None] = {}
    for body in bodies(node):
        names.update(dict.fromkeys(free_names(body)))
    return tuple(names)


def free_names(body: onnx.GraphProto) -> tuple[str, ...]:
    """Names that a body reads and does not define: a name defined inside (input, initializer, node output) is its own."""
    own = {value.name for value in body.input}
    own.update(tensor.name for tensor in body.initializer)
    own.update(sparse.values.name for sparse in body.sparse_initializer)
    own.update(name for node in body.node for name in node.output)
    names: dict[str, None] = {}
    for node in body.node:
        names.update(dict.fromkeys(name for name in node.input if name))
        names.update(dict.fromkeys(captured(node)))
    names.update(dict.fromkeys(value.name for value in body.output if value.name))
    return tuple(name for name in names if name not in own)
