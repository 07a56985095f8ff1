"""Topological order of nodes: files need not be sorted, and some converters write them so."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence

import onnx

from bisect_align.errors import ModelError
from bisect_align.model.scopes import captured


def topological(nodes: Sequence[onnx.NodeProto], needs: Sequence[Iterable[str]], maker: Mapping[str, int]) -> list[int]:
    """File positions in topological order; of the nodes that are ready, the first of the file comes first.

    needs: names that each node reads; maker: position of the node that makes a name. Raises ModelError for a cycle.
    """
    waiting = [0] * len(nodes)
    users: list[list[int]] = [[] for _ in nodes]
    for at, names in enumerate(needs):
        for source in {maker[name] for name in names if name in maker}:
            waiting[at] += 1
            users[source].append(at)
    ready = [at for at, count in enumerate(waiting) if count == 0]
    order: list[int] = []
    while ready:
        at = heapq.heappop(ready)
        order.append(at)
        for user in users[at]:
            waiting[user] -= 1
            if waiting[user] == 0:
                heapq.heappush(ready, user)
    if len(order) < len(nodes):
        at = next(at for at, count in enumerate(waiting) if count)
        raise ModelError("the graph has a cycle", where=spoken(nodes[at], at), hint="a node needs its own output")
    return order


def sorted_nodes(nodes: Sequence[onnx.NodeProto]) -> list[onnx.NodeProto]:
    """The nodes in topological order, or as they stand where they have none."""
    maker = {name: at for at, node in enumerate(nodes) for name in node.output if name}
    needs = [(*node.input, *captured(node)) for node in nodes]
    try:
        return [nodes[at] for at in topological(nodes, needs, maker)]
    except ModelError:
        return list(nodes)


def spoken(node: onnx.NodeProto, at: int) -> str:
    """How to speak of a node of the file."""
    return f"node {node.name!r} ({node.op_type})" if node.name else f"node {at} of the file ({node.op_type})"
