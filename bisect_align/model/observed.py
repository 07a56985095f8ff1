"""The graph condensed to observed tensors."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from bisect_align.model.graph import Graph


@dataclass(frozen=True, slots=True)
class ObservedGraph:
    """order: observed tensors in topological order. parents: observed tensors on the boundary of each one's region (graph
    inputs left out), children: the reverse; both in topological order.
    """

    order: tuple[str, ...]
    parents: Mapping[str, tuple[str, ...]]
    children: Mapping[str, tuple[str, ...]]

    @property
    def deepest(self) -> tuple[str, ...]:
        """Those from which no other observed tensor is computed."""
        return tuple(name for name in self.order if not self.children[name])


def observe(graph: Graph, observed: Collection[str]) -> ObservedGraph:
    """Condense the graph to the observed node outputs (names of inputs and constants, and unknown ones, are left out).

    Nearest observed ancestors are found once a node and shared along chains, so that a chain of n nodes costs O(n).
    """
    chosen = {name for name in observed if name in graph.order}
    order = tuple(name for name in graph.tensors if name in chosen)
    nearest: list[frozenset[str]] = []
    for node in graph.nodes:
        direct = frozenset(name for name in node.reads if name in chosen)
        above = {
            nearest[source]
            for name in node.reads
            if name not in chosen
            and name not in graph.settled
            and (source := graph.producer.get(name)) is not None
            and nearest[source]
        }
        if direct or len(above) != 1:
            nearest.append(direct.union(*above))
        else:
            nearest.append(above.pop())
    position = graph.order.__getitem__
    parents = {name: tuple(sorted(nearest[graph.producer[name]], key=position)) for name in order}
    children: dict[str, list[str]] = {name: [] for name in order}
    for name in order:
        for parent in parents[name]:
            children[parent].append(name)
    return ObservedGraph(order, parents, {name: tuple(below) for name, below in children.items()})
