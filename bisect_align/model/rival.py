"""The same graph with other nodes: what a guess about a target's operator is run as."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import onnx

from bisect_align.model.graph import Graph, Node
from bisect_align.model.scopes import captured


def with_nodes(graph: Graph, protos: Sequence[onnx.NodeProto], opset: int | None = None) -> Graph:
    """The graph's constants, functions and opset imports around these nodes (in topological order) instead of its own.

    opset: another version of the standard operators. Types are kept for what is no output of a node, since the nodes may make others.
    """
    nodes = tuple(
        Node(i, p.name, p.op_type, "" if p.domain == "ai.onnx" else p.domain, tuple(p.input), tuple(p.output), captured(p), p)
        for i, p in enumerate(protos)
    )
    made = tuple(name for node in nodes for name in node.makes)
    consumers: dict[str, tuple[int, ...]] = {}
    for node in nodes:
        for name in node.reads:
            consumers[name] = (*consumers.get(name, ()), node.index)
    return replace(
        graph,
        nodes=nodes,
        outputs=made,
        types={name: kind for name, kind in graph.types.items() if name not in made},
        type_protos={name: kind for name, kind in graph.type_protos.items() if name not in made},
        producer={name: node.index for node in nodes for name in node.makes},
        consumers=consumers,
        tensors=made,
        order={name: position for position, name in enumerate(made)},
        opsets=graph.opsets if opset is None else {**graph.opsets, "": opset},
    )
