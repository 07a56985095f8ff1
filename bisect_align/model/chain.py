"""Fusable chains: tensors that a compiler may fold into one another, so that a file named after one holds another's value."""

from __future__ import annotations

from bisect_align.model.graph import Graph

CHAIN = 6  # tensors looked at on either side
SPAN = 10  # nodes between which branches may open and meet again


def below(graph: Graph, tensor: str, limit: int = CHAIN) -> tuple[str, ...]:
    """Tensors on which everything that reads `tensor` depends through one point: its chain downwards, nearest first.

    A single consumer continues the chain; several do where they meet again within ten nodes (x * sigmoid(x)).
    A graph output ends it: the target must hold that value.
    """
    found: list[str] = []
    current = tensor
    while len(found) < limit:
        if current in graph.outputs:
            break
        point = _meeting_point(graph, current)
        if point is None:
            break
        found.append(point)
        current = point
    return tuple(found)


def _meeting_point(graph: Graph, tensor: str) -> str | None:
    """The first tensor below through which all paths from `tensor` pass."""
    pending = set(graph.consumers.get(tensor, ()))
    done: set[int] = set()
    while pending and len(done) < SPAN:
        index = min(pending)  # topological: what it reads from this walk has been walked
        pending.discard(index)
        done.add(index)
        live = [m for m in graph.nodes[index].makes if m in graph.outputs or graph.consumers.get(m)]
        if not pending:
            return live[0] if len(live) == 1 else None
        if any(m in graph.outputs for m in live):
            return None
        pending |= {c for m in live for c in graph.consumers.get(m, ())} - done
    return None


def above(graph: Graph, tensor: str, limit: int = CHAIN) -> tuple[str, ...]:
    """Tensors whose chain downwards reaches `tensor`, nearest first."""
    found: list[str] = []
    seen = {tensor}
    frontier = [tensor]
    while frontier and len(found) < limit:
        upper: list[str] = []
        for name in frontier:
            producer = graph.producer.get(name)
            if producer is None:
                continue
            for x in graph.nodes[producer].reads:
                if x in seen or x in graph.inputs or graph.is_constant(x):
                    continue
                seen.add(x)
                upper.append(x)
        found += [x for x in upper if tensor in below(graph, x)]
        frontier = upper if len(seen) < 4 * limit else []
    return tuple(found[:limit])
